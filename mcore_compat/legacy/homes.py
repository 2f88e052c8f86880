"""Which data-parallel wrappers there are, and where each keeps its parameters.

From 0.6 on the distributed optimizer writes into the wrapper's flat buffer, of which every parameter is a view.
A program of an earlier era may point parameters at memory of its own afterwards; what the optimizer wrote is then
copied there after each step, so that the parameters stay the program's and still are updated.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mcore_compat.seams.data_parallel import replaced

_Homes = list[tuple[torch.nn.Parameter, torch.Tensor]]
# In the order of their making.
_homes: weakref.WeakKeyDictionary[torch.nn.Module, _Homes] = weakref.WeakKeyDictionary()


@contextmanager
def recorded(wrapper: torch.nn.Module, *args: Any, **keywords: Any) -> Iterator[None]:
    """Remember the wrapper that is constructed meanwhile, and the parameters that it moves."""
    wrapped = next(value for value in (*args, *keywords.values()) if isinstance(value, torch.nn.Module))
    before = {parameter: parameter.data_ptr() for parameter in wrapped.parameters()}
    yield
    _homes[wrapper] = [(parameter, parameter.data) for parameter in before if parameter.data_ptr() != before[parameter]]


def become(wrapper: torch.nn.Module, built: torch.nn.Module) -> None:
    """Make an empty wrapper the same as one that was built: both share all state from now on."""
    wrapper.__dict__ = vars(built)
    _homes[wrapper] = _homes.pop(built, [])
    replaced(built, wrapper)


def wrappers_of(parameters: Iterable[Any]) -> list[torch.nn.Module]:
    """The wrappers that hold any of these parameters, oldest first."""
    wanted = {id(parameter) for parameter in parameters}
    return [wrapper for wrapper in _homes if any(id(parameter) in wanted for parameter in wrapper.parameters())]


def deliver(wrappers: Iterable[torch.nn.Module]) -> None:
    """Copy what the optimizer wrote to where the program has put the parameters since."""
    for wrapper in wrappers:
        for parameter, home in _homes.get(wrapper, []):
            if parameter.data_ptr() != home.data_ptr():
                parameter.data.copy_(home)
