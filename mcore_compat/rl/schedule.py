"""Learning rate as a pure function of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math

from mcore_compat.rl.settings import ScheduleSettings


def learning_rate(step: int, settings: ScheduleSettings) -> float:
    """Return the learning rate of one PPO step.

    Warm-up is linear from ``lr_warmup_init`` at step 0 to ``lr`` at step ``lr_warmup_steps``, so a warm-up
    from 0 leaves the weights of step 0 as they are. Then the rate goes to ``min_lr``, which it reaches at
    ``lr_decay_steps``, along a straight line or half a cosine (Loshchilov & Hutter 2017), or it stays.

    Args:
        step: Number of PPO steps done before.
        settings: The shape.
    """
    if step < settings.lr_warmup_steps:
        return settings.lr_warmup_init + (settings.lr - settings.lr_warmup_init) * step / settings.lr_warmup_steps
    return settings.min_lr + (settings.lr - settings.min_lr) * _remaining(step, settings)


def _remaining(step: int, settings: ScheduleSettings) -> float:
    """How much of the way from ``lr`` to ``min_lr`` is still ahead, from 1 to 0."""
    if settings.lr_decay_style == "constant":
        return 1.0
    span = max(settings.lr_decay_steps - settings.lr_warmup_steps, 1)
    done = min((step - settings.lr_warmup_steps) / span, 1.0)
    return 1.0 - done if settings.lr_decay_style == "linear" else 0.5 * (1.0 + math.cos(math.pi * done))
