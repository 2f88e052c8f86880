"""What the scheduler refuses; that it computes as upstream's does is in ``test_install``."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import pytest

from mcore_compat.errors import CheckpointError, ConfigError
from mcore_compat.legacy.scheduler import OptimizerParamScheduler

SETTINGS: dict[str, Any] = {
    "init_lr": 0.0,
    "max_lr": 1.0,
    "min_lr": 0.1,
    "lr_warmup_steps": 2,
    "lr_decay_steps": 8,
    "lr_decay_style": "linear",
    "start_wd": 0.1,
    "end_wd": 0.1,
    "wd_incr_steps": 0,
    "wd_incr_style": "constant",
}


def scheduler(**settings: Any) -> OptimizerParamScheduler:
    return OptimizerParamScheduler(SimpleNamespace(param_groups=[{}]), **SETTINGS | settings)


@pytest.mark.parametrize(
    ("settings", "beside"),
    [
        ({"min_lr": 2.0}, {"max_lr": 1.0, "init_lr": 0.0}),
        ({"init_lr": 2.0}, {"max_lr": 1.0, "min_lr": 0.1}),
        ({"lr_warmup_steps": 8}, {"lr_decay_steps": 8}),
        ({"lr_decay_style": "steep"}, {}),
        ({"lr_decay_style": "WSD", "wsd_decay_steps": 4}, {"lr_wsd_decay_style": None}),
        ({"end_wd": 0.2}, {"wd_incr_style": "constant", "start_wd": 0.1}),
        ({"override_opt_param_scheduler": True}, {"use_checkpoint_opt_param_scheduler": True}),
    ],
    ids=str,
)
def test_refuses(settings: dict[str, Any], beside: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="expected") as refused:
        scheduler(**settings)
    _, _, found = str(refused.value).partition("; found ")
    assert ast.literal_eval(found.splitlines()[0]) == settings | beside


def test_settings_of_a_checkpoint() -> None:
    saved = scheduler(max_lr=3.0)
    saved.step(4)
    taken, kept = scheduler(), scheduler(use_checkpoint_opt_param_scheduler=False, override_opt_param_scheduler=True)
    for loading, highest in ((taken, 3.0), (kept, 1.0)):
        loading.load_state_dict(saved.state_dict())
        assert (loading.max_lr, loading.num_steps) == (highest, 4)
    with pytest.raises(CheckpointError, match=r"max_lr is 1.0 here and 3.0"):
        scheduler(use_checkpoint_opt_param_scheduler=False).load_state_dict(saved.state_dict())
