"""What users trip over: a space given as a study, nothing legal, settings of another run."""

import json
from pathlib import Path

import pytest

from dse.store import Store
from tests.commands import run

ROOT = Path(__file__).parents[2]
LLAMA = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")


def project(folder: Path, **lines: str) -> Path:
    """The quickstart in a folder of its own, some of its lines by key replaced."""
    for kind in ("spaces", "studies"):
        (folder / kind).mkdir()
        text = (ROOT / kind / "quickstart.yaml").read_text("utf-8").splitlines()
        kept = [lines.get(line.partition(":")[0], line) for line in text]
        (folder / kind / "quickstart.yaml").write_text("\n".join(kept) + "\n", "utf-8")
    return folder / "studies" / "quickstart.yaml"


@pytest.mark.parametrize("command", ["run", "show"])
def test_a_space_is_no_study_in_one_line(capsys, command):
    code, out, err = run(capsys, command, ROOT / "spaces/quickstart.yaml")
    assert (code, out) == (2, "")
    first, remedy = err.splitlines()
    assert "quickstart.yaml is a space: it says what may vary, and asks nothing" in first
    assert "`dse check` reads a space" in remedy


def test_faults_of_a_space_have_a_plain_path(capsys, tmp_path):
    study = project(tmp_path, layout="layout: {tpp: [1]}")
    code, _, err = run(capsys, "check", study)
    assert code == 2
    assert f"{tmp_path}/spaces/quickstart.yaml:" in err


def test_where_nothing_is_legal_the_rule_says_its_numbers(capsys, tmp_path):
    study = project(tmp_path, layout="layout: {tp: [3, 5]}")
    code, out, _ = run(capsys, "check", study)
    text = " ".join(out.split())
    assert code == 0
    assert "Nothing is legal" in text
    assert "heads, 8 structures: heads 64 % TP 3 = 1; legal: tp=2 or tp=4" in text
    assert "dse walls" in text
    _, out, _ = run(capsys, "check", study, "--json")
    assert json.loads(out)["refused"][0]["rule"] == "heads"


def test_a_price_of_a_gpu_that_is_not_asked_for_is_noted(capsys, tmp_path):
    study = project(tmp_path, gpu="gpu: [h100-sxm]")
    text = " ".join(run(capsys, "check", study)[1].split())
    assert "note: a price is given for h200-sxm, which the space does not have" in text
    whole = run(capsys, "check", ROOT / "studies/quickstart.yaml")[1]
    assert "a price is given" not in whole


def test_one_is_no_plural(capsys, tmp_path):
    study = project(
        tmp_path,
        gpu="gpu: h100-sxm",
        layout="layout: {tp: [8]}",
        batch="batch: 1",
        precision="precision: {weights: fp8, kv: bf16}",
    )
    assert "1 point, 1 structure\n" in run(capsys, "check", study)[1]


@pytest.mark.parametrize("width", [80, 140])
def test_sizes_fit_the_terminal(capsys, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    for study in sorted((ROOT / "studies").glob("*.yaml")):
        out = run(capsys, "check", study)[1].splitlines()[1:]
        assert max(len(line.rstrip()) for line in out) <= width


def test_a_fact_of_the_workload_may_be_set(capsys):
    asked = ("simulate", *LLAMA, "--json", "--isl", "100", "--osl", "20", "--concurrency", "2")
    flags = run(capsys, *asked, "--requests", "30")[1]
    sets = ("workload.isl=100", "workload.osl=20", "workload.n_requests=30")
    other = ("simulate", *LLAMA, "--json", "--concurrency", "2")
    found = run(capsys, *other, *(part for each in sets for part in ("--set", each)))[1]
    one, two = (json.loads(text) for text in (flags, found))
    assert one.pop("cpu_s") >= 0
    assert two.pop("cpu_s") >= 0
    assert one == two


def test_a_fact_that_no_workload_has_is_refused_by_name(capsys):
    code, _, err = run(capsys, "simulate", *LLAMA, "--set", "workload.islt=100")
    assert code == 2
    assert "did you mean isl?" in err
    code, _, err = run(capsys, "walls", *LLAMA, "--set", "workload.isl=100")
    assert code == 2
    assert "serves no workload" in err


def test_more_drafts_than_can_pay_are_refused(capsys):
    code, _, err = run(capsys, "walls", *LLAMA, "--speculative", "draft:9999999:0.8")
    assert code == 2
    assert "drafts 9,999,999 tokens a step" in err
    assert "at most 64" in err
    assert run(capsys, "walls", *LLAMA, "--speculative", "draft:64:0.8")[0] == 0


def explained(capsys: pytest.CaptureFixture[str], *flags: str) -> list[str]:
    asked = ("--isl", "30000", "--osl", "100", "--weights", "bf16", "--json")
    found: list[str] = json.loads(run(capsys, "explain", *LLAMA, *asked, *flags)[1])[
        "nearest_feasible"
    ]
    return found


def test_a_pool_or_a_share_too_small_may_be_raised(capsys):
    changes = explained(capsys, "--kv-pool", "1GB")
    pool = next(each for each in changes if each.startswith("kv_pool="))
    # 30,100 tokens of 131,072 bytes.
    assert 30_100 * 131_072 <= float(pool.removeprefix("kv_pool=")) <= 1.01 * 30_100 * 131_072
    assert explained(capsys, "--kv-pool", f"{float(pool.removeprefix('kv_pool=')):.0f} B") == []
    share = next(
        each for each in explained(capsys, "--hbm-fraction", "0.25") if each.startswith("hbm_frac")
    )
    assert explained(capsys, "--hbm-fraction", share.removeprefix("hbm_fraction=")) == []


def test_views_and_show_say_when_they_speak_of_different_runs(capsys, tmp_path, monkeypatch):
    study = project(
        tmp_path, batch="batch: [1, 2]", gpu="gpu: h100-sxm", layout="layout: {tp: [8]}"
    )
    store = tmp_path / "dse.duckdb"
    quiet = ("--quiet", "--workers", "0", "--out", tmp_path / "out")
    assert run(capsys, "run", study, *quiet)[0] == 0
    assert run(capsys, "show", study)[2] == ""
    other = ("run", study, "--set", "slo.tpot=30ms")
    monkeypatch.setattr("sys.argv", ["dse", *map(str, other)])
    assert run(capsys, *other, *quiet)[0] == 0
    assert f"show another run: dse run {study} --set slo.tpot=30ms" in run(capsys, "show", study)[2]
    assert run(capsys, "show", study, "--set", "slo.tpot=30ms")[2] == ""
    _, _, err = run(capsys, "query", "SELECT count(*) FROM front", "--store", store)
    assert "the last run of quickstart was dse run" in err
    assert Store.open(store).query("SELECT count(*) AS n FROM run")["n"][0] == 2


def test_a_study_is_compared_with_its_run_before_by_any_path(capsys, tmp_path, monkeypatch):
    study = project(tmp_path, batch="batch: [1]", gpu="gpu: h100-sxm", layout="layout: {tp: [8]}")
    quiet = ("--quiet", "--workers", "0", "--out", tmp_path / "out")
    for _ in range(2):
        assert run(capsys, "run", study, *quiet)[0] == 0
    monkeypatch.chdir(tmp_path)
    found = json.loads(run(capsys, "compare", "studies/quickstart.yaml", study, "--json")[1])
    assert found["a"] == "quickstart (run before)"
