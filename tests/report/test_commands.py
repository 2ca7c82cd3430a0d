"""`dse report` and `dse compare` on a store of two runs: files, rows, and what they refuse."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from dse.cli import main

ROOT = Path(__file__).parents[2]
STUDY = """
question: How is a small model best served on one GPU?
space:
  model: llama-3.1-8b
  gpu: [h100-sxm, h200-sxm]
  n_gpus: 1
  engine: ENGINE
  precision: {weights: bf16, kv: bf16}
  context: {isl: 200, osl: 20}
  batch: [1, 4, 16]
  layout: {tp: 1}
workload: {requests: 2 x concurrency}
load: closed_loop
slo: {ttft: 2 s, tpot: 40 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
search: {method: exhaustive, seeds: 1}
price: {h100-sxm: 2 USD/h, h200-sxm: 3 USD/h}
"""


def dse(*arguments: str) -> int:
    with pytest.raises(SystemExit) as stopped:
        main([*arguments])
    return int(stopped.value.code or 0)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two studies that were run into one store."""
    folder = tmp_path_factory.mktemp("commands")
    for name, engine in (("new", "vllm@0.19"), ("old", "vllm@0.6")):
        study = folder / f"{name}.yaml"
        study.write_text(STUDY.replace("ENGINE", engine), "utf-8")
        out = folder / "reports" / name
        assert dse("run", str(study), "--workers", "0", "--quiet", "--out", str(out)) == 0
    return folder


def test_another_question_has_a_folder_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`--set` must not overwrite the plain answer."""
    study = tmp_path / "plain.yaml"
    study.write_text(STUDY.replace("ENGINE", "vllm@0.19").replace("[1, 4, 16]", "1"), "utf-8")
    assert dse("run", str(study), "--workers", "0", "--quiet") == 0
    before = (tmp_path / "reports/plain/README.md").read_bytes()
    capsys.readouterr()
    changed = ("--set", "slo.tpot=39ms", "--workers", "0", "--quiet", "--json")
    assert dse("run", str(study), *changed) == 0
    page = Path(json.loads(capsys.readouterr().out)["report"])
    assert page.parent.parent == tmp_path / "reports"
    assert re.fullmatch("plain-[0-9a-f]{8}", page.parent.name)
    assert (tmp_path / "reports/plain/README.md").read_bytes() == before
    assert dse("report", str(study), "--set", "slo.tpot=39ms", "--json") == 0
    assert str(page) in json.loads(capsys.readouterr().out)["files"]


def test_the_quick_start_writes_where_git_looks_away() -> None:
    text = (ROOT / "scripts/quickstart").read_text("utf-8")
    folder = re.search(r"--out (reports/\S+)\)", text)
    assert folder is not None
    asked = ["git", "-C", str(ROOT), "check-ignore", "-q", f"{folder[1]}/index.html"]
    tracked = ["git", "-C", str(ROOT), "ls-files", folder[1]]
    if subprocess.run([*asked[:3], "rev-parse"], capture_output=True, check=False).returncode:
        pytest.skip("the sources are no git checkout")
    assert subprocess.run(asked, check=False).returncode == 0
    assert subprocess.run(tracked, capture_output=True, check=True).stdout == b""


def test_a_report_is_written_again_without_a_simulation(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ran / "again"
    assert (
        dse("report", str(ran / "new.yaml"), "--out", str(out), "--format", "md,csv", "--json") == 0
    )
    document = json.loads(capsys.readouterr().out)
    assert document["files"] == [str(out / "README.md"), str(out / "front.csv")]
    assert "llama-3.1-8b in bf16" in (out / "README.md").read_text("utf-8")


def test_a_study_that_was_not_run_has_no_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "never.yaml"
    study.write_text(STUDY.replace("ENGINE", "vllm"), "utf-8")
    assert dse("report", str(study), "--json") == 4
    assert json.loads(capsys.readouterr().out)["error"]["remedy"] == f"dse run {study}"


def test_two_studies_are_compared_by_what_they_deploy(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = ran / "compared"
    sides = [str(ran / f"{name}.yaml") for name in ("old", "new")]
    assert dse("compare", *sides, "--out", str(out), "--json") == 0
    document = json.loads(capsys.readouterr().out)
    assert document["n_common"] == 6
    assert document["changed"] == {"engine": ["vllm@0.6", "vllm@0.19"]}
    ratios = [r["ratio"] for r in document["rows"] if r["metric"] == "tpot_mean_s"]
    assert all(ratio < 1 for ratio in ratios)  # the newer profile has less host time a step
    assert "pools.0.engine.host.overlapped: False → True (6 of 6 points)" in document["why"]
    assert "What moved from old to new?" in (out / "index.html").read_text("utf-8")


def test_the_same_study_twice_asks_for_two_runs(
    ran: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = str(ran / "new.yaml")
    assert dse("compare", study, study, "--json") == 2
    message = json.loads(capsys.readouterr().out)["error"]["message"]
    assert message.endswith("has 1 finished run of new")


def test_a_run_by_the_start_of_its_id(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from dse.store import Store

    store = ran / "dse.duckdb"
    ids = Store.open(store).query("SELECT run_id FROM run ORDER BY started_at")["run_id"]
    assert dse("compare", ids[0][:12], ids[1][:12], "--store", str(store), "--json") == 0
    assert json.loads(capsys.readouterr().out)["n_common"] == 6
    assert dse("compare", "no-such", "old", "--store", str(store), "--json") == 2
    assert "'no-such' is no run" in json.loads(capsys.readouterr().out)["error"]["message"]


def test_the_page_has_the_numbers_of_the_store(ran: Path) -> None:
    from dse.store import Store
    from tests.report.pages import dataset

    html = (ran / "reports" / "new" / "index.html").read_text("utf-8")
    columns = ["output_tok_per_s_per_gpu", "tpot_mean_s", "ttft_p95_s", "kv_peak_fraction"]
    sql = f"SELECT point_id, {', '.join(columns)} FROM front WHERE study = 'new'"
    stored = {row[0]: row[1:] for row in Store.open(ran / "dse.duckdb").query(sql).iter_rows()}
    shown = {row["point_id"]: [row[c] for c in columns] for row in dataset(html, "front")}
    assert stored.keys() == shown.keys()
    for point, values in stored.items():
        assert shown[point] == pytest.approx(values, rel=1e-12)


def test_the_terminal_says_what_moved(ran: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = [str(ran / f"{name}.yaml") for name in ("old", "new")]
    assert dse("compare", *sides) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "old → new: output per GPU moved in" in shown
    assert "engine: vllm@0.6 in old, vllm@0.19 in new" in shown
