from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

from mcore_compat.errors import FeatureUnavailable
from mcore_compat.runtime.optimizers import FusedAdam, FusedSGD
from mcore_compat.runtime.standins import amp_c, apex


def parameter() -> torch.nn.Parameter:
    return torch.nn.Parameter(torch.linspace(-1, 1, 5))


def steps(optimizer: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        for group in optimizer.param_groups:
            for value in group["params"]:
                value.grad = value.detach().square()
        optimizer.step()


def test_adam_is_torch_adamw() -> None:
    ours, theirs = parameter(), parameter()
    steps(FusedAdam([ours], lr=0.1, weight_decay=0.2), 3)
    steps(torch.optim.AdamW([theirs], lr=0.1, weight_decay=0.2), 3)
    assert torch.equal(ours, theirs)


def test_sgd_is_torch_sgd() -> None:
    ours, theirs = parameter(), parameter()
    steps(FusedSGD([ours], lr=0.1, momentum=0.9, nesterov=True), 3)
    steps(torch.optim.SGD([theirs], lr=0.1, momentum=0.9, nesterov=True), 3)
    assert torch.equal(ours, theirs)


def test_step_count_of_the_group_restores_that_of_its_parameters() -> None:
    whole, halves = parameter(), parameter()
    steps(FusedAdam([whole], lr=0.1), 4)
    first = FusedAdam([halves], lr=0.1)
    steps(first, 2)
    saved: Any = copy.deepcopy(first.state_dict())
    assert saved["param_groups"][0]["step"] == 2
    del saved["state"][0]["step"]
    second = FusedAdam([halves], lr=0.1)
    second.load_state_dict(saved)
    steps(second, 2)
    assert torch.equal(whole, halves)


@pytest.mark.parametrize("mode", [{"adam_w_mode": False}, {"bias_correction": False}, {"amsgrad": True}])
def test_modes_that_torch_lacks_are_refused(mode: dict[str, Any]) -> None:
    with pytest.raises(FeatureUnavailable):
        FusedAdam([parameter()], **mode)


def test_zero_grad_follows_set_grad_none() -> None:
    kept, dropped = parameter(), parameter()
    for value, flag in ((kept, False), (dropped, True)):
        value.grad = torch.ones(5)
        FusedAdam([value], set_grad_none=flag).zero_grad()
    assert dropped.grad is None
    assert kept.grad is not None
    assert kept.grad.sum() == 0


def test_multi_tensor_norm_and_scale() -> None:
    flag = torch.zeros(1, dtype=torch.int)
    tensors = [torch.tensor([3.0]), torch.tensor([0.0, 4.0])]
    total, each = apex.multi_tensor_applier(amp_c.multi_tensor_l2norm, flag, [tensors], True)
    assert total.tolist() == [5.0]
    assert each.tolist() == [3.0, 4.0]
    copies = [torch.zeros(1), torch.zeros(2)]
    apex.multi_tensor_applier(amp_c.multi_tensor_scale, flag, [tensors, copies], 0.5)
    assert torch.cat(copies).tolist() == [1.5, 0.0, 2.0]
    apex.multi_tensor_applier(amp_c.multi_tensor_scale, flag, [tensors, tensors], 2.0)
    assert torch.cat(tensors).tolist() == [6.0, 0.0, 8.0]
