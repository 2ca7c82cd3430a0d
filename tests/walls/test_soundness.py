"""No wall kills what the simulator finds feasible, and no bound is beaten by a simulation."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dse.cost.memory import rank_memory
from dse.model.attention.block_sparse import BlockSparse
from dse.model.attention.compressed import Compressed
from dse.model.ffn import Routing
from dse.model.ffn.dense import Dense
from dse.model.model import LayerGroup
from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.deployment import Deployment, Pool, SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.serving.lengths import Constant, Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.sim.simulate import simulate
from dse.walls.explain import Asked, judged_points
from dse.walls.facts import FactsCache
from tests import worlds


def block_sparse():
    attention = BlockSparse(
        n_heads=8, n_kv_heads=4, d_head=16, n_index_heads=2, d_index=16, top_k_tokens=256
    )
    layer = LayerGroup(repeat=2, attention=attention, ffn=Dense(d_ff=256))
    return worlds.model(layer, name="block_sparse", d_model=128, vocab=1024)


def compressed():
    attention = Compressed(
        n_heads=8,
        d_head=64,
        d_rope=16,
        q_lora_rank=32,
        o_lora_rank=32,
        n_output_groups=8,
        window_tokens=128,
        ratio=4,
        n_index_heads=2,
        d_index=16,
        top_k_tokens=64,
    )
    layer = LayerGroup(repeat=2, attention=attention, ffn=Dense(d_ff=256))
    return worlds.model(layer, name="compressed", d_model=128, vocab=1024)


MODELS = (
    worlds.tiny(),
    worlds.mixture(),
    worlds.sliding_hybrid(),
    worlds.linear_hybrid(),
    block_sparse(),
    compressed(),
    worlds.llama_8b(),
    worlds.deepseek_v3(),
    worlds.deepseek_v3(sparse=True),
)


@st.composite
def layouts(draw, is_moe):
    tp, pp = draw(st.sampled_from((1, 2, 4, 8))), draw(st.sampled_from((1, 2)))
    if not is_moe:
        return Layout(tp=tp, pp=pp)
    dp = draw(st.sampled_from((1, 2, 4)))
    degrees = tuple(dict.fromkeys((1, max(1, tp * dp // 2), tp * dp)))
    return Layout(tp=tp, pp=pp, dp=dp, ep=draw(st.sampled_from(degrees)))


@st.composite
def deployments(draw):
    model = draw(st.sampled_from(MODELS))
    by = worlds.engine(
        max_num_batched_tokens=draw(st.sampled_from((256, 2048, 8192))),
        max_num_seqs=draw(st.sampled_from((8, 64, 256))),
        exchange=draw(st.sampled_from(("deepep", "all_gather"))),
        gathers_whole_layer=draw(st.booleans()),
        tp_tokens=draw(st.sampled_from(("whole", "slice", "scatter"))),
        memory={"dense_ffn_whole_with_ep": draw(st.booleans())},
        rules={"deepep_needs_whole_ep": draw(st.booleans())},
    )
    on = worlds.gpu(hbm_bytes=draw(st.sampled_from((100e9, 800e9))))
    joined = worlds.fabric(gpus=draw(st.sampled_from((4, 8))))
    roles = draw(st.sampled_from((("both",), ("both",), ("prefill", "decode"))))
    pools = tuple(
        Pool(
            gpu=on,
            fabric=joined,
            layout=draw(layouts(model.is_moe)),
            engine=by,
            role=role,
            n_replicas=draw(st.sampled_from((1, 2))),
        )
        for role in roles
    )
    drafts = SpeculativeDecoding(method="draft", n_draft=2, acceptance=0.7)
    found = Deployment(
        model=model,
        precision=worlds.FP8_BLOCK,
        pools=pools,
        routing=draw(st.sampled_from((Routing(), Routing(kind="zipf", exponent=0.8)))),
        speculative=draw(st.sampled_from((None, None, drafts))),
        interconnect=joined.scale_out if len(pools) > 1 else None,
    )
    for pool in pools:
        assume(not check(model, found.precision, pool.layout, by, on, suggest=False))
        assume(rank_memory(found, pool).b_max(8_192) >= 2)
    return found


def lengths(n_tokens, spread):
    if spread == 1.0:
        return Constant(n_tokens=n_tokens)
    return Uniform(low_tokens=max(1, int(spread * n_tokens)), high_tokens=n_tokens)


@st.composite
def workloads(draw):
    concurrency = draw(st.sampled_from((1, 3, 16, 64, 150)))
    rate = draw(st.sampled_from((None, None, None, 1.0, 100.0)))
    spread = draw(st.sampled_from((1.0, 0.8)))
    isl, osl = draw(st.sampled_from((16, 100, 1500, 6000))), draw(st.sampled_from((1, 2, 20, 150)))
    return Workload(
        arrivals=ClosedLoop(concurrency=concurrency) if rate is None else Poisson(req_per_s=rate),
        n_requests=min(5 * concurrency, 200) if rate is None else 40,
        isl=lengths(isl, spread),
        osl=lengths(osl, spread),
        shared_prefix_tokens=draw(st.sampled_from((0, 0, isl // 2))),
    )


def asked(workload, slo):
    return Asked(
        isl_low_tokens=workload.isl.at(0.0),
        osl_low_tokens=workload.osl.at(0.0),
        osl_high_tokens=workload.osl.at(1.0 - 1e-12),
        concurrency=workload.arrivals.concurrency_limit,
        n_requests=workload.n_requests,
        shared_tokens=workload.shared_prefix_tokens,
        slo=slo,
    )


QUIET = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@pytest.mark.parametrize("tier", ["roofline", "auto"])
@given(deployment=deployments(), workload=workloads(), seed=st.integers(0, 3))
@settings(max_examples=15, derandomize=True, suppress_health_check=QUIET)
def test_walls_and_bounds_are_sound(tier, deployment, workload, seed):
    check_soundness(tier, deployment, workload, seed)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tier", ["roofline", "auto"])
@given(deployment=deployments(), workload=workloads(), seed=st.integers(0, 3))
@settings(max_examples=300, suppress_health_check=QUIET)
def test_walls_and_bounds_are_sound_at_length(tier, deployment, workload, seed):
    check_soundness(tier, deployment, workload, seed)


def check_soundness(tier, deployment, workload, seed):
    """Simulate, ask for what the simulation kept, and judge."""
    found = simulate(deployment, workload, seed=seed, tier=tier)
    bounds = SLO(
        ttft_s=1.001 * found.ttft.p99,
        tpot_s=1.001 * found.tpot.p99 if workload.osl.at(0.0) > 1 else None,
    )
    kept = replace(bounds, attainment=found.slo_attainment(bounds))
    judged = judged_points([(deployment, asked(workload, kept))], FactsCache())[0]
    assert judged["killed_by"] is None, judged
    # The tables between which the simulator interpolates are exact to a few parts in a million.
    assert found.ttft.mean >= judged["ttft_mean_s"] * (1 - 1e-4)
    if workload.osl.at(0.0) > 1:
        assert found.tpot.mean >= judged["tpot_mean_s"] * (1 - 1e-4)
    ceiling = judged["output_tok_per_s_per_gpu"] * (1 + 1e-4)
    assert found.output_tok_per_s_per_gpu <= ceiling
