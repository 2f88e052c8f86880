"""A call shape as printable data, compared with the facts of a Megatron's source."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, fields

from mcore_compat.detect import Facts

Fragment = tuple[str, str]


@dataclass(frozen=True)
class Shape:
    """What the source must look like for a variant to fit; every condition must hold.

    Places are written ``module:name`` or ``module:Class.name``.

    Attributes:
        accepts: Parameters that the target has.
        lacks: Parameters that the target does not have.
        defines: Places that exist.
        undefined: Places that do not exist.
        contains: (place, text): the definition's source holds that text.
        omits: (place, text): it does not, or there is no such definition.
        target: Instead of the seam's target.
    """

    accepts: Set[str] = frozenset()
    lacks: Set[str] = frozenset()
    defines: Set[str] = frozenset()
    undefined: Set[str] = frozenset()
    contains: Collection[Fragment] = frozenset()
    omits: Collection[Fragment] = frozenset()
    target: str | None = None

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "target":
                continue
            if isinstance(value, str):
                raise TypeError(f"Shape({field.name}=...) takes a set, got the string {value!r}")
            object.__setattr__(self, field.name, frozenset(value))

    def describe(self, target: str | None) -> str:
        """The conditions in words, e.g. ``DistributedDataParallel.__init__ accepts pg_collection``."""
        accepted = [f"accepts {_listed(self.accepts)}"] if self.accepts else []
        lacking = [f"lacks {_listed(self.lacks)}"] if self.lacks else []
        signature = " and ".join(accepted + lacking)
        parts = [
            f"{_short(self.target or target or '')} {signature}" if signature else "",
            f"{_listed(self.defines)} exists" if self.defines else "",
            f"{_listed(self.undefined)} does not exist" if self.undefined else "",
            *(f"{_short(place)} contains {text!r}" for place, text in sorted(self.contains)),
            *(f"{_short(place)} omits {text!r}" for place, text in sorted(self.omits)),
        ]
        return "; ".join(filter(None, parts)) or "fits every Megatron"

    def differences(self, target: str | None, facts: Facts) -> list[str]:
        """The conditions that do not hold, in words; empty: the shape fits."""
        return [*self._parameter_differences(self.target or target, facts), *self._source_differences(facts)]

    def _parameter_differences(self, target: str | None, facts: Facts) -> list[str]:
        if not (self.accepts or self.lacks):
            return []
        if target is None:
            raise TypeError("a Shape with accepts or lacks needs a target, of its own or of its seam")
        parameters = facts.parameters(target)
        if parameters is None:
            return [f"there is no {target}"]
        absent, present = self.accepts - set(parameters), self.lacks & set(parameters)
        return [
            *(f"{_short(target)} has no parameter {name}" for name in sorted(absent)),
            *(f"{_short(target)} has the parameter {name}" for name in sorted(present)),
        ]

    def _source_differences(self, facts: Facts) -> list[str]:
        return [
            *(f"there is no {place}" for place in sorted(self.defines) if not facts.defines(place)),
            *(f"there is {place}" for place in sorted(self.undefined) if facts.defines(place)),
            *(
                f"{place} does not contain {text!r}"
                for place, text in sorted(self.contains)
                if text not in (facts.source(place) or "")
            ),
            *(
                f"{place} contains {text!r}"
                for place, text in sorted(self.omits)
                if text in (facts.source(place) or "")
            ),
        ]


def _short(place: str) -> str:
    return place.partition(":")[2] or place


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
