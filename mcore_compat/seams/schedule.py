"""Forward and backward passes over microbatches, with one convention for losses on every release."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.distributed as dist

from mcore_compat.contracts import Batch, Groups, LossFunction, LossTerm, OutputFunction
from mcore_compat.errors import ConfigError, NumericalError
from mcore_compat.runtime.device import device
from mcore_compat.seams._arguments import require_chunks, require_microbatches, require_optimizer, require_term
from mcore_compat.seams._memory import fill, require_here
from mcore_compat.seams.config import get_model_config
from mcore_compat.seams.gradients import seam as gradient_storage
from mcore_compat.seams.loss_scale import seam as loss_factor
from mcore_compat.seams.parallel import groups
from mcore_compat.seams.param_sync import seam as param_sync
from mcore_compat.seams.sequence_length import seam as sequence_length

_LOSS = ""  # among the names of metrics, one of which may be "loss"
# (model chunk, microbatch) -> output of the chunk
Forward = Callable[[Any, Batch], torch.Tensor]


@dataclass(frozen=True)
class ForwardBackward:
    """What :func:`forward_backward` found, the same on every rank.

    Attributes:
        loss: Σ sum / Σ count over all microbatches and data and context-parallel ranks.
        count: Σ count.
        metrics: Global means of the loss's metrics.
    """

    loss: float
    count: float
    metrics: Mapping[str, float]


def gpt_forward(model: Any, microbatch: Batch) -> torch.Tensor:
    """Call a GPT model on ``tokens`` [R, T] int64, right-padded, with causal attention.

    Returns:
        Logits [R, T, V/tp] or values [R, T] on the last stage, hidden states elsewhere.
    """
    tokens = microbatch["tokens"]
    positions, mask = _causal(tokens.shape[1])
    output: torch.Tensor = model(tokens, positions.expand_as(tokens), mask)
    return output.squeeze(-1) if output.shape[-1] == 1 else output


def forward_backward(
    chunks: Sequence[Any],
    microbatches: Sequence[Batch],
    loss: LossFunction,
    *,
    optimizer: Any = None,
    forward: Forward = gpt_forward,
) -> ForwardBackward:
    """Accumulate the gradient of the true mean Σ sum / Σ count into the wrapper's buffers.

    Gradients are reduced over data-parallel ranks and ready for ``optimizer.step()``. Every rank passes the same number
    of microbatches of the same shape. Training hooks (``no_sync``, gradient and parameter sync, finalisation, loss
    scaling) are set for the duration of the call only, so models that share a config do not act on each other.

    Args:
        chunks: From :func:`mcore_compat.wrap_data_parallel`.
        microbatches: This data-parallel rank's; each maps names to tensors with the same number of rows.
        loss: Called on the last stage with the output and the microbatch.
        optimizer: Needed for fp16 loss scaling and for ``overlap_param_gather``.
        forward: How to call a chunk.

    Raises:
        ConfigError: Arguments of another kind, gradients of an earlier call, data-parallel ranks with other
            microbatches, or a config that wants upstream's own per-token normalisation.
        NumericalError: The loss terms count nothing at all, or the loss is not finite (fp16 skips such steps itself).
    """
    here = groups()
    _check_arguments(chunks, microbatches, optimizer)
    terms: list[LossTerm] = []
    # Dividing by the token positions of a microbatch keeps fp16 gradients at their usual size.
    slots = float(microbatches[0]["tokens"].numel())

    def reduce(term: LossTerm) -> tuple[torch.Tensor, torch.Tensor]:
        require_term(term, terms)
        terms.append(_detached(term))
        return term.sum / slots, term.count

    def finalize(model: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        _upstream_finalize()(model, *args, **kwargs)
        total = _total_count(terms, slots * len(microbatches), here)
        received = loss_factor.bind()(here.cp.size) / (slots * len(microbatches) * here.dp_cp.size)
        _scale_gradients(model, 1.0 / (received * total))

    with _training_hooks(chunks, optimizer, finalize):
        _run(chunks, microbatches, lambda output, batch: reduce(loss(output, batch)), forward, training=True)
    return _finite(_report(terms, here), optimizer)


def forward_only(
    chunks: Sequence[Any],
    microbatches: Sequence[Batch],
    output: OutputFunction,
    *,
    forward: Forward = gpt_forward,
) -> list[dict[str, torch.Tensor]]:
    """Run without gradients.

    Args:
        chunks: Wrapped or bare model chunks; their training or evaluation mode is left alone.
        microbatches: As for :func:`forward_backward`.
        output: Called on the last stage with the chunk's output and the microbatch.
        forward: How to call a chunk.

    Returns:
        What ``output`` returned, per microbatch; empty on other stages than the last.
    """
    require_microbatches(microbatches)
    require_here(chunks, "forward_only", "params")
    kept: list[dict[str, torch.Tensor]] = []

    def keep(result: torch.Tensor, microbatch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        kept.append(dict(output(result, microbatch)))
        return torch.zeros((), device=result.device), torch.zeros((), device=result.device)

    with torch.no_grad():
        _run(chunks, microbatches, keep, forward, training=False)
    return kept


def _check_arguments(chunks: Sequence[Any], microbatches: Sequence[Batch], optimizer: Any) -> None:
    require_chunks(chunks, wrapped=True)
    if optimizer is not None:
        require_optimizer(optimizer, chunks)
    require_here(chunks, "forward_backward", "params", "grads")
    require_microbatches(microbatches)
    fill(chunks)


def _run(
    chunks: Sequence[Any],
    microbatches: Sequence[Batch],
    reduce: Callable[[torch.Tensor, Batch], tuple[torch.Tensor, torch.Tensor]],
    forward: Forward,
    *,
    training: bool,
) -> None:
    from megatron.core.pipeline_parallel import get_forward_backward_func

    rows, length = microbatches[0]["tokens"].shape

    def forward_step(data: Iterator[Batch], model: Any, *unused: Any) -> tuple[torch.Tensor, Any]:
        microbatch = next(data)
        # The second element is upstream's "data", which nobody reads: what a loss reports is kept by ``reduce``.
        return forward(model, microbatch), lambda output: reduce(output, microbatch)

    several = len(chunks) > 1
    get_forward_backward_func()(
        forward_step_func=forward_step,
        data_iterator=[iter(microbatches) for _ in chunks] if several else iter(microbatches),
        model=list(chunks) if several else chunks[0],
        num_microbatches=len(microbatches),
        seq_length=sequence_length.bind()(length, groups().cp.size),
        micro_batch_size=rows,
        forward_only=not training,
    )


@contextmanager
def _training_hooks(chunks: Sequence[Any], optimizer: Any, finalize: Callable[..., None]) -> Iterator[None]:
    config = get_model_config(chunks[0])
    if getattr(config, "calculate_per_token_loss", False):
        raise ConfigError(
            "TransformerConfig.calculate_per_token_loss is set, but forward_backward normalises by tokens itself",
            hint="leave calculate_per_token_loss out",
        )
    hooks = {"finalize_model_grads_func": finalize, **_sync_hooks(chunks, optimizer)}
    before = {name: getattr(config, name) for name in hooks}
    vars(config).update(hooks)
    try:
        yield
    finally:
        vars(config).update(before)


def _sync_hooks(chunks: Sequence[Any], optimizer: Any) -> dict[str, Any]:
    settings = optimizer.data_parallel if optimizer is not None else None
    several = len(chunks) > 1
    no_sync = [chunk.no_sync for chunk in chunks]
    grad_sync = (
        [chunk.start_grad_sync for chunk in chunks] if several and settings and settings.overlap_grad_reduce else None
    )
    gather = several and settings is not None and settings.overlap_param_gather
    starts = param_sync.bind()().hooks(chunks, optimizer.inner) if gather else []
    return {
        "no_sync_func": no_sync if several else no_sync[0],
        "grad_sync_func": grad_sync,
        "param_sync_func": starts or None,
        "grad_scale_func": optimizer.scale_loss if optimizer is not None and optimizer.scales_loss else None,
    }


def _upstream_finalize() -> Callable[..., None]:
    from megatron.core.distributed import finalize_model_grads

    upstream: Callable[..., None] = finalize_model_grads
    return upstream


def _scale_gradients(chunks: Sequence[Any], factor: float) -> None:
    storage = gradient_storage.bind()
    for chunk in chunks:
        for gradients in storage(chunk):
            gradients.mul_(factor)


def _detached(term: LossTerm) -> LossTerm:
    metrics = {name: (total.detach(), count.detach()) for name, (total, count) in term.metrics.items()}
    return LossTerm(term.sum.detach().clone(), term.count.detach(), metrics)


def _total_count(terms: Sequence[LossTerm], positions: float, here: Groups) -> float:
    """Σ count; ``positions``: what this rank's gradients were divided by, which has to be the same on all ranks."""
    sums = torch.tensor([0.0, positions, positions**2], dtype=torch.float64, device=device())
    for term in terms:
        sums[0] += term.count
    if here.is_last_stage and here.dp_cp.size > 1:
        dist.all_reduce(sums, group=here.dp_cp.handle)
    if here.pp.size > 1:
        dist.broadcast(sums, src=here.pp.ranks[-1], group=here.pp.handle)
    total, first, second = map(float, sums.tolist())
    if not math.isclose(first**2, second * here.dp_cp.size, rel_tol=1e-13):
        raise ConfigError(
            "data-parallel ranks gave other numbers or shapes of microbatches than this one",
            hint="pad them to one shape; where a rank has fewer, add some whose loss mask is empty",
        )
    if not total > 0:
        raise NumericalError("the loss of this step counts no tokens on any rank", hint="check the loss masks")
    return total


