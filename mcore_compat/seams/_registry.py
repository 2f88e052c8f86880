"""How a seam chooses one of its variants: by what Megatron's source accepts, never by its version.

A seam is one axis of difference: a package beside this file whose ``__init__.py`` says ``seam = Seam(...)``
and whose other files hold one variant each. Files whose name starts with an underscore are helpers and are
not loaded for registration. Registering needs neither torch nor megatron: only ``bind`` imports them.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from mcore_compat.contracts import Choice
from mcore_compat.detect import Facts, UnverifiedRelease, find
from mcore_compat.errors import AmbiguousMegatron, RuntimeDrift, UnsupportedMegatron
from mcore_compat.matrix.table import unverified
from mcore_compat.seams._shape import Shape

__all__ = ["Seam", "Shape", "Variant", "choices", "seams"]

CallableT = TypeVar("CallableT", bound=Callable[..., Any])
Differences = list[tuple["Variant[CallableT]", list[str]]]


@dataclass(frozen=True)
class Variant(Generic[CallableT]):
    """One call shape of a seam: what selects it, and how to bind it."""

    name: str
    since: str
    shape: Shape
    bind: Callable[[], CallableT]


class Seam(Generic[CallableT]):
    """One axis of difference.

    Args:
        name: Shown by ``doctor`` and ``explain``.
        doc: One sentence on what differs.
        target: ``module:name`` or ``module:Class.name`` whose parameters the shapes speak of.
    """

    def __init__(self, name: str, doc: str = "", *, target: str | None = None) -> None:
        self.name = name
        self.doc = doc
        self.target = target
        self.module: str = sys._getframe(1).f_globals["__name__"]
        self._variants: dict[str, Variant[CallableT]] = {}
        self._bound: CallableT | None = None

    def __repr__(self) -> str:
        return f"Seam({self.name!r})"

    def variant(
        self, name: str, *, since: str, shape: Shape
    ) -> Callable[[Callable[[], CallableT]], Callable[[], CallableT]]:
        """Register the decorated ``bind``, which returns the callable to use where ``shape`` matches.

        Args:
            name: Unique within the seam.
            since: First release with this shape, for people; never compared.
            shape: What the source must look like.
        """

        def register(bind: Callable[[], CallableT]) -> Callable[[], CallableT]:
            known = self._variants.get(name)
            if known is not None and known.bind.__module__ != bind.__module__:
                raise ValueError(f"seam {self.name}: variant {name} is registered twice")
            self._variants[name] = Variant(name, since, shape, bind)
            return bind

        return register

    @property
    def variants(self) -> tuple[Variant[CallableT], ...]:
        """Every variant, in the order of their files; loads them."""
        for name in _children(sys.modules[self.module]):
            importlib.import_module(name)
        return tuple(self._variants.values())

    def select(self, facts: Facts) -> Choice:
        """The one variant whose shape matches.

        Raises:
            UnsupportedMegatron: None does.
            AmbiguousMegatron: More than one does.
        """
        variant = self._pick(facts)
        why = variant.shape.describe(self.target)
        return Choice(self.name, variant.name, variant.since, why, variant.bind.__module__)

    def bind(self) -> CallableT:
        """The callable for the Megatron on ``sys.path``: chosen, bound and verified once, then kept.

        Raises:
            MegatronNotFound: There is none.
            UnsupportedMegatron: Its source matches no variant, or several.
            RuntimeDrift: The imported object has other parameters than its source.
        """
        if self._bound is None:
            facts = _facts_on_path()
            variant = self._pick(facts)
            bound = variant.bind()
            _verify(self, variant, facts)
            self._bound = bound
        return self._bound

    def reset(self) -> None:
        """Forget what was bound, and what was found on ``sys.path``."""
        self._bound = None
        _facts_on_path.cache_clear()

    def _pick(self, facts: Facts) -> Variant[CallableT]:
        differences = [(variant, variant.shape.differences(self.target, facts)) for variant in self.variants]
        matching = [variant for variant, missing in differences if not missing]
        if len(matching) == 1:
            return matching[0]
        raise _ambiguous(self, matching, facts) if matching else _unsupported(self, differences, facts)


def seams() -> list[Seam[Any]]:
    """Every seam of the package, by name."""
    package = importlib.import_module("mcore_compat.seams")
    found: dict[str, Seam[Any]] = {}
    own_source = Facts(Path(__file__).parents[2])
    for name in _children(package):
        # Facades share the folder and may import torch: only a package that makes a Seam is loaded.
        if not own_source.defines(f"{name}:Seam"):
            continue
        members = vars(importlib.import_module(name)).values()
        found |= {seam.name: seam for seam in members if isinstance(seam, Seam) and seam.module == name}
    return [found[name] for name in sorted(found)]


def choices(facts: Facts) -> list[Choice]:
    """The chosen variant of every seam; neither torch nor megatron is imported.

    Raises:
        UnsupportedMegatron: Some seam has no variant that matches, or several.
    """
    return [seam.select(facts) for seam in seams()]


@lru_cache(maxsize=1)
def _facts_on_path() -> Facts:
    megatron = find()
    message = unverified(megatron.version)
    if message:
        warnings.warn(f"{megatron}: {message}", UnverifiedRelease, stacklevel=4)
    return Facts(megatron.root)


def _children(package: ModuleType) -> list[str]:
    return [
        f"{package.__name__}.{info.name}"
        for info in pkgutil.iter_modules(getattr(package, "__path__", ()))
        if not info.name.startswith("_")
    ]


def _unsupported(seam: Seam[CallableT], differences: Differences[CallableT], facts: Facts) -> UnsupportedMegatron:
    if not differences:
        return UnsupportedMegatron(f"seam {seam.name} has no variants", hint="reinstall mcore-compat")
    nearest, missing = min(differences, key=lambda pair: len(pair[1]))
    return UnsupportedMegatron(
        f"no known call shape of {seam.name} fits the Megatron that is there\n"
        f"  found: {facts.megatron}\n"
        f"  expected: {_shapes(seam, [variant for variant, _ in differences], 'or')}\n"
        f"  nearest: {nearest.name} (since {nearest.since}), but {'; '.join(missing)}",
        hint=f"mcore-compat doctor --root {facts.root} shows every seam; "
        f"a new call shape is one new file beside {nearest.bind.__module__}",
    )


def _ambiguous(seam: Seam[CallableT], matching: list[Variant[CallableT]], facts: Facts) -> AmbiguousMegatron:
    return AmbiguousMegatron(
        f"several call shapes of {seam.name} fit the Megatron that is there\n"
        f"  found: {facts.megatron}\n"
        f"  expected: exactly one of them to fit\n"
        f"  fitting: {_shapes(seam, matching, 'and')}",
        hint=f"mcore-compat doctor --root {facts.root} shows every seam; "
        "this tree mixes releases: take one of the shapes out of it",
    )


def _shapes(seam: Seam[CallableT], variants: list[Variant[CallableT]], joiner: str) -> str:
    texts = (f"{variant.name} ({variant.shape.describe(seam.target)})" for variant in variants)
    return f", {joiner} ".join(texts)


def _verify(seam: Seam[CallableT], variant: Variant[CallableT], facts: Facts) -> None:
    """Compare the imported target with what its source promised: a fork may have replaced it at run time."""
    target = variant.shape.target or seam.target
    if target is None or not (variant.shape.accepts or variant.shape.lacks):
        return
    module, _, qualname = target.partition(":")
    imported: Any = importlib.import_module(module)
    for part in qualname.split("."):
        imported = getattr(imported, part)
    parameters = inspect.signature(imported).parameters
    open_ended = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    absent = set() if open_ended else variant.shape.accepts - parameters.keys()
    present = variant.shape.lacks & parameters.keys()
    if absent or present:
        raise RuntimeDrift(
            f"{target} was read as {variant.shape.describe(seam.target)}, but the imported object takes "
            f"({', '.join(parameters)})\n  found: {facts.megatron}",
            hint="something replaced it after import; import mcore_compat first, or bind before patching",
        )
