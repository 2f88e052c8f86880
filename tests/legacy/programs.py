"""Programs that run in a process of their own."""

from __future__ import annotations

import builtins
import functools
import importlib
import runpy
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import mcore_compat
from mcore_compat import legacy
from mcore_compat.cli._app import app
from mcore_compat.legacy.served import ServedModules

Curve = list[list[float]]


def curves(script: str, era: str | None, layouts: list[list[int]]) -> list[Curve]:
    """Train with the framework in that file, of an era or rewritten for the stable API, in one layout after another.

    Args:
        script: The file.
        era: ``None``: rewritten.
        layouts: Tensor- and pipeline-parallel sizes; the rest of the ranks is data-parallel.
    """
    warnings.simplefilter("ignore")
    if era:
        legacy.install(era)
    else:
        mcore_compat.prepare()
    main = runpy.run_path(script)["main"]
    return [_curve(main, *layout) for layout in layouts]


def _curve(main: Callable[..., Curve], tensor: int, pipeline: int) -> Curve:
    try:
        return main(4, tensor, pipeline)
    finally:
        mcore_compat.reset()


def imports(era: str, names: list[str]) -> dict[str, str]:
    """Import ``module:name`` for each; returns what came, or the error."""
    warnings.simplefilter("ignore")
    legacy.install(era)
    return {name: _imported(name) for name in names}


def _imported(place: str) -> str:
    module, _, name = place.partition(":")
    try:
        value: Any = getattr(importlib.import_module(module), name)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return str(getattr(value, "__module__", ""))


def command(*arguments: str) -> None:
    """``mcore-compat ARGUMENTS``."""
    app(list(arguments))


def warned() -> list[str]:
    """Use names of the era twice each; returns the warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        legacy.install("0.4")
        for _ in range(2):
            from megatron.timers import DummyTimer
            from megatron.utils import print_rank_0

            assert DummyTimer
            print_rank_0("twice")
    return [str(warning.message) for warning in caught if warning.category is legacy.LegacyUse]


def taken_back() -> dict[str, bool]:
    """Install and uninstall; compares what is there with what was there before."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare()
    places = {
        "megatron.core.utils:get_model_config",
        "megatron.core.parallel_state:initialize_model_parallel",
        "megatron.core.pipeline_parallel:get_forward_backward_func",
        "megatron.core.distributed:DistributedDataParallel.__init__",
        "megatron.core.distributed:DistributedDataParallel.zero_grad_buffer",
    }
    before = {place: _value(place) for place in places}
    legacy.install("0.4")
    changed = {place for place in places if _value(place) is not before[place]}
    legacy.uninstall()
    same = all(_value(place) is before[place] for place in places)
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    config = mcore_compat.transformer_config(num_layers=1, hidden_size=8, num_attention_heads=1)
    chunks = mcore_compat.gpt_model(config, vocab_size=8, max_sequence_length=4)
    wrapped = mcore_compat.wrap_data_parallel(chunks, config)
    return {"changed": len(changed) >= 3, "same": same, "wraps": len(wrapped) == 1, "absent": _absent()}


