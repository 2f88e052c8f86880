"""``prepare()``, ``restore()`` and ``report()``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal

from mcore_compat.detect import find
from mcore_compat.errors import ConfigError, EnvironmentMismatch
from mcore_compat.runtime.actions import Action, Report
from mcore_compat.runtime.device import DeviceKind, choose
from mcore_compat.runtime.hooks import Hook
from mcore_compat.runtime.patches import Patches
from mcore_compat.runtime.repairs import REPAIRS, Repair
from mcore_compat.runtime.source import ENTRIES, PROGRAMS, Source, portions
from mcore_compat.runtime.standins import CATALOGUE, StandIn

_DEVICES = ("auto", "cpu", "cuda")
_OPTIONAL = ("apex", "transformer_engine")


@dataclass
class _Session:
    report: Report
    hook: Hook
    patches: Patches


_session: _Session | None = None
# What ``become_host()`` did; it stays for the life of the process.
_forced: list[Action] | None = None


def prepare(device: Literal["auto", "cpu", "cuda"] = "auto") -> Report:
    """Make the Megatron on ``sys.path`` run in this process. Must come before ``megatron.core`` is imported.

    Args:
        device: ``auto`` is CUDA where torch has it, else the CPU; ``cpu`` lets the CPU answer CUDA calls.

    Returns:
        What was done; the same report again when called again.

    Raises:
        ConfigError: No such device.
        EnvironmentMismatch: Megatron is imported already, CUDA is asked for and absent, this process is
            prepared for another device, or a package is absent that cannot be stood in for.
        MegatronNotFound: No Megatron on ``sys.path``.
    """
    global _session
    if device not in _DEVICES:
        raise ConfigError(f"device must be one of {', '.join(_DEVICES)}, found {device!r}")
    wanted = "auto" if _forced is not None else device
    if _session is None or _session.report.device == "none":
        kind = _resolve(wanted)
        _require_fresh()
        restore()
        _session = _start(kind)
    elif wanted not in ("auto", _session.report.device):
        raise EnvironmentMismatch(
            f"this process is prepared for {_session.report.device}, not {device}",
            hint="call restore() first, or start another process",
        )
    return _session.report


def restore() -> None:
    """Put back everything ``prepare()`` changed. Megatron modules that are imported by now stay imported."""
    global _session
    if _session is not None:
        _session.hook.remove()
        _session.patches.revert()
        choose(None if _forced is None else "cpu")
        _session = None


def become_host() -> None:
    """Let the CPU answer CUDA calls for a program that never calls ``prepare()``, and say that CUDA is available.

    A later ``prepare()``, for whatever device, finds the CPU chosen.
    """
    global _forced
    if _forced is None:
        _forced = _apply_host(Patches(), visible=True)
        choose("cpu")


def stand_in() -> None:
    """Prepare for the Megatron that is about to be imported, unless ``prepare()`` was called; torch stays as it is."""
    global _session
    if _session is None:
        _session = _start(_device_of_torch(), known=False)


def report() -> Report | None:
    """The report of ``prepare()``, ``None`` where it has not been called."""
    return _session.report if _session else None


def _resolve(device: Literal["auto", "cpu", "cuda"]) -> DeviceKind:
    if device == "cpu" or _forced is not None:
        return "cpu"
    import torch

    if torch.cuda.is_available():
        return "cuda"
    if device == "cuda":
        raise EnvironmentMismatch(
            f"device='cuda' was asked for, and torch {torch.__version__} finds no CUDA device",
            hint="use device='auto' or 'cpu', or install a CUDA build of torch",
        )
    return "cpu"


def _device_of_torch() -> DeviceKind | None:
    if _forced is not None:
        return "cpu"
    import torch

    return "cuda" if torch.cuda.is_available() else None


def _require_fresh() -> None:
    if "megatron.core" in sys.modules:
        found = getattr(sys.modules["megatron.core"], "__file__", "unknown place")
        raise EnvironmentMismatch(
            f"megatron.core ({found}) was imported before prepare(), too early to be prepared",
            hint="call mcore_compat.prepare() before the first import of megatron",
        )


def _start(kind: DeviceKind | None, *, known: bool = True) -> _Session:
    """Prepare; ``known``: nothing but what the seams use will be imported."""
    source = Source(find().root) if known else Source(find().root, (*ENTRIES, *PROGRAMS), tuple(portions()))
    absent = {name for name in {*source.importers, *_OPTIONAL} if not _installed(name)}
    _require_installed(source, absent)
    standins = {name: CATALOGUE[name] for name in sorted(absent & set(source.importers))}
    repairs = [row for row in REPAIRS if row.needed(source, absent)]
    patches = Patches()
    hook = Hook(standins, source.importers, _on_import(repairs, patches))
    host = _forced or []
    if kind == "cpu" and not host:
        host = _apply_host(patches, visible=False)
    hook.install()
    choose(kind)
    actions = [*_standin_actions(standins, source), *_repair_actions(repairs), *host]
    return _Session(Report(kind or "none", tuple(actions)), hook, patches)


def _installed(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


def _require_installed(source: Source, absent: set[str]) -> None:
    missing = sorted(absent & set(source.needed) - set(CATALOGUE) - set(_OPTIONAL))
    if missing:
        importer = min(source.importers[missing[0]])
        raise EnvironmentMismatch(
            f"not installed: {', '.join(missing)}; {importer} imports {missing[0]} unconditionally",
            hint=f"pip install {' '.join(missing)}",
        )


def _apply_host(patches: Patches, *, visible: bool) -> list[Action]:
    from mcore_compat.runtime import host

    table = host.patches(visible=visible)
    patches.apply(table)
    return [Action("host", patch.label, patch.why) for patch in table if isinstance(patch.name, str)]


def _on_import(repairs: list[Repair], patches: Patches) -> dict[str, Callable[[ModuleType], None]]:
    def repair(module: ModuleType) -> None:
        for row in repairs:
            if row.module == module.__name__:
                patches.apply(row.patches(module))

    return {row.module: repair for row in repairs}


def _standin_actions(standins: dict[str, StandIn], source: Source) -> list[Action]:
    return [
        Action(
            "stand-in",
            name,
            f"absent, and imported unconditionally by {min(source.importers[name])}; offers {standin.offers}",
        )
        for name, standin in standins.items()
    ]


def _repair_actions(repairs: list[Repair]) -> list[Action]:
    return [Action("repair", f"{row.module}: {row.names}", row.why) for row in repairs]
