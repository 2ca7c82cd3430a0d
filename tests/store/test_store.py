"""The store keeps every result once, whatever happens to the file or to the process."""

import multiprocessing
import time
from pathlib import Path

import polars as pl
import pytest

from dse.base.errors import UserError
from dse.store import Store
from dse.store.connection import connected
from tests.store.rows import answered, held, rows


def test_rows_come_back_after_reopening(path):
    with Store.open(path) as store:
        store.append(rows(5))
    with Store.open(path) as store:
        back = held(store)
    assert back.select(rows(1).columns).equals(rows(5))


def test_waiting_rows_count_as_stored(store):
    store.append(rows(3))
    assert store.missing(rows(5)).height == 2
    assert store.results(rows(5))["point_id"].to_list() == rows(3)["point_id"].to_list()


def test_the_file_is_not_opened_for_what_waits(store, monkeypatch):
    store.append(rows(3))
    store.append(rows(1, status="error"))
    opened = []

    def counted(path, **how):
        opened.append(path)
        return connected(path, **how)

    monkeypatch.setattr("dse.store.store.connected", counted)
    assert store.results(rows(3)).height == 3
    assert store.missing(rows(3)).is_empty()
    assert opened == []
    assert store.results(rows(4)).height == 3
    assert len(opened) == 1


def test_missing_keeps_order_and_other_columns(store):
    store.append(rows(2))
    keys = rows(5).reverse().with_columns(point=pl.int_range(5, dtype=pl.UInt64))
    assert store.missing(keys)["point"].to_list() == [0, 1, 2]


def test_a_result_is_never_changed(store):
    store.append(rows(3, tpot_mean_s=0.025))
    store.flush()
    store.append(rows(3, tpot_mean_s=0.5))
    store.append(rows(3, status="error", tpot_mean_s=0.7))
    store.flush()
    assert held(store)["tpot_mean_s"].to_list() == [0.025] * 3


def test_a_failed_row_gives_way_to_a_success(store):
    failed = rows(1, status="error", error="ValueError: no")
    store.append(failed)
    store.flush()
    assert store.missing(failed).is_empty()
    assert store.missing(failed, retry=["error", "crashed"]).height == 1
    store.append(rows(1, tpot_mean_s=0.025))
    store.flush()
    found = store.results(failed).row(0, named=True)
    assert (found["status"], found["error"], found["tpot_mean_s"]) == ("ok", None, 0.025)
    assert store.missing(failed, retry=["error", "crashed"]).is_empty()


def test_a_failure_and_its_success_in_one_flush(store):
    store.append(pl.concat([rows(2, status="error", x=0.0), rows(2, x=1.0)]))
    store.flush()
    assert held(store)["status"].to_list() == ["ok", "ok"]


def test_a_new_metric_widens_the_table_and_its_views(store):
    store.append(rows(2, tpot_mean_s=0.025))
    store.flush()
    store.append(rows(1, start=2, tpot_mean_s=0.03, mfu=0.4))
    store.flush()
    assert held(store)["mfu"].to_list() == [None, None, 0.4]
    assert store.query("SELECT avg(mfu) AS mfu FROM point_result")["mfu"].item() == 0.4


def test_whole_numbers_first_do_not_round_later_ones(store):
    store.append(rows(1, mfu=0, n_preemptions=2))
    store.flush()
    store.append(rows(1, start=1, mfu=0.4, n_preemptions=3))
    store.flush()
    assert held(store)["mfu"].to_list() == [0.0, 0.4]
    assert held(store).schema["n_preemptions"].is_integer()


def test_replicates_are_averaged(store):
    for replicate, value in enumerate((1.0, 3.0)):
        store.append(rows(1, replicate=replicate, output_tok_per_s_per_gpu=value))
    store.flush()
    found = store.query("SELECT * FROM point_result").row(0, named=True)
    assert (found["n_replicates"], found["output_tok_per_s_per_gpu"]) == (2, 2.0)


def test_goodput_of_any_slo_is_a_count_over_the_sketch(store):
    # 0.125 s, 1 s and 4 s are 2^-3, 2^0 and 2^2: codes 1 + 2048 · (octave + 16).
    codes = {octave: 1 + 2048 * (octave + 16) for octave in (-6, -3, 0, 2)}
    sketch = (
        rows(1)
        .drop("status", "tpot_mean_s")
        .with_columns(
            ttft_code=pl.Series([[codes[-3], codes[2], codes[0]]], dtype=pl.List(pl.UInt16)),
            tpot_code=pl.Series([[codes[-6], codes[-6], 0]], dtype=pl.List(pl.UInt16)),
            e2e_code=pl.Series([[codes[0], codes[2], codes[0]]], dtype=pl.List(pl.UInt16)),
            n_requests=pl.lit(3),
            n_rejected=pl.lit(0),
        )
    )
    store.append(sketch, table="latency_sketch")
    store.append(rows(1))
    store.flush()
    found = store.query("SELECT ttft_s, tpot_s FROM request_latency ORDER BY ttft_s")
    assert found["ttft_s"].to_list() == [0.125, 1.0, 4.0]
    assert found["tpot_s"].to_list() == [0.015625, None, 0.015625]
    assert (
        store.results(rows(1), "latency_sketch")["ttft_code"].to_list()
        == sketch["ttft_code"].to_list()
    )


