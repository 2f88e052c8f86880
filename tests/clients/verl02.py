"""verl 0.2, unmodified: one PPO update of its Megatron actor and of its critic, as its worker sets them up."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import torch

from mcore_compat import legacy
from tests.clients import standins

ROWS, PROMPT, RESPONSE, VOCAB = 8, 6, 6, 64
_PACKAGES = ("apex", "codetiming", "flash_attn", "hydra", "pandas", "peft", "ray", "tensordict", "vllm")


def update(wheel: str) -> dict[str, Any]:
    """One update of each.

    Args:
        wheel: Folder with verl's files.

    Returns:
        For ``actor`` and ``critic``: ``metrics`` name to means over microbatches, ``changed`` and ``all`` numbers of
        parameters, ``own`` whether the actor's parameters lie in verl's own buffer, ``weights`` a sum over the weights
        after the update.
    """
    warnings.simplefilter("ignore")
    print(legacy.install(era="0.4"))
    _surround(wheel)  # after it: Megatron itself has to find these packages absent, as they are
    _initialize()
    return {"actor": _actor(), "critic": _critic()}


def _surround(wheel: str) -> None:
    import transformers.utils

    standins.install(_PACKAGES)
    transformers.utils.is_flash_attn_2_available = lambda: True
    sys.path.insert(0, wheel)


def _initialize() -> None:
    """As ``ActorRolloutRefWorker.__init__`` does."""
    torch.distributed.init_process_group(backend="nccl")
    from megatron.core import parallel_state as mpu

    mpu.initialize_model_parallel(
        tensor_model_parallel_size=1,
        pipeline_model_parallel_size=1,
        virtual_pipeline_model_parallel_size=None,
        pipeline_model_parallel_split_rank=None,
        use_sharp=False,
        context_parallel_size=1,
        expert_model_parallel_size=1,
        nccl_communicator_config_path=None,
    )
    from verl.workers.megatron_workers import set_random_seed

    set_random_seed(seed=1)


def _configs() -> tuple[Any, Any]:
    from omegaconf import OmegaConf
    from transformers import LlamaConfig
    from verl.utils.megatron_utils import init_model_parallel_config

    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "vocab_size": VOCAB}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    megatron = {
        "sequence_parallel": False,
        "param_dtype": "bf16",
        "tensor_model_parallel_size": 1,
        "pipeline_model_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None,
    }
    config = LlamaConfig(**sizes, **heads, pad_token_id=0, architectures=["LlamaForCausalLM"])
    config.rope_theta, config.rope_scaling = 10000.0, None  # transformers 5 keeps them elsewhere
    return config, init_model_parallel_config(OmegaConf.create(megatron))


def _provider(config: Any, megatron: Any, value: bool) -> Any:
    def provide(pre_process: bool, post_process: bool) -> torch.nn.Module:
        from verl.utils.model import get_parallel_model_from_config

        model = get_parallel_model_from_config(
            config=config, megatron_config=megatron, pre_process=pre_process, post_process=post_process, value=value
        )
        return model.cuda()

    return provide


def _actor() -> dict[str, Any]:
    from omegaconf import OmegaConf
    from verl.workers.actor.megatron_actor import MegatronPPOActor
    from verl.workers.sharding_manager.megatron_vllm import AllGatherPPModel

    config, megatron = _configs()
    hybrid = AllGatherPPModel(model_provider=_provider(config, megatron, value=False))
    chunks = [hybrid.this_rank_models[0]]
    optimizer, optim = _optimizer(chunks)
    settings = {"clip_ratio": 0.2, "entropy_coeff": 0.01, "recompute_old_log_prob": True} | _common()
    actor = MegatronPPOActor(OmegaConf.create(settings), config, megatron, chunks, optimizer, optim)
    data = _batch()
    data.batch["old_log_probs"] = actor.compute_log_prob(data)
    result = _updated(chunks, lambda: actor.update_policy(actor.make_minibatch_iterator(data)))
    buffers = list(hybrid.memory_buffers[0].values())
    own = all(_inside(parameter, buffers) for parameter in chunks[0].parameters())
    return result | {"own": own}


def _critic() -> dict[str, Any]:
    from omegaconf import OmegaConf
    from verl.utils.megatron_utils import get_model
    from verl.workers.critic.megatron_critic import MegatronPPOCritic

    config, megatron = _configs()
    chunks = get_model(_provider(config, megatron, value=True), wrap_with_ddp=True)
    optimizer, optim = _optimizer(chunks)
    settings = {"cliprange_value": 0.5, "kl_ctrl": {"type": "fixed", "kl_coef": 0.001}} | _common()
    critic = MegatronPPOCritic(OmegaConf.create(settings), config, megatron, chunks, optimizer, optim)
    data = _batch()
    data.batch["values"] = critic.compute_values(data)
    return _updated(chunks, lambda: critic.update_critic(critic.make_minibatch_iterator(data)))


def _common() -> dict[str, Any]:
    return {"ppo_mini_batch_size": 4, "ppo_micro_batch_size_per_gpu": 2, "ppo_epochs": 2, "shuffle": False}


def _optimizer(chunks: list[Any]) -> tuple[Any, Any]:
    from verl.utils.megatron.optimizer import get_megatron_optimizer
    from verl.utils.megatron_utils import init_megatron_optim_config

    _draw(chunks)  # as loading a checkpoint at this point would
    optim = init_megatron_optim_config({"lr": 1e-3, "clip_grad": 1.0})
    return get_megatron_optimizer(model=chunks, config=optim), optim


@torch.no_grad()
def _draw(chunks: list[Any]) -> None:
    generator = torch.Generator().manual_seed(3)
    for parameter in (parameter for chunk in chunks for parameter in chunk.parameters()):
        if parameter.dim() > 1:
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)


def _batch() -> Any:
    from verl import DataProto

    generator = torch.Generator().manual_seed(5)
    length = PROMPT + RESPONSE
    tokens = torch.randint(1, VOCAB, (ROWS, length), generator=generator)
    mask = torch.ones(ROWS, length, dtype=torch.int64)
    for row in range(ROWS):  # padded on the left for short prompts and on the right after short responses
        mask[row, : row % 3] = 0
        mask[row, length - row % 4 :] = 0
    tensors = {
        "input_ids": tokens,
        "responses": tokens[:, -RESPONSE:].clone(),
        "attention_mask": mask,
        "position_ids": (mask.cumsum(-1) - 1).clamp(min=0),
        "advantages": torch.randn(ROWS, RESPONSE, generator=generator),
        "returns": torch.randn(ROWS, RESPONSE, generator=generator),
    }
    return DataProto.from_dict(tensors=tensors)


def _updated(chunks: list[Any], update: Any) -> dict[str, Any]:
    before = [parameter.detach().clone() for parameter in _parameters(chunks)]
    metrics = update()
    after = list(_parameters(chunks))
    changed = sum(not torch.equal(old, new) for old, new in zip(before, after, strict=True))
    return {
        "metrics": {name: sum(values) / len(values) for name, values in metrics.items()},
        "changed": changed,
        "all": len(after),
        "weights": sum(float(parameter.detach().double().abs().sum()) for parameter in after),
    }


def _parameters(chunks: list[Any]) -> Iterator[torch.nn.Parameter]:
    for chunk in chunks:
        yield from chunk.parameters()


def _inside(parameter: torch.nn.Parameter, buffers: list[Any]) -> bool:
    return any(parameter.untyped_storage().data_ptr() == buffer.data.untyped_storage().data_ptr() for buffer in buffers)
