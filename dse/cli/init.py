"""`dse init`: a starter study and its space, with comments."""

from collections.abc import Mapping
from pathlib import Path

from dse.base.errors import UserError
from dse.cli._output import Json, console, emit_json


def init(folder: Path = Path(), /, *, name: str = "first", json: Json = False) -> int:
    """Write a commented study and space to start from; existing files are never overwritten.

    Parameters
    ----------
    folder
        Where `studies/` and `spaces/` are made.
    name
        The stem of both files.
    """
    from dse.study.starter import starter

    files = {folder / path: text for path, text in starter(name).items()}
    taken = [str(path) for path in files if path.exists()]
    if taken:
        raise UserError(f"{', '.join(taken)} exists", "choose another --name or folder")
    _write(files)
    written = list(map(str, files))
    if json:
        emit_json({"files": written})
        return 0
    for path in files:
        console().print(f"wrote {path}")
    console().print(f"next: dse check {written[-1]}, then dse run {written[-1]}")
    return 0


def _write(files: Mapping[Path, str]) -> None:
    """Write all files or none."""
    written: list[Path] = []
    for path, text in files.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            for each in written:
                each.unlink()
            reason = error.strerror or str(error)
            raise UserError(f"{path} cannot be written: {reason}", "choose a folder") from error
        written.append(path)
