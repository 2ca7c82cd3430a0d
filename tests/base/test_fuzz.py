"""Whatever text a file holds, it is read or refused: nothing else may happen."""

import json
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from dse.base.errors import Fault, SourceError, UserError
from dse.base.parse import parse_tree
from dse.base.source import build
from dse.base.units import UNITS, parse, replace_quantities
from tests.base.test_source import Study

TEXT = st.text(st.characters(min_codepoint=32, max_codepoint=0xD7FF), max_size=12)
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    [*"~-#|@`%\t\n'\"{}[]é\x85", "\n  ", "- ", ": ", ", ", "&a ", "*a", "!t "]
) | (
    st.sampled_from(["gpus", "attention", "where", "kind", "gqa", "mla", "name", "hbm", "80 GB"])
    | st.sampled_from(["peak", "bf16", "? ", "1e3", ".inf"])
)


def faults(text: str) -> tuple[Fault, ...]:
    """Return what is wrong with the text, nothing if it is read."""
    try:
        build(parse_tree(text, "t"), Study)
    except SourceError as error:
        return error.faults or (Fault("", 0, 0, "", "an error without a fault"),)
    return ()


@given(PLAIN)
def test_json_reads_as_itself(value: object) -> None:
    assert parse_tree(json.dumps(value), "t").data == value


@given(st.lists(WORDS, max_size=30).map("".join))
@example("{: }")
@example("? {a: 1}\n: 2")
@example("&a {a: *a}")
@example("[" * 600)
def test_any_text_is_read_or_refused_with_places(text: str) -> None:
    for fault in faults(text):
        assert fault.file == "t"
        assert 1 <= fault.line <= text.count("\n") + text.count("\x85") + 2
        assert fault.column >= 1


@given(PLAIN)
def test_any_data_is_read_or_refused(value: object) -> None:
    data = {"gpus": [value], "where": value, "attention": value}
    assert all(fault.file == "t" for fault in faults(json.dumps(data)))


@given(st.text(st.sampled_from("0123456789.eE+- GBkKiTMmµs/hUSDWtoqrF'()"), max_size=14))
@example("1e99999 GB")
@example("1e-99999 GB")
@example("9e400 s")
def test_any_quantity_is_a_finite_number_or_refused(text: str) -> None:
    replace_quantities(text)
    for unit in UNITS.values():
        with suppress(UserError):
            assert 0 <= parse(text, unit) < float("inf")
