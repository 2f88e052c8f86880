"""The format of a patch: what is no valid patch is refused with the place that is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcore_compat.errors import PatchError
from mcore_compat.patching.catalogue import folder
from mcore_compat.patching.format import parse, read
from mcore_compat.patching.rules import judge_text
from tests.patching.trees import PATCH

TEXT = PATCH.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("why: A patch for stories, with one edit of each kind.\n", "", "'why' is a required property"),
        ("id: add-four", "id: Add Four", r"\$\.id: 'Add Four' does not match"),
        ("fix:", "fixes:", r"\$\.files\[0\]\.edits\[0\]"),
        ("        after: |", "        fix: x\n        after: |", r"\$\.files\[0\]\.edits\[1\]"),
        ("[megatron/core/alpha.py]", "[/etc/passwd.py]", "does not match"),
        ("[megatron/core/alpha.py]", "[]", r"path: \[\] should be non-empty"),
        (
            "self.seen.append(x)}\n    fixed",
            "self.seen.append(x)}\n        count: -1\n    fixed",
            "less than the minimum",
        ),
        ("id: add-four", "id: [", "is no YAML"),
    ],
)
def test_refusals(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(PatchError, match=message) as caught:
        parse(TEXT.replace(old, new, 1), "it.yaml")
    assert str(caught.value).startswith("it.yaml")
    assert caught.value.hint


def test_something_that_must_be_there_ensures_it() -> None:
    head, _, tail = TEXT.partition("    ensures:\n")
    only_absence = (
        f"{head}    ensures:\n      - rule: {{pattern: x}}\n        count: 0\n    fixed:{tail.partition('fixed:')[2]}"
    )
    with pytest.raises(PatchError, match=r"\$\.files\[0\]\.ensures"):
        parse(only_absence, "it.yaml")


def test_the_file_is_named_as_the_patch(tmp_path: Path) -> None:
    (tmp_path / "other.yaml").write_text(TEXT, encoding="utf-8")
    with pytest.raises(PatchError, match=r"must be named add-four\.yaml"):
        read(tmp_path / "other.yaml")


def test_no_such_file(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match="cannot read"):
        read(tmp_path / "none.yaml")


def test_scope_of_the_file_is_that_of_its_rules_unless_they_name_one() -> None:
    [target] = parse(TEXT, "it.yaml").files
    assert {edit.check.within for edit in target.edits} == {"Scaler.scale"}
    [own] = parse(TEXT.replace("log($$$ARGS)}", "log($$$ARGS)}\n        within: ''"), "it.yaml").files
    assert own.requires[0].within == ""


def test_the_patch_of_the_readme_does_what_its_example_says() -> None:
    text = (folder() / "README.md").read_text(encoding="utf-8").partition("```yaml\n")[2].partition("```")[0]
    patch = parse(text, "README.md")
    [example] = patch.examples
    verdict = judge_text(patch.files[0], example.before, "it.py")
    assert (verdict.state, verdict.after) == ("applied", example.after)
    assert judge_text(patch.files[0], example.after, "it.py").state == "already applied"
    assert judge_text(patch.files[0], f"def send_to(x): ...\n{example.before}", "it.py").state == "not needed"
