"""What the settings mean for the algorithm, the engine and the rollout."""

from __future__ import annotations

from mcore_compat.contracts import DataParallelSettings, OptimizerSettings, ParallelLayout, Sampling
from mcore_compat.rl.config import Config, OptimConfig
from mcore_compat.rl.settings import (
    ActorSettings,
    AlgorithmSettings,
    CriticSettings,
    KLControlSettings,
    PPOSettings,
    ScheduleSettings,
)


def layout(config: Config) -> ParallelLayout:
    """How the ranks are split."""
    megatron = config.actor_rollout_ref.actor.megatron
    return ParallelLayout(
        tp=megatron.tensor_model_parallel_size,
        pp=megatron.pipeline_model_parallel_size,
        vpp=megatron.virtual_pipeline_model_parallel_size,
        cp=megatron.context_parallel_size,
        ep=megatron.expert_model_parallel_size,
        expert_tp=megatron.expert_tensor_parallel_size,
    )


def data_parallel_settings(config: Config) -> DataParallelSettings:
    """What the data-parallel wrapper does."""
    megatron = config.actor_rollout_ref.actor.megatron
    ddp = megatron.override_ddp_config
    return DataParallelSettings(
        use_distributed_optimizer=megatron.use_distributed_optimizer,
        overlap_grad_reduce=ddp.overlap_grad_reduce,
        overlap_param_gather=ddp.overlap_param_gather,
        grad_reduce_in_fp32=ddp.grad_reduce_in_fp32,
        bucket_size=ddp.bucket_size,
        average_in_collective=ddp.average_in_collective,
        num_distributed_optimizer_instances=ddp.num_distributed_optimizer_instances,
    )


def actor_optimizer(config: Config) -> OptimizerSettings:
    """The policy's optimizer."""
    actor = config.actor_rollout_ref.actor
    return _optimizer(actor.optim, actor.grad_clip, config)


def critic_optimizer(config: Config) -> OptimizerSettings:
    """The value model's optimizer."""
    return _optimizer(config.critic.optim, config.critic.grad_clip, config)


def ppo_settings(config: Config, *, total_steps: int, data_parallel_size: int) -> PPOSettings:
    """The algorithm with batch sizes in responses and learning rates over ``total_steps``."""
    rollout, ref = config.actor_rollout_ref.rollout, config.actor_rollout_ref.ref
    share = responses_per_rank(config, data_parallel_size)
    sizes = (rollout.log_prob_micro_batch_size_per_gpu, ref.log_prob_micro_batch_size_per_gpu)
    given = [size for size in sizes if size]
    return PPOSettings(
        actor=_actor(config, total_steps, data_parallel_size),
        critic=_critic(config, total_steps, data_parallel_size),
        algorithm=_algorithm(config),
        temperature=rollout.temperature if rollout.do_sample else 1.0,
        log_prob_micro_batch_size_per_gpu=min([*given, share]),
        critic_warmup=config.trainer.critic_warmup,
    )


def responses_per_rank(config: Config, data_parallel_size: int) -> int:
    """Largest share of a training batch that one data-parallel rank gets."""
    return -(-config.data.train_batch_size * config.actor_rollout_ref.rollout.n // data_parallel_size)


def train_sampling(config: Config) -> Sampling:
    """How training responses are drawn."""
    rollout = config.actor_rollout_ref.rollout
    return _sampling(config, rollout.do_sample, rollout.temperature, rollout.top_k, rollout.top_p)


def validation_sampling(config: Config) -> Sampling:
    """How validation responses are drawn."""
    val = config.actor_rollout_ref.rollout.val_kwargs
    return _sampling(config, val.do_sample, val.temperature, val.top_k, val.top_p)


def _sampling(config: Config, do_sample: bool, temperature: float, top_k: int, top_p: float) -> Sampling:
    if not do_sample:
        return Sampling(max_tokens=config.data.max_response_length, temperature=0.0)
    return Sampling(config.data.max_response_length, temperature, max(top_k, 0), top_p)


def _optimizer(optim: OptimConfig, grad_clip: float, config: Config) -> OptimizerSettings:
    return OptimizerSettings(
        optimizer=optim.optimizer,
        lr=optim.lr,
        weight_decay=optim.weight_decay,
        betas=optim.betas,
        eps=optim.eps,
        clip_grad=grad_clip,
        precision=config.trainer.precision,
    )


def _schedule(optim: OptimConfig, total_steps: int) -> ScheduleSettings:
    horizon = optim.total_training_steps if optim.total_training_steps > 0 else total_steps
    by_ratio = int(optim.lr_warmup_steps_ratio * horizon)
    return ScheduleSettings(
        lr=optim.lr,
        lr_warmup_steps=optim.lr_warmup_steps if optim.lr_warmup_steps >= 0 else by_ratio,
        lr_decay_style=optim.lr_decay_style,
        lr_decay_steps=horizon,
        min_lr=optim.min_lr_ratio * optim.lr,
    )


def _actor(config: Config, total_steps: int, data_parallel_size: int) -> ActorSettings:
    actor = config.actor_rollout_ref.actor
    mini = actor.ppo_mini_batch_size * config.actor_rollout_ref.rollout.n
    return ActorSettings(
        ppo_mini_batch_size=mini,
        ppo_micro_batch_size_per_gpu=actor.ppo_micro_batch_size_per_gpu or mini // data_parallel_size,
        ppo_epochs=actor.ppo_epochs,
        shuffle=actor.shuffle,
        clip_ratio=actor.clip_ratio,
        entropy_coeff=actor.entropy_coeff,
        use_kl_loss=actor.use_kl_loss,
        kl_loss_coef=actor.kl_loss_coef,
        kl_loss_type=actor.kl_loss_type,
        optim=_schedule(actor.optim, total_steps),
    )


def _critic(config: Config, total_steps: int, data_parallel_size: int) -> CriticSettings:
    actor, critic = config.actor_rollout_ref.actor, config.critic
    mini = (critic.ppo_mini_batch_size or actor.ppo_mini_batch_size) * config.actor_rollout_ref.rollout.n
    micro = critic.ppo_micro_batch_size_per_gpu or actor.ppo_micro_batch_size_per_gpu
    return CriticSettings(
        ppo_mini_batch_size=mini,
        ppo_micro_batch_size_per_gpu=micro or mini // data_parallel_size,
        ppo_epochs=critic.ppo_epochs or actor.ppo_epochs,
        shuffle=actor.shuffle,
        cliprange_value=critic.cliprange_value,
        optim=_schedule(critic.optim, total_steps),
    )


def _algorithm(config: Config) -> AlgorithmSettings:
    algorithm, control = config.algorithm, config.algorithm.kl_ctrl
    return AlgorithmSettings(
        gamma=algorithm.gamma,
        lam=algorithm.lam,
        whiten_advantages=algorithm.whiten_advantages,
        use_kl_in_reward=algorithm.use_kl_in_reward,
        kl_penalty=algorithm.kl_penalty,
        kl_ctrl=KLControlSettings(control.type, control.kl_coef, control.target_kl, control.horizon),
    )
