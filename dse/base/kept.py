"""Text that is costly to make and always the same, kept in the user's cache between processes."""

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["cache_folder", "kept"]

_DIGEST_BYTES = 32


def kept(name: str, make: Callable[[], str]) -> str:
    """What `make` gives, from the file `name` of the cache if it is there and whole.

    `name` must change with whatever the text is made of. Without a folder that can be written the
    text is made each time.
    """
    path = cache_folder() / name
    with suppress(OSError):
        stored = path.read_bytes()
        digest, content = stored[:_DIGEST_BYTES], stored[_DIGEST_BYTES:]
        if digest == _digest(content):
            return content.decode()
    text = make()
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".kept-", dir=path.parent) as scratch:
            draft = Path(scratch) / name
            draft.write_bytes(_digest(text.encode()) + text.encode())
            os.replace(draft, path)
    return text


def _digest(content: bytes) -> bytes:
    return hashlib.sha256(content).digest()


def cache_folder() -> Path:
    """The user's cache of `dse`, which may not exist yet."""
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "dse"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dse"
