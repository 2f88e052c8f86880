"""Keeps what patching worked out in the cache folder, for the next process to read back.

An entry is named by the digest of the question that it answers: all that the answer follows from, this package's own
text among it. It holds plain values and byte code, as ``__pycache__`` does. A damaged entry is made anew; where none
can be written there is none.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from importlib.util import MAGIC_NUMBER
from pathlib import Path
from typing import Any

from mcore_compat.cache import default_cache
from mcore_compat.patching.ledger import digest

_DAYS = 30
_DIGEST_SIZE = hashlib.sha256().digest_size


def kept(make: Callable[[], Any], *question: str | None) -> Any:
    """What ``make`` gives, made or read back.

    Args:
        make: Gives something that :mod:`marshal` writes.
        question: All that it follows from.
    """
    name = digest(json.dumps([*_surroundings(), *question]).encode())
    try:
        entry = default_cache() / "patched" / f"{name}.bin"
        data = entry.read_bytes()
    except RuntimeError:  # there is no home
        return make()
    except OSError:
        data = b""
    if hashlib.sha256(data[_DIGEST_SIZE:]).digest() == data[:_DIGEST_SIZE]:
        return marshal.loads(data[_DIGEST_SIZE:])
    answer = make()
    with suppress(OSError):
        _write(entry, marshal.dumps(answer))
    return answer


def _write(entry: Path, payload: bytes) -> None:
    entry.parent.mkdir(parents=True, exist_ok=True)
    for other in entry.parent.glob("*.bin"):
        if other.stat().st_mtime < time.time() - _DAYS * 24 * 3600:
            other.unlink()
    with tempfile.TemporaryDirectory(dir=entry.parent) as scratch:
        whole = Path(scratch, entry.name)
        whole.write_bytes(hashlib.sha256(payload).digest() + payload)
        whole.replace(entry)


@cache
def _surroundings() -> tuple[str | None, ...]:
    """What every answer depends on: the Python, whether it keeps asserts, ast-grep, and this package."""
    python = (sys.implementation.name, MAGIC_NUMBER.hex(), str(sys.flags.optimize))
    ours = (path.read_bytes() for path in sorted(Path(__file__).parent.glob("*.py")))
    return *python, version("ast-grep-py"), digest(b"".join(ours))
