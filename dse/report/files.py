"""Files that appear whole or not at all."""

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from dse.base.errors import UserError

__all__ = ["write_all"]

Writer = Callable[[Path], object]


def write_all(folder: Path, files: Mapping[str, str | bytes | Writer]) -> list[Path]:
    """Write every file of `files` (name → content, or what writes it) into `folder`.

    All of them are written beside their place first, so that a failure leaves what was there.
    Raises `UserError` where the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".report-", dir=folder) as name:
            scratch = Path(name)
            for file, content in files.items():
                _write(scratch / file, content)
            for file in files:
                os.replace(scratch / file, folder / file)
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(
            f"{folder}: the report cannot be written: {reason}",
            "choose a folder that you may write to, with --out",
        ) from error
    return [folder / file for file in files]


def _write(path: Path, content: str | bytes | Writer) -> None:
    if isinstance(content, str):
        path.write_text(content, "utf-8")
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content(path)
