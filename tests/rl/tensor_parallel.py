"""Programs that run in every rank of a tensor-parallel group of two (see ``tests.launch``)."""

from __future__ import annotations

import time

import torch
import torch.distributed as dist
from torch.distributed.nn.functional import all_gather

from mcore_compat.contracts import VocabShard
from mcore_compat.rl.logprobs import logprobs_and_entropy
from tests.rl.memory import peak_bytes

REAL, PADDED = 50, 64


def _shard(padded: int, real: int) -> VocabShard:
    dist.init_process_group("gloo")
    width = padded // dist.get_world_size()
    start = dist.get_rank() * width
    return VocabShard(start, start + width, real, dist.group.WORLD)


def padded_vocabulary() -> dict[str, float]:
    """Case C08: 50 rows padded to 64; errors against a dense float64 softmax over the 50."""
    vocab = _shard(PADDED, REAL)
    generator = torch.Generator().manual_seed(0)
    weight = torch.zeros(PADDED, 32)
    weight[:REAL] = 0.3 * torch.randn(REAL, 32, generator=generator)
    hidden = torch.randn(2, 3, 32, generator=generator)
    targets = torch.randint(REAL, (2, 3), generator=generator)
    logits = (hidden @ weight.T)[..., vocab.start : vocab.stop].contiguous().requires_grad_()
    before = logits.detach().clone()
    logprob, entropy = logprobs_and_entropy(logits, targets, vocab)
    (2.0 * logprob + 3.0 * entropy).sum().backward()

    dense = (hidden.double() @ weight[:REAL].double().T).requires_grad_()
    reference = dense.log_softmax(-1)
    disorder = -(reference.exp() * reference).sum(-1)
    wanted = reference.gather(-1, targets[..., None])[..., 0]
    (2.0 * wanted + 3.0 * disorder).sum().backward()
    gradient = torch.nn.functional.pad(dense.grad, (0, PADDED - REAL))[..., vocab.start : vocab.stop]
    return {
        "logprob": (logprob - wanted).abs().max().item(),
        "entropy": (entropy - disorder).abs().max().item(),
        "gradient": (logits.grad - gradient).abs().max().item(),
        "touched": (logits.detach() - before).abs().max().item(),
    }


def rank_of_padding_only() -> list[float]:
    """The second rank holds no real column at all."""
    vocab = _shard(padded=16, real=8)
    logits = torch.linspace(-3, 3, 8)[None, None].clone().requires_grad_()
    if vocab.start >= vocab.size:
        logits = torch.full((1, 1, 8), 100.0, requires_grad=True)
    logprob, entropy = logprobs_and_entropy(logits, torch.tensor([[2]]), vocab)
    (logprob + entropy).sum().backward()
    return [logprob.item(), entropy.item(), logits.grad.abs().sum().item()]


def plain(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What one writes without thinking: gather all columns, then log_softmax."""
    full = torch.cat(all_gather(logits), dim=-1)
    logp = full.log_softmax(-1)
    return logp.gather(-1, targets[..., None])[..., 0], -(logp.exp() * logp).sum(-1)


def race(rows: int, positions: int, columns: int, rounds: int) -> dict[str, float]:
    """Seconds and peak extra memory (in logits tensors) of both, forward and backward."""
    vocab = _shard(columns, columns)
    generator = torch.Generator().manual_seed(dist.get_rank())
    logits = torch.randn(rows, positions, columns // 2, generator=generator)
    targets = torch.randint(columns, (rows, positions), generator=torch.Generator().manual_seed(9))

    def ours(leaf: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return logprobs_and_entropy(leaf, targets, vocab)

    def reusing(leaf: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return logprobs_and_entropy(leaf, targets, vocab, reuse_logits=True)

    def gathering(leaf: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return plain(leaf, targets)

    def run(method: object, source: torch.Tensor) -> None:
        leaf = source.detach().requires_grad_()
        logprob, entropy = method(leaf)  # type: ignore[operator]
        (logprob.sum() - 0.01 * entropy.sum()).backward()

    def seconds(method: object) -> float:
        best = float("inf")
        for _ in range(rounds):
            dist.barrier()
            start = time.perf_counter()
            run(method, logits)
            best = min(best, time.perf_counter() - start)
        return best

    size = logits.numel() * logits.element_size()
    scratch = logits.clone()
    return {
        "plain": seconds(gathering),
        "ours": seconds(ours),
        "plain_memory": peak_bytes(lambda: run(gathering, logits)) / size,
        "ours_memory": peak_bytes(lambda: run(ours, logits)) / size,
        "reusing_memory": peak_bytes(lambda: run(reusing, scratch)) / size,
    }
