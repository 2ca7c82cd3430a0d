"""`dse walls`, `dse explain` and the flags that all commands share."""

import json
from datetime import datetime
from typing import Any

import polars as pl
import pytest

from dse.base.errors import IllegalError, UserError
from dse.catalog import Catalog
from dse.cli._deployment import deployment_of, layout_of, require_legal, slo_of, workload_of
from dse.cli._flags import DeploymentFlags, SLOFlags, WorkloadFlags
from dse.hardware.dtype import DType
from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.layout import Layout
from dse.serving.lengths import Uniform
from dse.store import Store
from tests.commands import run

LLAMA = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = run(capsys, *arguments, "--json")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def of(**flags):
    return deployment_of(DeploymentFlags(**{"model": "llama-3.1-8b", "gpu": "h100-sxm"} | flags))


def test_walls_prints_one_document(capsys):
    found = document(capsys, "walls", *LLAMA, "--slo-tpot", "20ms", "--context", "4Ki")
    assert found["legal"]
    assert found["context_tokens"] == 4096
    assert found["memory"]["kv_bytes_per_token"] == 131_072
    assert [each["wall"] for each in found["wall_order"]] == ["hbm", "kv_capacity", "flop"]
    assert found["ridge_flop_per_byte"] == pytest.approx(295, rel=0.01)


def test_illegal_layout_exits_0_with_its_reason(capsys):
    found = document(capsys, "walls", "--model", "qwen2.5-7b", "--gpu", "h100", "--layout", "tp=8")
    assert not found["legal"]
    assert any("heads 28 % TP 8" in reason for reason in found["illegal_reasons"])


def test_gpus_that_are_no_whole_number_of_replicas_do_not_start(capsys):
    flags = ("--model", "qwen2.5-7b", "--gpu", "h100", "--layout", "tp=4", "--gpus", "6")
    found = document(capsys, "walls", *flags)
    assert not found["legal"]
    assert "6 GPUs % 4 GPUs of a replica = 2" in found["illegal_reasons"][0]
    _, out, _ = run(capsys, "walls", *flags)
    assert "does not start" in out


@pytest.mark.parametrize("columns", ["80", "140"])
def test_walls_is_readable_in_a_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    code, out, _ = run(capsys, "walls", *LLAMA, "--slo-tpot", "20ms", "--concurrency", "8")
    assert code == 0
    for word in ("weights", "KV pool", "decode, 8 requests", "█", "walls as requests", "ceiling"):
        assert word in out
    assert max(map(len, out.splitlines())) <= int(columns)


def test_fewest_gpus(capsys):
    found = document(capsys, "walls", "--model", "llama-3.1-70b", "--gpu", "h100", "--min-gpus")
    # 141 GB of weights lack 0.36 GiB a GPU on two: only pipeline stages divide by three.
    assert (found["n_gpus"], found["best"]["layout"]) == (3, "TP1 PP3")
    code, out, _ = run(capsys, "walls", *LLAMA, "--min-gpus")
    assert code == 0
    assert "1 GPU is enough\n" in out


def test_explain_a_described_point(capsys):
    flags = ("--isl", "4000", "--osl", "500", "--concurrency", "64", "--slo-tpot", "40ms")
    point = ("--model", "llama-3.1-70b", "--gpu", "h100-sxm", "--layout", "tp=1")
    found = document(capsys, "explain", *point, *flags)
    assert set(found) >= {
        "status", "killed_by", "demand", "limit", "unit", "margin", "nearest_feasible",
    }  # fmt: skip
    assert (found["status"], found["killed_by"]) == ("killed", "hbm")
    assert found["nearest_feasible"]
    code, out, _ = run(capsys, "explain", *point, *flags)
    assert code == 0
    assert "would do" in out


def test_explain_needs_a_store_for_a_point_id(capsys, tmp_path):
    code, _, err = run(capsys, "explain", "abc123", "--store", tmp_path / "none.duckdb")
    assert code == 2
    assert "no store" in err


