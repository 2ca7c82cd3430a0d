"""What a rank computes and sends: ops and collectives of a step, counted by hand."""

from dataclasses import replace

import pytest

from dse.cost.lower import program
from dse.cost.work import work
from dse.model.ops import Collective
from dse.serving.layout import Layout
from tests import worlds

UNSHARED = {"n_experts": 16, "top_k": 2, "d_expert": 64, "heads": 8, "kv": 4}


def lowered(model, *, by=None, **layout):
    deployment = worlds.deployment(model, layout=Layout(**layout), by=by)
    return program(deployment, deployment.pools[0])


def collectives(found, m=4, m_group=4):
    return {
        op.op.kind: (op.count, op.op)
        for stage in range(len(found.stages))
        for op in found.collectives(stage, m, m_group)
    }


def test_tensor_parallel_reduces_twice_a_layer():
    sent = list(lowered(worlds.tiny(), tp=4).collectives(0, 4, 4))
    assert sum(each.count for each in sent if each.op.kind == "all_reduce") == 2 * 2
    assert {each.op.n_bytes for each in sent} == {4 * 128 * 2}
    assert not list(lowered(worlds.tiny()).collectives(0, 4, 4))


def test_expert_parallel_dispatches_and_combines():
    sent = collectives(lowered(worlds.mixture(), dp=4, ep=4), m=4, m_group=16)
    count, dispatch = sent["ep_dispatch"]
    assert (count, dispatch.n_ranks, dispatch.top_k, dispatch.n_bytes) == (2, 4, 2, 4 * 128 * 2)
    assert sent["ep_combine"][1].n_bytes == 4 * 128 * 2
    assert "all_reduce" not in sent


def test_an_exchange_knows_the_groups_of_experts_that_a_token_may_use():
    grouped = worlds.mixture_of(
        n_experts=16, top_k=2, d_expert=64, heads=8, kv=4, n_groups=4, top_groups=1
    )
    sent = collectives(lowered(grouped, dp=4, ep=4), m=4, m_group=16)
    for kind in ("ep_dispatch", "ep_combine"):
        assert (sent[kind][1].groups, sent[kind][1].top_groups) == (4, 1)


def test_exchange_by_gathering_sends_every_token():
    gather = worlds.engine(exchange="all_gather")
    sent = collectives(lowered(worlds.mixture(), by=gather, dp=4, ep=4), m=4, m_group=16)
    assert sent["all_gather"][1].n_bytes == sent["reduce_scatter"][1].n_bytes == 16 * 128 * 2


SGLANG = worlds.engine(rules={"deepep_needs_whole_ep": True}, gathers_whole_layer=True)


def test_fewer_expert_ranks_than_deepep_starts_gather_every_token():
    sent = list(lowered(worlds.mixture(), by=SGLANG, tp=4, dp=2, ep=4).collectives(0, 4, 7))
    group, rank = 7 * 128 * 2, 4 * 128 * 2
    assert sorted((c.op.kind, c.op.n_bytes, c.op.n_ranks, c.count) for c in sent) == [
        ("all_gather", rank, 4, 2),
        ("all_gather", group, 8, 2),
        ("reduce_scatter", rank, 4, 2),
        ("reduce_scatter", group, 8, 2),
    ]
    whole = collectives(lowered(worlds.mixture(), by=SGLANG, tp=4, dp=2, ep=8))
    assert set(whole) == {"all_reduce", "ep_dispatch", "ep_combine", "all_gather"}
    bound = collectives(lowered(worlds.mixture(), tp=4, dp=2, ep=4))
    assert "ep_dispatch" in bound, "an engine without the rule exchanges under any degree"


def test_only_layers_of_experts_leave_the_sums_of_attention_scattered():
    model = worlds.deepseek_v3()
    sent = list(lowered(model, by=SGLANG, tp=4, dp=2, ep=4).collectives(0, 4, 8))
    counts = [(c.op.kind, c.op.n_ranks, c.count) for c in sent if c.op.n_ranks == 4]
    assert sorted(counts) == [
        ("all_gather", 4, 58),
        ("all_reduce", 4, 3),  # attention of the dense layers,
        ("all_reduce", 4, 3),  # and their FFN
        ("reduce_scatter", 4, 58),
    ]


def flop(ops, *, narrow=None):
    """FLOP of these ops, or of the GEMMs alone that are `narrow` wide."""
    wanted = (each for each in ops if narrow is None or getattr(each.op, "n", None) == narrow)
    return sum(each.count * work(each.op).flop for each in wanted)


def shared_flop(program, m, m_group):
    bare = replace(program, model=worlds.mixture_of(**UNSHARED))
    whole = flop(program.token_ops(0, m)) + flop(program.group_ops(0, m_group))
    return whole - flop(bare.token_ops(0, m)) - flop(bare.group_ops(0, m_group))


def test_a_gathered_layer_routes_all_tokens_and_cuts_the_shared_expert_over_all_ranks():
    found = lowered(worlds.mixture(), by=SGLANG, tp=4, dp=2, ep=4)
    apart = lowered(worlds.mixture(), by=SGLANG, tp=4, dp=2, ep=8)
    shared, router = 3 * 128 * 64, 128 * 16
    assert shared_flop(found, 4, 7) == pytest.approx(2 * 2 * 7 * shared / 8)
    assert shared_flop(apart, 4, 7) == pytest.approx(2 * 2 * 4 * shared)
    bare = {"model": worlds.mixture_of(**UNSHARED)}
    routed = replace(found, **bare).group_ops(0, 7), replace(apart, **bare).token_ops(0, 4)
    assert [flop(ops, narrow=16) for ops in routed] == [2 * 2 * 7 * router, 2 * 2 * 4 * router]


