"""Work of a pool over a whole run, from below."""

from dataclasses import dataclass, replace

import numpy as np

from dse.search.envelope import Array, Hull
from dse.search.offered import Offered
from dse.search.steps import Steps, seats_of
from dse.sim.spec import PoolSpec, RunSpec

_TANGENTS = (1.0, 0.7, 0.5, 0.25, 0.1)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What one pool has to do. `batch` is the most requests of a replica that one step can decode,
    `n_in_flight` those of a replica at once; `prefills` and `decodes` say what it does.
    """

    pool: PoolSpec
    offered: Offered
    batch: float
    n_in_flight: float
    prefills: bool
    decodes: bool

    @classmethod
    def of(cls, pool: PoolSpec, offered: Offered) -> "Case":
        """The part of `pool`."""
        in_flight = float(min(offered.concurrency or offered.n, offered.n))
        by_kv = pool.kv.n_units // max(1, pool.kv.units_of(_own_tokens(pool, offered)))
        batch = min(in_flight, float(min(seats_of(pool), by_kv) * pool.dp))
        if pool.pp > 1:
            # Micro-batches share the requests of a rank evenly, rounded up.
            batch = min(batch, np.ceil(in_flight / pool.pp) + pool.dp)
        return cls(
            pool=pool,
            offered=offered,
            batch=max(batch, 1.0),
            n_in_flight=in_flight,
            prefills=pool.role in {"both", "prefill"},
            decodes=pool.role in {"both", "decode"},
        )

    def may_preempt(self) -> bool:
        """Whether the requests of a rank may outgrow its KV."""
        longest = int((self.offered.isl + self.offered.osl).max())
        each = self.pool.kv.units_of(longest)
        running = min(self.n_in_flight, float(self.pool.limits.max_seqs * self.pool.pp))
        return running * each > self.pool.kv.n_units


def _own_tokens(pool: PoolSpec, offered: Offered) -> int:
    """Tokens of context that a decoding request holds for itself, at least."""
    if bool((offered.new == offered.isl).all()):
        return int(offered.isl.min()) + 1
    return max(1, int(offered.new.min()) - pool.kv.block_tokens)


def one_of_equals(spec: RunSpec, offered: Offered) -> tuple[RunSpec, Offered]:
    """The part of a deployment that the simulator lets stand for all, and what it is asked."""
    copies = int(np.gcd.reduce([pool.n_replicas for pool in spec.pools]))
    uneven = offered.concurrency % copies if offered.concurrency else 0
    if not spec.router.is_stateless or uneven or offered.roots.max() + 1 < copies:
        return spec, offered
    pools = tuple(
        replace(p, n_replicas=p.n_replicas // copies, n_gpus=p.n_gpus // copies) for p in spec.pools
    )
    return replace(spec, pools=pools), offered.part(copies)


def busy_s(case: Case, steps: Steps) -> float:
    """Seconds that the replicas of a pool are busy, on average over them, at least."""
    found = 0.0
    if case.decodes and not case.prefills:
        found = _decoding(case, steps)
    elif case.prefills and not case.decodes:
        found = _prompts(case, steps)
    else:
        found = max(_mixed(case, steps), _decoding(case, steps), _prompts(case, steps))
    return found / case.pool.n_replicas


def first_tokens_s(case: Case, latency: Steps, offered: Offered) -> Array:
    """Seconds from arrival to first token of each request, at least: its prompt's own steps."""
    found: Array = case.pool.arrival_s + latency.tokens_s.share(offered.new)
    return found


def queueing_s(case: Case, latency: Steps, offered: Offered, own: Array) -> float:
    """Seconds by which the mean TTFT exceeds that of `own`, at least.

    The prompts that a closed loop asks at once share the replicas: the sum of their times is least
    in order of rising work (Smith 1956).
    """
    burst = min(offered.concurrency, offered.n)
    if burst < 2 or not offered.means_cover_all:
        return 0.0
    hull = latency.tokens_s
    per_token = float((hull.y / hull.x).min()) / case.pool.pp / case.pool.n_replicas
    queued = float(np.cumsum(np.sort(offered.new[:burst])).mean()) * per_token
    lift = case.pool.arrival_s + queued - float(own[:burst].mean())
    return max(0.0, lift) * burst / offered.n


