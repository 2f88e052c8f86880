"""What the algorithm needs to know, as frozen dataclasses; fields that verl has carry verl's names.

These are resolved values: batch sizes count rows (responses) here, not prompts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

KLEstimator = Literal["kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3"]


@dataclass(frozen=True)
class ScheduleSettings:
    """Learning rate over PPO steps; see :func:`mcore_compat.rl.schedule.learning_rate`.

    Attributes:
        lr: Rate after the warm-up.
        lr_warmup_steps: Steps of linear warm-up.
        lr_warmup_init: Rate of step 0 when there is a warm-up.
        lr_decay_style: What follows the warm-up.
        lr_decay_steps: Step at which the decay has reached ``min_lr``, counted from step 0.
        min_lr: Rate from then on.
    """

    lr: float = 1e-6
    lr_warmup_steps: int = 0
    lr_warmup_init: float = 0.0
    lr_decay_style: Literal["constant", "linear", "cosine"] = "constant"
    lr_decay_steps: int = 0
    min_lr: float = 0.0


@dataclass(frozen=True)
class ActorSettings:
    """The policy's update.

    Attributes:
        ppo_mini_batch_size: Rows per optimizer step, over all ranks.
        ppo_micro_batch_size_per_gpu: Rows per forward pass of one data-parallel rank.
        ppo_epochs: Passes over the experience.
        shuffle: Draw mini-batches at random.
        clip_ratio: PPO's epsilon.
        entropy_coeff: Weight of the entropy bonus.
        use_kl_loss: Add the KL to the reference to the loss.
        kl_loss_coef: Its weight.
        kl_loss_type: Its estimator.
        optim: Learning rate over time.
    """

    ppo_mini_batch_size: int = 256
    ppo_micro_batch_size_per_gpu: int = 8
    ppo_epochs: int = 1
    shuffle: bool = True
    clip_ratio: float = 0.2
    entropy_coeff: float = 0.0
    use_kl_loss: bool = False
    kl_loss_coef: float = 0.001
    kl_loss_type: KLEstimator = "low_var_kl"
    optim: ScheduleSettings = field(default_factory=ScheduleSettings)


@dataclass(frozen=True)
class CriticSettings:
    """The value model's update; fields as in :class:`ActorSettings`.

    Attributes:
        ppo_mini_batch_size: Rows per optimizer step, over all ranks.
        ppo_micro_batch_size_per_gpu: Rows per forward pass of one data-parallel rank.
        ppo_epochs: Passes over the experience.
        shuffle: Draw mini-batches at random.
        cliprange_value: How far a value may move from the old one before its loss stops helping.
        optim: Learning rate over time.
    """

    ppo_mini_batch_size: int = 256
    ppo_micro_batch_size_per_gpu: int = 8
    ppo_epochs: int = 1
    shuffle: bool = True
    cliprange_value: float = 0.5
    optim: ScheduleSettings = field(default_factory=lambda: ScheduleSettings(lr=1e-5))


@dataclass(frozen=True)
class KLControlSettings:
    """Weight of the KL in the reward; see :func:`mcore_compat.rl.kl.kl_controller`."""

    type: Literal["fixed", "adaptive"] = "fixed"
    kl_coef: float = 0.001
    target_kl: float = 0.1
    horizon: float = 10000.0


@dataclass(frozen=True)
class AlgorithmSettings:
    """Rewards and advantages.

    Attributes:
        gamma: Discount per token.
        lam: GAE's lambda.
        whiten_advantages: Shift and scale the batch's advantages to mean 0 and variance 1.
        use_kl_in_reward: Subtract the KL to the reference from the reward, token by token.
        kl_penalty: Its estimator.
        kl_ctrl: Its weight.
    """

    gamma: float = 1.0
    lam: float = 1.0
    whiten_advantages: bool = True
    use_kl_in_reward: bool = False
    kl_penalty: KLEstimator = "kl"
    kl_ctrl: KLControlSettings = field(default_factory=KLControlSettings)


@dataclass(frozen=True)
class PPOSettings:
    """One PPO step.

    Attributes:
        actor: The policy's update.
        critic: The value model's update.
        algorithm: Rewards and advantages.
        temperature: Sampling temperature; the policy's log-probabilities are taken at it (1 for greedy
            sampling).
        log_prob_micro_batch_size_per_gpu: Rows per forward pass of one data-parallel rank outside updates.
        critic_warmup: First steps in which only the critic learns.
    """

    actor: ActorSettings = field(default_factory=ActorSettings)
    critic: CriticSettings = field(default_factory=CriticSettings)
    algorithm: AlgorithmSettings = field(default_factory=AlgorithmSettings)
    temperature: float = 1.0
    log_prob_micro_batch_size_per_gpu: int = 8
    critic_warmup: int = 0
