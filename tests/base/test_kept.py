"""Costly text in the user's cache: made once, never taken from a file that is not whole."""

import pytest

from dse.base import kept as module
from dse.base.kept import kept


@pytest.fixture
def folder(tmp_path, monkeypatch):
    found = tmp_path / "cache"
    monkeypatch.setattr(module, "cache_folder", lambda: found)
    return found


def test_it_is_made_once(folder):
    made = []
    text = "größer\r\n<script>\n"
    for _ in range(3):
        assert kept("a.js", lambda: made.append(1) or text) == text
    assert len(made) == 1
    assert [path.name for path in folder.iterdir()] == ["a.js"]


@pytest.mark.parametrize(
    "damage",
    [lambda b: b[:-1], lambda b: b + b" ", lambda b: b"\xff\xfe"],
    ids=["cut", "longer", "another"],
)
def test_a_file_that_is_not_whole_is_made_anew(folder, damage):
    kept("a.js", lambda: "right")
    path = folder / "a.js"
    path.write_bytes(damage(path.read_bytes()))
    assert kept("a.js", lambda: "again") == "again"
    assert kept("a.js", lambda: "never asked") == "again"


def test_it_is_made_each_time_where_nothing_can_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module, "cache_folder", lambda: tmp_path / "file" / "cache")
    made = []
    for _ in range(2):
        assert kept("a.js", lambda: made.append(1) or "text") == "text"
    assert len(made) == 2
