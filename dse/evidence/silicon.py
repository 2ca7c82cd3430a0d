"""Reader of the public silicon database (`pip install aiconfigurator-core`, Apache-2.0).

12.6 million measured kernels as Parquet, one folder a GPU. The package is located, not imported (it
loads a compiled engine at import), and nothing of it is copied: rows are scanned where they lie.
"""

import re
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import polars as pl

from dse.base.errors import UserError

PACKAGE = "aiconfigurator_core"
ENGINES = ("vllm", "sglang", "trtllm", "nccl")
# Folder names of the database and the catalog's names for the same parts.
GPUS = {
    "a100_sxm": "A100-SXM",
    "h100_sxm": "H100-SXM",
    "h200_sxm": "H200-SXM",
    "b200_sxm": "B200-SXM",
    "b300_sxm": "B300-SXM",
    "gb200": "GB200",
    "gb300": "GB300",
    "l40s": "L40S",
    "rtx_pro_6000_server": "RTX-PRO-6000",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One Parquet file: `name` of table for one GPU, engine and version; `n_rows` in it."""

    gpu: str
    engine: str
    version: str
    name: str
    path: Path
    n_rows: int

    def scan(self) -> pl.LazyFrame:
        """Its rows, lazily; latencies are in ms but for the `_us` columns of DeepEP tables."""
        return pl.scan_parquet(self.path)


def root() -> Path | None:
    """The folder of the database's GPUs, or None where the optional extra is not installed."""
    spec = find_spec(PACKAGE)
    places = spec.submodule_search_locations if spec is not None else None
    folder = Path(next(iter(places))) / "systems" / "data" if places else None
    return folder if folder is not None and folder.is_dir() else None


def tables(name: str, *, every_version: bool = False) -> tuple[Table, ...]:
    """The tables called `name`, one a GPU and engine: the newest version that holds at least half
    as many rows as the largest (some later versions add a few shapes only). UserError without the
    extra.
    """
    folder = root()
    if folder is None:
        raise UserError("the silicon database is not installed", "pip install 'dse[silicon]'")
    found = [_table(folder, path) for path in sorted(folder.glob(f"*/*/*/*/{name}_perf.parquet"))]
    known = [table for table in found if table is not None]
    return tuple(known) if every_version else _newest(known)


def _table(folder: Path, path: Path) -> Table | None:
    gpu, _, engine, version, file = path.relative_to(folder).parts
    if gpu not in GPUS or engine not in ENGINES:
        return None
    n_rows = int(pl.scan_parquet(path).select(pl.len()).collect().item())
    name = file.removesuffix("_perf.parquet")
    return Table(gpu=GPUS[gpu], engine=engine, version=version, name=name, path=path, n_rows=n_rows)


def _newest(found: list[Table]) -> tuple[Table, ...]:
    groups: dict[tuple[str, str], list[Table]] = {}
    for table in found:
        groups.setdefault((table.gpu, table.engine), []).append(table)
    chosen = []
    for group in groups.values():
        enough = max(table.n_rows for table in group) / 2
        full = [table for table in group if table.n_rows >= enough]
        chosen.append(max(full, key=lambda table: _version_key(table.version)))
    return tuple(chosen)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version))
