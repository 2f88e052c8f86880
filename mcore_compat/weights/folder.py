"""The safetensors files of a Hugging Face folder. Headers are read at once, tensors only where asked for."""

from __future__ import annotations

import json
from contextlib import AbstractContextManager, ExitStack
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from mcore_compat.errors import WeightsError

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    import torch

SINGLE = "model.safetensors"
INDEX = "model.safetensors.index.json"


class WeightFolder(AbstractContextManager["WeightFolder"]):
    """Opens every shard of a folder.

    Args:
        folder: Holds ``model.safetensors``, or ``model.safetensors.index.json`` and its shards.

    Raises:
        WeightsError: Weights, index or a shard are missing or broken; the message names the file.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = ExitStack()
        self._home: dict[str, Any] = {}
        try:
            for shard in _shards(folder):
                file = self._open(shard)
                self._home.update(dict.fromkeys(file.keys(), file))
        except BaseException:
            self._files.close()
            raise

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all tensors, sorted."""
        return tuple(sorted(self._home))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return a tensor's shape without reading it.

        Raises:
            WeightsError: No such tensor.
        """
        return tuple(self._slice(name).get_shape())

    def read(self, name: str, dimension: int | None = None, start: int = 0, stop: int = 0) -> torch.Tensor:
        """Read a tensor, or only ``start`` … ``stop`` of one dimension (0 or 1)."""
        slices = self._slice(name)
        tensor: torch.Tensor
        if dimension is None:
            tensor = slices[...]
        elif dimension == 0:
            tensor = slices[start:stop]
        else:
            tensor = slices[:, start:stop]
        return tensor

    def _open(self, path: Path) -> Any:
        try:
            return self._files.enter_context(safe_open(path, framework="pt"))
        except (OSError, SafetensorError) as error:
            raise WeightsError(f"{path} cannot be read: {error}", hint="copy the file again") from error

    def _slice(self, name: str) -> Any:
        if name not in self._home:
            raise WeightsError(f"{self.folder} has no tensor {name}", hint="compare config.json with the weights")
        return self._home[name].get_slice(name)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._files.close()


def _shards(folder: Path) -> list[Path]:
    """Return the weight files, and make sure that they are there."""
    index, single = folder / INDEX, folder / SINGLE
    if not index.is_file():
        if single.is_file():
            return [single]
        raise WeightsError(
            f"{folder} has neither {SINGLE} nor {INDEX}",
            hint="save the model again with transformers' save_pretrained",
        )
    shards = [folder / name for name in sorted(set(_weight_map(index).values()))]
    for shard in shards:
        if not shard.is_file():
            raise WeightsError(f"{index} names {shard.name}, which is not there", hint="copy the missing file")
    return shards


def _weight_map(index: Path) -> dict[str, str]:
    try:
        found = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        return {str(name): str(file) for name, file in found.items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} is not an index of weights: {error!r}", hint="copy the file again") from error
