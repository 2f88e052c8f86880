"""The settings of a PPO run, as frozen dataclasses under verl's key names.

A key that verl has keeps verl's name, place, meaning and, where it makes sense here, default. All models of a
run share the parallel layout given under ``actor_rollout_ref.actor.megatron``. ``config_load`` reads YAML and
``key=value`` text into these classes, ``config_check`` compares the values with each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mcore_compat.contracts import Precision
from mcore_compat.rl.settings import KLEstimator

LoggerName = Literal["console", "tensorboard"]
ModelName = Literal["actor", "critic"]


@dataclass(frozen=True)
class DataConfig:
    """Prompts. Paths are relative to the working directory.

    Attributes:
        train_files: JSONL or parquet files.
        val_files: The same for the validation score; empty: the training prompts are scored.
        prompt_key: Column that holds the prompt, as text or as chat messages.
        max_prompt_length: Longest prompt in tokens.
        max_response_length: Longest response in tokens.
        train_batch_size: Prompts per PPO step.
        shuffle: Draw a new order each epoch, else keep the files' order.
        seed: Of that order.
        filter_overlong_prompts: Leave out prompts that are too long (and say how many), else refuse them.
        train_max_samples: Use that many training prompts; -1: all.
        val_max_samples: Use that many validation prompts; -1: all.
    """

    train_files: list[str] = field(default_factory=list)
    val_files: list[str] = field(default_factory=list)
    prompt_key: str = "prompt"
    max_prompt_length: int = 512
    max_response_length: int = 512
    train_batch_size: int = 1024
    shuffle: bool = True
    seed: int = 1
    filter_overlong_prompts: bool = True
    train_max_samples: int = -1
    val_max_samples: int = -1


@dataclass(frozen=True)
class ModelConfig:
    """A Hugging Face folder on this machine.

    Attributes:
        path: The folder.
        tokenizer_path: Folder of the tokenizer, where it is another one.
    """

    path: str | None = None
    tokenizer_path: str | None = None


@dataclass(frozen=True)
class OptimConfig:
    """Optimizer and learning-rate schedule of one model.

    Attributes:
        optimizer: ``adam`` (decoupled weight decay) or ``sgd``.
        lr: Highest learning rate.
        lr_warmup_steps: PPO steps of linear warm-up; -1: take the ratio.
        lr_warmup_steps_ratio: Warm-up as a fraction of all PPO steps.
        lr_decay_style: What follows the warm-up.
        min_lr_ratio: Rate at the end of the decay, as a fraction of ``lr``.
        total_training_steps: PPO steps until the end of the decay; -1: the run's.
        weight_decay: Decay of matrices; biases and norms do not decay.
        betas: Adam's coefficients.
        eps: Adam's epsilon.
    """

    optimizer: Literal["adam", "sgd"] = "adam"
    lr: float = 1e-6
    lr_warmup_steps: int = -1
    lr_warmup_steps_ratio: float = 0.0
    lr_decay_style: Literal["constant", "linear", "cosine"] = "constant"
    min_lr_ratio: float = 0.0
    total_training_steps: int = -1
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8


@dataclass(frozen=True)
class DDPOverrides:
    """Switches of Megatron's data-parallel wrapper; see ``contracts.DataParallelSettings``."""

    overlap_grad_reduce: bool = False
    overlap_param_gather: bool = False
    grad_reduce_in_fp32: bool = True
    bucket_size: int | None = None
    average_in_collective: bool = False
    num_distributed_optimizer_instances: int = 1


@dataclass(frozen=True)
class MegatronConfig:
    """How the models are split over the ranks, and how Megatron trains them."""

    tensor_model_parallel_size: int = 1
    pipeline_model_parallel_size: int = 1
    virtual_pipeline_model_parallel_size: int | None = None
    context_parallel_size: int = 1
    expert_model_parallel_size: int = 1
    expert_tensor_parallel_size: int | None = None
    sequence_parallel: bool = False
    use_distributed_optimizer: bool = True
    seed: int = 42
    override_ddp_config: DDPOverrides = DDPOverrides()


