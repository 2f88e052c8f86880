"""The patch format: ``<id>.yaml`` as frozen values. ``patches/README.md`` describes it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import yaml

from mcore_compat.errors import PatchError

SCHEMA = Path(__file__).with_name("schema.json")
FORMAT_HINT = "compare it with patches/README.md; mcore-compat patch new ID starts a valid one"
Placement = Literal["fix", "before", "after"]
_PLACEMENTS: tuple[Placement, ...] = ("fix", "before", "after")
# Eight times as fast as the loader in Python, where PyYAML was built with it.
_Loader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class Check:
    """How often a rule must match.

    Attributes:
        rule: ast-grep rule object.
        count: Exact number of matches.
        within: Dotted chain of function and class names that matches lie inside; empty: the whole file.
        constraints: ast-grep rules of single captures.
    """

    rule: Mapping[str, Any]
    count: int = 1
    within: str = ""
    constraints: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Edit:
    """What becomes of the nodes that a check finds: replaced by ``template``, or lines put before or after."""

    check: Check
    placement: Placement
    template: str


@dataclass(frozen=True)
class Target:
    """One file that a patch changes; attributes as in ``patches/README.md``."""

    path: tuple[str, ...]
    requires: tuple[Check, ...]
    edits: tuple[Edit, ...]
    ensures: tuple[Check, ...]
    fixed: tuple[tuple[Check, ...], ...]
    optional: bool


@dataclass(frozen=True)
class Example:
    """A synthetic snippet, and what ``files[file]`` makes of it."""

    before: str
    after: str
    file: int = 0


@dataclass(frozen=True)
class Upstream:
    """The release and the change that made a patch unnecessary."""

    release: str
    change: str


@dataclass(frozen=True)
class Rules:
    """One semantic patch.

    Attributes:
        id: Its name.
        title: One line.
        why: What goes wrong without it.
        since: First release that needs it.
        upstream: What made it unnecessary; ``None``: nothing yet.
        files: What is changed.
        examples: Its tests.
        digest: sha256 of the file it was read from.
    """

    id: str
    title: str
    why: str
    since: str
    upstream: Upstream | None
    files: tuple[Target, ...]
    examples: tuple[Example, ...]
    digest: str


def read(path: Path, *, check: bool = True) -> Rules:
    """Read and check one ``<id>.yaml``.

    Args:
        path: The file.
        check: False: it is known to keep to the schema.

    Raises:
        PatchError: It cannot be read, is no YAML, breaks the schema, or its id is not its name.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise PatchError(f"cannot read {path}: {error.strerror}", hint="check its permissions") from error
    except UnicodeDecodeError as error:
        raise PatchError(f"{path} is no UTF-8: {error.reason} at byte {error.start}", hint=FORMAT_HINT) from error
    rules = parse(text, str(path), check=check)
    if rules.id != path.stem:
        raise PatchError(
            f"{path} holds patch {rules.id!r}; the file must be named {rules.id}.yaml", hint="rename one of them"
        )
    return rules


def parse(text: str, name: str, *, check: bool = True) -> Rules:
    """Check the text of a patch against the schema and read it.

    Args:
        text: YAML.
        name: Where it is from, for messages.
        check: False: it is known to keep to the schema.

    Raises:
        PatchError: It is no YAML or breaks the schema.
    """
    try:
        data = yaml.load(text, _Loader)
    except yaml.YAMLError as error:
        raise PatchError(f"{name} is no YAML: {error}", hint=FORMAT_HINT) from error
    if check:
        _validate(data, name)
    return _rules(data, hashlib.sha256(text.encode()).hexdigest())


def _validate(data: object, name: str) -> None:
    from jsonschema.exceptions import best_match

    error = best_match(_validator().iter_errors(data))
    if error is not None:
        raise PatchError(f"{name}: {error.json_path}: {error.message}", hint=FORMAT_HINT)


@cache
def _validator() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator(json.loads(SCHEMA.read_text(encoding="utf-8")))


def _rules(data: Mapping[str, Any], digest: str) -> Rules:
    upstream = data.get("upstream")
    return Rules(
        id=data["id"],
        title=data["title"],
        why=data["why"].strip(),
        since=data["since"],
        upstream=Upstream(**upstream) if upstream else None,
        files=tuple(map(_target, data["files"])),
        examples=tuple(Example(**example) for example in data["examples"]),
        digest=digest,
    )


def _target(data: Mapping[str, Any]) -> Target:
    within = data.get("within", "")

    def checks(items: list[Mapping[str, Any]]) -> tuple[Check, ...]:
        return tuple(_check(item, within) for item in items)

    return Target(
        path=tuple(data["path"]),
        requires=checks(data.get("requires", [])),
        edits=tuple(_edit(item, within) for item in data["edits"]),
        ensures=checks(data["ensures"]),
        fixed=tuple(map(checks, data.get("fixed", []))),
        optional=data.get("optional", False),
    )


def _check(data: Mapping[str, Any], within: str) -> Check:
    return Check(data["rule"], data.get("count", 1), data.get("within", within), data.get("constraints", {}))


def _edit(data: Mapping[str, Any], within: str) -> Edit:
    placement = next(key for key in _PLACEMENTS if key in data)
    return Edit(_check(data, within), placement, data[placement])
