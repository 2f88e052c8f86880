"""The tables: what a row may leave out, what it must say, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from mcore_compat.errors import ConfigError, MegatronNotFound
from mcore_compat.matrix import table
from mcore_compat.matrix.overlay import overlay
from mcore_compat.matrix.rows import Fork, read_forks, read_releases
from mcore_compat.matrix.table import IN_REPOSITORY, expected, forks, releases
from mcore_compat.seams._registry import seams

FIRST = '[[release]]\nversion = "0.1.0"\npython = "3.10"\nsha256 = "a"\nneeds = ["torch"]\nexpect.loss = "old"\n'
NEXT = '[[release]]\nversion = "0.2.0"\nsha256 = "b"\n'


def written(folder: Path, text: str, name: str = "releases.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def test_every_release_since_the_first_has_one_row() -> None:
    versions = [Version(row.version) for row in releases()]
    assert versions == sorted(set(versions))
    assert (str(versions[0]), len(versions)) == ("0.4.0", 27)


def test_every_row_is_complete() -> None:
    names = {seam.name for seam in seams()}
    for row in releases():
        assert re.fullmatch(r"[0-9a-f]{64}", row.sha256), row.version
        assert row.expect.keys() == names, row.version
        assert all(Requirement(need).name for need in row.needs)
        assert row.level == "contract" or row.note, row.version


def test_every_variant_is_taken_by_some_release() -> None:
    known = {(seam.name, variant.name) for seam in seams() for variant in seam.variants}
    taken = {choice for row in releases() for choice in row.expect.items()}
    assert taken <= known
    # No wheel holds megatron.optimizer: only a Megatron-LM checkout of 0.4.0 or 0.5.0 does.
    assert known - taken == {("optimizer", "repository")}


def test_what_a_row_leaves_out_is_as_before_but_for_its_level_and_note(tmp_path: Path) -> None:
    text = f'{FIRST}level = "probe"\nnote = "why"\n{NEXT}expect.groups = "new"\n'
    first, second = read_releases(written(tmp_path, text))
    assert (second.python, second.needs, second.sha256) == ("3.10", ["torch"], "b")
    assert second.expect == {"loss": "old", "groups": "new"}
    assert first.expect == {"loss": "old"}
    assert (first.level, second.level, second.note) == ("probe", "contract", "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (FIRST + 'nota = "x"\n', "0.1.0: unknown or missing: nota"),
        ('[[release]]\nversion = "0.1.0"\n', "unknown or missing: python, sha256"),
        (FIRST + 'level = "all"\n', "no level 'all'"),
        (FIRST + 'level = "probe"\n', "level probe without a reason"),
        ("[[release", "cannot read"),
    ],
)
def test_a_row_that_cannot_be_meant_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_releases(written(tmp_path, text))


def test_the_shipped_table_of_forks_is_only_its_description() -> None:
    text = IN_REPOSITORY.with_name("forks.toml").read_text(encoding="utf-8")
    assert forks() == ()
    assert "# [[fork]]" in text


def test_the_example_in_the_table_of_forks_is_a_fork(tmp_path: Path) -> None:
    text = IN_REPOSITORY.with_name("forks.toml").read_text(encoding="utf-8")
    example = text[text.index("# [[fork]]") :].replace("# ", "")
    [fork] = read_forks(written(tmp_path, example))
    assert (fork.name, fork.base, fork.level) == ("ours", "0.12.3", "import")
    assert fork.root == tmp_path / "../../Megatron-LM"
    assert expected(fork)["loss_scale"] == "context_scaled_apart"
    assert expected(fork)["optimizer"] == "conditions"


def test_a_fork_has_no_contract_level(tmp_path: Path) -> None:
    row = '[[fork]]\nname = "ours"\nroot = "x"\nbase = "0.12.3"\nlevel = "contract"\n'
    with pytest.raises(ConfigError, match="ours: no level 'contract'"):
        read_forks(written(tmp_path, row))


def test_a_fork_runs_where_it_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = tmp_path / "tree" / "megatron" / "core"
    core.mkdir(parents=True)
    (core / "__init__.py").touch()
    there, gone = (Fork(name, tmp_path / name, "0.12.3") for name in ("tree", "gone"))
    monkeypatch.setattr(table, "forks", lambda: (there, gone))
    assert overlay("tree") == tmp_path / "tree"
    with pytest.raises(MegatronNotFound):
        overlay("gone")
