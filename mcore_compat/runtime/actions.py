"""What ``prepare()`` decided, as data."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Literal

SHOWN = 3
Kind = Literal["stand-in", "repair", "host", "patch"]


@dataclass(frozen=True)
class Action:
    """One thing done to make a release run here.

    Attributes:
        kind: ``stand-in`` for an absent package, ``repair`` of a Megatron module, ``host`` for a CUDA entry
            point that the CPU answers, ``patch`` for one of :mod:`mcore_compat.patching`.
        name: Package, ``module.attribute``, torch name or patch.
        why: What would fail otherwise.
    """

    kind: Kind
    name: str
    why: str


# Patches that change Megatron modules as they are imported; here, for explain() must not need what they are made with.
IN_MEMORY: list[Action] = []


@dataclass(frozen=True)
class Report:
    """Result of ``prepare()``.

    Attributes:
        device: ``cpu``, ``cuda``, or ``none`` where torch was left without either.
        actions: In the order stand-ins, repairs, host.
    """

    device: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        lines = [f"device: {self.device}"]
        for (kind, why), actions in groupby(self.actions, key=lambda action: (action.kind, action.why)):
            names = [action.name for action in actions]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            lines.append(f"{kind:9} {', '.join(names[:SHOWN])}{more}: {why}")
        return "\n".join(lines)
