"""What mcore_compat did here and why, as data that prints."""

from __future__ import annotations

from dataclasses import dataclass

from mcore_compat.contracts import Choice
from mcore_compat.detect import Facts, Megatron, find
from mcore_compat.runtime import Action, Report, report
from mcore_compat.runtime.actions import IN_MEMORY
from mcore_compat.seams._registry import choices


@dataclass(frozen=True)
class Explanation:
    """The Megatron that is there and what was done about it.

    Attributes:
        megatron: Where it is and what it claims to be.
        runtime: What ``prepare()`` did; ``None`` before it.
        choices: The variant of every seam, and why.
        patches: What ``patching.load()`` changes in memory.
    """

    megatron: Megatron
    runtime: Report | None
    choices: tuple[Choice, ...]
    patches: tuple[Action, ...] = ()

    def __str__(self) -> str:
        lines = [f"megatron: {self.megatron}", str(self.runtime or "runtime: prepare() was not called")]
        lines += [f"patch {patch.name}: {patch.why}" for patch in self.patches]
        lines += [f"{choice.seam}: {choice.variant} (since {choice.since}): {choice.why}" for choice in self.choices]
        return "\n".join(lines)


def explain() -> Explanation:
    """Say which Megatron is there, what ``prepare()`` did to run it, and which variant each seam takes.

    Reads source; imports neither torch nor megatron.

    Raises:
        MegatronNotFound: There is none on ``sys.path``.
        UnsupportedMegatron: Some seam has no variant that fits it.
    """
    megatron = find()
    return Explanation(megatron, report(), tuple(choices(Facts(megatron.root))), tuple(IN_MEMORY))