def served_in_time(case: Case, latency: Steps, offered: Offered, ttft_s: float | None) -> float:
    """The share of requests whose first token may come within `ttft_s`.

    Of the prompts that a closed loop asks at once, so many as the replicas can work off by then.
    """
    burst = min(offered.concurrency, offered.n)
    if ttft_s is None or burst < 2:
        return 1.0
    hull = latency.tokens_s
    per_token = float((hull.y / hull.x).min()) / case.pool.pp / case.pool.n_replicas
    done_s = case.pool.arrival_s + np.cumsum(np.sort(offered.new[:burst])) * per_token
    return 1.0 - float((done_s > ttft_s * 1.0002).sum()) / offered.n


def _decoding(case: Case, steps: Steps) -> float:
    """Steps that only decode; the KV reads are those of the realised requests."""
    q = case.pool.limits.q_tokens
    n_steps = float(case.offered.decode_steps(q).sum())
    batch = np.array([case.batch])
    work = n_steps * float(steps.least_per_request(batch)[0])
    if case.pool.dp == 1:
        work += steps.kv_s * case.offered.context_sum(q)
    if case.pool.cost.host.overlapped:
        work = max(work, n_steps * float(steps.host_per_request(batch)[0]))
    return work


def _prompts(case: Case, steps: Steps) -> float:
    """Prompts alone, in any number of steps."""
    hull = steps.tokens_s
    return float(case.offered.new.sum()) * float((hull.y / hull.x).min())


def _mixed(case: Case, steps: Steps) -> float:
    """Decoding and prompts together; 0 where preemption may undo the count of prompt steps."""
    offered, limits = case.offered, case.pool.limits
    q = limits.q_tokens
    prompt = float(offered.new.sum())
    decode = float(offered.decode_steps(q).sum())
    chunks = offered.n + (prompt + q * decode) / limits.max_tokens
    if case.may_preempt():
        return 0.0
    rate = float(steps.least_per_request(np.array([case.batch]))[0])
    kv = steps.kv_s * offered.context_sum(q) if case.pool.dp == 1 else 0.0
    pairs = steps.prompts_s(np.array([prompt]), np.array([offered.pairs()]), np.array([chunks]))
    most = min(case.batch * chunks, decode)
    box = _Box(rate=rate, decode=decode, prompt=prompt, q=q, chunks=chunks, most=most)
    plane = max(box.tangent(steps.tokens_s, steps.rows_s, share) for share in _TANGENTS)
    return float(plane + kv + float(pairs[0]))


@dataclass(frozen=True, kw_only=True)
class _Box:
    """`S ≤ chunks` steps hold prompts and `x ≤ most` decoding requests; the rest only decode.

    The work `rate·(decode − x) + S·A((prompt + q·x)/S) + S·H(x/S)` is convex in (S, x), so the
    least value of any of its tangent planes over the box is below it.
    """

    rate: float
    decode: float
    prompt: float
    q: int
    chunks: float
    most: float

    def tangent(self, tokens: Hull, rows: Hull, share: float) -> float:
        """The least value of the plane that touches at `share` of the chunks."""
        s = max(self.chunks * share, 1.0)
        x = self.most * share
        m, n = np.array([(self.prompt + self.q * x) / s]), np.array([x / s])
        a, da = float(tokens.at(m)[0]), float(tokens.slope(m)[0])
        h, dh = float(rows.at(n)[0]), float(rows.slope(n)[0])
        if m[0] > tokens.x[-1]:
            # Nothing is known there; zero would be a claim, as attention beside KV may be negative.
            return -np.inf
        value = self.rate * (self.decode - x) + s * (a + h)
        by_s = a - da * m[0] + h - dh * n[0]
        by_x = -self.rate + self.q * da + dh
        plane: float = (
            value
            + min(by_s * (0.0 - s), by_s * (self.chunks - s))
            + min(by_x * (0.0 - x), by_x * (self.most - x))
        )
        return plane
