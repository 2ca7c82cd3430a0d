"""Worlds for the simulator: hand-sized ones in which a step takes what the test says, and random
ones priced by the roofline."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dse.serving.arrivals import Trace, TraceRequest
from dse.serving.deployment import Deployment
from dse.serving.engine import EngineHost
from dse.serving.layout import Layout
from dse.serving.schedulers import Scheduler
from dse.serving.workload import Workload
from dse.sim import RunSpec, compile_run
from dse.sim.log import Event, Log
from dse.sim.simulate import simulate
from tests import worlds

BLOCK = 4


class Free:
    """Kernels and collectives that take no time."""

    tier = "roofline"
    in_step = True
    physics_id = "free"

    def seconds(self, op: Any) -> Any:
        return 0.0

    def roofline_seconds(self, op: Any) -> Any:
        return 0.0


def host(step_s: float = 1.0, **changes: Any) -> EngineHost:
    """The host takes `step_s` a step, whatever is in it."""
    facts = {"step_s": step_s, "request_s": 0.0, "prefill_token_s": 0.0, "arrival_s": 0.0}
    return EngineHost(**facts | changes)


def deployment(
    *,
    model: Any = None,
    blocks: int | None = None,
    scheduler: Scheduler | None = None,
    layout: Layout | None = None,
    n_replicas: int = 1,
    changes: dict[str, Any] | None = None,
    **engine: Any,
) -> Deployment:
    """A small model with `blocks` KV blocks of 4 tokens per rank; a step takes 1 s of host time."""
    model = model or worlds.tiny()
    facts: dict[str, Any] = {"block_tokens": BLOCK, "host": host(), "max_num_seqs": 8} | engine
    if scheduler is not None:
        facts["scheduler"] = scheduler
    found = worlds.deployment(
        model,
        layout=layout or Layout(),
        by=worlds.engine(**facts),
        n_replicas=n_replicas,
        **(changes or {}),
    )
    if blocks is None:
        return found
    layer = model.layers[0].attention
    pool = found.pools[0]
    per_token = model.n_layers * layer.kv_bytes_per_token(pool.shard(), found.precision.kv)
    block = facts["block_tokens"] * per_token / pool.layout.pp
    return replace(found, kv_pool_bytes=blocks * block)


def free(found: Deployment) -> RunSpec:
    """Compiled so that only the host takes time."""
    return compile_run(found, kernels=Free(), collectives=Free())


def priced(found: Deployment) -> RunSpec:
    """Compiled at peak rates."""
    return compile_run(found, "roofline")


def trace(rows: Sequence[tuple[float, int, int]], **more: Any) -> Workload:
    """Requests of (arrival, ISL, OSL)."""
    found = tuple(TraceRequest(*row) for row in rows)
    arrivals = Trace(file="rows", content_id=str(rows), rows=found)
    return Workload(arrivals=arrivals, n_requests=len(rows), **more)


def events(spec: RunSpec, workload: Workload, *kinds: str) -> list[Event]:
    """The whole event log, or the events of `kinds`."""
    log = Log()
    simulate(None, workload, 0, spec=spec, log=log)  # type: ignore[arg-type]
    return [event for event in log.events if not kinds or event.kind in kinds]


def told(spec: RunSpec, workload: Workload) -> list[str]:
    """The event log as lines: time, kind, request; of steps end, requests, tokens, queue, KV."""
    lines = []
    for event in events(spec, workload):
        line = f"{event.time_s:g} {event.kind}"
        if event.kind == "step":
            line += f" to {event.end_s:g}: {event.n_seqs} seqs {event.n_tokens} tok"
            line += f" {event.n_waiting} waiting {event.kv_units} kv"
        else:
            line += f" r{event.request}" + (f" hit {event.amount:g}" if event.amount else "")
        lines.append(line)
    return lines


def same(a: Any, b: Any) -> None:
    """Two outcomes agree to 1e-9 in every number."""
    for name in ("asked_s", "admitted_s", "first_token_s", "finish_s"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-9, atol=1e-12)
    for name in ("n_preemptions", "hit_tokens"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for mine, other in zip(a.totals, b.totals, strict=True):
        for one, two in zip(mine.tally.arrays, other.tally.arrays, strict=True):
            np.testing.assert_array_equal(one, two)
        np.testing.assert_array_equal(mine.gaps, other.gaps)
        for name in ("n_steps", "kv_peak", "n_decode_tokens", "n_prefill_tokens"):
            assert getattr(mine, name) == getattr(other, name), name
        for name in ("busy_s", "host_s", "seqs_s", "kv_s"):
            np.testing.assert_allclose(getattr(mine, name), getattr(other, name), rtol=1e-9)
