"""Where an answer comes from: versions, digests, seeds and the command that repeats it."""

from __future__ import annotations

import platform
import subprocess
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dse._version import __version__
from dse.base.digest import digest
from dse.catalog import Catalog
from dse.sim import SIM_VERSION
from dse.study import Study

__all__ = ["catalog_digest", "provenance"]

_LIBRARIES = ("duckdb", "numpy", "optuna", "polars", "ray")


def provenance(study: Study, command: str) -> dict[str, Any]:
    """Everything that a reader needs to repeat the run and to know what it rests on."""
    return {
        "command": command or f"dse run {study.path}",
        "study": study.study_id,
        "scenario": study.scenario or "",
        "catalog": catalog_digest(study.catalog),
        "git": _revision(study.path.resolve().parent),
        "simulator": f"version {SIM_VERSION}",
        "seeds": f"replicates 0 to {study.search.seeds - 1}",
        "versions": {"dse": __version__, "Python": platform.python_version(), **_versions()},
        "machine": platform.machine(),
        "run at": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    }


def catalog_digest(catalog: Catalog) -> str:
    """A digest of every file of the catalog's roots."""
    return _digest_of(tuple(map(str, catalog.roots)))


@lru_cache(maxsize=4)
def _digest_of(roots: tuple[str, ...]) -> str:
    parts = []
    for root in roots:
        files = sorted(path for path in Path(root).rglob("*") if path.suffix in {".yaml", ".json"})
        parts.append([digest(path.read_text(encoding="utf-8")) for path in files])
    return digest(parts)


def _versions() -> dict[str, str]:
    return {name: version(name) for name in _LIBRARIES}


def _revision(folder: Path) -> str:
    """The revision of the study's folder, `+` if anything in it was changed; "" outside git."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty=+", "--exclude=*"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=5,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return found.stdout.strip() if found.returncode == 0 else ""
