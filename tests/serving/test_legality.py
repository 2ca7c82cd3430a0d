"""Layouts that engines refuse: the rule, the numbers and the nearest legal value."""

from dataclasses import replace

import pytest

from dse.catalog import Catalog
from dse.hardware.dtype import DType
from dse.model.precision import Precision
from dse.serving.deployment import SpeculativeDecoding
from dse.serving.exchange import exchange_of, shard_of
from dse.serving.layout import Layout
from dse.serving.legality import check, check_context, check_speculative
from tests import worlds


def broken(model, layout, *, precision=None, by=None, on=None, **more):
    return check(
        model,
        precision or Precision(),
        layout,
        by or worlds.engine(),
        on or worlds.gpu(),
        **more,
    )


def heads(n_heads, kv, *, d_ff=25600):
    return worlds.dense(
        "heads", n=2, d=4096, heads=n_heads, kv=kv, d_ff=d_ff, vocab=1024, d_head=128
    )


@pytest.mark.parametrize(
    ("n_heads", "tp", "rest"), [(52, 3, 1), (40, 3, 1), (52, 8, 4), (28, 8, 4), (12, 8, 4)]
)
def test_heads_are_dealt_whole(n_heads, tp, rest):
    # vllm #414, #596, #11797; DeepSpeed #3634.
    found = broken(heads(n_heads, n_heads, d_ff=3072), Layout(tp=tp))
    assert found[0].rule == "heads"
    assert found[0].reason == f"heads {n_heads} % TP {tp} = {rest}"


def test_nearest_legal_degrees_are_legal():
    model = heads(28, 4, d_ff=14336)
    found = broken(model, Layout(tp=8))[0]
    assert found.nearest == ("tp=4", "tp=28")
    assert not broken(model, Layout(tp=4))


def test_kv_heads_are_whole_or_replicated_whole():
    # Phi-4, 40 heads and 10 KV heads: vllm #5951, #16021.
    model = heads(40, 10)
    legal = [tp for tp in range(1, 11) if not broken(model, Layout(tp=tp))]
    assert legal == [1, 2, 5, 10]


@pytest.mark.parametrize(("n_heads", "kv", "tp"), [(28, 4, 7), (28, 4, 14), (14, 2, 7)])
def test_kv_rule_refuses_what_the_head_rule_allows(n_heads, kv, tp):
    found = broken(heads(n_heads, kv, d_ff=14336), Layout(tp=tp))
    assert [illegal.rule for illegal in found] == ["kv_heads"]


def test_latent_attention_has_no_kv_rule():
    assert not broken(worlds.deepseek_v3(), Layout(tp=128))


def test_block_quantised_width_stays_whole_blocks():
    # sglang #3345: 18432 / 32 = 576 is no multiple of 128.
    model = worlds.deepseek_v3()
    found = broken(model, Layout(tp=32), precision=worlds.FP8_BLOCK)
    assert any("18432 / TP 32 = 576" in illegal.reason for illegal in found)
    assert not broken(model, Layout(tp=32))
    padded = worlds.engine(rules={"pads_blocks": True})
    assert not broken(model, Layout(tp=32), precision=worlds.FP8_BLOCK, by=padded)


def test_expert_width_and_pure_ep():
    # vllm #25292: 768 / 4 = 192.
    model = worlds.mixture_of(n_experts=128, top_k=8, d_expert=768, heads=32, kv=4)
    wide = broken(model, Layout(tp=4), precision=worlds.FP8_BLOCK)
    assert [illegal.rule for illegal in wide] == ["block"]
    assert "768 / MoE-TP 4 = 192" in wide[0].reason
    assert wide[0].nearest == ("tp=2", "ep=2")
    for layout in (Layout(), Layout(tp=2), Layout(tp=4, ep=4)):
        assert not broken(model, layout, precision=worlds.FP8_BLOCK)


def test_experts_and_redundant_copies():
    # vllm #52435; DeepSeek open-infra day 6: EP144 with 32 redundant experts.
    model = worlds.deepseek_v3()
    found = broken(model, Layout(dp=3, ep=3))
    assert found[0].reason == "(experts 256) % EP 3 = 1"
    assert "redundant_experts=2" in found[0].nearest
    assert not broken(model, Layout(dp=3, ep=3, redundant_experts=2))
    assert not broken(model, Layout(dp=144, ep=144, redundant_experts=32))
    assert broken(model, Layout(dp=144, ep=144))


