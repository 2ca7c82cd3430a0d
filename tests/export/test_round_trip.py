"""What is exported parses back to the same deployment, with the same verdict of the walls."""

from dataclasses import replace
from pathlib import Path
from subprocess import run
from typing import Any

import pytest

from dse.base.errors import IllegalError, UserError
from dse.catalog import Catalog
from dse.export import EXPORTERS, Export, export, parse
from dse.hardware import DType
from dse.run.identity import deployment_id
from dse.serving.deployment import Deployment, Pool, Role, SpeculativeDecoding
from dse.serving.layout import Layout
from dse.serving.schedulers import PrefillFirst, Static
from dse.space.precision import precision_of
from dse.walls.describe import describe

CATALOG = Catalog.load()
CONTEXT = 4096
WIDE_EP = {"tp": 1, "dp": 16, "ep": 16}

# engine, model, GPU, layout, replicas, weights, KV
TOGETHER: tuple[tuple[str, str, str, dict[str, int], int, str, str], ...] = (
    ("vllm@0.19", "llama-3.1-8b", "h100-sxm", {}, 8, "bf16", "bf16"),
    ("vllm@0.19", "llama-3.1-8b", "l40s", {}, 1, "fp8", "fp8"),
    ("vllm@0.19", "llama-3.3-70b", "h200-sxm", {"tp": 4}, 2, "fp8", "fp8"),
    ("vllm@0.19", "llama-3.3-70b", "a100-sxm", {"tp": 8}, 1, "bf16", "bf16"),
    ("vllm@0.19", "llama-3.3-70b-fp8", "b200-sxm", {"tp": 2}, 4, "fp8", "fp8"),
    ("vllm@0.19", "llama-3.1-405b", "h100-sxm", {"tp": 8, "pp": 2}, 1, "bf16", "bf16"),
    ("vllm@0.19", "llama-3.1-405b-fp8", "h200-sxm", {"tp": 16}, 1, "fp8", "fp8"),
    ("vllm@0.19", "qwen3-32b", "h200-sxm", {"tp": 2}, 4, "fp8", "bf16"),
    ("vllm@0.19", "qwen3-30b-a3b", "h100-sxm", {"tp": 4, "ep": 4}, 1, "bf16", "bf16"),
    ("vllm@0.19", "qwen3-235b-a22b", "h200-sxm", {"dp": 8, "ep": 8}, 1, "bf16", "bf16"),
    ("vllm@0.19", "deepseek-v3", "h200-sxm", {"tp": 8}, 1, "fp8_block", "bf16"),
    ("vllm@0.19", "deepseek-v3", "h200-sxm", WIDE_EP, 2, "fp8_block", "bf16"),
    ("vllm@0.19", "deepseek-v3", "h200-sxm", {"tp": 8, "dp": 2, "ep": 16}, 1, "fp8_block", "bf16"),
    ("vllm@0.9", "qwen3-32b", "a100-sxm", {"tp": 4}, 1, "bf16", "bf16"),
    ("vllm@0.6", "llama-3.1-8b", "a100-sxm", {}, 2, "bf16", "bf16"),
    ("sglang@0.5", "llama-3.1-8b", "h100-sxm", {}, 1, "bf16", "fp8"),
    ("sglang@0.5", "llama-3.3-70b", "h100-sxm", {"tp": 4}, 2, "fp8", "fp8"),
    ("sglang@0.5", "qwen3-30b-a3b", "h200-sxm", {"tp": 2, "ep": 2}, 4, "bf16", "bf16"),
    ("sglang@0.5", "deepseek-v3.2", "h20-96gb", {"tp": 16}, 1, "fp8_block", "bf16"),
    ("sglang@0.5", "deepseek-v3.2", "h20-96gb", {"tp": 16, "ep": 16}, 2, "fp8_block", "bf16"),
    ("sglang@0.5", "deepseek-v3.2", "h20-96gb", WIDE_EP, 4, "fp8_block", "bf16"),
    ("sglang@0.5", "deepseek-r1", "h200-sxm", {"dp": 8, "ep": 8}, 1, "fp8_block", "bf16"),
    ("sglang@0.5", "llama-3.1-405b-fp8", "h100-sxm", {"tp": 8, "pp": 2}, 1, "fp8", "fp8"),
    ("trtllm@1.0", "llama-3.1-8b", "h100-sxm", {}, 8, "fp8", "fp8"),
    ("trtllm@1.0", "llama-3.3-70b", "b200-sxm", {"tp": 2}, 4, "nvfp4", "fp8"),
    ("trtllm@1.0", "qwen3-235b-a22b", "gb200", {"dp": 8, "ep": 8}, 1, "bf16", "fp8"),
    ("trtllm@1.0", "qwen3-30b-a3b", "h200-sxm", {"tp": 4, "ep": 2}, 1, "bf16", "bf16"),
    ("trtllm@1.0", "llama-3.1-405b", "h200-sxm", {"tp": 8, "pp": 2}, 1, "bf16", "bf16"),
)


