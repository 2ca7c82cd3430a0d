"""Quantities: what is read, what is refused, what people see."""

import fractions
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.base import quantities
from dse.base.errors import UserError
from dse.base.units import (
    UNITS,
    Bytes,
    BytesPerSecond,
    Count,
    FlopPerSecond,
    Fraction,
    Hertz,
    Joules,
    OpPerSecond,
    Percent,
    ReqPerSecond,
    Seconds,
    Tokens,
    TokPerSecond,
    Usd,
    UsdPerHour,
    UsdPerKwh,
    Watts,
    parse,
    replace_quantities,
    show,
    unit_of,
    unit_of_name,
)


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("80 GB", Bytes, 80e9),
        ("80GiB", Bytes, 80 * 2**30),
        ("46.80 GiB", Bytes, 46.8 * 2**30),
        ("8 Gb", Bytes, 1e9),
        ("4.8 TB/s", BytesPerSecond, 4.8e12),
        ("400 Gb/s", BytesPerSecond, 50e9),
        ("989 TFLOP/s", FlopPerSecond, 989e12),
        ("2.5 PFLOP/s", FlopPerSecond, 2.5e15),
        ("4 Top/s", OpPerSecond, 4e12),
        ("33 us", Seconds, 33e-6),
        ("33µs", Seconds, 33e-6),  # the micro sign
        ("33 μs", Seconds, 33e-6),  # the Greek letter
        ("25 ms", Seconds, 25e-3),
        ("2 min", Seconds, 120.0),
        ("1e3 ms", Seconds, 1.0),
        (".5 s", Seconds, 0.5),
        ("700 W", Watts, 700.0),
        ("1 kWh", Joules, 3.6e6),
        ("1.98 GHz", Hertz, 1.98e9),
        ("42000 USD", Usd, 42000.0),
        ("2.10 USD/h", UsdPerHour, 2.1),
        ("48 USD/d", UsdPerHour, 2.0),
        ("0.09 USD/kWh", UsdPerKwh, 0.09),
        ("90 USD/MWh", UsdPerKwh, 0.09),
        ("8 req/s", ReqPerSecond, 8.0),
        ("480 req/min", ReqPerSecond, 8.0),
        ("2 ktok/s", TokPerSecond, 2000.0),
    ],
)
def test_a_quantity_is_the_float_nearest_to_its_value(
    text: str, unit: object, value: float
) -> None:
    assert parse(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "says"),
    [
        ("80", Bytes, "a size needs '80 GB'"),
        ("", Bytes, "not a quantity"),
        ("3 * 4 GB", Bytes, "not a quantity"),
        ("80 GB + 1 GB", Bytes, "not a quantity"),
        ("$2/h", UsdPerHour, "not a quantity"),
        ("2 $/h", UsdPerHour, "not a quantity"),
        ("inf GB", Bytes, "not a quantity"),
        ("nan s", Seconds, "not a quantity"),
        ("1,000 GB", Bytes, "not a quantity"),
        ("80 GB/s/s", BytesPerSecond, "not a quantity"),
        ("-3 GB", Bytes, "never negative"),
        ("80 gb", Bytes, "an unknown unit"),
        ("80 KB", Bytes, "an unknown unit"),
        ("80 gilbert", Bytes, "an unknown unit"),
        ("4.8 TB", BytesPerSecond, "another dimension; a bandwidth looks like '4.8 TB/s'"),
        ("989 TFLOPs", FlopPerSecond, "another dimension"),
        ("8 Hz", ReqPerSecond, "another dimension"),
        ("25 ms", Bytes, "another dimension"),
    ],
)
def test_anything_else_is_refused_with_an_example(text: str, unit: object, says: str) -> None:
    with pytest.raises(UserError) as error:
        parse(text, unit)
    assert says in str(error.value)
    assert error.value.exit_code == 2


@pytest.mark.parametrize("value", [80, 0, 80.0, True, None, ["80 GB"]])
def test_a_bare_number_names_the_unit_it_needs(value: object) -> None:
    with pytest.raises(UserError, match="a size needs a unit, as in '80 GB'"):
        UNITS["B"].read(value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (4.8e12, BytesPerSecond, "4.8 TB/s"),
        (80e9, Bytes, "80 GB"),
        (80 * 2**30, Bytes, "85.9 GB"),
        (33e-6, Seconds, "33 µs"),
        (0.0, Seconds, "0 s"),
        (1234.0, Seconds, "1234 s"),
        (3e-12, Seconds, "0.003 ns"),
        (999.96e9, Bytes, "1 TB"),
        (999.4e9, Bytes, "999 GB"),
        (2.1, UsdPerHour, "2.1 USD/h"),
        (0.0912, UsdPerKwh, "0.0912 USD/kWh"),
        (42123.4, Usd, "42123 USD"),
        (math.inf, Seconds, "inf s"),
        (-25e-3, Seconds, "-25 ms"),
    ],
)
def test_show_picks_the_prefix_people_use(value: float, unit: object, text: str) -> None:
    assert show(value, unit) == text