def test_identity_of_degrees():
    found = broken(worlds.mixture(), Layout(tp=4, ep=8))
    assert [illegal.rule for illegal in found] == ["identity"]
    assert broken(worlds.tiny(), Layout(tp=2, ep=2))[0].nearest == ("ep=1",)


def test_format_that_the_gpu_lacks():
    on = worlds.gpu(name="a100", peak_flop_per_s={"bf16": 3.12e14, "int8": 6.24e14})
    found = broken(worlds.tiny(), Layout(), precision=Precision(weights=DType.FP8), on=on)
    assert found[0].rule == "dtype"
    assert "a100 has no fp8 tensor cores" in found[0].reason
    by = worlds.engine(rules={"weight_only": ("fp8",)})
    assert not broken(worlds.tiny(), Layout(), precision=Precision(weights=DType.FP8), on=on, by=by)


def test_engine_lattice():
    # aiconfigurator #387, #647: expert TP equals TP, or pure EP.
    by = worlds.engine(rules={"expert_parallel": "tp_or_ep"})
    model = worlds.mixture()
    found = broken(model, Layout(tp=2, dp=4, ep=2), by=by)
    assert [illegal.rule for illegal in found] == ["lattice"]
    assert found[0].nearest == ("ep=1", "ep=8")
    assert not broken(model, Layout(tp=2, dp=4, ep=8), by=by)
    assert not broken(model, Layout(tp=2, dp=4, ep=2))


def test_attention_dp_or_tp():
    by = worlds.engine(rules={"dp_excludes_tp": True})
    found = broken(worlds.mixture(), Layout(tp=2, dp=4, ep=8), by=by)
    assert [illegal.rule for illegal in found] == ["lattice"]
    assert found[0].nearest == ("tp=1", "dp=1")
    assert not broken(worlds.mixture(), Layout(dp=8, ep=8), by=by)


def test_block_rule_of_one_gpu():
    # vllm #41360: a 96-wide shard fails on one architecture only.
    model = worlds.mixture_of(n_experts=128, top_k=8, d_expert=768, heads=32, kv=4)
    by = worlds.engine(rules={"gpu_block_rules": {"blackwell": 64}})
    assert not broken(model, Layout(tp=8), by=by)
    found = broken(model, Layout(tp=8), by=by, on=worlds.gpu(architecture="blackwell"))
    assert found[0].rule == "gpu_block"
    assert "768 / MoE-TP 8 = 96" in found[0].reason


def test_pipeline_and_cluster():
    assert broken(worlds.tiny(), Layout(pp=3))[0].reason == "PP 3 > layers 2"
    found = broken(worlds.tiny(), Layout(tp=4), n_gpus=6)
    assert found[0].nearest == ("gpus=4", "gpus=8")
    small = replace(worlds.fabric(), scale_out=replace(worlds.fabric().scale_out, n_gpus=2))
    assert broken(worlds.tiny(), Layout(tp=4), fabric=small)[0].rule == "cluster"


def test_context_parallel_uses_replicas_of_kv_heads_only():
    assert not broken(worlds.llama_8b(), Layout(tp=16, cp=2))
    assert broken(worlds.llama_8b(), Layout(tp=8, cp=2))[0].rule == "context_parallel"
    assert not broken(worlds.deepseek_v3(), Layout(tp=8, cp=8))
    assert broken(worlds.deepseek_v3(), Layout(tp=8, cp=3))[0].nearest == ("cp=2", "cp=4")


def test_degree_below_one_is_reported_alone():
    assert [illegal.rule for illegal in broken(worlds.tiny(), Layout(tp=0))] == ["degree"]


def test_longest_context():
    assert not check_context(worlds.tiny(), 131_072)
    assert "131073 > 131072" in check_context(worlds.tiny(), 131_073)[0].reason


@pytest.mark.parametrize("kv", [DType.FP8_BLOCK, DType.MXFP4, DType.INT4])
def test_kv_is_stored_in_no_format_of_weights(kv):
    found = broken(heads(8, 8), Layout(), precision=Precision(kv=kv))
    assert [illegal.nearest for illegal in found] == [("kv=bf16", "kv=fp8")]


