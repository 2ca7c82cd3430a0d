"""Which YAML key fills which field."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

import pytest

from dse.base.errors import DseError
from dse.base.keys import Key, units_in_keys, yaml_keys
from dse.base.units import (
    Bytes,
    BytesPerSecond,
    Count,
    FlopPerSecond,
    ReqPerSecond,
    Seconds,
    Tokens,
)


@dataclass(frozen=True)
class Record:
    name: str
    hbm_bytes: Bytes
    hbm_bytes_per_s: Annotated[BytesPerSecond, Key("hbm_bandwidth")]
    peak_flop_per_s: Mapping[str, FlopPerSecond]
    req_per_s: ReqPerSecond
    window_tokens: Tokens | None
    delays_s: tuple[Seconds, ...]
    max_tokens: Count
    elapsed_s: float
    derived_s: Seconds = field(init=False)


def test_a_key_is_the_name_without_the_unit_that_the_field_carries() -> None:
    assert dict(yaml_keys(Record)) == {
        "name": "name",
        "hbm_bytes": "hbm",
        "hbm_bytes_per_s": "hbm_bandwidth",
        "peak_flop_per_s": "peak",
        "req_per_s": "req_per_s",
        "window_tokens": "window",
        "delays_s": "delays",
        "max_tokens": "max_tokens",
        "elapsed_s": "elapsed_s",
    }


def test_a_key_may_name_its_unit_itself() -> None:
    assert {name: unit.symbol for name, unit in units_in_keys(Record).items()} == {
        "req_per_s": "req/s"
    }


def test_two_fields_of_one_key_are_a_defect() -> None:
    @dataclass(frozen=True)
    class Twice:
        hbm_bytes: Bytes
        hbm_bytes_per_s: BytesPerSecond

    with pytest.raises(DseError, match=r"hbm_bytes and hbm_bytes_per_s both read hbm.*a Key"):
        yaml_keys(Twice)
