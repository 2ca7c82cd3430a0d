"""Each form of an axis: its values, worked by hand, and what it refuses."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.base.errors import SourceError, SpaceError
from dse.base.source import read_text
from dse.base.units import UNITS
from dse.space.axes import AXES, Choice, Numbers, Quantities
from dse.space.axes.log import Log
from dse.space.axes.powers import Powers
from dse.space.axes.span import Span


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A record with one axis of counts and one of quantities."""

    tp: Numbers
    hbm: Quantities | None = None


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("3", (3,)),
        ("[1, 2, 8Ki]", (1, 2, 8192)),
        ("{powers_of: 2, to: 16}", (1, 2, 4, 8, 16)),
        ("{powers_of: 2, from: 3, to: 20}", (4, 8, 16)),
        ("{from: 8, to: 30, step: 8}", (8, 16, 24)),
        ("{from: 8, to: 8, step: 1}", (8,)),
        ("{log: [1, 1k], per_decade: 1}", (1, 10, 100, 1000)),
        ("{log: [1, 1000], per_decade: 2}", (1, 3, 10, 32, 100, 316, 1000)),
        ("{log: [1, 1024], per_decade: 1}", (1, 10, 100, 1000, 1024)),
        ("{log: [7, 7], per_decade: 5}", (7,)),
    ],
)
def test_the_values_of_each_form(text, values):
    assert read_text(f"tp: {text}", Record).tp.values() == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[]", "<t>:1:5: tp: the axis is empty"),
        ("[2, 2]", "<t>:1:5: tp: the axis repeats 2"),
        ("{from: 8, to: 4, step: 1}", "<t>:1:5: tp: the range from 8 to 4 is empty"),
        ("{from: 1, to: 4, step: 0}", "0 is not from 1 to 1e+12"),
        ("{powers_of: 2, from: 5, to: 7}", "no power of 2 lies from 5 to 7"),
        ("{powers_of: 1, to: 7}", "powers of 1 do not grow"),
        ("{log: [0, 7], per_decade: 3}", "0 is not from 1 to 1e+12"),
        ("{log: [1, 7], per_decade: 0}", "0 values per decade are none"),
        ("{powers_of: 2, too: 7}", "<t>:1:20: tp.too: unknown key; did you mean to?"),
        ("{powers: 2, to: 7}", "<t>:1:6: tp.powers: unknown key; did you mean powers_of?"),
        ("[1, -2]", "<t>:1:9: tp.1: -2 is not a count"),
        ("[1, 2.5]", "<t>:1:9: tp.1: 2.5 is not a count"),
        ("0", "0 is not from 1 to 1e+12"),
        ("{from: 1, to: 1G, step: 1}", "the range has 1e+09 values, more than 1e+06"),
        ("{log: [1, 10], per_decade: 10000000}", "the range has 1e+07 values"),
        ("eight", "'eight' is not a count"),
    ],
)
def test_what_an_axis_refuses(text, message):
    with pytest.raises(SourceError) as raised:
        read_text(f"tp: {text}", Record, "<t>")
    assert message in str(raised.value)


def test_quantities_are_read_once_the_unit_is_known():
    axis = read_text("{tp: 1, hbm: {from: 80 GB, to: 0.12 TB, step: 20 GB}}", Record).hbm
    assert axis.read(UNITS["B"].read).values() == (80e9, 100e9, 120e9)


def test_rates_need_steps_and_bounds_above_zero():
    with pytest.raises(SpaceError, match=r"step is 0\.0; it must be above 0"):
        Span(start=0.5, stop=2.0, step=0.0).read(float)
    with pytest.raises(SpaceError, match=r"a logarithmic axis cannot start at 0\.0"):
        Log(bounds=(0.0, 2.0), per_decade=3).read(float)


def test_a_range_of_names_is_refused():
    axis = Span(start="a", stop="b", step="c")
    with pytest.raises(SpaceError, match="a range needs numbers"):
        axis.read(str)


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 50))
def test_a_span_is_what_range_says(start, more, step):
    stop = start + more
    assert Span(start=start, stop=stop, step=step).values() == tuple(range(start, stop + 1, step))


@given(st.integers(2, 5), st.integers(1, 100), st.integers(0, 5000))
def test_powers_are_all_those_between_the_bounds(base, start, more):
    values = Powers(base=base, start=start, stop=start + more).values()
    assert set(values) == {base**k for k in range(20) if start <= base**k <= start + more}


@given(st.integers(1, 100), st.integers(0, 100_000), st.integers(1, 40))
def test_log_values_ascend_between_the_bounds(low, more, per_decade):
    values = Log(bounds=(low, low + more), per_decade=per_decade).values()
    assert list(values) == sorted(set(values))
    assert (values[0], values[-1]) == (low, low + more)


def test_each_form_but_the_list_has_a_key_of_its_own():
    keys = [form.key() for form in AXES.values() if form is not Choice]
    assert None not in keys
    assert len(set(keys)) == len(keys)