def test_explain_a_stored_point(capsys, tmp_path):
    path = tmp_path / "s.duckdb"
    row = {
        "run_id": "r", "point_id": "abc123", "killed_by": "tpot_floor", "demand": 0.06,
        "limit": 0.04, "unit": "s", "margin": 0.5, "nearest_feasible": "kv=fp8 or gpus=16 (TP16)",
    }  # fmt: skip
    study = {"study_id": "s", "name": "s", "question": "?", "path": "s.yaml", "text": ""}
    run_of = {"run_id": "r", "study_id": "s", "started_at": datetime(2026, 1, 1), "status": "done"}
    with Store.open(path) as store:
        store.replace(pl.DataFrame([study]), "study")
        store.replace(pl.DataFrame([run_of]), "run")
        store.replace(pl.DataFrame([row]), "near_miss")
    found = document(capsys, "explain", "abc", "--store", path)
    assert (found["status"], found["killed_by"], found["margin"]) == ("killed", "tpot_floor", 0.5)
    assert found["nearest_feasible"] == ["kv=fp8", "gpus=16 (TP16)"]
    assert found["reason"]
    code, _, err = run(capsys, "explain", "fff", "--store", path)
    assert code == 2
    assert "knows no point" in err
    assert run(capsys, "explain", "x';--", "--store", path)[0] == 2


def test_missing_model_names_the_flag(capsys):
    code, _, err = run(capsys, "walls", "--gpu", "h100-sxm")
    assert code == 2
    assert "--model is missing" in err


def test_layout_text():
    assert layout_of("tp=8, dp=2,ep=16") == Layout(tp=8, dp=2, ep=16)
    with pytest.raises(UserError, match="did you mean"):
        layout_of("tpp=8")


def test_gpus_make_replicas_and_must_be_divided():
    assert of(gpus=8, layout="tp=2").pools[0].n_replicas == 4
    with pytest.raises(IllegalError, match=r"7 GPUs % 2 GPUs of a replica"):
        require_legal(of(gpus=7, layout="tp=2"), 7)
    require_legal(of(gpus=8, layout="tp=2"), 8)


def test_any_fact_may_be_set_by_key_or_field_name():
    for path in ("gpu.hbm=96 GB", "gpu.hbm_bytes=96 GB"):
        assert of(set_=(path,)).pools[0].gpu.hbm_bytes == 96e9
    changed = of(set_=("model.max_context=4Ki", "engine.memory.hybrid_kv=off"))
    assert changed.model.max_context_tokens == 4096
    assert not changed.pools[0].engine.memory.hybrid_kv
    with pytest.raises(UserError, match="starts with none of"):
        of(set_=("cpu.cores=8",))
    with pytest.raises(UserError, match="hbm"):
        of(set_=("gpu.hbmm=96 GB",))


def test_a_stated_latency_is_its_own_floor():
    link = of(set_=("fabric.scale_out.latency=33us",)).pools[0].fabric.scale_out
    assert link.latency_s == link.latency_floor_s == pytest.approx(33e-6)
    apart = ("fabric.scale_out.latency=33us", "fabric.scale_out.latency_floor=5us")
    link = of(set_=apart).pools[0].fabric.scale_out
    assert (link.latency_s, link.latency_floor_s) == pytest.approx((33e-6, 5e-6))


def test_engine_settings_are_found_wherever_they_stand():
    args = "max_num_seqs=256,block_tokens=64,hybrid_kv=off,pads_blocks=on"
    engine = of(engine_args=args).pools[0].engine
    assert (engine.max_num_seqs, engine.block_tokens) == (256, 64)
    assert not engine.memory.hybrid_kv
    assert engine.rules.pads_blocks
    with pytest.raises(UserError, match="did you mean max_num_seqs"):
        of(engine_args="max_num_seq=256")