def test_fp4_kv_needs_fp4_tensor_cores():
    stored = Precision(kv=DType.NVFP4)
    peaks = {"bf16": 1e14, "fp8": 2e14, "fp4": 4e14}
    assert broken(heads(8, 8), Layout(), precision=stored)[0].nearest == ("kv=fp8",)
    assert not broken(heads(8, 8), Layout(), precision=stored, on=worlds.gpu(peak_flop_per_s=peaks))


def test_tensorrt_llm_runs_on_nvidia_only():
    engine = worlds.engine(name="trtllm")
    found = broken(heads(8, 8), Layout(), by=engine, on=worlds.gpu(vendor="amd"))
    assert [illegal.rule for illegal in found] == ["vendor"]
    assert not broken(heads(8, 8), Layout(), by=engine, on=worlds.gpu(vendor="nvidia"))


def test_expert_tp_of_zero_is_a_degree_below_one():
    assert broken(worlds.mixture(), Layout(moe_tp=0))[0].reason == "moe_tp 0 is less than 1"


def test_mtp_needs_modules_in_the_model():
    drafts = SpeculativeDecoding(method="mtp", n_draft=1, acceptance=0.8)
    assert check_speculative(heads(8, 8), drafts)[0].nearest == ("speculative=none",)
    assert not check_speculative(heads(8, 8), replace(drafts, method="draft"))
    assert not check_speculative(heads(8, 8), None)


@pytest.mark.parametrize(
    ("layout", "exchange"),
    [
        (Layout(), "none"),
        (Layout(tp=8), "all_reduce"),
        (Layout(tp=8, ep=4), "all_reduce"),
        (Layout(tp=8, dp=2), "all_gather"),
        (Layout(tp=8, dp=2, ep=4), "all_gather"),
        (Layout(tp=8, dp=2, ep=16), "deepep"),
        (Layout(dp=8, ep=8), "deepep"),
    ],
)
def test_the_exchange_follows_engine_and_layout(layout, exchange):
    # SGLang's server_args.py sets ep_size to tp_size under DeepEP; backend none starts the others.
    assert exchange_of(layout, Catalog.load().engine("sglang")) == exchange
    gathers = {"deepep": "all_gather"}.get(exchange, exchange)
    assert exchange_of(layout, Catalog.load().engine("vllm")) == gathers


def test_a_gathered_layer_cuts_its_shared_expert_over_all_ranks():
    """SGLang refuses 2048 / 32 = 64 columns of FP8 blocks of 128; DeepEP keeps them whole.

    sgl-project/sglang issues 10641 (32 ranks, attention DP) and 26107 (shared expert over all).
    """
    by = Catalog.load().engine("sglang")
    formats = {"precision": worlds.FP8_BLOCK, "by": by, "on": worlds.gpu()}
    (found,) = broken(worlds.deepseek_v3(), Layout(tp=8, dp=4, ep=2), **formats)
    assert "shared expert width 2048 / TP 32 = 64" in found.reason
    assert "ep=32" in found.nearest
    assert not broken(worlds.deepseek_v3(), Layout(tp=8, dp=4, ep=32), **formats)
    assert not broken(worlds.deepseek_v3(), Layout(tp=8, dp=2, ep=4), **formats)


@pytest.mark.parametrize(
    ("engine", "layout", "split"),
    [
        ("sglang@0.5", Layout(tp=8, dp=2, ep=16), (8, 8)),
        ("sglang@0.5", Layout(tp=8, dp=2, ep=4), (1, 8)),  # gathered over all ranks
        ("sglang@0.5", Layout(tp=8, ep=8), (1, 1)),
        ("sglang@0.5", Layout(dp=8, ep=8), (1, 1)),
        ("vllm@0.19", Layout(tp=8, dp=2, ep=16), (8, 1)),
        ("vllm@0.19", Layout(tp=8, dp=2), (1, 1)),
        ("vllm@0.9", Layout(tp=8, dp=2, ep=16), (1, 1)),
    ],
)
def test_which_ranks_share_the_tokens_of_their_dp_rank(engine, layout, split):
    """SGLang's ScatterMode.SCATTERED; vLLM's use_sequence_parallel_moe (pull request 24982)."""
    shard = shard_of(layout, Catalog.load().engine(engine))
    assert (shard.moe_split, shard.dense_split) == split
