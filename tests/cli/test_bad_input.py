"""Whatever is wrong is named with a remedy, has its exit code, and leaves nothing half-written."""

import subprocess
import sys
from importlib import import_module

import pytest

from tests.pipeline.projects import HERE, SMALL, Project, dse

SHORT = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--isl", "20", "--osl", "4", "--requests")
SHORT += ("2", "--tier", "roofline")


@pytest.fixture
def project(tmp_path) -> Project:
    return Project.made(tmp_path)


def untouched(project: Project) -> bool:
    return {each.name for each in project.folder.iterdir()} == {"spaces", "studies"}


def edited(project: Project, old: str, new: str, where: str = "studies") -> None:
    path = project.folder / where / "quickstart.yaml"
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new), "utf-8")


@pytest.mark.parametrize(
    ("where", "old", "new", "words"),
    [
        ("studies", "\nload:", "\nlod:", ["quickstart.yaml:5:1", "did you mean load?"]),
        ("studies", "\nload:", "\nquestion: again\nload:", ["quickstart.yaml:5:1", "question"]),
        ("studies", "tpot: 40 ms", "tpot: 40 GB", ["quickstart.yaml:6:", "slo.tpot", "duration"]),
        ("studies", "tpot_mean]", "tpot_men]", ["did you mean tpot_mean?"]),
        ("studies", "spaces/quickstart", "spaces/none", ["quickstart.yaml:3:8", "no file"]),
        ("spaces", "gpu: [h100-sxm, h200-sxm]", "gpu: []", ["yaml:4:6", "gpu: the list is empty"]),
        ("spaces", "model: qwen3-32b", "model: qwen3-23b", ["did you mean qwen3-32b?"]),
        ("spaces", "h200-sxm]", "h200-smx]", ["quickstart.yaml:4:", "did you mean h200-sxm?"]),
        ("spaces", "layout: {tp", "layout: {tpp", ["did you mean tp?"]),
        ("spaces", "engine: vllm@0.19", "engine: vlm", ["did you mean vllm"]),
    ],
)  # fmt: skip
def test_a_wrong_file_is_placed_and_nothing_is_written(project, where, old, new, words):
    edited(project, old, new, where)
    said = dse("run", project.study(), *HERE)
    assert (said.code, said.out) == (2, "")
    for word in words:
        assert word in said.err
    as_json = dse("run", project.study(), *HERE, "--json")
    assert as_json.code == 2
    document = as_json.document()
    assert document["error"]["code"] == 2
    assert document["faults"]
    assert untouched(project)


def test_all_faults_are_told_at_once(project):
    edited(project, "\nload:", "\nlod:")
    edited(project, "tpot: 40 ms", "tpot: 40 GB")
    edited(project, "h200-sxm]", "h200-smx]", "spaces")
    faults = dse("check", project.study(), "--json").document()["faults"]
    assert len(faults) >= 3
    assert {"file", "line", "column", "path", "message"} <= faults[0].keys()


def test_a_space_with_nothing_legal_exits_3_and_says_why(project):
    options = ("--set", "space.model=qwen2.5-7b", "--set", "space.layout={tp: 8}")
    said = project.run(*options, "--json")
    document = said.document()
    assert said.code == document["error"]["code"] == 3
    assert document["n_survivors"] == document["n_simulated"] == 0
    assert document["best"] is None
    (miss, *_) = document["near_misses"]
    assert miss["reason"] == "legality"
    assert miss["remedy"].startswith("heads 28 % TP 8 = 4; legal: tp=")


def test_an_slo_that_nothing_meets_exits_3_and_stays_as_it_is(project):
    said = project.run("--set", "slo.tpot=10 us", "--json")
    document = said.document()
    assert said.code == document["error"]["code"] == 3
    assert document["front"] == []
    misses = [each for each in document["near_misses"] if each["reason"] == "tpot_floor"]
    assert misses
    assert {each["limit"] for each in misses} == {1e-5}
    assert all(each["remedy"] for each in misses)
    assert "TPOT ≤ 0.01 ms" in project.run("--set", "slo.tpot=10 us").out


@pytest.mark.parametrize("content", [b"", b"not a database", b"\0" * 5000])
def test_a_store_that_is_none_exits_4_and_is_left_alone(project, content):
    project.store.write_bytes(content)
    for command in ("run", "show"):
        said = dse(command, project.study(), *(HERE if command == "run" else ()), *SMALL, "--json")
        assert said.code == said.document()["error"]["code"] == 4
    assert dse("query", "FROM front", "--store", project.store, "--json").code == 4
    assert project.store.read_bytes() == content
    assert not (project.folder / "reports").exists()


def test_the_folder_of_a_store_must_exist(project):
    said = project.run("--store", project.folder / "no" / "x.duckdb", "--json")
    assert said.code == 4
    assert "--store" in said.document()["error"]["remedy"]


def test_a_locked_store_names_its_holder(project, monkeypatch):
    import duckdb

    from dse.store import Store

    with Store.open(project.store):
        pass
    monkeypatch.setitem(Store.open.__func__.__kwdefaults__, "lock_timeout_s", 0.2)
    script = (
        f"import duckdb, time; held = duckdb.connect({str(project.store)!r}); print(flush=True)"
    )
    script += "; time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        said = project.run("--json")
        holder.terminate()
    assert said.code == 4
    assert f"process {holder.pid}" in said.document()["error"]["message"]
    assert not (project.folder / "reports").exists()
    assert duckdb.connect(str(project.store), read_only=True).sql("FROM result").pl().height == 0