@dataclass(frozen=True)
class ActorConfig:
    """The policy update.

    Attributes:
        ppo_mini_batch_size: Prompts per optimizer step (as in verl: times ``rollout.n`` responses).
        ppo_micro_batch_size_per_gpu: Responses per forward pass of a data-parallel rank; ``None``: all.
        ppo_epochs: Passes over the responses of a step.
        clip_ratio: PPO's epsilon.
        entropy_coeff: Weight of the entropy bonus.
        use_kl_loss: Add the KL to the reference to the loss.
        kl_loss_coef: Its weight.
        kl_loss_type: Its estimator.
        grad_clip: Largest gradient norm; 0: no clipping.
        shuffle: Draw mini-batches at random.
        data_loader_seed: Of that draw.
    """

    ppo_mini_batch_size: int = 256
    ppo_micro_batch_size_per_gpu: int | None = None
    ppo_epochs: int = 1
    clip_ratio: float = 0.2
    entropy_coeff: float = 0.0
    use_kl_loss: bool = False
    kl_loss_coef: float = 0.001
    kl_loss_type: KLEstimator = "low_var_kl"
    grad_clip: float = 1.0
    shuffle: bool = True
    data_loader_seed: int = 42
    optim: OptimConfig = OptimConfig()
    megatron: MegatronConfig = MegatronConfig()


@dataclass(frozen=True)
class ValSamplingConfig:
    """How validation responses are drawn; greedy unless ``do_sample``."""

    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0


@dataclass(frozen=True)
class RolloutConfig:
    """How responses are drawn.

    Attributes:
        name: Engine.
        do_sample: Draw at random, else greedily.
        temperature: Of the draw; the policy's log-probabilities are taken at the same temperature.
        top_k: Keep that many tokens; -1 or 0: all.
        top_p: Keep the smallest set of tokens with that probability.
        n: Responses per prompt.
        seed: Of the draw.
        micro_batch_size: Responses generated at a time; ``None``: a rank's share of a training batch. With
            a fixed size, responses do not depend on the number of data-parallel ranks, to the last bit.
        log_prob_micro_batch_size_per_gpu: Responses per forward pass for log-probabilities; ``None``: all.
        val_kwargs: The same for validation.
    """

    name: Literal["hf"] = "hf"
    do_sample: bool = True
    temperature: float = 1.0
    top_k: int = -1
    top_p: float = 1.0
    n: int = 1
    seed: int = 0
    micro_batch_size: int | None = None
    log_prob_micro_batch_size_per_gpu: int | None = None
    val_kwargs: ValSamplingConfig = ValSamplingConfig()


@dataclass(frozen=True)
class RefConfig:
    """The frozen reference policy."""

    log_prob_micro_batch_size_per_gpu: int | None = None


@dataclass(frozen=True)
class ActorRolloutRefConfig:
    """The policy in its three roles."""

    model: ModelConfig = ModelConfig()
    actor: ActorConfig = ActorConfig()
    rollout: RolloutConfig = RolloutConfig()
    ref: RefConfig = RefConfig()


@dataclass(frozen=True)
class CriticConfig:
    """The value model and its update.

    Attributes:
        model: Its folder; no path: the actor's body with a new value head.
        ppo_mini_batch_size: Prompts per optimizer step; ``None``: the actor's.
        ppo_micro_batch_size_per_gpu: Responses per forward pass; ``None``: the actor's.
        ppo_epochs: Passes over the responses of a step; ``None``: the actor's.
        cliprange_value: How far a value may move from the old one.
        grad_clip: Largest gradient norm; 0: no clipping.
    """

    model: ModelConfig = ModelConfig()
    optim: OptimConfig = OptimConfig(lr=1e-5)
    ppo_mini_batch_size: int | None = None
    ppo_micro_batch_size_per_gpu: int | None = None
    ppo_epochs: int | None = None
    cliprange_value: float = 0.5
    grad_clip: float = 1.0


