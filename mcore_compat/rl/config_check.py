"""Settings compared with each other and with the number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from typing import Any

from mcore_compat.errors import ConfigError
from mcore_compat.rl.config import Config

_ACTOR = "actor_rollout_ref.actor"
_ROLLOUT = "actor_rollout_ref.rollout"
_MEGATRON = f"{_ACTOR}.megatron"

_AT_LEAST_ONE = (
    "data.max_prompt_length",
    "data.max_response_length",
    "data.train_batch_size",
    f"{_ACTOR}.ppo_mini_batch_size",
    f"{_ACTOR}.ppo_micro_batch_size_per_gpu",
    f"{_ACTOR}.ppo_epochs",
    f"{_ROLLOUT}.n",
    f"{_ROLLOUT}.micro_batch_size",
    f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu",
    "actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu",
    "critic.ppo_mini_batch_size",
    "critic.ppo_micro_batch_size_per_gpu",
    "critic.ppo_epochs",
    "trainer.total_training_steps",
    "trainer.total_epochs",
    "trainer.max_ckpt_to_keep",
    f"{_MEGATRON}.tensor_model_parallel_size",
    f"{_MEGATRON}.pipeline_model_parallel_size",
    f"{_MEGATRON}.virtual_pipeline_model_parallel_size",
    f"{_MEGATRON}.context_parallel_size",
    f"{_MEGATRON}.expert_model_parallel_size",
    f"{_MEGATRON}.expert_tensor_parallel_size",
)
_FRACTION = (
    "algorithm.gamma",
    "algorithm.lam",
    f"{_ROLLOUT}.top_p",
    f"{_ROLLOUT}.val_kwargs.top_p",
    f"{_ACTOR}.optim.lr_warmup_steps_ratio",
    f"{_ACTOR}.optim.min_lr_ratio",
    "critic.optim.lr_warmup_steps_ratio",
    "critic.optim.min_lr_ratio",
)
_NOT_NEGATIVE = (
    f"{_ACTOR}.optim.lr",
    f"{_ACTOR}.optim.weight_decay",
    f"{_ACTOR}.clip_ratio",
    f"{_ACTOR}.entropy_coeff",
    f"{_ACTOR}.kl_loss_coef",
    f"{_ACTOR}.grad_clip",
    f"{_ROLLOUT}.temperature",
    f"{_ROLLOUT}.val_kwargs.temperature",
    "critic.optim.lr",
    "critic.optim.weight_decay",
    "critic.cliprange_value",
    "critic.grad_clip",
    "algorithm.kl_ctrl.kl_coef",
    "trainer.critic_warmup",
)


def check(config: Config, world_size: int) -> None:
    """Raise :class:`ConfigError` for the first thing that cannot work."""
    for problem in _problems(config, world_size):
        raise ConfigError(problem)


def data_parallel_size(config: Config, world_size: int) -> int:
    """Number of model copies."""
    megatron = config.actor_rollout_ref.actor.megatron
    tensor, pipeline = megatron.tensor_model_parallel_size, megatron.pipeline_model_parallel_size
    return world_size // (tensor * pipeline * megatron.context_parallel_size)


def _problems(config: Config, world_size: int) -> Iterator[str]:
    if not config.data.train_files:
        yield "data.train_files is not set; expected one or more JSONL or parquet files"
    if not config.actor_rollout_ref.model.path:
        yield "actor_rollout_ref.model.path is not set; expected a Hugging Face folder"
    yield from _out_of_range(config)
    yield from _resuming(config)
    yield from _layout(config, world_size)
    yield from _batches(config, data_parallel_size(config, world_size))


def _value(config: Config, path: str) -> Any:
    return reduce(getattr, path.split("."), config)


def _out_of_range(config: Config) -> Iterator[str]:
    for path in _AT_LEAST_ONE:
        value = _value(config, path)
        if value is not None and value < 1:
            yield f"{path} is {value}; expected 1 or more"
    for path in _FRACTION:
        if not 0 <= _value(config, path) <= 1:
            yield f"{path} is {_value(config, path)}; expected a number from 0 to 1"
    for path in _NOT_NEGATIVE:
        if not _value(config, path) >= 0:
            yield f"{path} is {_value(config, path)}; expected 0 or more"
    rollout = config.actor_rollout_ref.rollout
    if rollout.do_sample and rollout.temperature == 0:
        yield f"{_ROLLOUT}.temperature is 0; for greedy responses set {_ROLLOUT}.do_sample=false"
    if config.trainer.precision == "fp16" and config.trainer.device == "cpu":
        yield "trainer.precision is fp16 and trainer.device is cpu; the CPU trains in fp32 or bf16"


def _resuming(config: Config) -> Iterator[str]:
    mode, path = config.trainer.resume_mode, config.trainer.resume_from_path
    if (mode == "resume_path") is not (path is not None):
        yield (
            f"trainer.resume_mode is {mode} and trainer.resume_from_path is {path}; "
            "expected resume_mode=resume_path together with a path, or neither"
        )


def _layout(config: Config, world_size: int) -> Iterator[str]:
    megatron = config.actor_rollout_ref.actor.megatron
    sizes = (
        megatron.tensor_model_parallel_size,
        megatron.pipeline_model_parallel_size,
        megatron.context_parallel_size,
    )
    if world_size % (sizes[0] * sizes[1] * sizes[2]):
        yield (
            f"{world_size} ranks cannot be split into tensor {sizes[0]} x pipeline {sizes[1]} "
            f"x context {sizes[2]} parallel; "
            f"expected a multiple of {sizes[0] * sizes[1] * sizes[2]} (torchrun --nproc-per-node)"
        )
    ddp = megatron.override_ddp_config
    if ddp.overlap_param_gather and not (ddp.overlap_grad_reduce and megatron.use_distributed_optimizer):
        yield (
            f"{_MEGATRON}.override_ddp_config.overlap_param_gather needs overlap_grad_reduce=true beside it "
            f"and {_MEGATRON}.use_distributed_optimizer=true"
        )


def _batches(config: Config, dp: int) -> Iterator[str]:
    actor, critic, n = config.actor_rollout_ref.actor, config.critic, config.actor_rollout_ref.rollout.n
    train = config.data.train_batch_size
    if train * n < dp:
        yield (
            f"data.train_batch_size={train} x rollout.n={n} gives {train * n} responses, "
            f"fewer than the {dp} data-parallel ranks; each rank needs at least one"
        )
    mini, micro = actor.ppo_mini_batch_size, actor.ppo_micro_batch_size_per_gpu
    yield from _mini_batches(_ACTOR, mini, micro, train, n, dp)
    mini, micro = critic.ppo_mini_batch_size or mini, critic.ppo_micro_batch_size_per_gpu or micro
    yield from _mini_batches("critic", mini, micro, train, n, dp)


def _mini_batches(owner: str, mini: int, micro: int | None, train: int, n: int, dp: int) -> Iterator[str]:
    if train % mini:
        yield (
            f"{owner}.ppo_mini_batch_size={mini} does not divide data.train_batch_size={train}; "
            "both count prompts, and a step is a whole number of mini-batches"
        )
    if mini * n % dp:
        yield (
            f"{owner}.ppo_mini_batch_size={mini} x rollout.n={n} gives {mini * n} responses, "
            f"which the {dp} data-parallel ranks cannot share evenly"
        )
    if micro and mini * n // dp % micro:
        yield (
            f"{owner}.ppo_micro_batch_size_per_gpu={micro} does not divide the {mini * n // dp} responses "
            "that each data-parallel rank has of a mini-batch"
        )
