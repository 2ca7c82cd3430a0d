"""`dse query` reads a store, prints or writes what it finds, and changes nothing."""

import json

import polars as pl
import pytest

from dse.base.errors import StoreError, UserError
from dse.cli.query import query
from dse.store import Store


@pytest.fixture
def path(tmp_path):
    where = tmp_path / "dse.duckdb"
    with Store.open(where) as store:
        rows = {"point_id": ["a", "b", "c"], "gpu": ["h100", "h200", None], "n_gpus": [8, 8, 16]}
        store.append(pl.DataFrame(rows), "point")
    return where


def test_a_table_says_what_it_leaves_out(path, capsys):
    assert query("SELECT gpu, n_gpus FROM point ORDER BY point_id", store=path, rows=2) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["gpu", "n_gpus"]
    assert [line.split() for line in lines[1:3]] == [["h100", "8"], ["h200", "8"]]
    assert "1 more rows" in lines[3]


def test_json_is_one_document(path, capsys):
    query("SELECT sum(n_gpus) AS n FROM point", store=path, json=True)
    assert json.loads(capsys.readouterr().out) == {
        "columns": ["n"],
        "n_rows": 1,
        "rows": [{"n": 32}],
    }


def test_csv_and_parquet_hold_every_row(path, tmp_path, capsys):
    csv, parquet = tmp_path / "x.csv", tmp_path / "x.parquet"
    query(
        "SELECT gpu, [n_gpus, 1] AS pair FROM point ORDER BY point_id",
        store=path,
        csv=csv,
        parquet=parquet,
    )
    assert pl.read_csv(csv)["pair"][0] == "[8, 1]"
    assert pl.read_parquet(parquet)["pair"].to_list() == [[8, 1], [8, 1], [16, 1]]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize("sql", ["DROP TABLE point", "SELECT nothing", "COPY point TO 'x.csv'"])
def test_what_is_no_question_is_refused(path, sql):
    with pytest.raises(UserError):
        query(sql, store=path)
    assert Store.open(path).query("FROM point").height == 3


def test_what_cannot_be_read_or_written_is_named(path, tmp_path):
    with pytest.raises(StoreError, match="no such store"):
        query("SELECT 1", store=tmp_path / "none.duckdb")
    with pytest.raises(UserError, match="cannot be written"):
        query("SELECT 1", store=path, csv=tmp_path / "no" / "where.csv")
