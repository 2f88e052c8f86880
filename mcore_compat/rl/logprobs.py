"""Log-probabilities and entropy of vocabulary-parallel logits, without gathering them.

Each tensor-parallel rank reduces its own columns to three numbers per token (largest logit, sum of
exponentials, sum of logit times exponential). Ranks exchange these [R, T] numbers only, and again nothing in
the backward pass. Columns are worked on in blocks that fit the cache, so the extra memory of the forward pass
is some [R, T] tensors and one block; that of the backward pass is the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch.autograd.function import once_differentiable

from mcore_compat.contracts import VocabShard
from mcore_compat.errors import ConfigError

# Elements. A host block fits the cache, a device block is worth a kernel launch; a small input is cut into
# some blocks all the same, so that their memory stays a fraction of it.
_HOST_BLOCK, _DEVICE_BLOCK, _MIN_BLOCK, _MIN_BLOCKS = 1 << 16, 1 << 24, 1 << 13, 32


def logprobs_and_entropy(
    logits_RTV: torch.Tensor,
    targets_RT: torch.Tensor,
    vocab: VocabShard,
    *,
    temperature: float = 1.0,
    entropy: bool = True,
    reuse_logits: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probability of each target and entropy of its distribution, softmax(logits / temperature).

    Padding columns, those at or beyond ``vocab.size``, take no part. Both results are differentiable once.

    Args:
        logits_RTV: This rank's columns ``vocab.start`` to ``vocab.stop``, [R, T, V/tp]; fp32, bf16, fp16 or
            fp64. A layout that cannot be viewed as [R·T, V/tp] is copied first.
        targets_RT: int64 in [0, ``vocab.size``), same on every rank of ``vocab.group``.
        vocab: Which columns these are.
        temperature: Divides the logits.
        entropy: False saves that work; the entropy is then 0.
        reuse_logits: The backward pass writes the gradient into the memory of the logits instead of its own.
            Only for logits that nobody reads afterwards; where autograd itself still needs them, it raises.

    Returns:
        Log-probabilities and entropies in nats, [R, T], fp32 (fp64 for fp64 logits), the same on every rank.

    Raises:
        ConfigError: The logits do not have as many columns as ``vocab`` covers.
    """
    width = vocab.stop - vocab.start
    if logits_RTV.shape[-1] != width:
        raise ConfigError(
            f"logits have {logits_RTV.shape[-1]} columns; expected {width}, {vocab.start} to {vocab.stop}"
        )
    flat = logits_RTV.reshape(-1, width)
    logprob, disorder = _VocabParallel.apply(  # type: ignore[no-untyped-call]
        flat, targets_RT.reshape(-1), vocab, 1.0 / temperature, entropy, reuse_logits
    )
    return logprob.view(targets_RT.shape), disorder.view(targets_RT.shape)


class _VocabParallel(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        logits_NV: torch.Tensor,
        targets_N: torch.Tensor,
        vocab: VocabShard,
        scale: float,
        entropy: bool,
        reuse_logits: bool,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        real = min(max(vocab.size - vocab.start, 0), logits_NV.shape[1])
        local_N, mine_N = _locate(targets_N, vocab.start, real)
        moments = _local_moments(logits_NV[:, :real], scale, entropy)
        target_N = logits_NV.gather(1, local_N[:, None])[:, 0].to(moments.dtype) * scale
        logprob, disorder, log_norm = _combine(moments, torch.where(mine_N, target_N, 0.0), mine_N, vocab)
        ctx.save_for_backward(logits_NV, local_N, mine_N, log_norm, disorder)
        ctx.real, ctx.scale, ctx.reuse_logits = real, scale, reuse_logits
        ctx.set_materialize_grads(False)
        if not entropy:
            disorder.zero_()
            ctx.mark_non_differentiable(disorder)
        return logprob, disorder

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, grad_logprob: torch.Tensor | None, grad_entropy: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, None, None, None, None, None]:
        if grad_logprob is None and grad_entropy is None:
            return None, None, None, None, None, None
        logits_NV, local_N, mine_N, log_norm, disorder = ctx.saved_tensors
        pull_N = torch.zeros_like(log_norm) if grad_logprob is None else grad_logprob * ctx.scale
        push_N = None if grad_entropy is None else grad_entropy * ctx.scale
        out = logits_NV if ctx.reuse_logits else torch.empty_like(logits_NV)
        out[:, ctx.real :] = 0
        at_target_N = torch.where(mine_N, pull_N, 0.0)
        for rows in _blocks(logits_NV[:, : ctx.real]):
            logp = logits_NV[rows, : ctx.real].to(log_norm.dtype).mul(ctx.scale).sub_(log_norm[rows, None])
            weight = pull_N[rows, None]
            if push_N is not None:
                weight = (logp + disorder[rows, None]).mul_(push_N[rows, None]).add_(weight)
            grad = logp.exp_().mul_(weight).neg_()
            grad.scatter_add_(1, local_N[rows, None], at_target_N[rows, None])
            out[rows, : ctx.real] = grad
        return out, None, None, None, None, None


def _blocks(logits_NV: torch.Tensor) -> Iterator[slice]:
    """Row ranges of about one block each; none where there are no columns."""
    rows, width = logits_NV.shape
    if width:
        largest = _HOST_BLOCK if logits_NV.device.type == "cpu" else _DEVICE_BLOCK
        size = min(largest, max(logits_NV.numel() // _MIN_BLOCKS, _MIN_BLOCK))
        step = max(size // width, 1)
        yield from (slice(start, start + step) for start in range(0, rows, step))


def _locate(targets_N: torch.Tensor, start: int, real: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Column of each target among the local ones (0 where it is on another rank), and whether it is here."""
    local = targets_N - start
    mine = (local >= 0) & (local < real)
    return torch.where(mine, local, 0), mine


def _local_moments(logits_NV: torch.Tensor, scale: float, entropy: bool) -> torch.Tensor:
    """[3, N]: largest scaled logit m, sum of exp(x - m), sum of (x - m) · exp(x - m)."""
    dtype = torch.promote_types(logits_NV.dtype, torch.float32)
    moments = torch.zeros(3, logits_NV.shape[0], dtype=dtype, device=logits_NV.device)
    # Finite, so that a rank with padding only adds 0 and not the NaN of infinity times 0.
    moments[0] = torch.finfo(dtype).min
    for rows in _blocks(logits_NV):
        block = logits_NV[rows]
        top = block.amax(dim=1).to(dtype) * scale
        shifted = block.to(dtype).mul(scale).sub_(top[:, None])
        weights = shifted.exp()
        moments[0, rows] = top
        moments[1, rows] = weights.sum(dim=1)
        if entropy:
            moments[2, rows] = weights.mul_(shifted).sum(dim=1)
    return moments


def _combine(
    moments: torch.Tensor, target_N: torch.Tensor, mine_N: torch.Tensor, vocab: VocabShard
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Log-probability, entropy and log of the normaliser over all ranks."""
    top, total, weighted = moments
    peak = top.clone()
    if vocab.group is not None:
        dist.all_reduce(peak, op=dist.ReduceOp.MAX, group=vocab.group)
    shift = top - peak
    factor = shift.exp()
    sums = torch.stack([total * factor, (weighted + shift * total) * factor, torch.where(mine_N, target_N - peak, 0.0)])
    if vocab.group is not None:
        dist.all_reduce(sums, group=vocab.group)
    log_total = sums[0].log()
    return sums[2] - log_total, log_total - sums[1] / sums[0], peak + log_total
