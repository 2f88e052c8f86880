"""What planning a patch on a tree says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from mcore_compat.patching.tree import Change, Tree

State = Literal["applied", "already applied", "not needed", "not applicable", "conflict", "reverted"]
FINE: frozenset[State] = frozenset({"applied", "already applied", "not needed", "reverted"})


@dataclass(frozen=True)
class Result:
    """How one patch ended.

    Attributes:
        id: The patch.
        state: In what.
        where: ``path:line`` of what it changes, or of what did not fit.
        reason: Why.
    """

    id: str
    state: State
    where: tuple[str, ...] = ()
    reason: str = ""

    @property
    def is_fine(self) -> bool:
        """Whether it stands in nobody's way."""
        return self.state in FINE


@dataclass(frozen=True)
class Step:
    """A planned patch: its result and, where it applies, what it changes."""

    result: Result
    digest: str
    changes: Mapping[str, Change] = field(default_factory=dict)


class Patch(Protocol):
    """Something that can be planned on a tree."""

    @property
    def id(self) -> str:
        """Its name in reports and in the ledger."""
        ...

    @property
    def digest(self) -> str:
        """sha256 of its text."""
        ...

    def plan(self, tree: Tree) -> Step:
        """Say what it would do to ``tree``; changes nothing."""
        ...
