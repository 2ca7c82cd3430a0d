"""Canonical text and ids: golden vectors, and what must not matter."""

import subprocess
import sys
from dataclasses import dataclass, field
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.base.digest import canonical, digest


class Colour(Enum):
    RED = "red"


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    size: float
    kind: str = "part"
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Other:
    size: float
    kind: str = "part"


def test_golden_text() -> None:
    value = {"b": (1, 2.5, None), "a": Part(size=8), 3: True, "c": Colour.RED, "d": {2, 1}}
    assert canonical(value) == (
        '{"3":true,"a":{"":"Part","kind":"part","size":8},"b":[1,2.5,null],"c":"red","d":[1,2]}'
    )


def test_golden_digests() -> None:
    # blake2b-128 of a text: `printf abc | b2sum -l 128`
    assert digest("abc") == "cf4ab791c62b8d2b2109c90275287816"
    assert digest(["abc"]) == digest('["abc"]')
    assert len(digest("abc", size=8)) == 16


@pytest.mark.parametrize(
    ("one", "same"),
    [
        (Part(size=8), Part(size=8.0)),
        (Part(size=8, note="mine"), Part(size=8, note="yours")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([1, 2], (1, 2)),
        (-0.0, 0),
        (1e18, 10**18),
        (0.1 + 0.2, 0.30000000000000004),
    ],
)
def test_what_is_equal_reads_equal(one: object, same: object) -> None:
    assert digest(one) == digest(same)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, "1"),
        (None, "null"),
        (Part(size=8), Other(size=8)),
        ([1, [2]], [[1], 2]),
        (0.1, 0.2),
    ],
)
def test_what_differs_reads_differently(one: object, other: object) -> None:
    assert canonical(one) != canonical(other)


@given(st.floats(allow_nan=False))
def test_no_float_loses_a_digit(value: float) -> None:
    assert float(canonical(value).strip('"')) == value


def test_what_has_no_canonical_text_is_refused() -> None:
    with pytest.raises(ValueError, match="NaN"):
        canonical([float("nan")])
    with pytest.raises(TypeError, match="object"):
        canonical({"x": object()})
    with pytest.raises(TypeError, match="type"):
        canonical(Part)


def test_ids_agree_between_processes() -> None:
    script = "from dse.base.digest import digest; print(digest({'a', 'b', 'c', 'd'}))"
    runs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert runs == {digest({"a", "b", "c", "d"}) + "\n"}
