"""Configurations: where models keep them, which fields they take, and what schedules read off a bare one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

from mcore_compat.errors import ConfigError
from mcore_compat.legacy.changes._change import Change, always, module
from mcore_compat.legacy.warn import told
from mcore_compat.runtime.device import is_host
from mcore_compat.runtime.patches import Patch
from mcore_compat.seams.config.fields import REMOVED, RENAMED
from mcore_compat.seams.keywords import is_off, unavailable

_PARALLEL = "megatron.core.model_parallel_config"
_TRANSFORMER = "megatron.core.transformer.transformer_config"


def _accessor(attributes: tuple[str, ...]) -> Iterator[Patch]:
    kind = module(_PARALLEL).ModelParallelConfig

    def get_model_config(model: Any) -> Any:
        wrapped = model
        while model is not None:
            for attribute in attributes:
                if isinstance(getattr(model, attribute, None), kind):
                    return getattr(model, attribute)
            model = getattr(model, "module", None)
        raise ConfigError(
            f"none of {', '.join(attributes)} of {type(wrapped).__name__} is a Megatron configuration",
            hint="legacy.install(config_attributes=(...,)) names the attribute that holds it",
        )

    yield Patch(module("megatron.core.utils"), "get_model_config", get_model_config, "an attribute policy")


def _fields(attributes: tuple[str, ...]) -> Iterator[Patch]:
    for name, kind in (("ModelParallelConfig", _PARALLEL), ("TransformerConfig", _TRANSFORMER)):
        config = getattr(module(kind), name)
        known = frozenset(field.name for field in dataclasses.fields(config))
        yield Patch(config, "__init__", _tolerant(name, config.__init__, known), "fields of the era")


def _tolerant(kind: str, original: Any, known: frozenset[str]) -> Any:
    newest = {old: new for new, old in RENAMED.items()}

    @functools.wraps(original)
    def initialise(self: Any, *args: Any, **fields: Any) -> None:
        if not fields.keys() <= known:
            fields = dict(_translated(kind, fields, known, newest))
        if is_host() and "deterministic_mode" in known:
            fields.setdefault("deterministic_mode", True)  # as transformer_config: embeddings add up in one order
        original(self, *args, **fields)

    return initialise


def _translated(
    kind: str, fields: dict[str, Any], known: frozenset[str], newest: dict[str, str]
) -> Iterator[tuple[str, Any]]:
    for name, value in fields.items():
        if name in known or name not in (*newest, *REMOVED):
            yield name, value  # what no release knows is upstream's to refuse
            continue
        told(f"{kind}({name}=)", f"mcore_compat.transformer_config({newest.get(name, name)}=...)")
        if newest.get(name) in known:
            yield newest[name], value
        elif not is_off(value):
            raise unavailable(f"{kind}({name}={value!r})", None)


def _bare(attributes: tuple[str, ...]) -> Iterator[Patch]:
    bare = module(_PARALLEL).ModelParallelConfig
    for field in dataclasses.fields(module(_TRANSFORMER).TransformerConfig):
        if not hasattr(bare, field.name) and field.name not in {own.name for own in dataclasses.fields(bare)}:
            default = None if field.default is dataclasses.MISSING else field.default
            yield Patch(bare, field.name, default, "read off every configuration")


def _missing_member(attributes: tuple[str, ...]) -> Iterator[Patch]:
    kinds = module("megatron.core.enums").ModelType
    if not hasattr(kinds, "encoder_and_decoder"):
        yield Patch(kinds, "encoder_and_decoder", object(), "compared with by programs of the era")


CHANGES = (
    Change("get_model_config looks at several attributes", "", always, _accessor),
    Change("configurations take the era's fields where those are renamed or off", "", always, _fields),
    Change("a bare ModelParallelConfig has the defaults of TransformerConfig's fields", "", always, _bare),
    Change("ModelType.encoder_and_decoder is there, and no model has it", "0.13.1", always, _missing_member),
)
