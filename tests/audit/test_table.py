"""The table against the sources of the releases."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mcore_compat
from mcore_compat.audit.table import Row, rows
from mcore_compat.audit.uses import Keyword, Name
from mcore_compat.detect import Facts
from mcore_compat.matrix.overlay import overlay

# Where a function of the table lives; the others are classes with generated constructors, or the repository's.
PLACES = {
    "DistributedDataParallel": "megatron.core.distributed:DistributedDataParallel",
    "GPTModel": "megatron.core.models.gpt:GPTModel",
    "get_megatron_optimizer": "megatron.core.optimizer:get_megatron_optimizer",
    "initialize_model_parallel": "megatron.core.parallel_state:initialize_model_parallel",
}
FIELDS = {
    "DistributedDataParallelConfig": "megatron.core.distributed:DistributedDataParallelConfig",
    "TransformerConfig": "megatron.core.transformer.transformer_config:TransformerConfig",
    "ModelParallelConfig": "megatron.core.model_parallel_config:ModelParallelConfig",
}
LEGACY = Path(mcore_compat.__file__).with_name("legacy")


def test_names_of_core(release: str) -> None:
    facts = Facts(overlay(release))
    wrong = [
        (row.use.module, name)
        for row in rows()
        if isinstance(row.use, Name) and row.use.module.startswith("megatron.core.") and row.use.module.islower()
        for name in row.use.names or {""}
        if _has(facts, row.use.module, name) is not row.works_on(release)
    ]
    assert not wrong


def _has(facts: Facts, module: str, name: str) -> bool:
    return facts.defines(f"{module}:{name}") if name else facts.has_module(module)


def test_keywords(release: str) -> None:
    facts = Facts(overlay(release))
    wrong = [
        (row.use.function, name)
        for row in rows()
        if isinstance(row.use, Keyword) and not row.use.without
        for name in row.use.names
        if (known := _keywords(facts, row.use.function)) and row.works_on(release) and name not in known
    ]
    assert not wrong


def _keywords(facts: Facts, function: str) -> set[str]:
    if function in FIELDS:
        return set(facts.fields(FIELDS[function]))
    return set(facts.parameters(PLACES[function]) or ()) if function in PLACES else set()


@pytest.mark.parametrize("row", [row for row in rows() if row.served], ids=lambda row: str(row.use)[:60])
def test_what_is_served_is_there(row: Row) -> None:
    module, _, name = row.served.partition(":")
    source = next(
        (path for path in (LEGACY / f"{module}.py", LEGACY / "changes" / f"{module}.py") if path.exists()), None
    )
    assert source is not None
    defined = {node.name for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.FunctionDef)}
    assert not name or name in defined or f'"{name}"' in source.read_text()
