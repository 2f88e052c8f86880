"""What ``prepare()`` decided, as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["stand-in", "repair", "host"]


@dataclass(frozen=True)
class Action:
    """One thing done to make a release run here.

    Attributes:
        kind: ``stand-in`` for an absent package, ``repair`` of a Megatron module, ``host`` for a CUDA entry
            point that the CPU answers.
        name: Package, ``module.attribute`` or torch name.
        why: What would fail otherwise.
    """

    kind: Kind
    name: str
    why: str


@dataclass(frozen=True)
class Report:
    """Result of ``prepare()``.

    Attributes:
        device: ``cpu`` or ``cuda``.
        actions: In the order stand-ins, repairs, host.
    """

    device: str
    actions: tuple[Action, ...]

    def __str__(self) -> str:
        lines = [f"device: {self.device}"]
        lines += [f"{action.kind:9} {action.name}: {action.why}" for action in self.actions]
        return "\n".join(lines)
