"""The patches of the package: valid, in series, and what their examples say."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from mcore_compat.errors import ConfigError
from mcore_compat.patching.catalogue import PACKAGED, folder, rules, select, series
from mcore_compat.patching.format import Example, Target, read
from mcore_compat.patching.rules import judge_text
from tests.launch import ROOT


@dataclass(frozen=True)
class Case:
    """One example and the target it is about."""

    name: str
    target: Target
    example: Example


def cases() -> list[Case]:
    found = [(rules(name), name) for name in series()]
    return [Case(name, patch.files[each.file], each) for patch, name in found for each in patch.examples]


CASES = cases()


def test_wheel_holds_them_where_they_are_looked_for() -> None:
    place = PACKAGED.relative_to(ROOT).as_posix()
    assert f'"patches" = "{place}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_series_lists_every_patch_once() -> None:
    assert sorted(series()) == sorted(path.stem for path in folder().glob("*.yaml"))


@pytest.mark.parametrize("name", series())
def test_valid(name: str) -> None:
    assert read(folder() / f"{name}.yaml").id == name


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_example(case: Case) -> None:
    verdict = judge_text(case.target, case.example.before, "example")
    assert (verdict.state, verdict.after) == ("applied", case.example.after), verdict.reason
    # What upstream has may look like what the patch makes.
    again = judge_text(replace(case.target, fixed=()), case.example.after, "example")
    assert again.state == "already applied", again.reason


def test_unknown_id_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match="no patch 'ddp-broadcast-parameters'; nearest: ddp-broadcast-params"):
        select(["ddp-broadcast-parameters"])


def test_chosen_ones_keep_the_order_of_the_series() -> None:
    last, first = series()[-1], series()[0]
    assert [patch.id for patch in select([last, first])] == [first, last]
