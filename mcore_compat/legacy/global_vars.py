"""``megatron.global_vars`` of 0.4 and 0.5: the program's arguments, which it sets itself here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mcore_compat.errors import ConfigError
from mcore_compat.legacy.timers import DummyTimer, no_timers

__all__ = ["get_args", "get_timers", "set_args", "set_global_variables"]

_arguments: Any = None


def set_args(args: Any) -> None:
    """Keep the arguments."""
    global _arguments
    _arguments = args


def set_global_variables(args: Any, build_tokenizer: bool = False) -> None:
    """Keep the arguments; no tokenizer and no writers are built."""
    set_args(args)


def get_args() -> Any:
    """The arguments.

    Raises:
        ConfigError: Nobody has set any.
    """
    if _arguments is None:
        raise ConfigError("no arguments yet", hint="call set_args(arguments) of this module first")
    return _arguments


def get_timers() -> Callable[..., DummyTimer]:
    """Timers that measure nothing."""
    return no_timers
