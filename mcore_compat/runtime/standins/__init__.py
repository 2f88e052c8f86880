"""Modules that stand where an optional package is absent, one file per package.

A stand-in is visible only to the Megatron modules that import the package without a guard, and only while
their bodies run; everyone else finds the package absent, as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

from . import amp_c, apex, pkg_resources, six, tools, transformer_engine, triton


@dataclass(frozen=True)
class StandIn:
    """How to stand in for one package.

    Attributes:
        package: Top-level import name.
        build: Makes the module tree, keyed by dotted name; imports torch only when called.
        offers: What is usable, for the report.
        distribution: Name and version that ``importlib.metadata`` gives while prepared, where Megatron asks.
    """

    package: str
    build: Callable[[], dict[str, ModuleType]]
    offers: str
    distribution: tuple[str, str] | None = None


CATALOGUE: dict[str, StandIn] = {
    item.package: item
    for item in (
        StandIn("amp_C", amp_c.build, "multi-tensor norm and scale in plain torch"),
        StandIn("apex", apex.build, "FusedAdam and FusedSGD by torch.optim"),
        StandIn("pkg_resources", pkg_resources.build, "the packaging library"),
        StandIn("six", six.build, "PY2 and PY3"),
        StandIn(
            "tools",
            tools.build,
            "names that refuse when called",
        ),
        StandIn(
            "transformer_engine",
            transformer_engine.build,
            "layer classes that refuse when constructed; use the local layer spec",
            distribution=("transformer-engine", transformer_engine.VERSION),
        ),
        StandIn("triton", triton.build, "decorators whose kernels refuse when launched"),
    )
}