@dataclass(frozen=True)
class KLControlConfig:
    """Weight of the KL in the reward (Ziegler et al. 2019 for ``adaptive``)."""

    type: Literal["fixed", "adaptive"] = "fixed"
    kl_coef: float = 0.001
    target_kl: float = 0.1
    horizon: float = 10000


@dataclass(frozen=True)
class AlgorithmConfig:
    """Advantages and the KL in the reward.

    Attributes:
        adv_estimator: Generalised advantage estimation.
        gamma: Discount.
        lam: GAE's lambda.
        whiten_advantages: Shift and scale advantages to mean 0 and variance 1 over the batch.
        use_kl_in_reward: Subtract the KL to the reference, token by token.
        kl_penalty: Its estimator.
    """

    adv_estimator: Literal["gae"] = "gae"
    gamma: float = 1.0
    lam: float = 1.0
    whiten_advantages: bool = True
    use_kl_in_reward: bool = False
    kl_penalty: KLEstimator = "kl"
    kl_ctrl: KLControlConfig = KLControlConfig()


@dataclass(frozen=True)
class RewardFunctionConfig:
    """What scores a response.

    Attributes:
        path: Python file (``file.py`` or ``file.py:function``). Without one a built-in scorer is used.
        name: Function in that file; or the built-in ``exact_match`` or ``gsm8k``. Neither path nor name:
            ``gsm8k`` for rows whose data source says so, ``exact_match`` for the others.
    """

    path: str | None = None
    name: str | None = None


@dataclass(frozen=True)
class TrainerConfig:
    """The loop around it.

    Attributes:
        total_training_steps: PPO steps; ``None``: ``total_epochs`` over the training prompts.
        total_epochs: Passes over the training prompts.
        experiment_name: Names the run folder.
        default_local_dir: Run folder; ``None``: ``runs/<experiment_name>``, numbered where that is taken.
        test_freq: Score the validation prompts every that many steps; -1: only before and after.
        val_before_train: Score them before the first step.
        logger: Where metrics go besides ``metrics.jsonl``.
        save_freq: Save a checkpoint every that many steps, after the last one and when the run is stopped; -1: never.
        max_ckpt_to_keep: How many checkpoints stay; ``None``: all.
        resume_mode: ``auto``: go on from the newest checkpoint in ``default_local_dir`` where there is one.
            ``resume_path``: from ``resume_from_path``. ``disable``: start anew.
        resume_from_path: A run's folder of checkpoints, or one checkpoint.
        resume_fresh_optimizer: Models whose optimizer starts with zero moments instead of the saved ones.
        critic_warmup: First steps in which only the critic learns.
        device: ``auto``: CUDA where there is one.
        precision: Of weights and arithmetic; main parameters are fp32 in any case.
    """

    total_training_steps: int | None = None
    total_epochs: int = 1
    experiment_name: str = "ppo"
    default_local_dir: str | None = None
    test_freq: int = -1
    val_before_train: bool = True
    logger: list[LoggerName] = field(default_factory=lambda: ["console", "tensorboard"])
    save_freq: int = -1
    max_ckpt_to_keep: int | None = None
    resume_mode: Literal["auto", "disable", "resume_path"] = "auto"
    resume_from_path: str | None = None
    resume_fresh_optimizer: list[ModelName] = field(default_factory=list)
    critic_warmup: int = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Precision = "fp32"


@dataclass(frozen=True)
class Config:
    """Everything a run needs to know."""

    data: DataConfig = DataConfig()
    actor_rollout_ref: ActorRolloutRefConfig = ActorRolloutRefConfig()
    critic: CriticConfig = CriticConfig()
    algorithm: AlgorithmConfig = AlgorithmConfig()
    custom_reward_function: RewardFunctionConfig = RewardFunctionConfig()
    trainer: TrainerConfig = TrainerConfig()