def test_rows_reach_the_file_within_the_flush_interval(path):
    store = Store.open(path, flush_interval_s=0.2)
    store.append(rows(4))
    deadline = time.monotonic() + 10
    while store.query("SELECT count(*) AS n FROM result")["n"].item() < 4:
        assert time.monotonic() < deadline, "the rows were never flushed"
        time.sleep(0.05)


def test_two_stores_on_one_file_see_each_others_rows(path):
    with Store.open(path) as one, Store.open(path) as other:
        one.append(rows(3))
        one.flush()
        assert other.missing(rows(4)).height == 1
        other.append(rows(4))
        other.flush()
        assert one.missing(rows(5)).height == 1
    assert held(Store.open(path)).height == 4


def test_a_row_twice_in_one_flush_is_kept_once(store):
    for table in ("point", "result"):
        for _ in range(2):
            store.append(rows(3) if table == "result" else rows(3).select("point_id"), table)
    assert held(store, "result").height == held(store, "point").height == 3


def test_a_success_replaces_a_failure_of_another_store_and_no_other_row(path):
    with Store.open(path) as one, Store.open(path) as other:
        one.append(pl.concat([rows(2, status="error"), rows(2, start=2)]))
        one.flush()
        other.append(rows(4, tpot_mean_s=0.5))
        other.flush()
        assert held(one)["tpot_mean_s"].to_list() == [0.5, 0.5, 0.025, 0.025]
        assert held(one)["status"].to_list() == ["ok"] * 4


def _write(path: Path, start: int):
    with Store.open(path) as store:
        for step in range(10):
            store.append(rows(20, start=start + 10 * step))
            store.append(rows(20, start=start + 10 * step).select("point_id"), "point")
            store.flush()


def test_processes_that_write_the_same_keys_duplicate_none(path):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write, args=(path, 50 * i)) for i in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    assert [writer.exitcode for writer in writers] == [0, 0]
    for table in ("result", "point"):
        found = held(Store.open(path), table)["point_id"].to_list()
        assert found == [f"{i:032x}" for i in range(160)]


def test_rows_do_not_wait_without_bound(path, monkeypatch):
    monkeypatch.setattr("dse.store.store._MOST_WAITING_BYTES", 5_000)
    store = Store.open(path, flush_interval_s=60.0)
    store.append(rows(10))
    assert store.query("FROM result").is_empty()
    store.append(rows(100, start=10))
    assert store.query("FROM result").height == 110


def test_a_query_reads_and_cannot_write(store):
    store.append(rows(2))
    store.flush()
    assert store.query("SELECT count(*) AS n FROM result")["n"].item() == 2
    for sql in ("DELETE FROM result", "SELECT * FROM nothing", "SELEC 1", "FROM '/etc/passwd'"):
        with pytest.raises(UserError):
            store.query(sql)
    assert held(store).height == 2


def test_a_runs_own_record_is_replaced(store):
    record = pl.DataFrame({"run_id": ["r"], "valid": [False], "text": ["{}"]})
    store.replace(record, "certificate")
    store.replace(record.with_columns(valid=True), "certificate")
    assert store.query("SELECT valid FROM certificate")["valid"].to_list() == [True]


def test_views_answer_for_the_last_run_of_a_study(store):
    answered(store, rows(4).drop("tpot_mean_s"))
    front = store.query("FROM front ORDER BY point_id")
    assert front["output_tok_per_s_per_gpu"].to_list() == [105.0, 108.0]
    assert front["n_replicates"].to_list() == [2, 2]
    best = store.query("FROM best_per_gpu ORDER BY gpu")
    assert best["gpu"].to_list() == ["a", "b"]
    assert best["output_tok_per_s_per_gpu"].to_list() == [105.0, 108.0]
    assert store.query("FROM answered").height == 4


def test_a_point_that_failed_is_not_among_the_answered(store):
    answered(store, rows(4).drop("tpot_mean_s"))
    told = store.query("SELECT * EXCLUDE (deployment_id) FROM answer ORDER BY point_id")
    store.answer(told.with_columns(status=pl.Series(["ok", "error", "ok", "ok"])))
    assert store.query("FROM answer").height == 4
    assert store.query("FROM answered").height == 3
    assert set(store.query("SELECT place FROM notable")["place"]) == {"front", "best of its GPU"}


def test_an_answer_brings_columns_of_its_own(store):
    answered(store, rows(4))
    told = store.query("SELECT * EXCLUDE (deployment_id) FROM answer")
    store.answer(told.with_columns(usd_per_mtok_output=0.5, nothing=None))
    assert store.query("FROM front")["usd_per_mtok_output"].to_list() == [0.5, 0.5]


def test_a_fraction_after_whole_numbers_is_not_rounded(store):
    for value in (2, 0.4, "auto"):
        name = f"{value}".zfill(32)
        store.append(pl.DataFrame([{"point_id": name, "req_per_s": value}]), "point")
        store.flush()
    found = store.query("FROM point ORDER BY point_id")["req_per_s"].to_list()
    assert sorted(found) == ["0.4", "2.0", "auto"]


def test_an_answer_written_again_takes_the_place_of_the_first(store):
    answered(store, rows(4))
    told = store.query("SELECT run_id, point_id, physics_id, status, feasible FROM answer")
    store.answer(told.with_columns(on_front=pl.lit(value=True)))
    assert store.query("SELECT run_id, point_id FROM answer").is_unique().all()
    assert store.query("FROM front").height == 4
