"""Why a runner-up is behind: what takes its GPUs longer for a token, and what ends its load."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dse.report.layouts import in_flight
from dse.report.quantities import number
from dse.report.subject import Subject

__all__ = ["causes"]

Row = Mapping[str, Any]

NAMED = 2
"""Kernel families named of a difference."""
LEAST_SHARE = 0.15
FEWER = 0.75
FULL = 0.95
NEAR = 0.9
"""Share of a bound from which a little more load would break it."""
QUEUEING = 0.5
"""Share of TTFT that is said of a queue where the best has none, with half of the best's on top."""


def causes(row: Row, best: Row, subject: Subject, details: Mapping[str, Row]) -> Iterator[str]:
    """What holds `row` back, in words: fewer requests that share a step than in `best`, the kernels
    that cost it more GPU time for an output token, then the first of KV pool, SLO and queue that
    ends its load. Nothing where no number of the report says it.
    """
    abreast, most = _abreast(row), _abreast(best)
    if abreast and abreast <= FEWER * most:
        requests = "1 request" if abreast == 1 else f"{number(abreast)} requests"
        share = "shares" if abreast == 1 else "share"
        yield f"{requests} in flight per GPU {share} its steps, not {number(most)}"
    mine, other = (_busy(each, details) for each in (best, row))
    if mine and other:
        yield from _slower(mine, other)
    yield from _limits(row, best, subject)


def _abreast(row: Row) -> float:
    """Requests in flight per GPU; 0 where they are not known."""
    load = in_flight(row)
    return load / row["n_gpus"] if load and row.get("n_gpus") else 0.0


def _busy(row: Row, details: Mapping[str, Row]) -> dict[str, float]:
    """GPU seconds for an output token by kernel family; empty where they are not known.

    One replica's timeline stands for all of them: its seconds, on all GPUs, for all tokens.
    """
    parts: Sequence[Row] = details.get(str(row.get("point_id")), {}).get("breakdown") or ()
    tokens = (row.get("output_tok_per_s") or 0.0) * (row.get("duration_s") or 0.0)
    if not tokens or not row.get("n_gpus"):
        return {}
    return {each["family"]: each["seconds"] * row["n_gpus"] / tokens for each in parts}


def _slower(mine: Mapping[str, float], other: Mapping[str, float]) -> Iterator[str]:
    """The families of most of the difference in GPU time, where the other one takes more."""
    families = dict.fromkeys([*mine, *other])
    more = {name: other.get(name, 0.0) - mine.get(name, 0.0) for name in families}
    total = sum(more.values())
    if total <= 0.0:
        return
    ranked = sorted(more, key=lambda name: -more[name])[:NAMED]
    told = [
        f"{name.replace('_', ' ')} {100 * more[name] / sum(mine.values()):+.0f}%"
        for name in ranked
        if more[name] >= LEAST_SHARE * total
    ]
    yield (
        f"an output token takes {number(100 * total / sum(mine.values()), 2)}% more GPU time"
        + (f", of it {' and '.join(told)}" if told else "")
    )


def _limits(row: Row, best: Row, subject: Subject) -> Iterator[str]:
    """The first that ends its load: a full KV pool, a bound of the SLO, a longer queue than the
    best's.
    """
    peak = row.get("kv_peak_fraction") or 0.0
    if peak >= FULL or row.get("n_preemptions"):
        yield f"its KV pool is full ({100 * peak:.0f}% at the peak)"
        return
    bounds = [each for each in subject.bounds() if row.get(each.column)]
    used = max(bounds, key=lambda each: row[each.column] / each.limit, default=None)
    if used is not None and row[used.column] >= NEAR * used.limit:
        share = 100 * row[used.column] / used.limit
        yield f"more load would break {used.text} ({share:.0f}% used)"
        return
    share, least = _queueing(row), QUEUEING + _queueing(best) / 2
    if share >= least:
        yield f"{100 * share:.0f}% of its TTFT is waiting in the queue"


def _queueing(row: Row) -> float:
    """Share of the mean TTFT that requests wait before their prefill; 0 where it is not known."""
    queue, ttft = row.get("queue_mean_s"), row.get("ttft_mean_s")
    return queue / ttft if queue and ttft else 0.0
