"""What a worker does with a chunk: simulate each row, and let none spoil another."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl

from dse.cost.kernels import Tier
from dse.serving.deployment import Deployment
from dse.serving.workload import Workload
from dse.sim import RunSpec, compile_run, simulate

Row = Mapping[str, Any]
KEYS = ("point_id", "replicate", "physics_id")
_TYPES = {"point_id": pl.String, "replicate": pl.Int32, "physics_id": pl.String}


@dataclass(frozen=True, kw_only=True)
class SimulateRows:
    """Simulates rows of points, each once a replicate.

    A row has the keys of its result and `structure`; `deployments` gives the deployment of a
    structure, `workload_of` what a row asks of it. It is sent to each node once.
    """

    deployments: Mapping[int, Deployment]
    workload_of: Callable[[Row], Workload]
    tier: Tier = "auto"
    _compiled: dict[int, RunSpec] = field(default_factory=dict, repr=False, compare=False)

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """One row a row of `points`: its keys, `status`, `error` and metrics."""
        return _frame([self._row(row) for row in points.iter_rows(named=True)])

    def failed(self, points: pl.DataFrame, status: str, error: str) -> pl.DataFrame:
        """Rows that say how `points` failed."""
        keys = points.select(pl.col(name).cast(dtype) for name, dtype in _TYPES.items())
        return keys.with_columns(status=pl.lit(status), error=pl.lit(error))

    def __getstate__(self) -> dict[str, Any]:
        """Compiled tables stay where they are: a worker compiles what it meets."""
        return self.__dict__ | {"_compiled": {}}

    def _row(self, row: Row) -> dict[str, Any]:
        keys = {name: row[name] for name in KEYS}
        try:
            metrics = self._metrics(row)
        except Exception as error:
            return keys | {"status": "error", "error": f"{type(error).__name__}: {error}"}
        return keys | {"status": "ok", "error": None} | metrics

    def _metrics(self, row: Row) -> dict[str, Any]:
        structure = row["structure"]
        deployment = self.deployments[structure]
        if structure not in self._compiled:
            # Rows come by structure, so the last one's tables are all that is worth keeping.
            self._compiled.clear()
            self._compiled[structure] = compile_run(deployment, self.tier)
        found = simulate(
            deployment,
            self.workload_of(row),
            row["replicate"],
            tier=self.tier,
            spec=self._compiled[structure],
        ).to_row()
        return {name: _plain(value) for name, value in found.items()}


def _plain(value: Any) -> Any:
    """Breakdowns as JSON: their keys differ from point to point."""
    return json.dumps(value) if isinstance(value, Mapping) else value


def _frame(rows: list[dict[str, Any]]) -> pl.DataFrame:
    frame = pl.DataFrame(rows, infer_schema_length=None)
    types = _TYPES | {"status": pl.String, "error": pl.String}
    return frame.with_columns(pl.col(name).cast(dtype) for name, dtype in types.items())
