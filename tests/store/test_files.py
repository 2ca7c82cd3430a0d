"""Files that are no store, an older one, another's, or held by somebody."""

import multiprocessing
import os
from pathlib import Path

import duckdb
import pytest

from dse.base.errors import StoreError
from dse.store import Store, connection
from dse.store.schema import SCHEMA_VERSION
from tests.store.rows import answered, held, rows


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\0" * 100], ids=["empty", "another program's"]
)
def test_a_foreign_file_is_refused_and_left_alone(path, content):
    path.write_bytes(content)
    with pytest.raises(StoreError, match="not a whole store") as caught:
        Store.open(path)
    assert caught.value.exit_code == 4
    assert path.read_bytes() == content


def test_a_truncated_store_is_refused_and_left_alone(path):
    with Store.open(path) as store:
        store.append(rows(20_000))
    path.write_bytes(path.read_bytes()[:300_000])
    with pytest.raises(StoreError, match="not a whole store"):
        held(Store.open(path))
    assert path.stat().st_size == 300_000


def test_another_programs_database_is_refused(path):
    with duckdb.connect(str(path)) as connection:
        connection.execute("CREATE TABLE result (x INTEGER)")
    with pytest.raises(StoreError, match="of another program"):
        Store.open(path)


def test_a_newer_schema_is_refused(path):
    Store.open(path)
    with duckdb.connect(str(path)) as connection:
        connection.execute("UPDATE meta SET schema_version = 99")
    with pytest.raises(StoreError, match="newer dse"):
        Store.open(path)


SCHEMA_1 = """
DROP TABLE answer;
CREATE TABLE answer (run_id VARCHAR NOT NULL, point_id VARCHAR NOT NULL, physics_id VARCHAR,
    feasible BOOLEAN, on_front BOOLEAN NOT NULL, front_rank INTEGER, is_tie BOOLEAN,
    PRIMARY KEY (run_id, point_id));
CREATE TABLE indexed (point_id VARCHAR NOT NULL, replicate INTEGER NOT NULL,
    physics_id VARCHAR NOT NULL, status VARCHAR NOT NULL, error VARCHAR,
    output_tok_per_s_per_gpu DOUBLE, PRIMARY KEY (point_id, replicate, physics_id));
INSERT INTO indexed BY NAME FROM result;
DROP TABLE result;
ALTER TABLE indexed RENAME TO result;
UPDATE meta SET schema_version = 1;
"""


def test_an_older_schema_is_migrated_with_its_rows(path):
    with Store.open(path) as store:
        answered(store, rows(4).drop("tpot_mean_s"))
        its = "run_id, point_id, physics_id, feasible, on_front, front_rank, is_tie"
        answer = store.query(f"SELECT {its} FROM answer")
    with duckdb.connect(str(path)) as connection:
        connection.execute(SCHEMA_1)
        connection.register("kept", answer)
        connection.execute("INSERT INTO answer BY NAME FROM kept")
    with Store.open(path) as store:
        assert store.query("SELECT schema_version AS v FROM meta")["v"].item() == SCHEMA_VERSION
        assert held(store).height == 8
        best = store.query("FROM best_per_gpu ORDER BY gpu")
        assert best["output_tok_per_s_per_gpu"].to_list() == [105.0, 108.0]
        store.append(rows(5))
        assert held(store).height == 9, "a key that was there came in again"


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(StoreError, match="folder does not exist"):
        Store.open(tmp_path / "nowhere" / "dse.duckdb")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write anywhere")
def test_a_read_only_folder_is_named(tmp_path):
    tmp_path.chmod(0o500)
    try:
        with pytest.raises(StoreError, match=r"dse\.duckdb: cannot be written: permission denied"):
            Store.open(tmp_path / "dse.duckdb")
    finally:
        tmp_path.chmod(0o700)


def test_a_store_that_is_only_read_stays_as_it_is(store):
    store.append(rows(2))
    store.flush()
    before = store.path.read_bytes()
    with Store.open(store.path, read_only=True) as reader:
        reader.append(rows(3))
        assert reader.results(rows(3).select("point_id", "replicate", "physics_id")).height == 3
    assert store.path.read_bytes() == before


def _hold(path: Path, ready, done):
    connection = duckdb.connect(str(path))
    ready.set()
    done.wait(30)
    connection.close()


def test_a_holder_is_waited_for_then_named(path):
    store = Store.open(path, lock_timeout_s=0.3)
    context = multiprocessing.get_context("spawn")
    ready, done = context.Event(), context.Event()
    holder = context.Process(target=_hold, args=(path, ready, done))
    holder.start()
    try:
        assert ready.wait(30)
        store.append(rows(3))
        with pytest.raises(StoreError, match=f"process {holder.pid} has held") as caught:
            store.flush()
        assert caught.value.exit_code == 4
    finally:
        done.set()
        holder.join(30)
    store.flush()
    assert held(store).height == 3, "a flush that failed keeps its rows"


def test_files_share_an_engine_that_holds_none_of_them_between(path):
    store = Store.open(path)
    engine = dict(connection._ENGINES)
    store.append(rows(3))
    store.flush()
    assert held(store).height == 3
    assert engine == connection._ENGINES, "no engine is started for a file"
    attached = engine[os.getpid()].execute("SELECT path FROM duckdb_databases()").fetchall()
    assert (str(path),) not in attached


def test_a_fault_of_one_file_leaves_others_usable(path, tmp_path):
    store = Store.open(path)
    foreign = tmp_path / "foreign.duckdb"
    foreign.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 20_000)
    with pytest.raises(StoreError, match=r"foreign\.duckdb"):
        Store.open(foreign)
    store.append(rows(2))
    store.flush()
    assert held(store).height == 2
