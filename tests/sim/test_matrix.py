"""Scheduler × attention × parallelism × arrivals × mechanism: each cell is a hand-sized world that
ends with every token out, and says which path served it."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from dse.serving.arrivals import AllAtOnce, ClosedLoop, ConstantRate, Gamma, Poisson
from dse.serving.deployment import Deployment, SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.lengths import Constant
from dse.serving.routers import LeastLoaded, PrefixAware
from dse.serving.schedulers import ChunkedPrefill, PrefillFirst, Static
from dse.serving.workload import Sessions, Workload
from dse.sim.simulate import simulate
from tests import worlds as models
from tests.sim.worlds import deployment, free

SCHEDULERS = {"chunked": ChunkedPrefill(), "prefill_first": PrefillFirst(), "static": Static()}
ATTENTIONS = {
    "gqa": models.tiny,
    "mla": models.deepseek_v3,
    "sparse": lambda: models.deepseek_v3(sparse=True),
    "sliding": models.sliding_hybrid,
    "linear": models.linear_hybrid,
}
LAYOUTS = {
    "tp": Layout(tp=2),
    "dp_ep": Layout(dp=2, ep=2),
    "pp": Layout(pp=2),
}
ARRIVALS = {
    "closed_loop": ClosedLoop(concurrency=3),
    "poisson": Poisson(req_per_s=0.5),
    "gamma": Gamma(req_per_s=0.5, cv=2.0),
    "constant": ConstantRate(req_per_s=0.5),
    "all_at_once": AllAtOnce(),
}
# Mechanism, what it changes, and the path that serves it.
MECHANISMS: dict[str, tuple[dict[str, Any], str]] = {
    "plain": ({}, "fast"),
    "prefix": ({"shared": 8}, "fast"),
    "sessions": ({"sessions": Sessions(turns=Constant(n_tokens=2), think_s=1.0)}, "fast"),
    "speculation": ({"drafts": SpeculativeDecoding(method="draft", n_draft=2, acceptance=0.5)},
                    "fast"),
    "least_loaded": ({"router": LeastLoaded(), "n_replicas": 2}, "fast"),
    "prefix_aware": ({"router": PrefixAware(), "n_replicas": 2, "shared": 8}, "reference"),
    "disaggregated": ({"apart": True}, "fast"),
}  # fmt: skip
N_REQUESTS = 6


def world(scheduler: str, attention: str, layout: str, changes: dict[str, Any]) -> Deployment:
    more = {key: changes[key] for key in ("router",) if key in changes}
    if "drafts" in changes:
        more["speculative"] = changes["drafts"]
    model = ATTENTIONS[attention]()
    # The pool is stated, since the weights of some of these models do not fit.
    more["kv_pool_bytes"] = 40e6
    found = deployment(
        model=model,
        scheduler=SCHEDULERS[scheduler],
        layout=LAYOUTS[layout],
        n_replicas=changes.get("n_replicas", 1),
        changes=more,
        max_num_seqs=4,
        max_num_batched_tokens=16,
    )
    if not changes.get("apart"):
        return found
    pool = found.pools[0]
    link = pool.fabric.scale_out
    pools = (replace(pool, role="prefill"), replace(pool, role="decode"))
    return replace(found, pools=pools, interconnect=link)


def load(arrivals: str, changes: dict[str, Any]) -> Workload:
    return Workload(
        arrivals=ARRIVALS[arrivals],
        n_requests=N_REQUESTS,
        isl=Constant(n_tokens=10),
        osl=Constant(n_tokens=4),
        shared_prefix_tokens=changes.get("shared", 0),
        sessions=changes.get("sessions"),
    )


CELLS = list(product(SCHEDULERS, ATTENTIONS, LAYOUTS, ARRIVALS, MECHANISMS))


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_mechanism_is_served(scheduler: str, attention: str) -> None:
    cells = [cell for cell in CELLS if cell[:2] == (scheduler, attention)]
    assert len(cells) == len(LAYOUTS) * len(ARRIVALS) * len(MECHANISMS)
    specs: dict[tuple[str, str], Any] = {}
    for _, _, layout, arrivals, mechanism in cells:
        changes, path = MECHANISMS[mechanism]
        key = (layout, mechanism)
        if key not in specs:
            specs[key] = free(world(scheduler, attention, layout, changes))
        metrics = simulate(None, load(arrivals, changes), 0, spec=specs[key])  # type: ignore[arg-type]
        where = (scheduler, attention, layout, arrivals, mechanism)
        assert metrics.served_by == path, (where, metrics.served_because)
        assert metrics.n_requests == N_REQUESTS, where
        assert metrics.output_tok_per_s * metrics.duration_s == pytest.approx(4 * N_REQUESTS), where
        # Every step takes 1 s, a request needs at least one step for its prompt and one a token.
        least = 2 if mechanism == "speculation" else 4
        assert metrics.e2e.p50 >= least, where
        # Two DP ranks may each meet a prefix for the first time, or a turn on the other's cache.
        reuses = mechanism in {"prefix", "sessions"} and layout != "dp_ep"
        if reuses and attention in {"gqa", "mla", "sparse"}:
            assert metrics.prefix_hit_fraction > 0, where
