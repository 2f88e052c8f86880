"""Forward and backward passes: keywords of the era, and losses that come back as they were reported."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from mcore_compat.detect import Facts
from mcore_compat.legacy.changes._change import Change, always, module
from mcore_compat.legacy.warn import told
from mcore_compat.runtime.patches import Patch
from mcore_compat.seams.loss_scale import seam as loss_factor
from mcore_compat.seams.parallel import groups

_HOME = "megatron.core.pipeline_parallel.schedules"
_STABLE = "mcore_compat.forward_backward(chunks, microbatches, loss, optimizer=optimizer)"
# Shapes of what pipeline stages exchange; no release since 0.4.0 takes them.
_SHAPES = ("hidden_size", "input_shapes", "tensor_shape", "dtype")


def era_schedule(schedule: Any) -> Any:
    """A schedule that takes the era's keywords and leaves reported losses alone."""
    return _with_own_losses(_with_shapes(schedule))


def _keywords(attributes: tuple[str, ...]) -> Iterator[Patch]:
    yield from _wrapped(_with_shapes, "keywords of the era")


def _losses(attributes: tuple[str, ...]) -> Iterator[Patch]:
    yield from _wrapped(_with_own_losses, "losses are scaled in place")


def _wrapped(wrap: Callable[[Any], Any], why: str) -> Iterator[Patch]:
    original = module(_HOME).get_forward_backward_func

    @functools.wraps(original)
    def get_forward_backward_func(*args: Any, **kwargs: Any) -> Any:
        return wrap(original(*args, **kwargs))

    yield Patch(module(_HOME), "get_forward_backward_func", get_forward_backward_func, why)


def _with_shapes(schedule: Any) -> Any:
    @functools.wraps(schedule)
    def run(**keywords: Any) -> Any:
        shapes = {name: keywords.pop(name) for name in _SHAPES if name in keywords}
        if not shapes:
            return schedule(**keywords)
        told(f"forward_backward_func({', '.join(f'{name}=' for name in shapes)})", _STABLE)
        with _shaped(keywords["model"], shapes):
            return schedule(**keywords)

    return run


@contextmanager
def _shaped(model: Any, shapes: Mapping[str, Any]) -> Iterator[None]:
    """The configuration says what the keywords said: a hidden size, and that shapes travel with the tensors."""
    config = module("megatron.core.utils").get_model_config(model[0] if _is_list(model) else model)
    wanted: dict[str, Any] = {"variable_seq_lengths": True} if shapes.get("input_shapes") is not None else {}
    if shapes.get("hidden_size") and not config.hidden_size:
        wanted["hidden_size"] = shapes["hidden_size"]
    before = {name: vars(config)[name] for name in wanted if name in vars(config)}
    vars(config).update(wanted)
    try:
        yield
    finally:
        for name in wanted:
            vars(config).pop(name)
        vars(config).update(before)


def _is_list(model: Any) -> bool:
    return isinstance(model, list | tuple | torch.nn.ModuleList)


def _with_own_losses(schedule: Any) -> Any:
    @functools.wraps(schedule)
    def run(*, forward_step_func: Any, **keywords: Any) -> Any:
        return schedule(forward_step_func=_scaled_apart(forward_step_func), **keywords)

    return run


def _scaled_apart(forward_step: Any) -> Any:
    @functools.wraps(forward_step)
    def step(*args: Any, **kwargs: Any) -> Any:
        output, loss_function = forward_step(*args, **kwargs)
        return output, functools.partial(_copied, loss_function)

    return step


def _copied(loss_function: Any, *args: Any, **kwargs: Any) -> Any:
    result = loss_function(*args, **kwargs)
    if not isinstance(result, tuple) or not isinstance(result[0], torch.Tensor):
        return result
    # The era's caller multiplies by the context-parallel size itself; where the schedule does, that is taken back.
    return result[0] / loss_factor.bind()(groups().cp.size), *result[1:]


def _in_place(facts: Facts) -> bool:
    places = (f"{_HOME}:forward_step", f"{_HOME}:forward_step_calc_loss")
    return any("output_tensor /= num_microbatches" in (facts.source(place) or "") for place in places)


CHANGES = (
    Change("schedules take hidden_size, input_shapes, tensor_shape and dtype", "", always, _keywords),
    Change("a reported loss is not divided by the number of microbatches", "0.6.0", _in_place, _losses),
)
