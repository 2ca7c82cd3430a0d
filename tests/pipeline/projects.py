"""Small projects: the shipped spaces and studies in a folder of their own, and calls of `dse`."""

import json
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import pytest

from dse.cli import main

ROOT = Path(__file__).parents[2]
# Sixteen points and about as many milliseconds of simulation each.
SMALL = ("--set", "space.batch=[2, 8]", "--set", "space.precision.weights=fp8")
HERE = ("--workers", "0")


@dataclass(frozen=True)
class Said:
    """What one command did."""

    code: int
    out: str
    err: str

    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        found: dict[str, Any] = json.loads(self.out)
        return found


def dse(*arguments: object) -> Said:
    out, err = StringIO(), StringIO()
    with (
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as stopped,
    ):
        main([str(each) for each in arguments])
    return Said(int(stopped.value.code or 0), out.getvalue(), err.getvalue())


@dataclass(frozen=True)
class Project:
    """A folder with `spaces/` and `studies/`; results and reports appear beside them."""

    folder: Path

    @classmethod
    def made(cls, folder: Path) -> "Project":
        for name in ("spaces", "studies"):
            shutil.copytree(ROOT / name, folder / name)
        return cls(folder)

    @property
    def store(self) -> Path:
        return self.folder / "dse.duckdb"

    def study(self, name: str = "quickstart") -> Path:
        return self.folder / "studies" / f"{name}.yaml"

    def run(self, *more: object, small: Sequence[str] = SMALL, name: str = "quickstart") -> Said:
        return dse("run", self.study(name), *HERE, *small, *more)