@pytest.mark.parametrize("out", ["/proc/report", "{file}", "{file}/report"])
def test_a_report_folder_that_cannot_be_written_is_refused_before_any_work(project, out, tmp_path):
    file = project.folder / "spaces" / "quickstart.yaml"
    said = project.run("--out", out.format(file=file), "--json")
    assert said.code == said.document()["error"]["code"] == 2
    assert "--out" in said.document()["error"]["remedy"]
    assert untouched(project)


@pytest.mark.parametrize(
    "arguments",
    [
        ("rnu", "x.yaml"),
        ("run",),
        ("run", "none.yaml"),
        ("run", "none.yaml", "--nope"),
        ("check", "none.yaml"),
        ("show", "none.yaml"),
        ("report", "none.yaml"),
        ("compare", "a.yaml", "b.yaml"),
        ("walls", "--model", "llama-3.1-8b", "--gpu", "h100-smx"),
        ("simulate", "--model", "lama-3.1-8b", "--gpu", "h100-sxm"),
        ("simulate", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--isl", "many"),
        ("simulate", *SHORT, "--log", "/proc/log.csv"),
        ("explain", "zz"),
        ("triage", "--model", "llama-3.1-8b", "--gpu", "h100-sxm"),
        ("advise", "--model", "llama-3.1-8b"),
        ("export", "--model", "llama-3.1-8b", "--gpu", "h100-sxm", "--engine", "vlm"),
        ("catalog", "show", "none"),
        ("schema", "spoon"),
        ("validate", "none.csv"),
        ("calibrate", "saturation", "--rows", "none.csv", "--out", "none.yaml"),
        ("init", "/proc"),
    ],
)
def test_each_command_fails_with_one_document(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dse(*arguments, "--json")
    document = said.document()
    assert said.code == 2
    if arguments[0] != "check":
        assert document["error"]["code"] == 2
        assert document["error"]["message"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["localhost:1", "localhost:99999", "no-such-host.invalid:6379"])
def test_a_cluster_that_is_not_there_is_said_at_once(project, address):
    said = project.run("--ray", address, "--json")
    assert said.code == 2
    assert address in said.document()["error"]["message"]
    assert not (project.folder / "reports").exists()


def test_no_store_to_ask_exits_4(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = dse("query", "FROM front", "--json")
    assert said.code == said.document()["error"]["code"] == 4


def test_a_defect_of_ours_exits_1(project, monkeypatch):
    def broken(*_, **__):
        raise RuntimeError("boom")

    monkeypatch.setattr(import_module("dse.pipeline.run"), "judge_space", broken)
    said = project.run("--json")
    assert said.code == said.document()["error"]["code"] == 1
    assert "DSE_DEBUG" in said.document()["error"]["remedy"]


WALLS = ("walls", "--model", "deepseek-v3", "--gpu", "h200-sxm")


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--concurrency", "0"), "--concurrency is 0"),
        (("--concurrency=-1",), "--concurrency is -1"),
        (("--context", "0"), "--context is 0"),
        (("--gpus", "0"), "gpus is 0"),
        (("--layout", "tp=8,tp=4"), "tp twice"),
        (("--set", "gpu.hbm=90GB", "--set", "gpu.hbm=80GB"), "gpu.hbm twice"),
        (("--engine-args", "max_num_seqs=1,max_num_seqs=2"), "max_num_seqs twice"),
        (("--engine-args", "max_num_batched_tokens=0"), "max_num_batched_tokens of vllm is 0"),
        (("--engine-args", "max_num_seqs=0"), "max_num_seqs of vllm is 0"),
        (("--engine-args", "block_tokens=0"), "block_tokens of vllm is 0"),
        (("--set", "gpu.hbm_bandwidth=0 GB/s"), "hbm_bandwidth of H200-SXM is 0"),
        (("--set", "gpu.peak.fp8=0 FLOP/s"), "peak.fp8 of H200-SXM is 0"),
        (("--set", "fabric.scale_up.bandwidth=0 GB/s"), "bandwidth of Link is 0"),
        (("--set", "model.vocab_size=0"), "vocab_size of DeepSeek-V3 is 0"),
        (("--set", "model.max_context=0"), "max_context of DeepSeek-V3 is 0"),
        (("--slo-tpot", "0ms"), "--slo-tpot of 0 s"),
        (("--percentile", "0"), "--percentile 0"),
        (("--percentile", "200"), "--percentile 200"),
        (("--percentile", "nan"), "--percentile nan"),
        (("--prefill", "gpus=7 layout=tp=8", "--decode", "gpus=8 layout=tp=8"), "7 GPUs % 8"),
        (("--prefill", "gpus=8 layout=tp=8 foo=1", "--decode", "layout=tp=8"), "no word 'foo'"),
        (("--gpus", "9", "--prefill", "layout=tp=8", "--decode", "layout=tp=8"), "not the 16 GPUs"),
        (("--layout", "tp=8", "--prefill", "layout=tp=8", "--decode", "layout=tp=8"), "--layout"),
    ],
)
def test_what_no_deployment_can_be_is_refused(arguments, word):
    said = dse(*WALLS, *arguments, "--json")
    assert said.code == 2
    assert word in said.document()["error"]["message"]


def test_memory_that_runs_out_is_no_defect(project, monkeypatch):
    def full(*_, **__):
        raise MemoryError

    monkeypatch.setattr(import_module("dse.pipeline.run"), "judge_space", full)
    said = project.run("--json")
    assert said.code == said.document()["error"]["code"] == 2
    assert "narrow the space" in said.document()["error"]["remedy"]
