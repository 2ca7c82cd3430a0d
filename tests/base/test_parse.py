"""YAML 1.2 scalars, what is no YAML, includes, settings."""

from pathlib import Path

import pytest

from dse.base.errors import SourceError
from dse.base.parse import load_tree, parse_tree, resolve_includes, setting
from dse.base.tree import merge


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e3", 1000.0),
        ("1e-3", 0.001),
        (".5", 0.5),
        ("-2.", -2.0),
        ("+5", 5),
        ("010", 10),
        ("0x10", "0x10"),
        ("1_000", "1_000"),
        ("on", "on"),
        ("no", "no"),
        ("true", True),
        ("False", False),
        ("2026-01-01", "2026-01-01"),
        ("12:30:45", "12:30:45"),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("8Ki", "8Ki"),
        ("80 GB", "80 GB"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    parsed = parse_tree(f"x: {text}", "t").data["x"]
    assert parsed == value
    assert type(parsed) is type(value)


def test_infinity_is_a_float_that_records_refuse_later() -> None:
    data = parse_tree("[.inf, -.INF, .nan]", "t").data
    assert [str(value) for value in data] == ["inf", "-inf", "nan"]


def test_faults_of_the_file_itself_are_kept_for_later() -> None:
    tree = parse_tree("a: 1\nb: !mine 2\na: 3\n? [x]\n: 4\n", "s.yaml")
    assert tree.data == {"a": 1, "b": "2"}
    assert [str(fault) for fault in tree.faults] == [
        "s.yaml:2:4: b: the tag !mine is not supported",
        "s.yaml:3:1: a: duplicate key, first on line 1",
        "s.yaml:4:3: a key must be plain text",
    ]


def test_aliases_are_followed_but_not_round_a_circle() -> None:
    assert parse_tree("a: &x [1]\nb: *x\n", "t").data == {"a": [1], "b": [1]}
    (fault,) = parse_tree("a: &x [*x]\n", "t").faults
    assert str(fault) == "t:1:4: a.0: an alias that contains itself"


def test_a_file_that_would_not_fit_in_memory_is_a_fault() -> None:
    text = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
    for level in range(1, 9):
        text += f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 10)}]\n"
    with pytest.raises(SourceError, match="aliases unfold to more than 500,000 values"):
        parse_tree(text, "t")


def test_a_number_too_long_for_any_float_is_a_fault() -> None:
    (fault,) = parse_tree("a: " + "9" * 5000, "t").faults
    assert str(fault) == "t:1:4: a: a number of 5000 digits"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("gpu: *-sxm", "t:1:6: .*alias.*quote a glob: '\\*-sxm'"),
        ("a: [1", "t:2:1: is not YAML"),
        ("a: 1\n\tb: 2", "t:2:1: is not YAML.*tab"),
        ("a: 1\n--- \nb: 2", "t:2:1: .*document"),
        ("a: \x00", "t:1:1: is not YAML"),
        ("[" * 3000, "t:1:1001: is not YAML.*nesting depth"),
    ],
)
def test_what_is_no_yaml_is_a_fault_with_its_place(text: str, says: str) -> None:
    with pytest.raises(SourceError, match=says):
        parse_tree(text, "t")


def test_a_file_that_cannot_be_read_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"none.yaml:1:1: cannot be read: No such file"):
        load_tree(tmp_path / "none.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: caf\xe9")
    with pytest.raises(SourceError, match="is not UTF-8"):
        load_tree(tmp_path / "latin.yaml")


def test_includes_lie_below_the_file_and_keep_their_places(tmp_path: Path) -> None:
    (tmp_path / "one.yaml").write_text("a: 1\nb: {x: 1, y: 1}\n")
    (tmp_path / "two.yaml").write_text("b: {y: 2, z: 2}\n")
    (tmp_path / "top.yaml").write_text("include: [one.yaml, two.yaml]\nb: {z: 3}\n")
    tree = resolve_includes(load_tree(tmp_path / "top.yaml"))
    assert tree.data == {"a": 1, "b": {"x": 1, "y": 2, "z": 3}}
    places = {path: Path(mark.file).name for path, mark in tree.values.items() if path}
    assert places[("b", "x")] == "one.yaml"
    assert places[("b", "y")] == "two.yaml"
    assert places[("b", "z")] == "top.yaml"


@pytest.mark.parametrize(
    ("top", "other", "says"),
    [
        ("include: other.yaml", "include: top.yaml", "other.yaml:1:10: include: circular include"),
        ("include: top.yaml", "", "top.yaml:1:10: include: circular include"),
        ("include: none.yaml", "", "top.yaml:1:10: include: no file .*none.yaml"),
        ("include: [other.yaml, 3]", "", "top.yaml:1:23: include.1: 3 is not the name of a file"),
    ],
)
def test_a_wrong_include_is_a_fault(tmp_path: Path, top: str, other: str, says: str) -> None:
    (tmp_path / "top.yaml").write_text(top)
    (tmp_path / "other.yaml").write_text(other or "{}")
    with pytest.raises(SourceError, match=says):
        resolve_includes(load_tree(tmp_path / "top.yaml"))


def test_one_file_may_be_included_twice_side_by_side(tmp_path: Path) -> None:
    (tmp_path / "leaf.yaml").write_text("a: 1")
    (tmp_path / "left.yaml").write_text("include: leaf.yaml")
    (tmp_path / "right.yaml").write_text("include: leaf.yaml\nb: 2")
    (tmp_path / "top.yaml").write_text("include: [left.yaml, right.yaml]")
    assert resolve_includes(load_tree(tmp_path / "top.yaml")).data == {"a": 1, "b": 2}


def test_a_setting_is_a_tree_to_lay_on_a_file() -> None:
    tree = merge(
        parse_tree("search: {method: exhaustive, seeds: 3}", "s"), setting("search.method=bound")
    )
    assert tree.data == {"search": {"method": "bound", "seeds": 3}}
    assert tree.mark(("search", "method")).file == "--set search.method=bound"
    assert setting("a=[1, 2]").data == {"a": [1, 2]}
    assert setting("a.b=").data == {"a": {"b": None}}


@pytest.mark.parametrize("text", ["a", "=3", "a..b=3", ".a=1"])
def test_what_is_no_setting_is_refused(text: str) -> None:
    with pytest.raises(SourceError, match="is not a setting, as in search.method=bound"):
        setting(text)
