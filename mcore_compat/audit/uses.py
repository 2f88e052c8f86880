"""What a program can do with Megatron that a release may break, as data; and what of it a source file does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Seen:
    """One thing that a source file does.

    Attributes:
        line: 1-based.
        column: 1-based.
        kind: ``name`` (imported, or read off a module), ``call``, ``attribute`` or ``rebinding``.
        name: Dotted name where Megatron's is known (``megatron.core.utils.get_model_config``), else the last part.
        receiver: For a method or an attribute of something unknown: its text.
        positional: Number of positional arguments; ``None`` where a star hides it.
        keywords: Names of keyword arguments.
    """

    line: int
    column: int
    kind: str
    name: str
    receiver: str = ""
    positional: int | None = 0
    keywords: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Name:
    """``names`` imported from ``module`` or read off it; no names: the module itself and everything in it."""

    module: str
    names: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.module}: {', '.join(sorted(self.names))}" if self.names else self.module

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        if seen.kind != "name":
            return None
        prefix, rest = self.module, seen.name.removeprefix(self.module)
        if not self.names:
            return seen.name if seen.name == prefix or (rest.startswith(".") and rest != seen.name) else None
        first = rest.removeprefix(".").partition(".")[0]
        return f"{prefix}.{first}" if rest.startswith(".") and first in self.names else None


@dataclass(frozen=True)
class Keyword:
    """A keyword argument of a function or class of Megatron, wherever it was imported from.

    Attributes:
        function: Last part of its name.
        names: The keywords; one of them is enough.
        beside: Keywords that are passed as well ...
        without: ... and keywords that are not.
    """

    function: str
    names: frozenset[str]
    beside: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.function}({', '.join(f'{name}=' for name in sorted(self.names))})"

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        used = self.names & seen.keywords
        others = self.beside <= seen.keywords and not self.without & seen.keywords
        if not (used and others and _calls(seen, self.function)):
            return None
        return f"{self.function}({', '.join(f'{name}=' for name in sorted(used))})"


@dataclass(frozen=True)
class Call:
    """Any call of a function of Megatron."""

    function: str

    def __str__(self) -> str:
        return f"{self.function}()"

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        return f"{self.function}()" if _calls(seen, self.function) else None


@dataclass(frozen=True)
class Positional:
    """At least ``count`` positional arguments for a function or class of Megatron."""

    function: str
    count: int

    def __str__(self) -> str:
        return f"{self.function}() with {self.count} positional arguments or more"

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        fits = _calls(seen, self.function) and seen.positional is not None and seen.positional >= self.count
        return f"{self.function}({seen.positional} positional arguments)" if fits else None


@dataclass(frozen=True)
class Method:
    """A call of a method of an object that reading cannot know, by its name, arguments and the object's name.

    Attributes:
        name: Of the method.
        receiver: Text that the object's expression contains, in any case.
        count: At least that many positional arguments ...
        keywords: ... or one of these keywords; neither: any call.
    """

    name: str
    receiver: str = ""
    count: int = 0
    keywords: frozenset[str] = frozenset()

    def __str__(self) -> str:
        inside = ", ".join(f"{name}=" for name in sorted(self.keywords)) or ("..." if self.count else "")
        return f"{'optimizer' if self.receiver else 'chunk'}.{self.name}({inside})"

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        if seen.kind != "call" or seen.name != self.name or self.receiver not in seen.receiver.lower():
            return None
        used = sorted(self.keywords & seen.keywords)
        enough = self.count and (seen.positional or 0) + len(seen.keywords) >= self.count
        if (self.count or self.keywords) and not (enough or used):
            return None
        inside = ", ".join(f"{name}=" for name in used) or ("..." if self.count else "")
        return f"{self.name}({inside})"


@dataclass(frozen=True)
class Attribute:
    """Reading one of these attributes of an object whose expression contains ``receiver``."""

    names: frozenset[str]
    receiver: str = ""

    def __str__(self) -> str:
        return ", ".join(f".{name}" for name in sorted(self.names))

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        known = seen.kind == "attribute" and seen.name in self.names and self.receiver in seen.receiver.lower()
        return f"{seen.receiver}.{seen.name}" if known else None


@dataclass(frozen=True)
class Rebinding:
    """``parameter.data = ...`` in a file that has to do with Megatron."""

    def __str__(self) -> str:
        return "parameter.data = ..."

    def of(self, seen: Seen) -> str | None:
        """The text of this use, ``None`` where ``seen`` is another one."""
        return f"{seen.receiver}.data =" if seen.kind == "rebinding" else None


Use = Name | Keyword | Call | Positional | Method | Attribute | Rebinding
# The kind of what is seen that a use can be.
KINDS: dict[type, str] = {
    Name: "name",
    Keyword: "call",
    Call: "call",
    Positional: "call",
    Method: "call",
    Attribute: "attribute",
    Rebinding: "rebinding",
}


def _calls(seen: Seen, function: str) -> bool:
    return seen.kind == "call" and seen.name.startswith("megatron.") and seen.name.rpartition(".")[2] == function
