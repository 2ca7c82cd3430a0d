"""YAML → records: what is read, and every fault of a file at its place."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import AfterValidator, ValidationInfo

from dse.base.errors import CatalogError, SourceError
from dse.base.family import Family
from dse.base.keys import Key
from dse.base.parse import parse_tree
from dse.base.source import build, read, read_text, schema
from dse.base.units import (
    Bytes,
    BytesPerSecond,
    FlopPerSecond,
    Fraction,
    ReqPerSecond,
    Seconds,
    Tokens,
    UsdPerHour,
)


class DType(Enum):
    BF16 = "bf16"
    FP8 = "fp8"


class Attention:
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class GQA(Attention):
    n_kv_heads: int
    window_tokens: Tokens = 0
    kind: Literal["gqa"] = "gqa"


@dataclass(frozen=True, slots=True, kw_only=True)
class MLA(Attention):
    rank: int = 512
    kind: Literal["mla"] = "mla"


ATTENTIONS = Family(__name__, Attention)


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    name: str
    hbm_bytes: Bytes
    hbm_bytes_per_s: Annotated[BytesPerSecond, Key("hbm_bandwidth")]
    peak_flop_per_s: Mapping[DType, FlopPerSecond] = field(default_factory=dict)
    latency_s: Seconds | None = None
    share: Fraction = 0.5
    ratio: float = 1.0
    is_new: bool = False

    def __post_init__(self) -> None:
        if self.name == "forbidden":
            raise CatalogError("the name is forbidden", "take another")


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    gpus: tuple[GPU, ...] = ()
    attention: Annotated[Attention, ATTENTIONS] = field(default_factory=MLA)
    others: tuple[Annotated[Attention, ATTENTIONS], ...] = ()
    where: str | list[str] | GQA = ""


def faults(text: str, record: type = Study) -> list[str]:
    with pytest.raises(SourceError) as error:
        read_text(text, record, "s.yaml")
    return [str(fault).removeprefix("s.yaml:") for fault in error.value.faults]


def test_a_record_holds_si() -> None:
    gpu = read_text(
        "{name: x, hbm: 80 GB, hbm_bandwidth: 4.8 TB/s, peak: {bf16: 989 TFLOP/s}, latency: 33 us,"
        " share: 90%, ratio: 2}",
        GPU,
    )
    assert gpu == GPU(
        name="x",
        hbm_bytes=80e9,
        hbm_bytes_per_s=4.8e12,
        peak_flop_per_s={DType.BF16: 989e12},
        latency_s=33e-6,
        share=0.9,
        ratio=2.0,
    )
    assert type(gpu.ratio) is float


def test_a_key_that_names_its_unit_takes_a_bare_number() -> None:
    @dataclass(frozen=True, slots=True, kw_only=True)
    class Load:
        req_per_s: tuple[ReqPerSecond, ...] = ()
        usd_per_hour: UsdPerHour = 0.0
        bytes_per_s: Annotated[BytesPerSecond | None, Key("bandwidth")] = None

    load = read_text("{req_per_s: [200, 480 req/min], usd_per_hour: 2.5}", Load)
    assert load == Load(req_per_s=(200.0, 8.0), usd_per_hour=2.5)
    assert read_text("{}", Load) == Load()
    assert read_text("usd_per_hour: 2.10 USD/h", Load).usd_per_hour == 2.1
    assert faults("{req_per_s: [true], usd_per_hour: -1, bandwidth: 3}", Load) == [
        "1:14: req_per_s.0: True is no quantity; a request rate needs a unit, as in '8 req/s'",
        "1:35: usd_per_hour: '-1 USD/h': a price per hour is never negative",
        "1:50: bandwidth: 3 is a bare number; a bandwidth needs a unit, as in '4.8 TB/s'",
    ]


def test_a_part_is_read_by_its_kind_or_its_bare_name() -> None:
    study = read_text("{attention: {kind: gqa, n_kv_heads: 8, window: 8Ki}, others: [mla]}", Study)
    assert study.attention == GQA(n_kv_heads=8, window_tokens=8192)
    assert study.others == (MLA(),)


@pytest.mark.parametrize(
    ("where", "value"),
    [("a", "a"), ("[a, b]", ["a", "b"]), ("{n_kv_heads: 2}", GQA(n_kv_heads=2))],
)
def test_a_union_takes_any_of_its_forms(where: str, value: object) -> None:
    assert read_text(f"where: {where}", Study).where == value


def test_all_faults_of_a_file_are_reported_at_once_with_their_places() -> None:
    assert faults(
        "gpus:\n"
        "- {name: 3, hbm: 80, hbm_bandwith: 4.8 TB/s, is_new: 1}\n"
        "- {name: b, hbm: 80 GB, hbm_bandwidth: 4.8 TB, peak: {bf17: 1 TFLOP/s}, ratio: .nan}\n"
        "attention: {kind: gqa, n_kv_heads: '8', windw: 3}\n"
        "others: [mlaa, {rank: 3}, {kind: mla, rank: }]\n"
        "atention: mla\n"
        "gpus: []\n"
        "zzz: 1\n"
    ) == [
        "2:3: gpus.0.hbm_bandwidth: required key is missing",
        "2:10: gpus.0.name: needs text, not 3",
        "2:18: gpus.0.hbm: 80 is a bare number; a size needs a unit, as in '80 GB'",
        "2:22: gpus.0.hbm_bandwith: unknown key; did you mean hbm_bandwidth?",
        "2:54: gpus.0.is_new: needs true or false, not 1",
        "3:40: gpus.1.hbm_bandwidth: 'TB' in '4.8 TB' is a unit of another dimension; "
        "a bandwidth looks like '4.8 TB/s'",
        "3:55: gpus.1.peak.bf17: 'bf17' is not allowed; did you mean bf16?",
        "3:80: gpus.1.ratio: needs a finite number, not nan",
        "4:36: attention.n_kv_heads: needs a whole number, not '8'",
        "4:41: attention.windw: unknown key; did you mean window?",
        "5:10: others.0: no kind 'mlaa'; did you mean mla?",
        "5:16: others.1: needs a `kind`; one of gqa, mla",
        "5:45: others.2.rank: needs a whole number, not nothing",
        "6:1: atention: unknown key; known: attention, gpus, others, where",
        "7:1: gpus: duplicate key, first on line 1",
        "8:1: zzz: unknown key; known: attention, gpus, others, where",
    ]


def test_a_union_reports_the_branch_that_was_meant() -> None:
    assert faults("where: {n_kv_heds: 2}") == [
        "1:8: where.n_kv_heads: required key is missing",
        "1:9: where.n_kv_heds: unknown key; did you mean n_kv_heads?",
    ]
    assert faults("where: 3") == [
        "1:8: where: needs text, not 3; or needs a list, not 3; "
        "or needs a mapping of keys to values, not 3"
    ]


def test_an_error_of_a_record_is_a_fault_where_the_record_stands() -> None:
    text = "gpus:\n  - {name: forbidden, hbm: 1 GB, hbm_bandwidth: 1 TB/s}\n"
    assert faults(text) == ["2:5: gpus.0: the name is forbidden (take another)"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "1:1: needs a mapping of keys to values, not nothing"),
        ("[]", "1:1: needs a mapping of keys to values, not a list"),
        ("3: x", "1:1: 3: unknown key; known: attention, gpus, others, where"),
        ("gpus: {}", "1:7: gpus: needs a list, not a mapping"),
        ("attention: 3", "1:12: attention: needs a mapping of keys to values, not 3"),
    ],
)
def test_the_wrong_shape_is_a_fault(text: str, says: str) -> None:
    assert faults(text) == [says]


def test_a_duplicate_key_alone_fails_the_file() -> None:
    assert faults("where: a\nwhere: a\n") == ["2:1: where: duplicate key, first on line 1"]


def test_a_part_of_a_tree_is_read_with_its_place_in_the_whole() -> None:
    tree = parse_tree("a:\n  b: {kind: gqa, n_kv_heads: 8}\n  c: {rank: x}\n", "s.yaml")
    assert build(tree, GQA, ("a", "b")) == GQA(n_kv_heads=8)
    with pytest.raises(SourceError, match=r"s.yaml:3:13: a.c.rank: needs a whole number, not 'x'"):
        build(tree, MLA, ("a", "c"))


def test_a_file_is_read_with_its_includes(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("attention: {kind: gqa, n_kv_heads: 8}\n")
    (tmp_path / "top.yaml").write_text("include: base.yaml\nattention: {n_kv_heads: 4}\n")
    assert read(tmp_path / "top.yaml", Study).attention == GQA(n_kv_heads=4)


def test_context_reaches_the_validators_of_a_field() -> None:
    def known(name: str, info: ValidationInfo) -> str:
        names: Any = info.context["names"]
        if name not in names:
            raise ValueError(f"no GPU {name!r}")
        return name

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Named:
        gpu: Annotated[str, AfterValidator(known)]

    assert read_text("gpu: a", Named, context={"names": ["a"]}).gpu == "a"
    with pytest.raises(SourceError, match=r"<text>:1:6: gpu: no GPU 'b'"):
        read_text("gpu: b", Named, context={"names": ["a"]})


def test_faults_of_a_file_read_on_the_way_keep_their_own_place() -> None:
    def nested(text: str) -> GQA:
        return read_text(text, GQA, "inner.yaml")

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Outer:
        inner: Annotated[Any, AfterValidator(nested)]

    with pytest.raises(SourceError) as error:
        read_text("inner: '{n_kv_heads: x}'", Outer, "outer.yaml")
    assert str(error.value) == "inner.yaml:1:14: n_kv_heads: needs a whole number, not 'x'"


def test_a_schema_for_editors_knows_keys_units_and_kinds() -> None:
    document = schema(Study)
    gpu = document["$defs"]["GPU"]
    assert sorted(gpu["properties"]) == [
        "hbm", "hbm_bandwidth", "is_new", "latency", "name", "peak", "ratio", "share",
    ]  # fmt: skip
    assert gpu["required"] == ["name", "hbm", "hbm_bandwidth"]
    assert gpu["additionalProperties"] is False
    assert gpu["properties"]["hbm"]["examples"] == ["80 GB"]
    names, parts = document["properties"]["attention"]["anyOf"]
    assert names["enum"] == ["gqa", "mla"]
    assert sorted(parts["discriminator"]["mapping"]) == ["gqa", "mla"]
