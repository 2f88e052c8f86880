"""PPO on sums, from nothing: makes a model and prompts, teaches it from a bad textbook, corrects it.

After the supervised warm-up the model knows how to answer and gets the sums without a carry right. The
textbook left out the carry of most others, so the model does too; only the reward says that they are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mcore_compat.contracts import OptimizerSettings, TrainableModel, TrainingBackend
from mcore_compat.rl import sums
from mcore_compat.rl.config import Config
from mcore_compat.rl.config_load import config_from
from mcore_compat.rl.experience import pack
from mcore_compat.rl.interrupt import StopRequest, peer_loss
from mcore_compat.rl.progress import Talk
from mcore_compat.rl.report import Report
from mcore_compat.rl.run_folder import choose_folder
from mcore_compat.rl.settings import ScheduleSettings
from mcore_compat.rl.trainer import train
from mcore_compat.rl.warmup import warm_up

if TYPE_CHECKING:
    from mcore_compat.contracts import Batch

score_folder = sums.score_folder
_SEED = 1
_EPSILON = 1e-6
_SHOWN_WARM_UPS = 6
_STEPS_PER_LOOK = 10


@dataclass(frozen=True)
class DemoOptions:
    """What a user may change.

    Attributes:
        steps: PPO steps.
        output: Run folder; ``None``: ``runs/demo``, numbered where that is taken.
        overrides: ``key=value`` settings of the PPO run.
        warm_up_steps: Supervised steps before.
    """

    steps: int = 30
    output: str | None = None
    overrides: Sequence[str] = ()
    warm_up_steps: int = 300


def run_demo(
    options: DemoOptions,
    make_backend: Callable[[Config], TrainingBackend],
    *,
    world_size: int,
    talk: Talk,
    stop: StopRequest,
) -> Report:
    """Make everything, warm up, run PPO.

    Args:
        options: What the user changed.
        make_backend: Settings to the training engine.
        world_size: Number of ranks.
        talk: Where progress goes, on this rank.
        stop: As in :func:`mcore_compat.rl.trainer.train`.

    Raises:
        McoreCompatError: As :func:`mcore_compat.rl.trainer.train`.
    """
    backend = make_backend(demo_config(options, Path(), world_size))
    with peer_loss():
        folder = backend.on_rank_zero(lambda: _prepare_folder(options.output))
        config = demo_config(options, folder, world_size)
        _learn_textbook(config, options, backend, folder, talk, stop)
    report = train(config, backend, folder, talk=talk, stop=stop)
    return replace(report, next_steps=_next_steps(report.export))


def demo_config(options: DemoOptions, folder: Path, world_size: int) -> Config:
    """Return the settings of the PPO run in that folder."""
    return config_from(_settings(options, folder), options.overrides, world_size=world_size)


def _next_steps(export: Path) -> list[str]:
    code = f"from mcore_compat.rl.demo import score_folder; print(score_folder('{export}'))"
    return ["the same score from transformers alone:", f'  python -c "{code}"']


def _prepare_folder(output: str | None) -> Path:
    folder = choose_folder(output, "demo")
    sums.write_model(folder / "start" / "random", _SEED)
    sums.write_prompts(folder / "start" / "sums.jsonl")
    return folder


def _settings(options: DemoOptions, folder: Path) -> dict[str, Any]:
    # With a larger epsilon and a calm critic, rounding noise does not grow: layouts agree to 1e-5 over many steps.
    optim = {"weight_decay": 0.0, "eps": _EPSILON}
    return {
        "data": {
            "train_files": [str(folder / "start" / "sums.jsonl")],
            "max_prompt_length": sums.PROMPT_LENGTH,
            "max_response_length": sums.RESPONSE_LENGTH,
            "train_batch_size": 100,
        },
        "actor_rollout_ref": {
            "model": {"path": str(folder / "start" / "warm")},
            "actor": {"ppo_mini_batch_size": 50, "optim": {**optim, "lr": 2e-4}},
            "rollout": {"n": 4},
        },
        "critic": {"optim": {**optim, "lr": 3e-4}},
        "trainer": {"total_training_steps": options.steps, "test_freq": 5, "experiment_name": "demo"},
    }


def _learn_textbook(
    config: Config,
    options: DemoOptions,
    backend: TrainingBackend,
    folder: Path,
    talk: Talk,
    stop: StopRequest,
) -> None:
    model = _random_policy(config, backend, folder)
    steps = options.warm_up_steps
    talk.say(f"warm-up: {steps} supervised steps on a textbook that forgets most carries")

    def examples(step: int) -> Batch:
        prompts, answers = sums.textbook(step, _SEED)
        width = sums.PROMPT_LENGTH + sums.RESPONSE_LENGTH
        return pack(prompts, answers, width=width, pad_token_id=0, device=backend.device)

    def after_step(step: int, loss: float) -> None:
        if step % _STEPS_PER_LOOK == 0 and backend.on_rank_zero(lambda: stop.requested):
            raise KeyboardInterrupt
        if (step + 1) % max(steps // _SHOWN_WARM_UPS, 1) == 0:
            talk.say(f"warm-up {step + 1}/{steps}  loss {loss:.3f}")

    schedule = ScheduleSettings(lr=3e-3, lr_warmup_steps=20, lr_decay_style="linear", lr_decay_steps=steps, min_lr=1e-4)
    _, copies = backend.data_parallel
    share = len(sums.SUMS) // copies
    warm_up(model, examples, schedule, backend.vocab, steps=steps, micro_batch_size=share, after_step=after_step)
    model.save_hf(folder / "start" / "warm")


def _random_policy(config: Config, backend: TrainingBackend, folder: Path) -> TrainableModel:
    # No clipping: its rounding differs between releases, and hundreds of steps would spread that.
    settings = OptimizerSettings(
        lr=3e-3, weight_decay=0.0, eps=_EPSILON, clip_grad=0.0, precision=config.trainer.precision
    )
    return backend.actor(folder / "start" / "random", settings)