def pool(engine: str, gpu: str, layout: dict[str, int], replicas: int, role: Role = "both") -> Pool:
    board = CATALOG.gpu(gpu)
    return Pool(
        gpu=board,
        fabric=CATALOG.fabric(board.fabric),
        layout=Layout(**layout),
        engine=CATALOG.engine(engine),
        role=role,
        n_replicas=replicas,
    )


def deployment(model: str, weights: str, kv: str, *pools: Pool, **changes: Any) -> Deployment:
    found = CATALOG.model(model)
    formats = {"weights": DType(weights), "kv": DType(kv)}
    joint = pools[0].fabric.scale_out if len(pools) > 1 else None
    return Deployment(
        model=found,
        precision=precision_of(found, pools[-1].gpu, **formats),
        pools=pools,
        interconnect=joint,
        **changes,
    )


def apart(engine: str, **changes: Any) -> Deployment:
    prefill = pool(engine, "h200-sxm", {"tp": 8}, 2, "prefill")
    decode = pool(engine, "h200-sxm", {"dp": 8, "ep": 8}, 3, "decode")
    return deployment("deepseek-v3", "fp8_block", "bf16", prefill, decode, **changes)


def exported(asked: Deployment, engine: str) -> Export:
    return export(asked, EXPORTERS[engine](), CATALOG, context_tokens=CONTEXT)


def assert_same(asked: Deployment, engine: str) -> Export:
    found = exported(asked, engine)
    back = parse(found.command, EXPORTERS[engine](), CATALOG)
    assert deployment_id(back) == deployment_id(asked)
    verdicts = [describe(each, context_tokens=CONTEXT) for each in (asked, back)]
    assert verdicts[0] == verdicts[1]
    assert verdicts[0]["legal"]
    return found


@pytest.mark.parametrize(
    "case", TOGETHER, ids=lambda case: f"{case[0]}-{case[1]}-{case[2]}-{case[3]}"
)
def test_one_pool(case: tuple[str, str, str, dict[str, int], int, str, str]) -> None:
    engine, model, gpu, layout, replicas, weights, kv = case
    asked = deployment(model, weights, kv, pool(engine, gpu, layout, replicas))
    found = assert_same(asked, engine.partition("@")[0])
    assert not [text for text in found.warnings if "cannot carry" in text]
    assert sum(each.copies for each in found.launches if each.node == 0) == replicas


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_prefill_and_decode_apart(engine: str) -> None:
    found = assert_same(apart(engine), engine)
    assert set(found.flags) == {"prefill", "decode"}
    assert found.router is not None
    assert {each.role: each.copies for each in found.launches} == {"prefill": 2, "decode": 3}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_router_names_every_server(engine: str) -> None:
    """`--prefill URL [BOOTSTRAP_PORT]` and `--decode URL`, once a server (both routers)."""
    found = exported(apart(engine), engine)
    router = " ".join(found.router or ())
    port = " 8998" if engine == "sglang" else ""
    for i in (1, 2):
        assert f"--prefill $PREFILL_URL_{i}{port}" in router
        assert f'  --prefill "$PREFILL_URL_{i}"{port}' in found.command
    assert router.count("--prefill ") == 2
    assert [f"--decode $DECODE_URL_{i}" in router for i in (1, 2, 3, 4)] == [True] * 3 + [False]
    named = {"PREFILL_URL_1", "PREFILL_URL_2", "DECODE_URL_1", "DECODE_URL_2", "DECODE_URL_3"}
    assert named == found.env.keys()


def test_trtllm_says_how_many_servers_its_file_must_name() -> None:
    said = " ".join(exported(apart("trtllm"), "trtllm").warnings)
    assert "context_servers has num_instances 2, generation_servers 3" in said


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_roles_that_span_nodes_have_a_first_node_each(engine: str) -> None:
    prefill = pool(engine, "h200-sxm", {"tp": 16}, 2, "prefill")
    decode = pool(engine, "h200-sxm", WIDE_EP, 1, "decode")
    found = exported(deployment("deepseek-v3", "fp8_block", "bf16", prefill, decode), engine)
    addresses = {"PREFILL_HEAD_ADDRESS", "DECODE_HEAD_ADDRESS"}
    assert addresses <= found.env.keys()
    assert "HEAD_ADDRESS" not in found.env
    assert "and an address of its own first node" in found.command


