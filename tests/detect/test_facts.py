"""What is read of source, on small trees for the rules and on real releases for the truth."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.detect import Facts
from mcore_compat.errors import EnvironmentMismatch
from mcore_compat.matrix.overlay import overlay
from tests.detect.trees import write_tree
from tests.launch import run_ranks

TREE = {
    "p/__init__.py": "from .impl import Thing, make as build\nfrom p.star import *\n",
    "p/impl.py": '''
import os
from dataclasses import dataclass
try:
    from fast import Norm
except ImportError:
    Norm = None
if os.name:
    def guarded(a): ...
else:
    def guarded(b): ...

class Base:
    size: int = 4
    name: str
    def inherited(self, x): ...

@dataclass
class Thing(Base):
    size: int = 2 * 4
    def __init__(self, a, /, b, *rest, c=1, **more):
        """Text."""
    @staticmethod
    def free(a): ...
    @classmethod
    def built(cls, a): ...

Alias = Thing

@decorated
def make(a, b=2):
    return a  # kept
''',
    "p/star.py": "from .loop import *\ndef starred(z): ...\n",
    "p/loop.py": "from .star import *\n",
    "namespace/inner.py": "",
}


@pytest.fixture
def facts(tmp_path: Path) -> Facts:
    return Facts(write_tree(tmp_path, TREE))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("p.impl:make", ("a", "b")),
        ("p:build", ("a", "b")),
        ("p:starred", ("z",)),
        ("p.impl:guarded", ("a",)),
        ("p.impl:Thing", ("a", "b", "*rest", "c", "**more")),
        ("p.impl:Thing.__init__", ("a", "b", "*rest", "c", "**more")),
        ("p:Thing.inherited", ("x",)),
        ("p.impl:Alias.free", ("a",)),
        ("p.impl:Thing.built", ("a",)),
        ("p.impl:Thing.absent", None),
        ("p.impl:absent", None),
        ("p.absent:make", None),
        ("p.impl:os", None),
    ],
)
def test_parameters(facts: Facts, place: str, expected: tuple[str, ...] | None) -> None:
    assert facts.parameters(place) == expected


@pytest.mark.parametrize("name", ["Thing", "make", "Alias", "Norm", "guarded", "os", "dataclass", "Thing.inherited"])
def test_defined(facts: Facts, name: str) -> None:
    assert facts.defines(f"p.impl:{name}")


@pytest.mark.parametrize("place", ["p.impl:build", "p:make", "p:absent", "p.impl:Thing.absent", "absent:make"])
def test_not_defined(facts: Facts, place: str) -> None:
    assert not facts.defines(place)


def test_fields_include_those_of_bases(facts: Facts) -> None:
    assert facts.fields("p:Thing") == {"size": "2 * 4", "name": None}
    assert facts.fields("p:absent") == {}


def test_source_is_one_definition_with_its_decorators(facts: Facts) -> None:
    assert facts.source("p:build") == "@decorated\ndef make(a, b=2):\n    return a  # kept"
    assert facts.source("p:absent") is None


def test_old_escapes_are_read_in_silence(tmp_path: Path) -> None:
    facts = Facts(write_tree(tmp_path, {"p/old.py": 'x = "\\i"'}))
    assert facts.defines("p.old:x")


def test_modules(facts: Facts) -> None:
    assert [facts.has_module(name) for name in ("p", "p.impl", "namespace", "namespace.inner")] == [True] * 4
    assert not facts.has_module("p.absent")


def test_a_tree_never_read_is_never_parsed(tmp_path: Path) -> None:
    facts = Facts(write_tree(tmp_path, {"p/bad.py": "def (", "p/good.py": "x = 1"}))
    assert facts.defines("p.good:x")
    with pytest.raises(EnvironmentMismatch, match=r"cannot read .*bad\.py"):
        facts.defines("p.bad:x")


PLACES = [
    "megatron.core.distributed:DistributedDataParallel.__init__",
    "megatron.core.distributed:finalize_model_grads",
    "megatron.core.parallel_state:initialize_model_parallel",
    "megatron.core.parallel_state:get_data_parallel_group",
    "megatron.core.pipeline_parallel:get_forward_backward_func",
    "megatron.core.utils:get_model_config",
]
CONFIG = "megatron.core.model_parallel_config:ModelParallelConfig"


@pytest.mark.releases("0.4.0", "0.19.2")
def test_source_and_imported_objects_agree(release: str) -> None:
    [imported] = run_ranks("tests.detect.programs:signatures", PLACES, CONFIG, release=release)
    facts = Facts(overlay(release))
    assert {place: list(facts.parameters(place) or ()) for place in PLACES} == imported["parameters"]
    assert list(facts.fields(CONFIG)) == imported["fields"]


def test_seam_binds_and_finds_what_was_replaced_at_run_time() -> None:
    [outcome] = run_ranks("tests.detect.programs:bind_then_replace", release="0.12.3")
    assert outcome["bound"] is True
    assert "initialize_model_parallel" in outcome["drift"]
    assert "sizes" in outcome["drift"]
