"""Where compiled code is kept between processes, and whether it is there; needs no compiler."""

import os
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path

from dse.base.digest import digest
from dse.base.kept import cache_folder


@cache
def folder() -> Path:
    """The folder of this version's compiled code, in `NUMBA_CACHE_DIR` or else the user's cache.

    It is named by the content of the sources, because compiled code contains its callees: a change
    in any of them makes all of it stale.
    """
    here = Path(__file__).parent
    files = [here.parent / "cost" / "tables.py", *sorted(here.glob("_*.py"))]
    content = digest([file.read_text() for file in files], size=6)
    return _home() / f"compiled-{version('numba')}-{content}"


def _home() -> Path:
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    return Path(chosen) if chosen else cache_folder()


def is_filled() -> bool:
    """Whether the fast path was compiled before."""
    return folder().is_dir() and any(folder().rglob("_run.run-*.nbc"))


def is_compiled() -> bool:
    """Whether this process has the fast path at hand, or gets it without compiling."""
    return "dse.sim._run" in sys.modules or is_filled()