def _report(terms: Sequence[LossTerm], here: Groups) -> ForwardBackward:
    sums = _sums(terms, here) if here.is_last_stage else {}
    if here.pp.size > 1:
        box = [sums]
        dist.broadcast_object_list(box, src=here.pp.ranks[-1], group=here.pp.handle)
        sums = box[0]
    means = {name: total / count if count else 0.0 for name, (total, count) in sums.items()}
    return ForwardBackward(loss=means.pop(_LOSS), count=sums[_LOSS][1], metrics=means)


def _finite(found: ForwardBackward, optimizer: Any) -> ForwardBackward:
    if not math.isfinite(found.loss) and not (optimizer is not None and optimizer.scales_loss):
        raise NumericalError(
            f"the loss of this step is {found.loss}", hint="look at what the loss is computed from before the step"
        )
    return found


def _sums(terms: Sequence[LossTerm], here: Groups) -> dict[str, tuple[float, float]]:
    names = [_LOSS, *terms[0].metrics]
    rows = [[(term.sum, term.count), *(term.metrics[name] for name in names[1:])] for term in terms]
    table = _table(rows)
    if here.dp_cp.size > 1:
        dist.all_reduce(table, group=here.dp_cp.handle)
    return {name: (total, count) for name, (total, count) in zip(names, table.tolist(), strict=True)}


def _table(rows: Sequence[Sequence[tuple[torch.Tensor, torch.Tensor]]]) -> torch.Tensor:
    """Sums over microbatches: fp64 [metrics, 2] of (sum, count)."""
    stacked = [torch.stack([torch.stack([t.double().to(device()) for t in pair]) for pair in row]) for row in rows]
    return torch.stack(stacked).sum(dim=0)


@lru_cache(maxsize=16)
def _causal(length: int) -> tuple[torch.Tensor, torch.Tensor]:
    positions = torch.arange(length, device=device()).unsqueeze(0)
    mask = torch.ones(length, length, dtype=torch.bool, device=device()).triu(1)
    return positions, mask[None, None]
