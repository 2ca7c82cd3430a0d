"""Closed loops as they are likely to run: means stand for requests, steps and queues.

No bound, but fit to say who is worth a simulation. A replica that decodes `b` requests takes the
step of so many at their mean context; where it computes prompts as well, the answers that end in a
step (`b` over the steps of an answer) bring as many prompts into the next, and all of its ranks
wait for a prompt on one of them. A replica that only prefills is a queue in batches. By Little's
law the loop's requests are spread over both.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dse.cost.memo import Memo
from dse.search.dominance import Flags, Places
from dse.search.envelope import Array
from dse.search.loop_cases import Cases
from dse.search.paces import Paces
from dse.search.trade import Rates

# Contexts and prompts within such a ratio share tables.
_ALIKE = 1.05
_HALVINGS, _TURNS = 16, 4
_KEPT = 4096
# A queue never seems fuller than this.
_BUSIEST = 0.9999


@dataclass(frozen=True, slots=True, kw_only=True)
class Steady:
    """Loops that run evenly, an entry a case: requests a second of its part, seconds to a first
    token (its own steps, and what it waits for them), seconds of a decode step, and by how much the
    prompts that are asked at once make the run longer.
    """

    per_s: Array
    own_s: Array
    queue_s: Array
    step_s: Array
    start_s: Array


@dataclass(frozen=True, slots=True)
class MeanField:
    """Works out steady loops; keeps the paces of pools."""

    _known: Memo[Paces] = field(default_factory=lambda: Memo(_KEPT))

    def __call__(self, cases: Cases) -> Steady:
        """The steady loop of each case."""
        loops = _Loops.of(cases, self._paces)
        found = {name: np.empty(len(cases.n)) for name in Steady.__slots__}
        for rows, work in ((cases.is_shared, _together), (~cases.is_shared, _apart)):
            if rows.any():
                part = work(loops.take(rows))
                for name, each in found.items():
                    each[rows] = getattr(part, name)
        return Steady(**found)

    def _paces(self, rates: Rates, context: float, prompt: float) -> Paces:
        pool = rates.pool
        return self._known.of(
            (pool.cost, pool.kv), (context, prompt), lambda: Paces.of(pool, context, prompt)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loops:
    """What shapes loops, an entry a case: see `Cases` and `Paces`; prompts are means, `decode` the
    kinds of steps and `kind` which of them each has.
    """

    in_flight: Array
    steps: Array
    n_decode: Array
    n_prefill: Array
    dp: Array
    pp: Array
    decode_pp: Array
    seats: Array
    arrival_s: Array
    transfer_s: Array
    alone_s: Array
    alone_stage_s: Array
    full_s: Array
    full_stage_s: Array
    decode: tuple[Paces, ...]
    kind: Places

    @classmethod
    def of(cls, cases: Cases, paces: Callable[[Rates, float, float], Paces]) -> "_Loops":
        """The loops of `cases`."""
        prompt = cases.new / cases.n
        context = cases.context_sum / cases.decode_steps
        pools = [rates for rates, _ in cases.decode.groups]
        sizes = [rows.stop - rows.start for _, rows in cases.decode.groups]
        by_pool = np.repeat(np.arange(len(pools)), sizes)
        decode, kind = _kinds(pools, by_pool, context, prompt, paces)
        prefill, which = _kinds(list(cases.prefill), cases.by_prefill, context, prompt, paces)
        scale = prompt / np.array([each.prompt for each in prefill])[which]
        first = [rates.pool for rates in cases.prefill]

        def of_prompts(name: str) -> Array:
            found: Array = np.array([getattr(each, name) for each in prefill])[which] * scale
            return found

        def of_pool(name: str) -> Array:
            found: Array = np.array([float(getattr(pool, name)) for pool in first])
            return found[cases.by_prefill]

        return cls(
            in_flight=np.minimum(cases.concurrency, cases.n),
            steps=np.maximum(cases.decode_steps / cases.n, 1.0),
            n_decode=cases.n_decode,
            n_prefill=cases.n_prefill,
            dp=of_pool("dp"),
            pp=of_pool("pp"),
            decode_pp=cases.decode.each(lambda rates: rates.pool.pp),
            seats=np.array([each.seats for each in decode])[kind],
            arrival_s=of_pool("arrival_s"),
            transfer_s=cases.transfer_s,
            alone_s=of_prompts("alone_s"),
            alone_stage_s=of_prompts("alone_stage_s"),
            full_s=of_prompts("full_s"),
            full_stage_s=of_prompts("full_stage_s"),
            decode=tuple(decode),
            kind=kind,
        )

    def take(self, rows: Flags) -> "_Loops":
        """The loops of some rows."""
        columns = {name: getattr(self, name) for name in self.__slots__ if name != "decode"}
        return _Loops(decode=self.decode, **{name: each[rows] for name, each in columns.items()})

    def step_s(self, batch: Array) -> Array:
        """Seconds between two tokens of a request, of replicas that decode so many."""
        found = np.empty_like(batch)
        slots = np.clip(batch, 1.0, self.decode_pp)
        order = np.argsort(self.kind, kind="stable")
        ends = np.searchsorted(self.kind[order], np.arange(len(self.decode) + 1))
        for each, start, end in zip(self.decode, ends[:-1], ends[1:], strict=True):
            rows = order[start:end]
            if len(rows):
                on_slot = batch[rows] / slots[rows]
                whole = np.interp(on_slot, each.batch, each.step_s)
                stage = np.interp(on_slot, each.batch, each.stage_s)
                found[rows] = np.maximum(whole, slots[rows] * stage)
        return found


def _kinds(
    pools: list[Rates],
    which: Places,
    context: Array,
    prompt: Array,
    paces: Callable[[Rates, float, float], Paces],
) -> tuple[list[Paces], Places]:
    """The paces that there are, and which of them each case has."""
    near = [np.round(np.log(each) / np.log(_ALIKE)).astype(np.int64) for each in (context, prompt)]
    keys = np.column_stack([which, *near])
    distinct, kind = np.unique(keys, axis=0, return_inverse=True)
    found = [paces(pools[pool], _ALIKE**at, _ALIKE**of) for pool, at, of in distinct.tolist()]
    return found, kind.ravel()


def _together(loops: _Loops) -> Steady:
    """Loops of replicas that compute prompts between the steps of those that decode."""
    each = loops.in_flight / loops.n_decode
    most = np.minimum(each, loops.seats)
    batch = most
    for _ in range(_TURNS):
        decode_s = loops.step_s(batch)
        prompts = batch / loops.steps / loops.pp
        share = 1.0 - np.exp(-prompts)
        own_s = np.maximum(prompts * loops.full_s, share * loops.alone_s)
        stage_s = np.maximum(prompts * loops.full_stage_s, share * loops.alone_stage_s)
        # Ranks without a prompt decode meanwhile; other micro-batches find the first stage taken.
        others_s = np.maximum(stage_s - share * decode_s / loops.pp, 0.0)
        spared = np.where(loops.dp > 1.0, share, 0.0)
        step_s = (1.0 - spared) * decode_s + own_s + (loops.pp - 1.0) * others_s
        queue_s = decode_s / 2.0 + share * own_s / 2.0
        first_s = loops.arrival_s + loops.alone_s + queue_s
        whole_s = loops.steps * step_s
        batch = np.minimum(most, each * whole_s / (whole_s + first_s))
    per_s = batch * loops.n_decode / whole_s
    # Who finds no room waits for it.
    waits = np.where(each > loops.seats, loops.in_flight / per_s - whole_s - first_s, 0.0)
    return Steady(
        per_s=per_s,
        own_s=loops.arrival_s + loops.alone_s,
        queue_s=queue_s + np.maximum(waits, 0.0),
        step_s=step_s,
        start_s=np.zeros_like(per_s),
    )


def _apart(loops: _Loops) -> Steady:
    """Loops that pass through replicas for prompts and others that decode: by bisection, so many
    decode that the rest of the loop is what the prompts hold.
    """
    low, high = np.zeros_like(loops.in_flight), loops.in_flight / loops.n_decode
    high = np.minimum(high, loops.seats)
    for _ in range(_HALVINGS):
        batch = (low + high) / 2.0
        per_s, (own_s, queue_s) = _rate(loops, batch)
        held = per_s * (own_s + queue_s + loops.transfer_s) + loops.n_decode * batch
        fits = held <= loops.in_flight
        low, high = np.where(fits, batch, low), np.where(fits, high, batch)
    # What finds no seat to decode waits between two tokens.
    decode_s = np.maximum(loops.in_flight / per_s - own_s - queue_s, 0.0)
    return Steady(
        per_s=per_s,
        own_s=own_s,
        queue_s=queue_s,
        step_s=decode_s / loops.steps,
        start_s=loops.in_flight * loops.full_stage_s / loops.n_prefill,
    )


def _rate(loops: _Loops, batch: Array) -> tuple[Array, tuple[Array, Array]]:
    """Requests a second where so many decode on each replica, and their prompts' seconds."""
    per_s = loops.n_decode * batch / (loops.steps * loops.step_s(np.maximum(batch, 1e-6)))
    each_per_s = per_s / loops.n_prefill
    busy = np.minimum(each_per_s * loops.full_stage_s, _BUSIEST)
    # A step takes up to a prompt on each rank: as many as come in its time.
    full_s = np.maximum(loops.full_s * loops.dp, loops.alone_s)
    step_s = loops.alone_s
    for _ in range(3):
        taken = np.clip(each_per_s / loops.pp * step_s, 1.0, loops.dp)
        more = (taken - 1.0) / np.maximum(loops.dp - 1.0, 1.0)
        step_s = loops.alone_s + (full_s - loops.alone_s) * more
    met_s = np.minimum(each_per_s / loops.pp * step_s, 1.0) * step_s / 2.0 / loops.pp
    queue_s = met_s + busy / (1.0 - busy) * loops.full_stage_s / 2.0
    return per_s, (step_s + loops.arrival_s, queue_s)
