"""The scheduler of learning rate and weight decay, which is in no wheel before 0.9."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from mcore_compat.errors import CheckpointError, ConfigError

__all__ = ["OptimizerParamScheduler"]

# Share of the way that is left, from the share of steps that are done: 1 to 0.
_FALLS: dict[str, Callable[[float], float]] = {
    "linear": lambda done: 1.0 - done,
    "cosine": lambda done: 0.5 * (math.cos(math.pi * done) + 1.0),
    "exponential": lambda done: 2.0 * 0.5**done - 1.0,
    "minus_sqrt": lambda done: 1.0 - math.sqrt(done),
}
_STYLES = ("constant", "linear", "cosine", "inverse-square-root", "WSD")
# What a checkpoint keeps besides the number of steps.
_SETTINGS = (
    *("max_lr", "min_lr", "lr_warmup_steps", "lr_decay_steps", "lr_decay_style"),
    *("start_wd", "end_wd", "wd_incr_steps", "wd_incr_style"),
)


@dataclass(eq=False)
class OptimizerParamScheduler:
    """Linear warm-up of the learning rate, then its decay; and growth of the weight decay.

    A group's own ``max_lr`` and ``min_lr`` take the place of the scheduler's; its ``lr_mult`` and ``wd_mult`` multiply.

    Args:
        optimizer: Anything with ``param_groups``.
        init_lr: Where warm-up starts.
        max_lr: Where it ends.
        min_lr: Where decay ends.
        lr_warmup_steps: Steps of warm-up.
        lr_decay_steps: Step at which decay ends.
        lr_decay_style: ``constant``, ``linear``, ``cosine``, ``inverse-square-root`` or ``WSD``.
        start_wd: Weight decay at first.
        end_wd: Weight decay in the end.
        wd_incr_steps: Steps from one to the other.
        wd_incr_style: ``constant``, ``linear`` or ``cosine``.
        use_checkpoint_opt_param_scheduler: Take the settings of a checkpoint.
        override_opt_param_scheduler: Keep those given here; neither: they must be the same.
        wsd_decay_steps: Steps of decay of ``WSD``, the last ones.
        lr_wsd_decay_style: ``linear``, ``cosine``, ``exponential`` or ``minus_sqrt``.

    Raises:
        ConfigError: A style is unknown, or settings contradict each other.
    """

    optimizer: Any
    init_lr: float
    max_lr: float
    min_lr: float
    lr_warmup_steps: int
    lr_decay_steps: int
    lr_decay_style: str
    start_wd: float
    end_wd: float
    wd_incr_steps: int
    wd_incr_style: str
    use_checkpoint_opt_param_scheduler: bool | None = True
    override_opt_param_scheduler: bool | None = False
    wsd_decay_steps: int | None = None
    lr_wsd_decay_style: str | None = None
    num_steps: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        for rule, holds in self._rules().items():
            if not holds:
                found = {name: value for name, value in vars(self).items() if name in re.findall(r"\w+", rule)}
                raise ConfigError(f"OptimizerParamScheduler: expected {rule}; found {found}")
        self.step(0)

    def _rules(self) -> dict[str, bool]:
        wsd = bool(self.wsd_decay_steps) and self.lr_wsd_decay_style in _FALLS
        grows = self.wd_incr_style in ("linear", "cosine")
        both = self.override_opt_param_scheduler and self.use_checkpoint_opt_param_scheduler
        return {
            "0 <= min_lr, init_lr <= max_lr": 0.0 <= self.min_lr <= self.max_lr and self.init_lr <= self.max_lr,
            "lr_warmup_steps < lr_decay_steps": self.lr_warmup_steps < self.lr_decay_steps > 0,
            f"lr_decay_style to be one of {', '.join(_STYLES)}": self.lr_decay_style in _STYLES,
            f"with lr_decay_style WSD, wsd_decay_steps, and lr_wsd_decay_style to be one of {', '.join(_FALLS)}": wsd
            or self.lr_decay_style != "WSD",
            "0 <= start_wd <= end_wd": 0.0 <= self.start_wd <= self.end_wd,
            "wd_incr_style to be linear or cosine, or start_wd == end_wd": grows or self.start_wd == self.end_wd,
            "not both use_checkpoint_opt_param_scheduler and override_opt_param_scheduler": not both,
        }

    def get_wd(self) -> float:
        """The weight decay of this step."""
        if self.start_wd == self.end_wd or self.num_steps >= self.wd_incr_steps:
            return self.end_wd
        grown = 1.0 - _FALLS[self.wd_incr_style](self.num_steps / self.wd_incr_steps)
        return self.start_wd + grown * (self.end_wd - self.start_wd)

    def get_lr(self, param_group: dict[str, Any] | None = None) -> float:
        """The learning rate of this step, for a group; before its ``lr_mult``."""
        group = param_group or {}
        highest, lowest = group.get("max_lr", self.max_lr), group.get("min_lr", self.min_lr)
        if 0 < self.lr_warmup_steps >= self.num_steps:
            return float(self.init_lr + (highest - self.init_lr) * self.num_steps / self.lr_warmup_steps)
        if self.lr_decay_style == "constant":
            return float(highest)
        if self.num_steps > self.lr_decay_steps:
            return float(lowest)
        if self.lr_decay_style == "inverse-square-root":
            return float(max(lowest, highest * math.sqrt(max(self.lr_warmup_steps, 1) / max(self.num_steps, 1))))
        return float(lowest + self._left() * (highest - lowest))

    def step(self, increment: int) -> None:
        """Go on by that many steps and write rates and decay into all groups."""
        self.num_steps += increment
        for group in self.optimizer.param_groups:
            group["lr"] = self.get_lr(group) * group.get("lr_mult", 1.0)
            group["weight_decay"] = self.get_wd() * group.get("wd_mult", 1.0)

    def state_dict(self) -> dict[str, Any]:
        """Settings and progress."""
        return {name: getattr(self, name) for name in (*_SETTINGS, "num_steps")}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go to where the checkpoint was.

        Raises:
            CheckpointError: Its settings are others, and nothing says which to take.
        """
        for name in _SETTINGS:
            setattr(self, name, self._chosen(name, state_dict.get(name, getattr(self, name))))
        self.step(state_dict["num_steps"])

    def _left(self) -> float:
        """The share of the way down that is left."""
        style, steps = self.lr_decay_style, self.lr_decay_steps - self.lr_warmup_steps
        if style == "WSD":
            style, steps = str(self.lr_wsd_decay_style), int(self.wsd_decay_steps or 0)
        return _FALLS[style](max(0.0, 1.0 - (self.lr_decay_steps - self.num_steps) / steps))

    def _chosen(self, name: str, saved: Any) -> Any:
        own = getattr(self, name)
        if self.override_opt_param_scheduler:
            return own
        if not self.use_checkpoint_opt_param_scheduler and own != saved:
            raise CheckpointError(
                f"{name} is {own!r} here and {saved!r} in the checkpoint",
                hint="use_checkpoint_opt_param_scheduler=True or override_opt_param_scheduler=True",
            )
        return saved
