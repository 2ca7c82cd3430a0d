"""Traces in each format, and what makes one unreadable."""

import json

import polars as pl
import pytest

from dse.base.errors import SourceError, StudyError
from dse.space import points, structures
from dse.study import load_study
from dse.study.trace import read_trace


def test_our_own_columns_in_seconds(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,isl,osl,session\n1.5,10,2,a\n3.0,20,4,b\n")
    first, second = read_trace(path).rows
    assert (first.arrival_s, first.isl_tokens, first.osl_tokens, first.session) == (0.0, 10, 2, "a")
    assert second.arrival_s == 1.5


def test_a_row_that_arrives_before_the_one_above_is_named(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("arrival_s,isl,osl\n0.0,10,2\n3.0,20,4\n1.5,10,2\n")
    with pytest.raises(StudyError, match=r"row 3, column arrival_s: arrives before .* 1 such rows"):
        read_trace(path)


def test_mooncake_counts_milliseconds_and_names_blocks(tmp_path):
    path = tmp_path / "t.jsonl"
    rows = [
        {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47]},
        {"timestamp": 30535, "input_length": 6472, "output_length": 26, "hash_ids": [46, 2366]},
    ]
    path.write_text("\n".join(map(json.dumps, rows)))
    first, second = read_trace(path).rows
    assert second.arrival_s == pytest.approx(3.053)
    assert (first.isl_tokens, first.hash_ids, first.hash_tokens) == (6955, (46, 47), 512)


def test_azure_gives_dates(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.0319600,3180,8\n"
    )
    first, second = read_trace(path).rows
    assert (first.isl_tokens, first.osl_tokens) == (4808, 10)
    assert second.arrival_s == pytest.approx(0.052)


def test_parquet_reads_as_csv_does(tmp_path):
    frame = pl.DataFrame({"arrival_s": [0.0, 1.0], "isl": [5, 6], "osl": [7, 8]})
    frame.write_csv(tmp_path / "t.csv")
    frame.write_parquet(tmp_path / "t.parquet")
    one, other = read_trace(tmp_path / "t.csv"), read_trace(tmp_path / "t.parquet")
    assert (one.rows, one.content_id) == (other.rows, other.content_id)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.txt", "", "a trace does not end in '.txt'"),
        ("t.csv", "arrival_s,isl\n0,1\n", "no column for osl: one of osl_tokens"),
        ("t.csv", "arrival_s,isl,osl\n0,1,1\n1,0,3\n", "row 2 is no request"),
        ("t.csv", "arrival_s,isl,osl\n0,1,1\n1,many,3\n", "row 2, column isl: 'many'"),
        ("t.csv", "arrival_s,isl,osl\n0,1,1\n1,nan,3\n", "row 2, column isl: 'nan'"),
        ("t.csv", "arrival_s,isl,osl\n0,1,2.5\n", "row 1, column osl: 2.5"),
        ("t.csv", "arrival_s,isl,osl\n0,99999999999999999999,1\n", "row 1, column isl"),
        ("t.csv", "arrival_s,isl,osl\n0,1,1\n-1,1,1\n", "row 2, column arrival_s: -1"),
        ("t.csv", "arrival_s,isl,osl\n0,1,1\nnan,1,1\n", "row 2, column arrival_s: 'nan'"),
        ("t.csv", "arrival_s,isl,osl,priority\n0,1,1,high\n", "column priority: 'high'"),
        ("t.csv", "arrival_s,isl,osl\n0,1,\n", "row 1 is no request"),
        ("t.csv", "timestamp,arrival_s,isl,osl\n0,9,1,1\n", "arrival_s and timestamp both tell"),
        ("t.csv", "arrival_s,isl,osl\n", "the trace is empty"),
        ("t.jsonl", "{", "cannot be read as a trace"),
    ],
)
def test_what_makes_a_trace_unreadable(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(StudyError, match=message):
        read_trace(tmp_path / name)


STUDY = "load: {trace: t.csv}\nworkload: {}\n"


def test_a_study_replays_its_trace(study_file, tmp_path):
    (tmp_path / "t.csv").write_text("arrival_s,isl,osl\n0,10,2\n1,20,4\n")
    study = load_study(study_file(STUDY, space="n_gpus: 8"))
    row = points(study.space, structures(study.space, study.catalog)).collect().row(0, named=True)
    workload = study.workload_of(row)
    assert (workload.n_requests, workload.isl) == (2, None)
    assert workload.arrivals.times(2, None) == [0.0, 1.0]


def test_a_trace_that_is_not_there_is_a_fault_of_the_study(study_file):
    with pytest.raises(SourceError, match=r"load\.trace: .*t\.csv: cannot be read as a trace"):
        load_study(study_file(STUDY, space="n_gpus: 8"))


def test_a_trace_needs_one_context(study_file, tmp_path):
    (tmp_path / "t.csv").write_text("arrival_s,isl,osl\n0,10,2\n")
    space = "context: {isl: [1k, 2k], osl: 10}"
    with pytest.raises(SourceError, match="a trace brings its own lengths"):
        load_study(study_file(STUDY, space=space))
