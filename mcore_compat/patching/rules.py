"""Plans a semantic patch: evaluates its rules on the tree, and makes its edits in memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mcore_compat.patching.compiling import syntax_error
from mcore_compat.patching.format import Check, Edit, Rules, Target
from mcore_compat.patching.matching import Match, Source, describe, source
from mcore_compat.patching.outcome import Result, State, Step
from mcore_compat.patching.rewriting import Unplaceable, replacement, rewrite
from mcore_compat.patching.tree import Change, Tree


@dataclass(frozen=True)
class RulePatch:
    """A semantic patch that can be planned."""

    rules: Rules

    @property
    def id(self) -> str:
        """Its name."""
        return self.rules.id

    @property
    def digest(self) -> str:
        """sha256 of its text."""
        return self.rules.digest

    def plan(self, tree: Tree) -> Step:
        """Say what it would do to ``tree``; changes nothing.

        Raises:
            PatchError: A rule is no rule, or a path leads out of the tree.
        """
        held: dict[str, bytes] = {}
        verdicts = [_judge(target, tree, held) for target in self.rules.files]
        state = _overall([verdict.state for verdict in verdicts])
        told = [verdict for verdict in verdicts if verdict.state == state] or verdicts
        result = Result(
            self.id,
            state,
            tuple(place for verdict in told for place in verdict.where),
            "; ".join(dict.fromkeys(verdict.reason for verdict in told)),
        )
        changes = {path: Change(tree.read(path), after) for path, after in held.items()}
        return Step(result, self.digest, changes if state == "applied" else {})


@dataclass(frozen=True)
class Verdict:
    """What one target, or one text, says; ``after`` is the text with the edits made."""

    state: State
    where: tuple[str, ...]
    reason: str
    after: str = ""


def judge_text(target: Target, text: str, name: str) -> Verdict:
    """Evaluate one target on the text of its file.

    Args:
        target: What to do.
        text: Python.
        name: Path for reports.

    Raises:
        PatchError: A rule is no rule, or a template names something that its rule does not capture.
    """
    found = source(text)
    if found.unreadable:
        # What a rule does not find may be there all the same.
        line = found.unreadable
        return Verdict("not applicable", (f"{name}:{line}",), f"line {line} of {name} cannot be read by ast-grep")
    for alternative in target.fixed:
        if all(len(found.find(check)) == check.count for check in alternative):
            return Verdict("not needed", (name,), f"upstream has {_summary(alternative)}")
    if _misses(target.ensures, found) is None:
        return Verdict("already applied", (name,), f"{name} holds what it ensures")
    if missed := _misses(target.requires, found):
        return Verdict("not applicable", *_told(missed, found, name, "requires"))
    matches = [found.find(edit.check) for edit in target.edits]
    unfit = [(edit, len(got)) for edit, got in zip(target.edits, matches, strict=True) if len(got) != edit.check.count]
    if unfit:
        return _unfit(unfit, matches, found, name)
    return _edited(target, matches, found, name)


def _judge(target: Target, tree: Tree, held: dict[str, bytes]) -> Verdict:
    located = (tree.locate(path) for path in target.path)
    path = next((path for path in located if tree.read(path) is not None), None)
    if path is None:
        names = " or ".join(target.path)
        return Verdict("not needed" if target.optional else "not applicable", (), f"there is no {names}")
    data = held.get(path) or tree.read(path) or b""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        return Verdict("not applicable", (path,), f"{path} is no UTF-8: {error.reason}")
    verdict = judge_text(target, text, path)
    if verdict.state == "applied":
        held[path] = verdict.after.encode("utf-8")
    return verdict


def _overall(states: list[State]) -> State:
    """The state of a patch, from those of its files: some done and others not is a conflict."""
    for worst in ("conflict", "not applicable"):
        if worst in states:
            return "conflict" if {"applied", "already applied"} & {*states} else worst
    left: set[State] = {*states} - {"not needed"}
    if len(left) > 1:
        return "conflict"
    return left.pop() if left else "not needed"


def _misses(checks: Iterable[Check], found: Source) -> tuple[Check, int] | None:
    """The first check that does not hold, and how often its rule matches."""
    counted = ((check, len(found.find(check))) for check in checks)
    return next(((check, count) for check, count in counted if count != check.count), None)


def _told(missed: tuple[Check, int], found: Source, name: str, what: str) -> tuple[tuple[str, ...], str]:
    """Where and why, for a check that does not hold."""
    check, count = missed
    reason = f"{what} {describe(check)} {check.count}x, found {count}x in {name}"
    if count:
        return tuple(f"{name}:{match.line}" for match in found.find(check)), reason
    line, text = found.nearest(check)
    return ((f"{name}:{line}",), f"{reason}; nearest is line {line}: {text}") if line else ((name,), reason)


def _unfit(unfit: list[tuple[Edit, int]], matches: list[list[Match]], found: Source, name: str) -> Verdict:
    edit, count = unfit[0]
    where, reason = _told((edit.check, count), found, name, "edits")
    fits = len(matches) - len(unfit)
    if not fits and not any(0 < count < edit.check.count for edit, count in unfit):
        return Verdict("not applicable", where, reason)
    return Verdict("conflict", where, f"{reason}; {fits} of its {len(matches)} edits fit, so half of it may be there")


def _edited(target: Target, matches: list[list[Match]], found: Source, name: str) -> Verdict:
    try:
        pairs = [(edit, match) for edit, got in zip(target.edits, matches, strict=True) for match in got]
        replacements = [replacement(edit, match) for edit, match in pairs]
        after = rewrite(found.text, replacements)
    except Unplaceable as error:
        return Verdict("conflict", (f"{name}:{error.line}",), f"{error} at line {error.line} of {name}")
    where = tuple(f"{name}:{line}" for line in sorted({each.line for each in replacements}))
    if problem := _unsound(found.text, after, target):
        return Verdict("conflict", where, f"{name}: {problem}")
    return Verdict("applied", where, f"{len(replacements)} edit{'s'[: len(replacements) > 1]} in {name}", after)


def _unsound(before: str, after: str, target: Target) -> str:
    """Why the edited text must not be kept; empty where it may."""
    if error := syntax_error(after):
        return f"Python cannot parse {'the file as it is' if syntax_error(before) else 'the result'}: {error}"
    missed = _misses(target.ensures, source(after))
    return f"the result does not hold {describe(missed[0])} {missed[0].count}x, but {missed[1]}x" if missed else ""


def _summary(checks: Iterable[Check]) -> str:
    return " and ".join(_stated(check) for check in checks)


def _stated(check: Check) -> str:
    return describe(check) if check.count else f"no {describe(check)}"
