"""A space whose survivors memory does not hold stops the run, early and with what to narrow."""

import pytest

from dse.base.errors import StudyError
from dse.pipeline.judged import expected_survivors, judge_space
from dse.study import load_study
from dse.study import room as rooms
from dse.study.room import Room, most_survivors
from tests.pipeline.projects import dse

SET = {"space.batch": "[2, 8]", "space.precision.weights": "fp8"}


@pytest.fixture
def study(fresh):
    return load_study(fresh.study(), set_=SET)


def test_as_many_as_memory_holds_pass_and_one_more_does_not(study):
    n_survivors = judge_space(study).survivors.height
    assert judge_space(study, most=n_survivors).survivors.height == n_survivors
    with pytest.raises(StudyError) as raised:
        judge_space(study, most=n_survivors - 1)
    assert str(study.path) in raised.value.message
    assert f"holds {n_survivors - 1:,} " in raised.value.message
    assert all(word in raised.value.remedy for word in ("batch (2 values)", "screens:", "split:"))


def test_a_sample_of_every_structure_counts_them_all(study):
    assert expected_survivors(study) == judge_space(study).survivors.height


def test_what_is_surely_too_much_stops_before_memory_is_full(study):
    asked = []

    def expected(enough):
        asked.append(enough)
        return 201.0

    room = Room(study=study, most=100, expected=expected)
    room.take(1, 10)
    assert not asked
    with pytest.raises(StudyError, match="about 201 points"):
        room.take(1, 20)
    assert asked == [200.0]


def test_a_doubtful_estimate_leaves_it_to_the_count(study):
    room = Room(study=study, most=100, expected=lambda _: 200.0)
    room.take(100, 5000)
    with pytest.raises(StudyError, match="101 of the first 6,000 candidates"):
        room.take(1, 6000)


def test_room_grows_with_memory_and_there_is_some_here():
    assert most_survivors(2e9) == 2 * most_survivors(1e9) > 0
    assert 0 < rooms.free_bytes() < 1e15


def test_run_exits_2_and_check_says_so_beforehand(fresh, monkeypatch):
    monkeypatch.setattr(rooms, "free_bytes", lambda: 10_000.0)
    said = dse("check", fresh.study(), "--json")
    assert said.code == 0
    assert any("free memory holds 4 " in note for note in said.document()["notes"])
    out = fresh.folder / "page"
    said = dse("run", fresh.study(), "--store", fresh.store, "--out", out, "--workers", "0")
    assert said.code == 2
    assert "survive walls and screens" in said.err
    assert not out.exists() or not any(out.iterdir())