def untouched() -> dict[str, Any]:
    """Names of Megatron's modules that are other objects in legacy mode, and what stands in the way of an import."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare()
    importlib.import_module("megatron.core.models.gpt")
    importlib.import_module("megatron.core.distributed")
    before = {(module, name): value for module in _loaded() for name, value in vars(module).items()}
    hooks = [builtins.__import__, *sys.path_hooks, *sys.meta_path]
    legacy.install("0.4")
    other = [
        f"{module.__name__}.{name}" for (module, name), value in before.items() if vars(module).get(name) is not value
    ]
    *others, finder = [builtins.__import__, *sys.path_hooks, *sys.meta_path]
    absent = ("megatron.core.nothing", "megatron.core.transformer", "json.nothing")
    return {
        "other": other,
        "same": len(before) - len(other),
        "hooks": others == hooks and type(finder) is ServedModules,
        "answers": [finder.find_spec(name, None) for name in absent],
    }


def _loaded() -> list[Any]:
    return [module for name, module in list(sys.modules.items()) if name.partition(".")[0] == "megatron" and module]


def _value(place: str) -> Any:
    module, _, names = place.partition(":")
    value: Any = importlib.import_module(module)
    for name in names.split("."):
        value = vars(value)[name]
    return value


def _absent() -> bool:
    try:
        importlib.import_module("megatron.timers")
    except ModuleNotFoundError:
        return True
    return False


def served_again() -> dict[str, Any]:
    """On a newer release: what 0.6 had, beside what took its place there."""
    warnings.simplefilter("ignore")
    legacy.install("0.6")
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    return {"clip": _clipped(), "model": _model(), "rates": _rates()}


def _clipped() -> list[list[float]]:
    """Norm and first gradient: clipped by the call of 0.6, and by the two of later releases."""
    import torch
    from megatron.core.optimizer import clip_grads

    results = []
    for clip in (clip_grads.clip_grad_norm_fp32, _clip_in_two):
        parameter = torch.nn.Parameter(torch.zeros(3))
        parameter.grad = torch.tensor([3.0, 0.0, 4.0])
        norm = clip([parameter], [parameter.grad.clone()], 1.0, model_parallel_group=mcore_compat.groups().mp.handle)
        results.append([float(norm), float(parameter.grad[0])])
    return results


def _clip_in_two(parameters: Any, grads: Any, max_norm: float, model_parallel_group: Any) -> float:
    from megatron.core.optimizer import clip_grads

    norm = clip_grads.get_grad_norm_fp32(grads, 2.0, model_parallel_group)
    clip_grads.clip_grad_by_total_norm_fp32(parameters, max_norm, norm)
    return float(norm)


def _model() -> dict[str, Any]:
    from megatron.training import get_model
    from megatron.training.global_vars import set_args

    config = _small()
    flags = {"overlap_grad_reduce": False, "use_distributed_optimizer": True}
    set_args(SimpleNamespace(**flags, accumulate_allreduce_grads_in_fp32=True))
    kind = ModelType()
    (chunk,) = get_model(lambda pre_process, post_process: _gpt(config), kind)
    (bare,) = get_model(lambda pre_process, post_process: _gpt(config), wrap_with_ddp=False)
    return {
        "wrapped": type(chunk).__name__,
        "sharded": chunk.ddp_config.use_distributed_optimizer,
        "kind": chunk.module.model_type is kind,
        "bare": type(bare).__name__,
    }


class ModelType:
    """Any object: the program's own."""


def _small() -> Any:
    return mcore_compat.transformer_config(num_layers=1, hidden_size=8, num_attention_heads=1)


def _gpt(config: Any) -> Any:
    (chunk,) = mcore_compat.gpt_model(config, vocab_size=8, max_sequence_length=4)
    return chunk


def _rates() -> list[list[Any]]:
    """Ours and upstream's: rate and decay of two groups over the steps, for every style."""
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler as Upstream

    from mcore_compat.legacy.scheduler import OptimizerParamScheduler as Ours

    styles = [("constant", None, "constant"), ("linear", None, "linear"), ("cosine", None, "cosine")]
    styles += [("inverse-square-root", None, "linear")]
    styles += [("WSD", fall, "linear") for fall in ("linear", "cosine", "exponential")]
    return [[_course(kind, *style) for kind in (Ours, Upstream)] for style in styles]


def falls(fall: str) -> list[list[float]]:
    """Ours and upstream's, for one way down of ``WSD``."""
    warnings.simplefilter("ignore")
    mcore_compat.prepare()
    from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler as Upstream

    from mcore_compat.legacy.scheduler import OptimizerParamScheduler as Ours

    return [_course(kind, "WSD", fall, "linear") for kind in (Ours, Upstream)]


def _course(kind: Any, style: str, fall: str | None, growth: str) -> list[float]:
    groups: list[dict[str, Any]] = [{"wd_mult": 0.0, "lr_mult": 2.0}, {"max_lr": 0.5, "min_lr": 0.2}]
    start, end = (0.1, 0.1) if growth == "constant" else (0.1, 0.3)
    settings = (0.05, 1.0, 0.1, 3, 12, style, start, end, 8, growth)
    make = functools.partial(
        kind, SimpleNamespace(param_groups=groups), *settings, wsd_decay_steps=4, lr_wsd_decay_style=fall
    )
    scheduler = make()
    course = []
    for step in range(15):
        if step == 6:  # another one goes on from here
            saved = scheduler.state_dict()
            scheduler = make()
            scheduler.load_state_dict(saved)
        course += [float(group[name]) for group in groups for name in ("lr", "weight_decay")]
        scheduler.step(1)
    return course


def sharded() -> list[list[float]]:
    """Train in a wrapper with flat flags, by keyword and by position; returns the weights of this rank."""
    warnings.simplefilter("ignore")
    legacy.install("0.4")
    mcore_compat.init_parallel()
    from megatron.core import mpu
    from megatron.core.distributed import DistributedDataParallel as Wrapper

    config, group = _small(), mpu.get_data_parallel_group()
    flags = {"accumulate_allreduce_grads_in_fp32": True, "overlap_grad_reduce": False}
    named = functools.partial(Wrapper, data_parallel_group=group, use_distributed_optimizer=True, **flags)
    return [
        _trained(named(config, module=_seeded(config))),
        _trained(Wrapper(config, _seeded(config), group, True, False, True)),
    ]


