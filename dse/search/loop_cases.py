"""What the loop bound knows of each point, in arrays.

What depends on a structure alone is worked out once a structure, what depends on a load once a
load, and a pool once for all that share it; points then take their numbers by index.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import Any

import numpy as np
import polars as pl

from dse.cost.memo import Memo
from dse.search.curves import Several
from dse.search.dominance import Flags, Places
from dse.search.envelope import Array
from dse.search.offered import Offered, attainment_at_most
from dse.search.trade import Asked, Rates, coarse
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim import RunSpec
from dse.sim.spec import PoolSpec

Row = Mapping[str, Any]
# Bounds are compared with numbers whose codes are rounded (see `engine_bound`).
SLACK = 1.0002
# What tells loads apart among the columns of a point.
_LOAD = ("isl_tokens", "osl_tokens", "concurrency", "req_per_s")
_KEPT_RATES, _KEPT_SUMS, _KEPT_PROMPTS = 4096, 1024, 16384
_ASKED = (
    "n", "concurrency", "output", "prompts", "new", "decode_steps", "longest_decode", "context_sum",
    "settled_n", "settled_new", "settled_steps",
)  # fmt: skip
_PROMPTS = ("token_s", "alone_s", "ttft_s", "in_time")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cases:
    """Points in the order of `decode`, an entry a point: `place` is its row, the rest what its part
    is asked (see `Asked`), what its prompts take at least (see `Prompts`) on which of the pools of
    `prefill`, and how it is put together.
    """

    place: Places
    decode: Several
    prefill: tuple[Rates, ...]
    by_prefill: Places
    n_prefill: Array
    n: Array
    concurrency: Array
    output: Array
    prompts: Array
    new: Array
    decode_steps: Array
    longest_decode: Array
    context_sum: Array
    settled_n: Array
    settled_new: Array
    settled_steps: Array
    token_s: Array
    alone_s: Array
    ttft_s: Array
    in_time: Array
    n_decode: Array
    is_shared: Flags
    n_gpus: Array
    transfer_s: Array
    idle_watts: Array


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts of a load on a pool, at least: seconds for each token of all, of the mean prompt
    alone, to the mean first token, and the share of requests whose first token may be in time.
    """

    token_s: float
    alone_s: float
    ttft_s: float
    in_time: float

    @classmethod
    def of(cls, rates: Rates, asked: Asked, n_replicas: int, slo: SLO | None) -> "Prompts":
        """What `n_replicas` of a pool make of the prompts that are asked."""
        token_s, arrival_s = rates.prompt_token_s / n_replicas, rates.pool.arrival_s
        # Jensen: the hull is convex.
        lengths = np.array([asked.new / asked.n, asked.shortest])
        mean_s, shortest_s = (arrival_s + rates.alone_s.at(lengths)).tolist()
        burst = len(asked.first_burst) / asked.n
        queued_s = arrival_s + asked.first_burst_mean * token_s
        in_time = 1.0
        if slo is not None and slo.ttft_s is not None:
            # See `dse.search.work.served_in_time`.
            most = (slo.ttft_s * SLACK - arrival_s) / token_s
            served = int(asked.first_burst.searchsorted(most, side="right"))
            late = len(asked.first_burst) - served
            in_time = attainment_at_most(asked.n - late, asked.n)
        return cls(
            token_s=token_s,
            alone_s=mean_s,
            ttft_s=max(mean_s, burst * queued_s + (1.0 - burst) * shortest_s),
            in_time=in_time,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sums:
    """What a part of a load is asked, on which contexts, and how many equal parts there are."""

    asked: Asked
    contexts: tuple[float, float]
    copies: int

    @classmethod
    def of(cls, offered: Offered, copies: int, q_tokens: int) -> "_Sums | None":
        """The sums of the part that is simulated; None where it is no plain closed loop."""
        if not (offered.concurrency > 0 and offered.is_plain and offered.means_cover_all):
            return None
        if bool((offered.new < offered.isl).any()) or not bool((offered.osl > 1.0).all()):
            return None
        if offered.concurrency % copies or offered.roots.max() + 1 < copies:
            copies = 1
        part = offered.part(copies)
        # Engines refuse of the whole load, before it is parted: others would then be in this part.
        longest = (int(offered.isl.max()), int(offered.osl.max()))
        return cls(
            asked=Asked.of(part, q_tokens, longest), contexts=coarse(part, q_tokens), copies=copies
        )


@dataclass(kw_only=True)
class CasesOf:
    """Makes cases of points; see `LoopBound` for its parts."""

    spec_of: Callable[[int], RunSpec | None]
    workload_of: Callable[[Row], Workload]
    offered: Callable[[tuple[Workload, int]], Offered | None]
    slo: SLO | None
    _rates: Memo[Rates] = field(default_factory=lambda: Memo(_KEPT_RATES), init=False)
    _sums: Memo[_Sums | None] = field(default_factory=lambda: Memo(_KEPT_SUMS), init=False)
    _prompts: Memo[Prompts] = field(default_factory=lambda: Memo(_KEPT_PROMPTS), init=False)

    def __call__(self, points: pl.DataFrame, replicate: int) -> Cases | None:
        """The cases of the points that are bounded; None where none is."""
        names = [name for name in _LOAD if name in points.columns]
        if "concurrency" not in names:
            return None
        numbers, structure = np.unique(points["structure"].to_numpy(), return_inverse=True)
        found = [self.spec_of(number) for number in numbers.tolist()]
        compiled = np.array([spec is not None for spec in found], dtype=bool)
        place = np.flatnonzero(compiled[structure])
        specs = [spec for spec in found if spec is not None]
        structure = (np.cumsum(compiled) - 1)[structure[place]]
        if not len(place):
            return None
        sums, whose = self._summed(points, names, replicate, place, specs, structure)
        kept = _admitted(specs, structure, sums, whose)
        if not len(kept):
            return None
        return self._cases(place[kept], specs, structure[kept], sums, whose[kept])

    def _summed(
        self,
        points: pl.DataFrame,
        names: list[str],
        replicate: int,
        place: Places,
        specs: list[RunSpec],
        structure: Places,
    ) -> tuple[list[_Sums | None], Places]:
        """The sums that there are, and which of them each row has."""
        parts = [(_copies(spec), spec.pools[-1].limits.q_tokens) for spec in specs]
        load = _numbered(points.select(names).rows())[place]
        first, whose = _distinct(load, _numbered(parts)[structure])
        offers: dict[int, Offered | None] = {}
        sums: list[_Sums | None] = []
        for row in first.tolist():
            if load[row] not in offers:
                workload = self.workload_of(points.row(int(place[row]), named=True))
                offers[load[row]] = self.offered((workload, replicate))
            offered, part = offers[load[row]], parts[structure[row]]
            sums.append(None if offered is None else self._sum(offered, part))
        return sums, whose

    def _cases(
        self,
        place: Places,
        specs: list[RunSpec],
        structure: Places,
        sums: list[_Sums | None],
        whose: Places,
    ) -> Cases:
        used, whose = np.unique(whose, return_inverse=True)
        asked_of = [each for i in used.tolist() if (each := sums[i]) is not None]
        copies = np.array([each.copies for each in asked_of])[whose]
        contexts = _numbered([each.contexts for each in asked_of])[whose]

        def rates_of(pools: list[PoolSpec]) -> tuple[list[Rates], Places]:
            kinds = [(id(each.cost), id(each.kv), each.role == "both") for each in pools]
            pool = _numbered(kinds)[structure]
            first, which = _distinct(pool, contexts)
            at = zip(structure[first].tolist(), whose[first].tolist(), strict=True)
            return [self._rate(pools[s], asked_of[a].contexts) for s, a in at], which

        prefill, by_prefill = rates_of([spec.pools[0] for spec in specs])
        decode, by_decode = rates_of([spec.pools[-1] for spec in specs])
        n_first = np.array([s.pools[0].n_replicas for s in specs])[structure] // copies
        first, by_prompts = _distinct(by_prefill, whose, n_first)
        at = zip(by_prefill[first], whose[first], n_first[first].tolist(), strict=True)
        prompts = [self._prompted(prefill[r], asked_of[a].asked, n) for r, a, n in at]
        order = np.argsort(by_decode, kind="stable")
        by_spec, part, copies = structure[order], whose[order], copies[order]
        watts = [sum(pool.watts[0] * pool.n_gpus for pool in spec.pools) for spec in specs]
        return Cases(
            place=place[order],
            decode=Several.of(decode, np.bincount(by_decode)),
            prefill=tuple(prefill),
            by_prefill=by_prefill[order],
            n_prefill=n_first[order] * 1.0,
            n_decode=np.array([s.pools[-1].n_replicas for s in specs])[by_spec] // copies * 1.0,
            is_shared=np.array([len(spec.pools) == 1 for spec in specs])[by_spec],
            n_gpus=np.array([spec.n_gpus for spec in specs])[by_spec] // copies * 1.0,
            idle_watts=np.array(watts)[by_spec] / copies,
            transfer_s=_transfers_s(specs, by_spec, [each.asked for each in asked_of], part),
            **_columns([each.asked for each in asked_of], _ASKED, part),
            **_columns(prompts, _PROMPTS, by_prompts[order]),
        )

    def _sum(self, offered: Offered, part: tuple[int, int]) -> _Sums | None:
        return self._sums.of((offered,), part, lambda: _Sums.of(offered, *part))

    def _rate(self, pool: PoolSpec, contexts: tuple[float, float]) -> Rates:
        return self._rates.of((pool.cost, pool.kv), contexts, lambda: Rates.of(pool, contexts))

    def _prompted(self, rates: Rates, asked: Asked, n_replicas: int) -> Prompts:
        def made() -> Prompts:
            return Prompts.of(rates, asked, n_replicas, self.slo)

        return self._prompts.of((rates, asked), (n_replicas,), made)


def _copies(spec: RunSpec) -> int:
    """How many equal parts a deployment has, of which one is simulated."""
    return gcd(*(pool.n_replicas for pool in spec.pools)) if spec.router.is_stateless else 1


def _admitted(
    specs: list[RunSpec], structure: Places, sums: list[_Sums | None], whose: Places
) -> Places:
    """The rows whose load is bounded and of which the engines refuse nothing."""
    is_known = np.array([each is not None for each in sums], dtype=bool)
    rows = np.flatnonzero(is_known[whose])
    if not len(rows):
        return rows
    longest = _numbered([each and each.asked.longest for each in sums])
    kinds = [
        (spec.max_context_tokens, *((id(pool.kv), pool.role == "prefill") for pool in spec.pools))
        for spec in specs
    ]
    first, which = _distinct(_numbered(kinds)[structure[rows]], longest[whose[rows]])
    takes = []
    for row in rows[first].tolist():
        found = sums[whose[row]]
        takes.append(found is not None and specs[structure[row]].admits(*found.asked.longest))
    kept: Places = rows[np.array(takes, dtype=bool)[which]]
    return kept


def _transfers_s(
    specs: list[RunSpec], structure: Places, asked: list[Asked], part: Places
) -> Array:
    """Seconds in which the shortest prompt's KV moves to the decode pool."""
    shortest = np.array([int(each.shortest) for each in asked])[part]
    first, which = _distinct(structure, shortest)
    at = zip(structure[first].tolist(), shortest[first].tolist(), strict=True)
    return np.array([specs[s].transfer_s(tokens) for s, tokens in at], dtype=float)[which]


def _numbered(keys: Sequence[Any]) -> Places:
    """Equal numbers for equal keys, from 0 on."""
    known: dict[Any, int] = {}
    return np.array([known.setdefault(key, len(known)) for key in keys], dtype=np.int64)


def _distinct(*codes: Places) -> tuple[Places, Places]:
    """The first row of each combination of codes (at least 0), and which one each row has."""
    combined = codes[0]
    for each in codes[1:]:
        combined = combined * (int(each.max()) + 1) + each
    _, first, which = np.unique(combined, return_index=True, return_inverse=True)
    return first, which


def _columns(records: Sequence[Any], names: Sequence[str], which: Places) -> dict[str, Array]:
    """Fields of records as arrays, by the record of each row."""
    return {
        name: np.array([getattr(each, name) for each in records], dtype=float)[which]
        for name in names
    }
