"""Points → results: what the store has is reused, the rest is spread over the pool and appended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from dse.cost.kernels import Tier
from dse.run.chunk import COST, cut
from dse.run.identity import deployment_facts, facts_id, physics_of, point_id
from dse.run.pool import Pool, in_process
from dse.run.worker import KEYS, Row, SimulateRows
from dse.serving.deployment import Deployment
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import LatencySketch
from dse.store import Store

SKETCH = "latency_sketch"
_CODES = ("ttft_code", "tpot_code", "e2e_code")
_ORDER = (*KEYS, "point")


@dataclass(kw_only=True)
class Evaluator:
    """Called with rows of points, gives a row a point and replicate: `point`, `point_id`, keys,
    `status`, `error`, metrics, and under an SLO `slo_attainment`, `goodput_req_per_s` and
    `goodput_req_per_s_per_gpu`.

    `deployments` is by structure, `workload_of` gives what a row asks. Failed results count as
    results unless their status is in `retry`. `told` is called with the number of points that came
    in. `n_simulated`, `n_reused` and `n_failed` count results (points × replicates) so far.
    """

    deployments: Mapping[int, Deployment]
    workload_of: Callable[[Row], Workload]
    store: Store
    pool: Pool = in_process
    replicates: int = 1
    slo: SLO | None = None
    tier: Tier = "auto"
    retry: Sequence[str] = ()
    told: Callable[[int], None] | None = None
    n_simulated: int = field(default=0, init=False)
    n_reused: int = field(default=0, init=False)
    n_failed: int = field(default=0, init=False)
    _deployment_ids: dict[int, str] = field(default_factory=dict, init=False)
    _physics: dict[int, str] = field(default_factory=dict, init=False)
    _shares: dict[tuple[Any, ...], float] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.work = SimulateRows(
            deployments=self.deployments, workload_of=self.workload_of, tier=self.tier
        )

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """The results of `points`, in their order, replicate by replicate."""
        keyed = self.keyed(points)
        asked = keyed.unique(list(KEYS), keep="first", maintain_order=True)
        missing = self.store.missing(asked, retry=self.retry)
        self.n_reused += asked.height - missing.height
        self._remember(keyed)
        for rows in self.pool(self.work, cut(missing.sort("structure", maintain_order=True))):
            self._take(rows)
        found = self.store.results(asked.select(KEYS))
        joined = keyed.select(_ORDER).join(found, on=list(KEYS), how="left", maintain_order="left")
        return self._with_goodput(joined) if self.slo is not None else joined

    def keyed(self, points: pl.DataFrame) -> pl.DataFrame:
        """`points` once a replicate, with the keys of their results."""
        ids = [self._point_id(row) for row in points.iter_rows(named=True)]
        structures = points["structure"].to_list()
        physics = [self._physics_of(structure) for structure in structures]
        named = points.with_columns(
            pl.Series("point_id", ids, dtype=pl.String),
            pl.Series("physics_id", physics, dtype=pl.String),
        )
        replicates = pl.DataFrame({"replicate": range(self.replicates)}).cast(pl.Int32)
        return named.join(replicates, how="cross", maintain_order="left_right")

    def _take(self, rows: pl.DataFrame) -> None:
        self.n_simulated += rows.height
        self.n_failed += rows.filter(pl.col("status") != "ok").height
        if SKETCH in rows.columns:
            told = rows.drop_nulls(SKETCH)
            found = [LatencySketch.from_bytes(data) for data in told[SKETCH]]
            self.store.append(_sketches(told, found), SKETCH)
            if self.slo is not None:
                shares = [sketch.attainment(self.slo) for sketch in found]
                self._shares |= dict(zip(told.select(KEYS).iter_rows(), shares, strict=True))
            rows = rows.drop(SKETCH)
        self.store.append(rows)
        if self.told is not None:
            self.told(rows.height)

    def _remember(self, keyed: pl.DataFrame) -> None:
        """Append who the points are, so that the store can be read without the study."""
        hidden = {*KEYS, "point", "structure", COST}
        columns = [name for name in keyed.columns if name not in hidden]
        whose = keyed["structure"].replace_strict(self._deployment_ids, return_dtype=pl.String)
        facts = keyed.select("point_id", *columns).with_columns(deployment_id=whose)
        self.store.append(facts.unique("point_id", keep="first", maintain_order=True), "point")

    def _point_id(self, row: Row) -> str:
        structure = row["structure"]
        if structure not in self._deployment_ids:
            facts = deployment_facts(self.deployments[structure])
            self._deployment_ids[structure] = facts_id(facts)
            text = {"deployment_id": self._deployment_ids[structure], "facts": facts}
            self.store.append(pl.DataFrame([text]), "deployment")
        return point_id(self._deployment_ids[structure], self.workload_of(row))

    def _physics_of(self, structure: int) -> str:
        if structure not in self._physics:
            self._physics[structure] = physics_of(self.deployments[structure], self.tier)
        return self._physics[structure]

    def _with_goodput(self, results: pl.DataFrame) -> pl.DataFrame:
        assert self.slo is not None
        keys = results.filter(pl.col("status") == "ok").select(KEYS).unique(maintain_order=True)
        if keys.is_empty():  # every point of the batch failed: none has a metric
            names = ("slo_attainment", "goodput_req_per_s", "goodput_req_per_s_per_gpu")
            return results.with_columns(pl.lit(None, pl.Float64).alias(name) for name in names)
        unread = keys.filter([key not in self._shares for key in keys.iter_rows()])
        if not unread.is_empty():
            for row in self.store.results(unread, SKETCH).iter_rows(named=True):
                key = tuple(row[name] for name in KEYS)
                self._shares[key] = _sketch(row).attainment(self.slo)
        shares = [self._shares.get(key) for key in keys.iter_rows()]
        attained = keys.with_columns(pl.Series("slo_attainment", shares, dtype=pl.Float64))
        joined = results.join(attained, on=list(KEYS), how="left", maintain_order="left")
        asked = (pl.col("n_requests") + pl.col("n_rejected")) / pl.col("n_requests")
        goodput = pl.col("request_per_s") * asked * pl.col("slo_attainment")
        return joined.with_columns(
            goodput_req_per_s=goodput, goodput_req_per_s_per_gpu=goodput / pl.col("n_gpus")
        )


def _sketches(rows: pl.DataFrame, found: Sequence[LatencySketch]) -> pl.DataFrame:
    codes = pl.List(pl.UInt16)
    return rows.select(KEYS).with_columns(
        *[
            pl.Series(name, [each.samples[:, i].tolist() for each in found], dtype=codes)
            for i, name in enumerate(_CODES)
        ],
        pl.Series("n_requests", [each.n_requests for each in found], dtype=pl.Int64),
        pl.Series("n_rejected", [each.n_rejected for each in found], dtype=pl.Int64),
    )


def _sketch(row: Row) -> LatencySketch:
    samples = np.array([row[name] for name in _CODES], dtype=np.uint16).T
    return LatencySketch(samples, row["n_requests"], row["n_rejected"])
