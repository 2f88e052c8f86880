"""Packages that a client needs and that are not here: a few functions in plain torch, else names only.

Visible to the whole process, unlike those of ``mcore_compat.runtime``: the client itself imports them.
"""

from __future__ import annotations

import abc
import importlib.metadata
import itertools
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from mcore_compat.runtime.optimizers import FusedAdam, FusedSGD


def install(packages: Iterable[str]) -> list[str]:
    """Stand in for those of the packages that are absent; prints and returns their names."""
    absent = [name for name in packages if find_spec(name) is None]
    sys.meta_path.append(_Finder(absent))
    for name in absent:
        offered = sorted(key for key in OFFERS if key.partition(".")[0] == name)
        print(f"stand-in  {name}: {', '.join(offered) or 'names only'}")
    return absent


class Hollow(abc.ABCMeta):
    """A class that can be named, subclassed and decorated with, and has no substance."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return hollow(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else super().__call__()


def hollow(name: str) -> Hollow:
    return Hollow(name, (), {})


class _Finder(MetaPathFinder):
    def __init__(self, packages: Sequence[str]) -> None:
        self._packages = packages

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, _Loader(), is_package=True) if name.partition(".")[0] in self._packages else None

    def find_distributions(self, context: Any) -> Iterator[importlib.metadata.Distribution]:
        if context.name in self._packages:
            yield _Distribution(context.name)


class _Loader(Loader):
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return ModuleType(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(OFFERS.get(module.__name__, {}))
        vars(module)["__version__"] = "9.9"
        vars(module)["__getattr__"] = lambda name: _name(name)


def _name(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return hollow(name)


class _Distribution(importlib.metadata.Distribution):
    def __init__(self, name: str) -> None:
        self._name = name

    def read_text(self, filename: str) -> str | None:
        return f"Metadata-Version: 2.1\nName: {self._name}\nVersion: 9.9\n" if filename == "METADATA" else None

    def locate_file(self, path: Any) -> Any:
        raise FileNotFoundError(path)


class TensorDict(dict[str, Any]):
    """Tensors with the same first dimension."""

    def __init__(self, source: Any, batch_size: Any = None) -> None:
        super().__init__(source)

    @property
    def batch_size(self) -> torch.Size:
        return next(iter(self.values())).shape[:1]

    @property
    def sorted_keys(self) -> list[str]:
        return sorted(self)

    def each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> TensorDict:
        return TensorDict({name: change(tensor) for name, tensor in self.items()})

    def __getitem__(self, item: Any) -> Any:
        return super().__getitem__(item) if isinstance(item, str) else self.each(lambda tensor: tensor[item])

    def select(self, *names: str) -> TensorDict:
        return TensorDict({name: self[name] for name in names})

    def contiguous(self) -> TensorDict:
        return self.each(torch.Tensor.contiguous)

    def to(self, device: Any) -> TensorDict:
        return self.each(lambda tensor: tensor.to(device))

    def split(self, size: int) -> list[TensorDict]:
        return [self[start : start + size] for start in range(0, self.batch_size[0], size)]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> TensorDict:
        assert function is torch.stack
        (parts,) = args
        return cls({name: torch.stack([part[name] for part in parts]) for name in parts[0]})


def unpad_input(hidden: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """[R, T, ...] and [R, T] -> the kept positions [N, ...], their flat indices, row bounds [R + 1], longest row."""
    lengths = mask.sum(dim=-1, dtype=torch.int32)
    indices = mask.flatten().nonzero().flatten()
    bounds = torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))
    return hidden.flatten(0, 1)[indices], indices, bounds, int(lengths.max())


def pad_input(hidden: torch.Tensor, indices: torch.Tensor, batch: int, seqlen: int) -> torch.Tensor:
    """The inverse of ``unpad_input``, zero elsewhere."""
    full = hidden.new_zeros(batch * seqlen, *hidden.shape[1:])
    return full.index_put((indices,), hidden).view(batch, seqlen, *hidden.shape[1:])


def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, causal: bool, **unused: Any
) -> torch.Tensor:
    """Attention over rows of different lengths: [N, heads, d]."""
    bounds = cu_seqlens_q.tolist()
    repeat = q.shape[1] // k.shape[1]
    rows = []
    for start, stop in itertools.pairwise(bounds):
        own = [x[start:stop].transpose(0, 1).float() for x in (q, k, v)]
        own[1:] = [x.repeat_interleave(repeat, dim=0) for x in own[1:]]
        scores = own[0] @ own[1].transpose(1, 2) / q.shape[-1] ** 0.5
        scores = scores.masked_fill(torch.ones(scores.shape[1:], dtype=torch.bool).triu(1), float("-inf"))
        rows.append((scores.softmax(-1) @ own[2]).transpose(0, 1).to(q.dtype))
    return torch.cat(rows)


def apply_rotary_emb(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, cu_seqlens: torch.Tensor, **unused: Any
) -> torch.Tensor:
    """Rotate halves of [N, heads, d] by each position's angle; positions start anew in each row."""
    bounds = cu_seqlens.tolist()
    places = torch.cat([torch.arange(stop - start) for start, stop in itertools.pairwise(bounds)])
    cos, sin = cos[places, None].to(x.dtype), sin[places, None].to(x.dtype)
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def fused_rms_norm_affine(
    input: torch.Tensor, weight: torch.Tensor, normalized_shape: torch.Size, eps: float, memory_efficient: bool = False
) -> torch.Tensor:
    return torch.nn.functional.rms_norm(input, normalized_shape, weight, eps)


class _Mode:
    def set(self) -> None:
        return None


OFFERS: dict[str, dict[str, Any]] = {
    "apex.normalization.fused_layer_norm": {"fused_rms_norm_affine": fused_rms_norm_affine},
    "apex.optimizers": {"FusedAdam": FusedAdam, "FusedSGD": FusedSGD},
    "flash_attn": {"flash_attn_varlen_func": flash_attn_varlen_func},
    "flash_attn.bert_padding": {"pad_input": pad_input, "unpad_input": unpad_input},
    "flash_attn.layers.rotary": {"apply_rotary_emb": apply_rotary_emb},
    "tensordict": {"TensorDict": TensorDict, "set_lazy_legacy": lambda lazy: _Mode()},
}