@pytest.mark.parametrize("tp_tokens", ["slice", "scatter"])
def test_tp_ranks_share_the_tokens_that_they_route(tp_tokens):
    whole = lowered(worlds.mixture(), tp=4, dp=2, ep=8)
    found = lowered(worlds.mixture(), by=worlds.engine(tp_tokens=tp_tokens), tp=4, dp=2, ep=8)
    assert shared_flop(found, 8, 9) == pytest.approx(shared_flop(whole, 8, 9) / 4)
    assert flop(found.token_ops(0, 8), narrow=16) == flop(whole.token_ops(0, 8), narrow=16) / 4
    sent, before = collectives(found, 8), collectives(whole, 8)
    for kind in ("ep_dispatch", "ep_combine", "all_gather"):
        assert sent[kind] == before[kind]
    reduced = {"slice": "all_reduce", "scatter": "reduce_scatter"}[tp_tokens]
    assert {"all_reduce", "reduce_scatter"} & set(sent) == {reduced}
    assert (sent[reduced][1].n_bytes, sent[reduced][1].n_ranks) == (8 * 128 * 2, 4)

    def normed(program):
        return sum(
            each.count * each.op.n_bytes
            for each in program.token_ops(0, 8)
            if getattr(each.op, "name", "") == "norm"
        )

    assert normed(found) == normed(whole) / (4 if tp_tokens == "scatter" else 1)


def test_sliced_tokens_are_gathered_over_all_ranks_and_again_over_tp():
    by = worlds.engine(exchange="all_gather", tp_tokens="slice")
    sent = list(lowered(worlds.mixture(), by=by, tp=4, dp=2, ep=8).collectives(0, 4, 7))
    group, rank = 7 * 128 * 2, 4 * 128 * 2
    assert sorted((c.op.kind, c.op.n_bytes, c.op.n_ranks, c.count) for c in sent) == [
        ("all_gather", rank, 4, 2),
        ("all_gather", group, 8, 2),
        ("all_reduce", rank, 4, 2),
        ("reduce_scatter", group, 8, 2),
    ]


@pytest.mark.parametrize("layout", [{"ep": 1}, {"tp": 8, "dp": 1, "ep": 8}, {"tp": 1, "dp": 8}])
def test_nothing_is_shared_without_attention_dp_tp_and_ep(layout):
    layout = {"tp": 4, "dp": 2, "ep": 8} | layout
    by = worlds.engine(tp_tokens="scatter", memory={"dense_ffn_whole_with_ep": True})
    whole, found = (lowered(worlds.mixture(), by=each, **layout) for each in (None, by))
    assert list(found.token_ops(0, 8)) == list(whole.token_ops(0, 8))
    assert list(found.collectives(0, 8, 9)) == list(whole.collectives(0, 8, 9))


def test_dense_layers_kept_whole_run_the_share_of_a_rank():
    model = worlds.deepseek_v3()
    by = worlds.engine(tp_tokens="scatter", memory={"dense_ffn_whole_with_ep": True})
    found = lowered(model, by=by, tp=4, dp=2, ep=8)
    cut = lowered(model, tp=4, dp=2, ep=8)
    assert flop(found.token_ops(0, 8), narrow=2 * 18432) == pytest.approx(
        flop(cut.token_ops(0, 8), narrow=2 * 18432 / 4)
    )
    counts = [
        (c.op.kind, c.op.n_bytes, c.count) for c in found.collectives(0, 8, 16) if c.op.n_ranks == 4
    ]
    n_bytes = 8 * 7168 * 2
    assert sorted(counts) == [
        ("all_gather", n_bytes, 3),
        ("all_gather", n_bytes, 58),
        ("reduce_scatter", n_bytes, 61),
    ]


def test_pipeline_sends_once_a_boundary():
    sent = collectives(lowered(worlds.tiny(), tp=2, pp=2))
    count, op = sent["p2p"]
    assert (count, op.stride, op.n_bytes) == (1, 2, 4 * 128 * 2)


def test_stages_share_all_layers():
    model = worlds.deepseek_v3()
    found = lowered(model, tp=8, pp=4)
    assert [sum(g.repeat for g in stage) for stage in found.stages] == [16, 15, 15, 15]


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_linear_flop_is_twice_the_weights_per_token(tp):
    found = lowered(worlds.tiny(), tp=tp)
    flop = sum(each.count * work(each.op).flop for each in found.token_ops(0, 3))
    weights = 2 * (128 * 16 * 16 + 8 * 16 * 128 + 3 * 128 * 256)
    assert flop == pytest.approx(2 * 3 * weights / tp)


def test_head_is_cut_over_vocabulary_and_gathered():
    ops = list(lowered(worlds.tiny(), tp=2).head_ops(5))
    flop = sum(
        each.count * work(each.op).flop for each in ops if not isinstance(each.op, Collective)
    )
    assert flop == 2 * 5 * 128 * 1024 / 2
    gathered = next(each.op for each in ops if isinstance(each.op, Collective))
    assert (gathered.kind, gathered.n_bytes) == ("all_gather", 5 * 1024 * 2)


def test_context_parallel_gathers_queries_and_merges():
    sent = collectives(lowered(worlds.deepseek_v3(), tp=8, cp=8))
    assert sent["all_gather"][0] == sent["reduce_scatter"][0] == 61