def test_overrides_of_the_pool():
    deployment = of(hbm_fraction="85%", overhead="5GB", kv_pool="46.80GiB", kv="fp8")
    engine = deployment.pools[0].engine
    assert (engine.hbm_fraction, engine.memory.overhead_bytes) == (0.85, 5e9)
    assert deployment.kv_pool_bytes == 46.80 * 2**30
    assert deployment.precision.kv is DType.FP8


def test_prefill_and_decode_apart():
    deployment = of(prefill="gpus=4 layout=tp=4", decode="gpus=8 layout=tp=2 gpu=h200-sxm")
    roles = [(pool.role, pool.n_gpus, pool.gpu.name) for pool in deployment.pools]
    assert roles == [("prefill", 4, "H100-SXM"), ("decode", 8, "H200-SXM")]
    assert deployment.is_disaggregated
    with pytest.raises(UserError, match="given alone"):
        of(prefill="gpus=4")


def test_deployment_file_lies_below_flags(tmp_path):
    file = tmp_path / "d.yaml"
    file.write_text("model: llama-3.1-8b\ngpu: h100-sxm\nlayout: {tp: 2}\nkv: fp8\n")
    deployment = deployment_of(DeploymentFlags(deployment=file, kv="bf16"))
    assert deployment.pools[0].layout == Layout(tp=2)
    assert deployment.precision.kv is DType.BF16
    file.write_text("modell: llama-3.1-8b\n")
    with pytest.raises(UserError, match="did you mean model"):
        deployment_of(DeploymentFlags(deployment=file))


def test_speculative_and_routing():
    deployment = of(speculative="draft:3:0.8", routing="zipf:0.6")
    assert deployment.speculative is not None
    assert (deployment.speculative.n_draft, deployment.speculative.acceptance) == (3, 0.8)
    assert deployment.routing.exponent == 0.6


def test_workload_flags():
    closed = workload_of(WorkloadFlags(isl="uniform:819:1024", osl="100", concurrency=8))
    assert closed.arrivals == ClosedLoop(concurrency=8)
    assert closed.n_requests == 80
    assert closed.isl == Uniform(low_tokens=819, high_tokens=1024)
    opened = workload_of(WorkloadFlags(rate="8", prefix_cached="50%", isl="1000"))
    assert opened.arrivals == Poisson(req_per_s=8.0)
    assert opened.shared_prefix_tokens == 500
    with pytest.raises(UserError, match="both given"):
        workload_of(WorkloadFlags(rate="8", concurrency=8))
    with pytest.raises(UserError, match="is no length"):
        workload_of(WorkloadFlags(isl="normal:1:2"))


def test_slo_flags():
    slo = slo_of(SLOFlags(slo_ttft="2s", slo_tpot="40 ms", percentile=99))
    assert (slo.ttft_s, slo.tpot_s, slo.attainment) == (2.0, 0.04, 0.99)


def test_model_from_a_config_file(tmp_path):
    config = {
        "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512,
        "vocab_size": 1000, "max_position_embeddings": 2048, "torch_dtype": "bfloat16",
        "tie_word_embeddings": False, "architectures": ["LlamaForCausalLM"],
        "rms_norm_eps": 1e-5, "hidden_act": "silu",
    }  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    deployment = deployment_of(DeploymentFlags(model=str(file), gpu="h100-sxm"), Catalog.load())
    assert deployment.model.n_layers == 2


def test_text_names_gb_and_says_that_requests_queue(capsys):
    _, out, _ = run(capsys, "explain", *LLAMA, "--set", "gpu.hbm=18GB")
    assert "needs 20.59 GB, has 16.20 GB: +27.1%" in out
    assert "131,072" in out
    _, out, _ = run(capsys, "walls", *LLAMA, "--concurrency", "100")
    assert "a replica holds the KV of 52 such requests at once" in " ".join(out.split())
