"""How a seam chooses: exactly one variant, by what the source accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mcore_compat.detect import Facts, UnverifiedRelease
from mcore_compat.errors import AmbiguousMegatron, UnsupportedMegatron
from mcore_compat.matrix.table import releases, unverified
from mcore_compat.seams._registry import Seam, Shape
from tests.detect.trees import checkout

TARGET = "megatron.core.ddp:Wrap.__init__"
OLD = Shape(accepts={"flag"}, lacks={"config"})
NEW = Shape(accepts={"config"}, contains={("megatron.core.ddp:Wrap", "super()")})

WrapSeam = Seam[Callable[[], str]]


def tree(root: Path, parameters: str, major: int = 0) -> Facts:
    text = f"class Wrap:\n    def __init__(self, {parameters}):\n        super().__init__()\n"
    return Facts(checkout(root, major=major, files={"megatron/core/ddp.py": text}))


@pytest.fixture
def seam() -> Iterator[WrapSeam]:
    seam: WrapSeam = Seam("wrap", target=TARGET)
    seam.variant("old", since="0.1.0", shape=OLD)(lambda: lambda: "old")
    seam.variant("new", since="0.2.0", shape=NEW)(lambda: lambda: "new")
    yield seam
    seam.reset()


@pytest.mark.parametrize(("parameters", "variant"), [("flag", "old"), ("config", "new"), ("*, config=None", "new")])
def test_source_decides(tmp_path: Path, seam: WrapSeam, parameters: str, variant: str) -> None:
    choice = seam.select(tree(tmp_path, parameters))
    assert (choice.seam, choice.variant, choice.module) == ("wrap", variant, __name__)


def test_reason_names_every_condition(tmp_path: Path, seam: WrapSeam) -> None:
    assert seam.select(tree(tmp_path, "flag")).why == "Wrap.__init__ accepts flag and lacks config"
    assert seam.select(tree(tmp_path, "config")).why == "Wrap.__init__ accepts config; Wrap contains 'super()'"


def test_no_variant_answers_four_questions(tmp_path: Path, seam: WrapSeam) -> None:
    with pytest.raises(UnsupportedMegatron) as caught:
        seam.select(tree(tmp_path, "flags"))
    text = str(caught.value)
    assert f"found: {tmp_path} (checkout, claims 0.3.0rc1)" in text
    assert "expected: old (Wrap.__init__ accepts flag and lacks config), or new (" in text
    assert "nearest: old (since 0.1.0), but Wrap.__init__ has no parameter flag" in text
    assert f"next: mcore-compat doctor --root {tmp_path}" in text


def test_several_variants_are_refused(tmp_path: Path, seam: WrapSeam) -> None:
    seam.variant("any", since="0.1.0", shape=Shape())(lambda: lambda: "any")
    with pytest.raises(AmbiguousMegatron, match=r"fitting: new .* and any \(fits every Megatron\)"):
        seam.select(tree(tmp_path, "config"))


def test_absent_target_is_said(tmp_path: Path, seam: WrapSeam) -> None:
    with pytest.raises(UnsupportedMegatron, match=f"there is no {TARGET}"):
        seam.select(Facts(checkout(tmp_path)))


@pytest.mark.parametrize(
    ("shape", "fits"),
    [
        (Shape(defines={"megatron.core.ddp:Wrap"}), True),
        (Shape(defines={"megatron.core.ddp:Absent"}), False),
        (Shape(undefined={"megatron.core.ddp:Absent"}), True),
        (Shape(undefined={"megatron.core.ddp:Wrap"}), False),
        (Shape(contains={("megatron.core.ddp:Wrap", "absent")}), False),
        (Shape(omits={("megatron.core.ddp:Wrap", "absent")}), True),
        (Shape(omits={("megatron.core.ddp:Wrap", "super")}), False),
        (Shape(omits={("megatron.core.ddp:Absent", "super")}), True),
        (Shape(lacks={"config"}), False),
        (Shape(accepts={"config"}, target="megatron.core.ddp:Wrap"), True),
    ],
)
def test_conditions(tmp_path: Path, shape: Shape, fits: bool) -> None:
    assert (shape.differences(TARGET, tree(tmp_path, "config")) == []) is fits


def test_string_instead_of_a_set_is_refused() -> None:
    with pytest.raises(TypeError, match="takes a set"):
        Shape(accepts="config")  # type: ignore[arg-type]


def test_parameters_need_a_target(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="needs a target"):
        Shape(accepts={"config"}).differences(None, tree(tmp_path, "config"))


def test_two_files_cannot_register_one_name(seam: WrapSeam) -> None:
    def bind() -> Callable[[], str]:
        return lambda: "other"

    bind.__module__ = "elsewhere"
    with pytest.raises(ValueError, match="old is registered twice"):
        seam.variant("old", since="0.1.0", shape=OLD)(bind)


def test_bound_once_and_warned_once_about_a_newer_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tree(tmp_path, "config", major=99).root)
    seam: WrapSeam = Seam("free")
    bound: list[str] = []

    @seam.variant("only", since="0.1.0", shape=Shape(defines={"megatron.core.ddp:Wrap"}))
    def bind() -> Callable[[], str]:
        bound.append("bound")
        return lambda: "called"

    seam.reset()
    with pytest.warns(UnverifiedRelease, match=r"99\.3\.0rc1 is newer than"):
        assert seam.bind()() == "called"
    assert seam.bind()() == "called"
    assert bound == ["bound"]
    seam.reset()


def test_only_newer_releases_are_unverified() -> None:
    newest = releases()[-1].version
    assert unverified("99.0") is not None
    assert [unverified(version) for version in (None, newest, f"{newest}+abc", "0.4.0", "not a version")] == [None] * 5
