"""The layouts of a block: degrees, `ep: auto`, replicas and splits, with what makes one illegal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product

import polars as pl

from dse.serving.deployment import Role
from dse.serving.layout import Layout
from dse.serving.legality import Illegal, check
from dse.space.axes import Axis, Value
from dse.space.structure import DEGREES, Parts

__all__ = ["Degrees", "Lattice", "lattice", "prefix", "values_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Degrees:
    """The degrees of one role: the values of each, or `auto` for `ep`."""

    tp: tuple[int, ...]
    dp: tuple[int, ...]
    ep: tuple[int, ...] | str
    pp: tuple[int, ...]
    cp: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lattice:
    """The structural rows that blocks of one legality key share.

    `frame` has the degrees by role, `n_gpus`, the replicas by role (null where none fit), and for
    each role `_<role>`, an index into `reasons`, whose first member is empty.
    """

    frame: pl.DataFrame
    reasons: tuple[tuple[Illegal, ...], ...]


def lattice(
    parts: Parts,
    degrees: Mapping[Role, Degrees],
    n_gpus: tuple[int, ...],
    split: str | tuple[tuple[int, int], ...],
) -> Lattice:
    """Return every layout of every role on every cluster size, in the order of the axes."""
    reasons: dict[tuple[Illegal, ...], int] = {(): 0}
    frames = [_layouts(parts, role, each, reasons) for role, each in degrees.items()]
    sizes = pl.DataFrame({"n_gpus": n_gpus}, schema={"n_gpus": pl.Int64})
    joined = frames[0]
    for frame in frames[1:]:
        joined = joined.join(frame, how="cross", maintain_order="left_right")
    joined = joined.join(sizes, how="cross", maintain_order="left_right")
    placed = _together(joined) if len(frames) == 1 else _apart(joined, split)
    # Half the memory of a large lattice; whoever multiplies the columns widens them first.
    return Lattice(frame=placed.cast(pl.Int32), reasons=tuple(reasons))


def prefix(role: Role) -> str:
    """Return what the columns of a role start with."""
    return "" if role == "both" else f"{role}_"


def _layouts(
    parts: Parts, role: Role, degrees: Degrees, reasons: dict[tuple[Illegal, ...], int]
) -> pl.DataFrame:
    """Return one row a layout of `role`, illegal ones included."""
    rows = [
        (
            *(layout.tp, layout.dp, layout.ep, layout.expert_tp, layout.pp, layout.cp),
            layout.n_gpus,
            reasons.setdefault(illegal, len(reasons)),
        )
        for layout, illegal in _judged(parts, role, degrees)
    ]
    before = prefix(role)
    names = [f"{before}{name}" for name in (*DEGREES, "_replica")] + [f"_{role}"]
    return pl.DataFrame(rows, schema=dict.fromkeys(names, pl.Int64), orient="row")


def _judged(
    parts: Parts, role: Role, degrees: Degrees
) -> Iterator[tuple[Layout, tuple[Illegal, ...]]]:
    gpu, fabric, engine = parts.hardware[role]

    def judged(layout: Layout) -> tuple[Layout, tuple[Illegal, ...]]:
        model, precision = parts.model, parts.precision
        # Suggestions cost most of a check's time; whoever explains a structure asks for them.
        return layout, check(model, precision, layout, engine, gpu, fabric=fabric, suggest=False)

    for tp, dp, pp, cp in product(degrees.tp, degrees.dp, degrees.pp, degrees.cp):
        layouts = partial(Layout, tp=tp, dp=dp, pp=pp, cp=cp)
        if isinstance(degrees.ep, tuple):
            yield from (judged(layouts(ep=ep)) for ep in degrees.ep)
            continue
        found = [judged(layouts(ep=ep)) for ep in _expert_degrees(parts, tp * dp)]
        # If no ep helps, the one that breaks the fewest rules stands for all, so that the
        # combination is counted with its reasons instead of vanishing.
        least = min(found, key=lambda each: len(each[1]))
        yield from [each for each in found if not each[1]] or [least]


def _expert_degrees(parts: Parts, ranks: int) -> tuple[int, ...]:
    """Return the ways to deal experts to the ranks of a stage; one if there are no experts."""
    if not parts.model.is_moe:
        return (1,)
    return tuple(each for each in range(1, ranks + 1) if ranks % each == 0)


def _together(frame: pl.DataFrame) -> pl.DataFrame:
    """Add the replicas that fill the cluster; null where its GPUs are no whole number of them."""
    whole = (pl.col("n_gpus") % pl.col("_replica") == 0) & (pl.col("n_gpus") > 0)
    replicas = pl.when(whole).then(pl.col("n_gpus") // pl.col("_replica"))
    return frame.with_columns(replicas.alias("n_replicas"))


def _apart(frame: pl.DataFrame, split: str | tuple[tuple[int, int], ...]) -> pl.DataFrame:
    """Add the replicas of each role, one row a split; one row with nulls where none fills.

    `n_replicas` are those that hold running requests: the ones that decode.
    """
    prefill, decode = pl.col("prefill_n_replicas"), pl.col("decode_n_replicas")
    need_prefill, need_decode = pl.col("prefill__replica"), pl.col("decode__replica")
    indexed = frame.with_row_index("_row")
    if isinstance(split, str):
        most = (pl.col("n_gpus") - need_decode) // need_prefill
        counts = pl.int_ranges(1, pl.max_horizontal(most, 0) + 1).alias("prefill_n_replicas")
        tried = indexed.with_columns(counts).explode("prefill_n_replicas", empty_as_null=False)
        rest = pl.col("n_gpus") - prefill * need_prefill
        tried = tried.with_columns((rest // need_decode).alias("decode_n_replicas"))
    else:
        named = {
            "prefill_n_replicas": [p for p, _ in split],
            "decode_n_replicas": [d for _, d in split],
        }
        pairs = pl.DataFrame(named, schema=dict.fromkeys(named, pl.Int64))
        tried = indexed.join(pairs, how="cross", maintain_order="left_right")
    filled = prefill * need_prefill + decode * need_decode == pl.col("n_gpus")
    fitting = tried.filter(filled & (prefill > 0) & (decode > 0))
    lost = indexed.join(fitting, on="_row", how="anti")
    both = pl.concat([fitting, lost], how="diagonal")
    ordered = both.sort("_row", "prefill_n_replicas", maintain_order=True).drop("_row")
    return ordered.with_columns(n_replicas=decode)


def values_of(axis: Axis | str) -> tuple[int, ...] | str:
    """Return the degrees of an axis, or the word that stands for them."""
    return axis if isinstance(axis, str) else tuple(map(_whole, axis.values()))


def _whole(value: Value) -> int:
    return int(value)