def test_show_takes_more_digits() -> None:
    assert show(80 * 2**30, Bytes, digits=6) == "85.8993 GB"


@given(
    st.sampled_from(sorted(UNITS)),
    st.floats(min_value=1e-9, max_value=1e18, allow_nan=False),
)
def test_what_is_shown_can_be_read_again(symbol: str, value: float) -> None:
    unit = UNITS[symbol]
    assert parse(show(value, unit), unit) == pytest.approx(value, rel=5.001e-3)


@pytest.mark.parametrize("symbol", sorted(UNITS))
def test_each_unit_reads_its_own_example(symbol: str) -> None:
    unit = UNITS[symbol]
    assert unit.read(unit.example) > 0


@pytest.mark.parametrize(
    ("value", "count"),
    [(8192, 8192), ("8Ki", 8192), ("8 Ki", 8192), ("8k", 8000), ("1.5k", 1500), ("2M", 2_000_000),
     (1e3, 1000), (0, 0), ("4.1k", 4100)],
)  # fmt: skip
def test_counts_may_be_written_short(value: object, count: int) -> None:
    unit = unit_of(Tokens)
    assert unit is not None
    assert unit.read(value) == count


@pytest.mark.parametrize("value", ["8kB", "k", 8.5, "1.0001k", -1, True, None, math.inf, math.nan])
def test_what_is_no_count_is_refused(value: object) -> None:
    unit = unit_of(Count)
    assert unit is not None
    with pytest.raises(UserError, match="is not a count"):
        unit.read(value)


@pytest.mark.parametrize(
    ("annotation", "value", "share"),
    [(Fraction, 0.9, 0.9), (Fraction, "90%", 0.9), (Fraction, "2 %", 0.02), (Fraction, 1, 1.0),
     (Percent, "150%", 1.5)],
)  # fmt: skip
def test_shares_may_be_written_in_percent(annotation: object, value: object, share: float) -> None:
    unit = unit_of(annotation)
    assert unit is not None
    assert unit.read(value) == share


@pytest.mark.parametrize("value", [1.1, "101%", -0.1, "0.9", True, math.nan, None])
def test_what_is_no_share_is_refused(value: object) -> None:
    unit = unit_of(Fraction)
    assert unit is not None
    with pytest.raises(UserError, match="is not a share from 0 to 1"):
        unit.read(value)


@pytest.mark.parametrize(
    ("where", "replaced"),
    [
        ("hbm >= 90 GB", "hbm >= 90000000000.0e0"),
        ("tpot <= 50 ms", "tpot <= 0.05e0"),
        ("latency < 33us", "latency < 3.3e-05"),
        ("price < 2 USD/h", "price < 2.0e0"),
        ("bandwidth >= 400 Gb/s", "bandwidth >= 50000000000.0e0"),
        ("hbm > 90 GB/tp", "hbm > 90000000000.0e0/tp"),
        ("isl <= 8Ki and osl <= 1k", "isl <= 8192 and osl <= 1000"),
        ("gpu = 'mine 80 GB'", "gpu = 'mine 80 GB'"),
        (
            "tp * 2 and pp between 1 and 2 or x in (1, 2)",
            "tp * 2 and pp between 1 and 2 or x in (1, 2)",
        ),
        ("case when 1 then 2 else 3 end", "case when 1 then 2 else 3 end"),
        ("a_80 GB", "a_80 GB"),
        ("n > 90 XB", "n > 90 XB"),
        ("1 is not null and 3 like 4 div 5 mod 6", "1 is not null and 3 like 4 div 5 mod 6"),
    ],
)
def test_quantities_in_a_where_clause_become_si(where: str, replaced: str) -> None:
    assert replace_quantities(where) == replaced


@pytest.mark.parametrize(
    ("name", "symbol"),
    [("hbm_bytes", "B"), ("hbm_bytes_per_s", "B/s"), ("ttft_p99_s", "s"), ("usd_per_hour", "USD/h"),
     ("output_tok_per_s", "tok/s"), ("req_per_s", "req/s")],
)  # fmt: skip
def test_a_column_name_tells_its_unit(name: str, symbol: str) -> None:
    assert unit_of_name(name) is UNITS[symbol]


def test_a_name_without_a_unit_has_none() -> None:
    assert unit_of_name("n_gpus") is None
    assert unit_of(int) is None
    with pytest.raises(TypeError, match="carries no unit"):
        show(1.0, int)


TARGETS = ("s", "B", "B/s", "b", "Hz", "W", "FLOP/s", "op/s", "USD/h", "tok/s", "h")


@pytest.mark.parametrize("target", TARGETS)
def test_prefixes_need_no_algebra_and_say_what_it_says(target):
    registry = quantities._registry()
    units = {target, target.replace("B", "b")}
    for symbol in (prefix + unit for prefix in quantities._ANY_PREFIX for unit in units):
        exact = registry.Quantity(fractions.Fraction(1), symbol).to(target).magnitude
        assert quantities._scaled(symbol, target) in {exact, None}
        assert quantities.factor(symbol, target) == exact
    assert quantities._scaled("ks", "B") is None
    assert quantities.factor("min", "s") == 60