@pytest.mark.parametrize("engine", ["vllm", "trtllm"])
def test_the_shell_fills_in_the_draft_model_wherever_it_stands(engine: str, tmp_path: Path) -> None:
    """Inside quotes that close a text, or a heredoc, `$DRAFT_MODEL` would stay as it is."""
    spec = SpeculativeDecoding(method="draft", n_draft=3, acceptance=0.7)
    one = pool(engine, "h200-sxm", {"tp": 8}, 1)
    script = exported(deployment("deepseek-v3", "fp8_block", "bf16", one, speculative=spec), engine)
    stub = 'vllm() { printf "%s\\n" "$@"; }; trtllm-serve() { cat trtllm.yaml; }\n'
    done = run(
        ["bash", "-c", f"DRAFT_MODEL=small/draft\n{stub}{script.command}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert '"small/draft"' in done.stdout
    assert "$DRAFT_MODEL" not in done.stdout


@pytest.mark.parametrize("gpus", [8, 16])
def test_trtllm_is_told_of_deepep_by_what_it_reads(gpus: int) -> None:
    """No flag sets it: two variables, which MPI must carry to other nodes, and the backend."""
    one = pool("trtllm@1.1", "h200-sxm", {"dp": gpus, "ep": gpus}, 1)
    deepep = replace(one, engine=replace(one.engine, exchange="deepep"))
    found = assert_same(deployment("deepseek-v3", "fp8_block", "bf16", deepep), "trtllm")
    before = "-x " if gpus > 8 else ""
    assert f"{before}TRTLLM_CAN_USE_DEEP_EP=1 " in found.command
    assert f"{before}TRTLLM_FORCE_ALLTOALL_METHOD=DeepEPLowLatency trtllm" in found.command
    assert '"backend": "WIDEEP"' in found.command
    assert any("no flag for DeepEP" in text for text in found.warnings)
    gathers = exported(deployment("deepseek-v3", "fp8_block", "bf16", one), "trtllm")
    assert "DEEP_EP" not in gathers.command + " ".join(gathers.warnings)


def test_a_context_server_of_trtllm_does_not_overlap_its_scheduler() -> None:
    files = {
        e.role: "".join(e.files.values()) for e in exported(apart("trtllm"), "trtllm").launches
    }
    off = '"disable_overlap_scheduler": true'
    assert {role: off in text for role, text in files.items()} == {"prefill": True, "decode": False}


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("method", ["mtp", "draft"])
def test_drafts(engine: str, method: Any) -> None:
    spec = SpeculativeDecoding(method=method, n_draft=3, acceptance=0.7)
    found = assert_same(apart(engine, speculative=spec), engine)
    assert ("DRAFT_MODEL" in found.env) == (method == "draft")


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_settings(engine: str) -> None:
    one = pool(engine, "h200-sxm", {"tp": 8}, 1)
    profile = replace(
        one.engine,
        max_num_batched_tokens=2048,
        max_num_seqs=96,
        hbm_fraction=0.85,
        block_tokens=64,
        prefix_caching=False,
        scheduler=PrefillFirst(),
    )
    asked = deployment("deepseek-v3", "fp8_block", "bf16", replace(one, engine=profile))
    assert_same(asked, engine)


def test_the_processes_of_a_wide_replica_start_on_each_node() -> None:
    asked = deployment("deepseek-v3", "fp8_block", "bf16", pool("vllm", "h200-sxm", WIDE_EP, 1))
    nodes = [dict(each.flags) for each in exported(asked, "vllm").launches]
    assert [flags["--data-parallel-size-local"] for flags in nodes] == ["8", "8"]
    assert ["--headless" in flags for flags in nodes] == [False, True]
    assert nodes[1]["--data-parallel-start-rank"] == "8"


def test_sglang_counts_settings_over_all_dp_ranks() -> None:
    asked = deployment("deepseek-v3", "fp8_block", "bf16", pool("sglang", "h20-141gb", WIDE_EP, 1))
    flags = exported(asked, "sglang").flags
    assert flags["--tp-size"] == "16"
    assert flags["--max-running-requests"] == str(16 * asked.pools[0].engine.max_num_seqs)


def test_deepep_is_asked_for_where_it_was_priced() -> None:
    """SGLang sets `--ep-size` to `--tp-size` under DeepEP, so fewer expert ranks gather tokens."""
    layout = {"tp": 4, "dp": 4, "ep": 4}
    asked = deployment("deepseek-v3", "fp8_block", "bf16", pool("sglang", "h200-sxm", layout, 1))
    found = assert_same(asked, "sglang")
    assert (found.flags["--tp-size"], found.flags["--ep-size"]) == ("16", "4")
    assert "--moe-a2a-backend" not in found.flags
    assert not [text for text in found.warnings if "cannot carry" in text]
    assert asked.pools[0].exchange == "all_gather"
    one = asked.pools[0]
    stated = replace(
        asked, pools=(replace(one, engine=replace(one.engine, exchange="all_gather")),)
    )
    assert exported(stated, "sglang").command == found.command
    assert not [text for text in exported(stated, "sglang").warnings if "cannot carry" in text]
    wide = deployment("deepseek-v3", "fp8_block", "bf16", pool("sglang", "h200-sxm", WIDE_EP, 1))
    assert exported(wide, "sglang").flags["--moe-a2a-backend"] == "deepep"


@pytest.mark.parametrize(
    ("layout", "kept_whole"),
    [
        ({"tp": 8, "dp": 2, "ep": 16}, True),
        ({"tp": 4, "dp": 4, "ep": 4}, True),
        ({"tp": 1, "dp": 8, "ep": 8}, True),
        ({"tp": 8, "dp": 2, "ep": 1}, False),
        ({"tp": 16, "dp": 1, "ep": 16}, False),
    ],
)
def test_sglang_keeps_dense_layers_as_they_are_priced(layout, kept_whole) -> None:
    asked = deployment("deepseek-v3", "fp8_block", "bf16", pool("sglang", "h200-sxm", layout, 1))
    flags = exported(asked, "sglang").flags
    assert flags.get("--moe-dense-tp-size") == ("1" if kept_whole else None)
    assert (asked.pools[0].shard().dense_tp == 1) is kept_whole


def test_a_deployment_that_does_not_fit_is_refused() -> None:
    asked = deployment("llama-3.3-70b", "bf16", "bf16", pool("vllm", "h100-sxm", {}, 1))
    with pytest.raises(IllegalError, match=r"cannot start this: weights .* lack") as caught:
        exported(asked, "vllm")
    assert caught.value.exit_code == 3


def test_an_illegal_layout_is_refused_with_the_nearest_legal_one() -> None:
    asked = deployment("llama-3.3-70b", "fp8", "fp8", pool("vllm", "h200-sxm", {"tp": 3}, 1))
    with pytest.raises(IllegalError, match="heads 64 % TP 3 = 1") as caught:
        exported(asked, "vllm")
    assert "tp=2" in caught.value.remedy


@pytest.mark.parametrize(
    ("engine", "layout", "reason"),
    [
        ("trtllm@1.0", {"tp": 2, "dp": 4, "ep": 8}, "attention DP"),
        ("sglang", {"tp": 8, "cp": 8}, "no decode context parallelism"),
    ],
)
def test_what_an_engine_has_no_flag_for_is_refused(
    engine: str, layout: dict[str, int], reason: str
) -> None:
    asked = deployment("deepseek-v3", "fp8_block", "bf16", pool(engine, "h200-sxm", layout, 1))
    with pytest.raises(IllegalError, match=reason):
        exported(asked, engine.partition("@")[0])


def test_static_batching_is_refused() -> None:
    one = pool("vllm", "h200-sxm", {}, 1)
    static = replace(one, engine=replace(one.engine, scheduler=Static()))
    with pytest.raises(IllegalError, match="static batching"):
        exported(deployment("llama-3.1-8b", "bf16", "bf16", static), "vllm")


def test_another_engine_takes_the_settings_over_and_says_so() -> None:
    asked = deployment("llama-3.1-8b", "bf16", "bf16", pool("ideal", "h200-sxm", {}, 1))
    found = exported(asked, "vllm")
    assert found.engine.startswith("vllm@")
    assert any("judged under ideal@1.0" in text for text in found.warnings)


def test_facts_that_no_flag_carries_are_named() -> None:
    one = pool("vllm", "h200-sxm", {}, 1)
    bigger = replace(one, gpu=replace(one.gpu, hbm_bytes=288e9))
    found = exported(deployment("llama-3.1-8b", "bf16", "bf16", bigger), "vllm")
    assert any("cannot carry pools.0.gpu.hbm_bytes" in text for text in found.warnings)


def test_a_format_that_the_checkpoint_lacks_is_asked_for() -> None:
    asked = deployment("llama-3.3-70b", "int4", "bf16", pool("vllm", "h100-sxm", {"tp": 2}, 1))
    found = exported(asked, "vllm")
    assert "vllm serve ./checkpoints/llama-3.3-70b-int4 " in found.command
    assert any("put a int4 checkpoint" in text for text in found.warnings)


def test_any_other_text_is_no_script() -> None:
    with pytest.raises(UserError, match="no script of `dse export`"):
        parse("vllm serve x", EXPORTERS["vllm"](), CATALOG)


@pytest.mark.parametrize("name", CATALOG.names("model"))
def test_every_model_is_found_by_the_name_that_its_script_gives(name: str) -> None:
    model = CATALOG.model(name)
    assert CATALOG.model(model.name.lower()) == model