def without_a_wrapper() -> str:
    """The error of an optimizer whose parameters no wrapper holds."""
    warnings.simplefilter("ignore")
    legacy.install("0.4")
    mcore_compat.init_parallel()
    import torch
    from megatron.optimizer import FP32Optimizer, get_param_groups

    from tests.contract.programs.toy import refusal

    groups = get_param_groups([torch.nn.Linear(2, 2)], None, None, 1.0)
    return refusal(lambda: FP32Optimizer(torch.optim.AdamW(groups, lr=0.1), 1.0, False, False, True, []))


def _seeded(config: Any) -> Any:
    mcore_compat.seed(1)
    return _gpt(config)


def _trained(chunk: Any) -> list[float]:
    import torch

    optimizer = mcore_compat.build_optimizer(mcore_compat.OptimizerSettings(lr=0.1), [chunk])
    for _ in range(2):
        mcore_compat.zero_grad([chunk], optimizer)
        tokens = torch.arange(4)[None] + mcore_compat.groups().dp.rank  # other data on every rank
        chunk(tokens, tokens, None).float().logsumexp(-1).sum().backward()
        chunk.finish_grad_sync()
        optimizer.step()
    return [float(parameter.detach().double().sum()) for parameter in chunk.parameters()]


def clipped_nothing() -> float:
    """The norm on a rank that has nothing, where new tensors are no place for a collective."""
    legacy.install("0.6")
    mcore_compat.init_parallel()
    import torch

    from mcore_compat.legacy.clip_grads import clip_grad_norm_fp32

    with torch.device("meta"):
        return clip_grad_norm_fp32([], [], 1.0, model_parallel_group=mcore_compat.groups().mp.handle)


def arguments() -> dict[str, Any]:
    """What the wrapper of ``get_model`` is told by arguments, and what comes of some that contradict the model."""
    warnings.simplefilter("ignore")
    legacy.install("0.12")
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    from tests.contract.programs.toy import refusal

    flags = {"use_distributed_optimizer": True, "overlap_grad_reduce": True, "overlap_param_gather": True}
    ddp = {"ddp_bucket_size": 100, "ddp_average_in_collective": True, "check_for_nan_in_loss_and_grad": True}
    given = {**flags, **ddp, "accumulate_allreduce_grads_in_fp32": False, "bf16": False, "ddp_num_buckets": None}
    config = vars(_wrapped(given).ddp_config)
    told = (*flags, "grad_reduce_in_fp32", "check_for_nan_in_grad", "bucket_size", "average_in_collective")
    refused = {
        name: refusal(functools.partial(_wrapped, {**given, name: True})) for name in ("bf16", "use_custom_fsdp")
    }
    return {"config": {name: config[name] for name in told}, **refused}


def _wrapped(given: dict[str, Any]) -> Any:
    from megatron.training import get_model
    from megatron.training.global_vars import set_args

    set_args(SimpleNamespace(**given))
    (chunk,) = get_model(lambda pre_process, post_process: _gpt(_small()))
    return chunk


def collections_of_groups() -> list[float]:
    """Train two steps as code for 0.14 that passes its own collections of groups; returns the gradient norms."""
    warnings.simplefilter("ignore")
    legacy.install("0.14")
    mcore_compat.init_parallel()
    mcore_compat.seed(1)
    import torch
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer
    from megatron.core.process_groups_config import GradCommProcessGroups, ModelCommProcessGroups

    here = mcore_compat.groups()
    model = ModelCommProcessGroups(tp=here.tp.handle, pp=here.pp.handle, ep=here.ep.handle, mp=here.mp.handle)
    model.tp_ep_pp = here.mp.handle
    grad = GradCommProcessGroups()
    grad.dp, grad.dp_cp, grad.expt_dp = here.dp.handle, here.dp_cp.handle, here.expert_dp.handle
    collections = {"grad_comm_pgs": grad, "model_comm_pgs": model}
    config = _small()
    ddp_config = DistributedDataParallelConfig(use_distributed_optimizer=True, grad_reduce_in_fp32=True)
    chunk = DistributedDataParallel(config, ddp_config, _gpt(config), **collections)
    settings = OptimizerConfig(optimizer="adam", lr=0.1, use_distributed_optimizer=True)
    optimizer = get_megatron_optimizer(settings, [chunk], use_gloo_process_groups=False, **collections)
    assert chunk.dp_cp_group is here.dp_cp.handle
    norms = []
    for _ in range(2):
        chunk.zero_grad_buffer()
        optimizer.zero_grad()
        tokens = torch.arange(4)[None]
        chunk(tokens, tokens, None).float().logsumexp(-1).sum().backward()
        chunk.finish_grad_sync()
        norms.append(float(optimizer.step()[1]))
    return norms
