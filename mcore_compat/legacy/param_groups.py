"""Parameter groups of the era, and torch optimizers over them read as settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from mcore_compat.runtime.optimizers import FusedAdam, FusedSGD

Condition = Callable[[str, Any], bool]
Group = dict[str, Any]


def get_param_groups(
    modules: Iterable[torch.nn.Module],
    no_weight_decay_cond: Condition | None = None,
    scale_lr_cond: Condition | None = None,
    lr_mult: float = 1.0,
) -> list[Group]:
    """Groups by weight-decay and learning-rate multiplier; without a condition biases and vectors do not decay."""
    found: dict[tuple[float, float], list[Any]] = {
        (1.0, 1.0): [],
        (1.0, lr_mult): [],
        (0.0, 1.0): [],
        (0.0, lr_mult): [],
    }
    exempt = no_weight_decay_cond or (lambda name, parameter: name.endswith(".bias") or parameter.ndim == 1)
    for name, parameter in (pair for module in modules for pair in module.named_parameters()):
        if parameter.requires_grad:
            scaled = scale_lr_cond is not None and scale_lr_cond(name, parameter)
            found[0.0 if exempt(name, parameter) else 1.0, lr_mult if scaled else 1.0].append(parameter)
    return [{"params": own, "wd_mult": wd, "lr_mult": lr} for (wd, lr), own in found.items() if own]


def torch_optimizer(args: Any, groups: list[Group]) -> torch.optim.Optimizer:
    """Adam or SGD as the program's arguments say."""
    if args.optimizer == "sgd":
        return FusedSGD(groups, lr=args.lr, weight_decay=args.weight_decay, momentum=args.sgd_momentum)
    betas = (args.adam_beta1, args.adam_beta2)
    return FusedAdam(groups, lr=args.lr, weight_decay=args.weight_decay, betas=betas, eps=args.adam_eps)


def as_settings(optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """Kind, coefficients and conditions of a torch optimizer as settings."""
    groups = optimizer.param_groups
    first = groups[0]
    undecayed = _members(group for group in groups if group.get("wd_mult", 1.0) == 0.0)
    scaled = [group for group in groups if group.get("lr_mult", 1.0) != 1.0]
    members = _members(scaled)
    found: dict[str, Any] = {
        "lr": first["lr"],
        "weight_decay": max(group["weight_decay"] for group in groups),
        "no_weight_decay_cond": lambda name, parameter: id(parameter) in undecayed,
        "scale_lr_cond": (lambda name, parameter: id(parameter) in members) if scaled else None,
        "lr_mult": scaled[0]["lr_mult"] if scaled else 1.0,
    }
    if "momentum" in first:
        return found | {"optimizer": "sgd", "momentum": first["momentum"]}
    return found | {"optimizer": "adam", "betas": tuple(first["betas"]), "eps": first["eps"]}


def _members(groups: Iterable[Group]) -> set[int]:
    return {id(parameter) for group in groups for parameter in group["params"]}


def multipliers(group: Group) -> tuple[float, float]:
    """Of weight decay and of the learning rate."""
    return group.get("wd_mult", 1.0), group.get("lr_mult", 1.0)
