"""The main job from YAML to a page: what it says, keeps, reuses and never simulates twice."""

import re
from pathlib import Path

import polars as pl
import pytest

from tests.pipeline.projects import SMALL, dse

KEYS = {
    "study", "n_candidates", "killed", "screened", "n_survivors", "n_simulated", "n_reused",
    "n_dropped_by_bound", "n_failed", "front", "best", "near_misses", "report", "store", "cpu_s",
    "wall_s", "peak_rss_bytes",
}  # fmt: skip
ROW = {
    "point_id", "model", "gpu", "n_gpus", "engine", "weights", "kv", "branch", "tp", "dp", "ep",
    "moe_tp", "pp", "cp", "n_replicas", "isl_tokens", "osl_tokens", "batch", "concurrency",
    "output_tok_per_s_per_gpu", "tpot_mean_s", "ttft_p50_s", "ttft_p99_s", "tpot_p50_s",
    "tpot_p99_s", "goodput_req_per_s_per_gpu", "usd_per_mtok_output",
}  # fmt: skip


def test_the_document_has_the_keys_of_the_contract(ran):
    found = ran.document()
    assert found.keys() >= KEYS
    assert found["best"].keys() >= ROW
    assert found["best"] == found["front"][0]
    assert found["n_failed"] == 0


def test_every_candidate_is_accounted_for(ran):
    found = ran.document()
    gone = sum(found["killed"].values()) + sum(found["screened"].values())
    assert found["n_candidates"] == 16
    assert found["n_candidates"] - gone == found["n_survivors"]
    done = found["n_simulated"] + found["n_reused"] + found["n_dropped_by_bound"]
    assert done == found["n_survivors"]


def test_the_front_is_undominated_and_best_first(ran):
    rows = ran.document()["front"]
    rates = [row["output_tok_per_s_per_gpu"] for row in rows]
    waits = [row["tpot_mean_s"] for row in rows]
    assert rates == sorted(rates, reverse=True)
    assert waits == sorted(waits, reverse=True)
    assert all(row["slo_attainment"] >= 0.95 for row in rows)


def test_running_again_reuses_every_result(project, ran):
    again = project.run("--json").document()
    assert again["n_simulated"] == 0
    assert again["n_reused"] == ran.document()["n_simulated"]
    assert again["front"] == ran.document()["front"]


def test_show_tells_what_run_told(project, ran):
    shown = dse("show", project.study(), *SMALL, "--json")
    assert shown.code == 0
    first, second = ran.document(), shown.document()
    assert second["n_simulated"] == 0
    for key in ("n_candidates", "killed", "n_survivors", "n_dropped_by_bound", "front", "best"):
        assert second[key] == first[key], key


def test_exhaustive_and_bound_agree_on_the_front(project, ran):
    exact = ("--set", "search.tolerance=0%")
    bound = project.run(*exact, "--json").document()
    every = project.run(*exact, "--set", "search.method=exhaustive", "--json").document()
    assert every["n_dropped_by_bound"] == 0
    assert [row["point_id"] for row in every["front"]] == [
        row["point_id"] for row in bound["front"]
    ]


@pytest.mark.parametrize(
    "change",
    ["price={h100-sxm: 9 USD/h, h200-sxm: 1 USD/h}", "question=What else?"],
)
def test_a_price_or_a_question_simulates_nothing(project, ran, change):
    again = project.run("--set", change, "--json").document()
    assert again["n_simulated"] == 0


def test_a_changed_slo_reuses_what_is_simulated(project, ran):
    every = ("--set", "search.method=exhaustive")
    project.run(*every, "--json")
    tighter = project.run(*every, "--set", "slo.tpot=7 ms", "--json").document()
    assert tighter["n_simulated"] == 0
    assert all(row["tpot_p90_s"] <= 0.007 for row in tighter["front"])


def test_the_pages_numbers_are_the_stores(project, ran):
    folder = Path(project.run("--json").document()["report"]).parent
    page = (folder / "README.md").read_text("utf-8")
    sql = "SELECT output_tok_per_s_per_gpu AS rate, point_id FROM front ORDER BY rate DESC"
    rows = dse("query", sql, "--store", project.store, "--json").document()["rows"]
    front = pl.read_parquet(folder / "front.parquet")
    assert front["point_id"].to_list() == [row["point_id"] for row in rows]
    assert front["output_tok_per_s_per_gpu"].to_list() == pytest.approx(
        [row["rate"] for row in rows]
    )
    (best,) = re.findall(r"output per GPU \| ([\d,.]+) tok/s/GPU", page)
    assert float(best.replace(",", "")) == pytest.approx(rows[0]["rate"], rel=5e-3)


def test_a_point_of_the_front_is_explained_and_exported(project, ran):
    point = ran.document()["best"]["point_id"]
    store = ("--store", project.store)
    assert dse("explain", point[:10], *store, "--json").document()["status"] == "on the front"
    exported = dse("export", point[:10], "--engine", "vllm", *store, "--json").document()
    assert "Qwen" in exported["command"]


def test_text_names_the_answer_the_funnel_and_the_report(project, ran):
    said = project.run()
    assert said.code == 0
    for word in ("qwen3-32b in fp8", "16 candidates", "Search:", "Report:"):
        assert word in said.out
    assert "survive the walls" in said.err


def test_a_scenario_has_an_answer_of_its_own(fresh):
    small = ("--set", "space.any_of={h200: {gpu: h200-sxm, precision: {weights: fp8, kv: bf16}}}")
    small += ("--set", "load={concurrency: [8, 16]}", "--set", "workload.requests=40")
    small += ("--set", "objectives=[output_tok_per_s_per_gpu, tpot_mean]")
    today = fresh.run("--scenario", "today", "--json", small=small, name="procurement_70b")
    assert today.code in {0, 3}, today.err + today.out
    long = fresh.run("--scenario", "pessimist", "--json", small=small, name="procurement_70b")
    assert long.document()["n_candidates"] == today.document()["n_candidates"]
    assert {row["isl_tokens"] for row in long.document()["front"]} <= {32768}


def test_progress_is_silent_on_request(project, ran):
    assert project.run("--quiet").err == ""


def test_retry_takes_known_statuses(project):
    said = project.run("--retry", "sometimes", "--json")
    assert said.code == 2
    assert "sometimes" in said.document()["error"]["message"]
