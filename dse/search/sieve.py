"""What of more deployments than can be rows is worth to be one: the likely best, many times more
than a budget simulates.

Deployments are rows of indices into layouts, with the replicas of each pool; loads are columns.
Each is guessed by its pools (see `pools`), and of those whose other objectives are alike the best
by the first are kept, so that whoever searches what is kept finds every part of the front there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl
from numpy.typing import NDArray

from dse.pareto import Objective
from dse.search.dominance import costs
from dse.search.likely import likely
from dse.search.pools import Decoding, Floats, Lengths, Prefilling
from dse.serving.slo import SLO

Index = NDArray[np.int64]

# Deployments that are guessed at a time.
_PART = 4096
# First tokens later than so many times the SLO are not looked at, nor strains beyond the second.
_LATE, _STRAINED = 3.0, 1.5
# What is alike: objectives within this ratio, strains up to each of these.
_ALIKE, _STRAINS = 0.05, (0.8, 1.1)
# Of a group so many are kept, of those alike so few at least; above so many rows they are sieved.
_KEPT, _FEWEST, _FULL = 4000, 8, 400_000
# How much better a deployment of twice the replicas must be: it takes twice as long to simulate for
# the same, but for a finer balance of its pools.
_DOUBLED = 0.05
# Above the number of steps in which any objective, or the strain, may differ.
_KINDS = 4096
_FAR = 50.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployments:
    """Rows: layouts by index, replicas, GPUs, USD an hour and GPU (NaN: no price). Loads: lengths
    by index, requests in flight of a replica that decodes; `alive` says which pairs of layouts and
    loads the walls of structure leave, `measured` the share of a run's requests that are asked at
    its start and count (0: none does).
    """

    prefill: Index
    decode: Index
    n_prefill: Floats
    n_decode: Floats
    n_gpus: Floats
    price: Floats
    of_length: Index
    batch: Floats
    alive: NDArray[np.bool_]
    measured: float


def guessed(
    asked: Deployments,
    prefilling: Prefilling,
    decoding: Decoding,
    lengths: Sequence[Lengths],
    slo: SLO | None,
    *,
    is_shared: bool,
) -> Iterator[pl.DataFrame]:
    """Part by part `row`, `load`, likely metrics and `strain` of what may keep `slo`."""
    osl = np.array([each.osl for each in lengths])[asked.of_length].astype(np.float32)
    isl = np.array([each.isl for each in lengths])[asked.of_length].astype(np.float32)
    per_s = prefilling.req_per_s[:, asked.of_length].astype(np.float32)
    for start in range(0, len(asked.prefill), _PART):
        rows = slice(start, start + _PART)
        p, d = asked.prefill[rows], asked.decode[rows]
        a, b = asked.n_prefill[rows, None], asked.n_decode[rows, None]
        first = np.zeros_like(p) if is_shared else p
        fed = a * per_s[d if is_shared else p]
        served = b * decoding.req_per_s[first, d]
        rate = served if is_shared else np.minimum(fed, served)
        tpot = decoding.tpot_s[first, d]
        in_flight = b * asked.batch
        kept = asked.alive[first, d] & np.isfinite(rate)
        if slo is not None and slo.ttft_s is not None:
            kept &= in_flight / rate - tpot * (osl - 1.0) <= _LATE * slo.ttft_s
        i, load = np.nonzero(kept)
        rate, tpot, fed = rate[i, load], tpot[i, load], fed[i, load]
        is_fed = np.flatnonzero(rate < served[i, load])
        each = (rate / b[i, 0])[is_fed]
        tpot[is_fed] = decoding.tpot_at(d[i[is_fed]], load[is_fed], each)
        yield _metrics(asked, start + i, load, rate, tpot, fed, (isl[load], osl[load]), slo)


def _metrics(
    asked: Deployments,
    row: Index,
    load: Index,
    rate: Floats,
    tpot: Floats,
    fed: Floats,
    tokens: tuple[Floats, Floats],
    slo: SLO | None,
) -> pl.DataFrame:
    in_flight, (isl, osl) = asked.n_decode[row] * asked.batch[load], tokens
    n_gpus = asked.n_gpus[row]
    found = {
        "goodput_req_per_s_per_gpu": rate / n_gpus,
        "output_tok_per_s_per_gpu": rate * osl / n_gpus,
        "total_tok_per_s_per_gpu": rate * (osl + isl) / n_gpus,
        "tpot_mean_s": tpot,
        "slo_attainment": _in_time(in_flight, fed, slo, asked.measured),
    }
    points = pl.DataFrame({"n_gpus": n_gpus, "concurrency": in_flight})
    floats = {name: np.asarray(each, dtype=float) for name, each in found.items()}
    whole = likely(points, floats, slo, np.full(len(row), asked.measured))
    columns = {name: np.asarray(each, dtype=np.float32) for name, each in whole.items()}
    frame = pl.DataFrame({"row": row, "load": load, "n_gpus": n_gpus, **columns})
    frame = frame.with_columns(
        replicas=pl.Series(asked.n_prefill[row] + asked.n_decode[row]),
        usd_per_gpu_hour=pl.Series(asked.price[row], nan_to_null=True),
    )
    return frame.filter(pl.col("strain") <= _STRAINED)


def _in_time(in_flight: Floats, fed: Floats, slo: SLO | None, measured: float) -> Floats:
    """The share of requests whose first token may be in time: of those asked at once the first."""
    if slo is None or slo.ttft_s is None or not measured:
        return np.ones_like(in_flight)
    served = np.minimum(fed * slo.ttft_s / in_flight, 1.0)
    return np.asarray(1.0 - measured * (1.0 - served), dtype=np.float32)


@dataclass(slots=True, kw_only=True)
class Sieve:
    """Keeps the likely best: `add` frames of `guessed`, with `group`, then ask for `kept`."""

    objectives: tuple[Objective, ...]
    tolerance: float
    _groups: dict[str, int] = field(default_factory=dict)
    _best: pl.DataFrame | None = None
    _kinds: Index = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    _worst: Floats = field(default_factory=lambda: np.empty(0, dtype=np.float32))
    _new: list[pl.DataFrame] = field(default_factory=list)

    def add(self, frame: pl.DataFrame, *, grid: int) -> None:
        """Take in rows of a grid."""
        found = self._better(self._sorted_in(frame, grid))
        if found.height:
            self._new.append(found)
        if sum(each.height for each in self._new) > _FULL:
            self._sift()

    def kept(self) -> pl.DataFrame:
        """What was added of the best: `grid`, `row` and `load`."""
        self._sift()
        empty = pl.DataFrame(schema=dict.fromkeys(("grid", "row", "load"), pl.Int64))
        return empty if self._best is None else self._best.select(empty.columns)

    def _sorted_in(self, frame: pl.DataFrame, grid: int) -> pl.DataFrame:
        """Rows with `first`, the cost by the first objective and size, in steps of the tolerance,
        and `kind`, what the group, the other objectives and the strain have in common.
        """
        wanted = [each.column for each in self.objectives]
        views = [each.view() for each in self.objectives if set(each.needs) <= set(frame.columns)]
        seen = frame.with_columns(views)
        absent = [pl.lit(1.0).alias(name) for name in wanted if name not in seen.columns]
        values = costs(seen.with_columns(absent), self.objectives)
        for name in frame["group"].unique().to_list():
            self._groups.setdefault(name, len(self._groups))
        kind = frame["group"].replace_strict(self._groups, return_dtype=pl.Int64).to_numpy()
        kind = kind * _KINDS + np.searchsorted(_STRAINS, seen["strain"].to_numpy())
        for column in (
            np.floor(np.clip(np.nan_to_num(values[:, 1:]), -_FAR, _FAR) / _ALIKE).astype(np.int64).T
        ):
            kind = kind * _KINDS + (column + _KINDS // 2) % _KINDS
        step = max(np.log1p(self.tolerance), 1e-9)
        sized = values[:, 0] + _DOUBLED * np.log2(frame["replicas"].to_numpy())
        return seen.select("row", "load", "n_gpus").with_columns(
            pl.lit(grid, pl.Int64).alias("grid"),
            pl.Series("first", np.round(sized / step).astype(np.float32)),
            pl.Series("kind", kind),
        )

    def _better(self, frame: pl.DataFrame) -> pl.DataFrame:
        """The rows that are no worse than the last of their kind, where that is full."""
        if not len(self._kinds):
            return frame
        mine = frame["kind"].to_numpy()
        place = np.minimum(np.searchsorted(self._kinds, mine), len(self._kinds) - 1)
        is_new = self._kinds[place] != mine
        is_better = frame["first"].to_numpy() <= self._worst[place]
        return frame.filter(pl.Series(is_new | is_better))

    def _sift(self) -> None:
        """Keep of each kind the best by the first objective; of equals those of the fewest GPUs."""
        if not self._new:
            return
        frames = self._new if self._best is None else [self._best, *self._new]
        frame = pl.concat(frames)
        order = [
            frame[name].to_numpy() for name in ("load", "row", "grid", "n_gpus", "first", "kind")
        ]
        ranked = frame[np.lexsort(order)]
        kinds = ranked["kind"].to_numpy()
        starts = np.flatnonzero(np.append(True, kinds[1:] != kinds[:-1]))
        sizes = np.diff(np.append(starts, len(kinds)))
        place = np.arange(len(kinds)) - np.repeat(starts, sizes)
        groups = kinds[starts] // _KINDS ** len(self.objectives)
        _, whose, n_kinds = np.unique(groups, return_inverse=True, return_counts=True)
        most = np.maximum(_KEPT // n_kinds[whose], _FEWEST)
        kept = place < np.repeat(most, sizes)
        self._best, self._new = ranked.filter(pl.Series(kept)), []
        first = ranked["first"].to_numpy()[starts + np.minimum(most, sizes) - 1]
        self._kinds = kinds[starts]
        self._worst = np.where(sizes < most, np.inf, first).astype(np.float32)
