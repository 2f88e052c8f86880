"""A checkpoint as a test sees it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file


@dataclass(frozen=True)
class Saved:
    """The newest checkpoint of a folder.

    Attributes:
        folder: Of that checkpoint.
        tensors: All of them, as ``role/part/name``.
        models: What the manifest says of each.
    """

    folder: Path
    tensors: dict[str, torch.Tensor]
    models: dict[str, Any]

    def differing(self, other: Saved, tolerance: float = 0.0) -> list[str]:
        """Names of tensors that only one has, or whose largest difference exceeds that part of the largest element."""
        names = self.tensors.keys() & other.tensors.keys()
        # Moments hold gradients, which are sums over ranks: in another layout they round differently.
        allowed = {name: tolerance * (1 if "/weights/" in name else 10) for name in names}
        return [
            *sorted(self.tensors.keys() ^ other.tensors.keys()),
            *sorted(name for name in names if not _close(self.tensors[name], other.tensors[name], allowed[name])),
        ]


def saved(root: Path) -> Saved:
    """Read it."""
    folder = root / (root / "latest").read_text()
    tensors = {
        f"{path.parent.relative_to(folder)}/{name}": tensor
        for path in sorted(folder.glob("*/*/*.safetensors"))
        for name, tensor in load_file(path).items()
    }
    return Saved(folder, tensors, json.loads((folder / "manifest.json").read_text())["content"]["models"])


def _close(one: torch.Tensor, other: torch.Tensor, tolerance: float) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if tolerance == 0.0:
        return torch.equal(one, other)
    largest = max(other.abs().max().item(), torch.finfo(one.dtype).tiny)
    return ((one - other).abs().max() / largest).item() <= tolerance
