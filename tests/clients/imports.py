"""Imports every module of a client that names Megatron."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

from mcore_compat import legacy
from mcore_compat.audit.reader import read
from tests.clients import standins

_PACKAGES = """
accelerate apex cachetools cloudpickle codetiming cupy datasets fastapi fire flash_attn hydra jsonlines lightning
lightning_fabric mathruler megatron_energon modelopt nemo nvtx pandas peft psutil pytorch_lightning pytriton
qwen_vl_utils ray scipy sglang tensordict tensorrt_llm torchdata
torchvision transformer_engine uvicorn uvloop vllm webdataset zmq
"""


def failures(package: str, folder: str, era: str) -> dict[str, str]:
    """Module to the error that its import raises, for those of ``package`` under ``folder``."""
    warnings.simplefilter("ignore")
    legacy.install(era)
    standins.install(_PACKAGES.split())
    sys.path.insert(0, folder)
    modules = [_module(path, Path(folder)) for path in sorted(Path(folder, package).rglob("*.py")) if _concerns(path)]
    print(f"{package}: {len(modules)} modules")
    return {module: error for module in modules if (error := _error(module))}


def _concerns(path: Path) -> bool:
    return any(seen.kind == "name" for seen in read(path))


def _module(path: Path, folder: Path) -> str:
    return ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")


def _error(module: str) -> str:
    try:
        importlib.import_module(module)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return ""
