"""Two studies, runs or catalogs side by side: what moved, by how much, and which fact moved it."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from dse.base.errors import UserError
from dse.base.units import counted
from dse.report.drawn import with_words
from dse.report.layouts import label
from dse.report.quantities import number, quantity
from dse.run.identity import flat

__all__ = ["Comparison", "Side", "compare"]

STILL = 0.005
"""Relative change below which a value counts as unmoved."""

METRICS = (
    "output_tok_per_s_per_gpu",
    "goodput_req_per_s_per_gpu",
    "tpot_mean_s",
    "tpot_p99_s",
    "ttft_p99_s",
    "usd_per_mtok_output",
    "joules_per_output_token",
    "mbu",
    "mfu",
)
MOST_FACTS = 12
_WEIGHTY = ("gpu", "fabric", "precision", "host", "scheduler", "memory")
_DEGREES = ("tp", "dp", "ep", "pp", "cp", "n_replicas")
_KEYS = (
    "model",
    "gpu",
    "fabric",
    "n_gpus",
    "engine",
    "weights",
    "kv",
    *_DEGREES,
    *(f"{role}_{name}" for role in ("prefill", "decode") for name in _DEGREES),
    "isl_tokens",
    "osl_tokens",
    "batch",
    "concurrency",
    "req_per_s",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two: its results (a row a point), and where known each deployment's facts as
    canonical JSON in the column `facts` and seconds by kernel family as JSON in `step_breakdown`.
    """

    name: str
    results: pl.DataFrame
    provenance: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What moved from `a` to `b`.

    `matched`: a row a point that both have: its key, `who`, `<metric>_a`, `_b`, `_ratio`. `changed`
    are choices that differ between the sides as wholes. `only_a`, `only_b` are front members that
    the other side's front lacks. `why`: sentences, the weightiest first.
    """

    a: str
    b: str
    metrics: tuple[str, ...]
    matched: pl.DataFrame
    changed: Mapping[str, tuple[str, str]]
    only_a: pl.DataFrame
    only_b: pl.DataFrame
    why: tuple[str, ...]

    def rows(self) -> list[dict[str, Any]]:
        """One row a point and metric: who, `metric`, `a`, `b`, `ratio` (b ÷ a)."""
        return [
            {
                "who": row["who"],
                "point_id_a": row["point_id_a"],
                "point_id_b": row["point_id_b"],
                "metric": metric,
                **{each: row[f"{metric}_{each}"] for each in ("a", "b", "ratio")},
            }
            for row in self.matched.iter_rows(named=True)
            for metric in self.metrics
        ]

    def n_moved(self, metric: str) -> int:
        """Points whose `metric` changed by more than half a per cent."""
        ratio = self.matched[f"{metric}_ratio"]
        return int(((ratio - 1.0).abs() > STILL).fill_null(value=False).sum())


def compare(a: Side, b: Side) -> Comparison:
    """Match the points of `a` and `b` by what they deploy and ask, and say what moved.

    A choice of which each side has one value, and not the same (the engine, say), is what is
    compared and not part of the match. `UserError` where no point of one is a point of the other.
    """
    left, right = (_readable(each.results, each.name) for each in (a, b))
    keys = [name for name in _KEYS if name in left.columns and name in right.columns]
    changed = dict(_changed(left, right, keys))
    keys = [name for name in keys if name not in changed]
    metrics = tuple(name for name in METRICS if name in left.columns and name in right.columns)
    matched = _matched(left, right, keys, metrics)
    if matched.is_empty():
        raise UserError(
            f"{a.name} and {b.name} have no point in common",
            "compare runs that deploy alike and differ in one choice, such as GPU or engine",
        )
    names = (a.name, b.name)
    return Comparison(
        a=a.name,
        b=b.name,
        metrics=metrics,
        matched=matched,
        changed=changed,
        only_a=_front_without(left, right, keys),
        only_b=_front_without(right, left, keys),
        why=tuple(_why(matched, changed, names, (a.provenance, b.provenance))),
    )


def _readable(results: pl.DataFrame, name: str) -> pl.DataFrame:
    if results.is_empty():
        raise UserError(f"{name} has no result", "run it first")
    return with_words(results)


def _changed(
    left: pl.DataFrame, right: pl.DataFrame, keys: Iterable[str]
) -> Iterator[tuple[str, tuple[str, str]]]:
    for name in keys:
        one, two = (set(frame[name].drop_nulls()) for frame in (left, right))
        if len(one) == len(two) == 1 and one != two:
            yield name, (str(one.pop()), str(two.pop()))


def _matched(
    left: pl.DataFrame, right: pl.DataFrame, keys: list[str], metrics: tuple[str, ...]
) -> pl.DataFrame:
    held = ["point_id", "on_front", "layout", "gpu", "facts", "step_breakdown", *metrics]
    sides = []
    for frame, mark in ((left, "a"), (right, "b")):
        names = [name for name in held if name in frame.columns]
        distinct = frame.unique(keys, keep="first", maintain_order=True)
        sides.append(distinct.select(*keys, *(pl.col(n).alias(f"{n}_{mark}") for n in names)))
    joined = sides[0].join(sides[1], on=keys, how="inner", nulls_equal=True, maintain_order="left")
    ratios = [(pl.col(f"{m}_b") / pl.col(f"{m}_a")).alias(f"{m}_ratio") for m in metrics]
    who = pl.Series("who", [_who(row) for row in joined.iter_rows(named=True)], dtype=pl.String)
    found = joined.with_columns(who, *ratios)
    if not metrics:
        return found
    moved = (pl.col(f"{metrics[0]}_ratio") - 1.0).abs()
    return found.sort(moved, descending=True, nulls_last=True, maintain_order=True)


def _who(row: Mapping[str, Any]) -> str:
    """A point in a few words: GPU, layout, lengths, load."""
    parts = [str(row["gpu"]) if row.get("gpu") else "", label(row) if "tp" in row else ""]
    if not parts[1] and row.get("layout_a"):
        parts[1] = str(row["layout_a"])
    if row.get("weights"):
        parts.append(str(row["weights"]))
    if row.get("isl_tokens"):
        parts.append(f"{row['isl_tokens']}/{row['osl_tokens']}")
    for name, text in (("concurrency", "{:g} in flight"), ("req_per_s", "{:.4g} req/s")):
        if row.get(name):
            parts.append(text.format(row[name]))
    return ", ".join(part for part in parts if part)


def _front_without(frame: pl.DataFrame, other: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    if "on_front" not in frame.columns or "on_front" not in other.columns:
        return frame.clear()
    theirs = other.filter("on_front")
    return frame.filter("on_front").join(theirs, on=keys, how="anti", nulls_equal=True)


def _why(
    matched: pl.DataFrame,
    changed: Mapping[str, tuple[str, str]],
    names: tuple[str, str],
    provenance: tuple[Mapping[str, Any], Mapping[str, Any]],
) -> Iterator[str]:
    """Choices, facts, terms and versions that differ, in that order."""
    for name, (one, two) in changed.items():
        yield f"{quantity(name).title}: {one} in {names[0]}, {two} in {names[1]}"
    if "facts_a" in matched.columns and "facts_b" in matched.columns:
        yield from _facts(matched)
    if "step_breakdown_a" in matched.columns and "step_breakdown_b" in matched.columns:
        yield from _terms(matched)
    for key in ("simulator", "catalog", "versions", "study"):
        before, after = (each.get(key) for each in provenance)
        if before and after and before != after:
            yield f"{key}: {_short(before)} in {names[0]}, {_short(after)} in {names[1]}"


def _facts(matched: pl.DataFrame) -> Iterator[str]:
    """Facts of the deployments that are not what they were, by how many points they touch."""
    counts: dict[tuple[str, str, str], int] = {}
    for row in matched.select("facts_a", "facts_b").iter_rows(named=True):
        if not row["facts_a"] or not row["facts_b"] or row["facts_a"] == row["facts_b"]:
            continue
        before, after = (flat(json.loads(row[f"facts_{mark}"])) for mark in "ab")
        for path in before.keys() | after.keys():
            if before.get(path) != after.get(path):
                key = (path, _short(before.get(path)), _short(after.get(path)))
                counts[key] = counts.get(key, 0) + 1
    ordered = sorted(counts.items(), key=lambda item: (-item[1], _weight(item[0][0]), item[0]))
    for (path, one, two), n in ordered[:MOST_FACTS]:
        yield f"{path}: {one} → {two} ({n:,} of {counted(matched.height, 'point')})"
    if len(ordered) > MOST_FACTS:
        yield f"and {counted(len(ordered) - MOST_FACTS, 'fact')} more"


def _weight(path: str) -> int:
    """Facts that price a step come before those that only allow it."""
    found = [i for i, part in enumerate(_WEIGHTY) if f".{part}." in f".{path}."]
    return min(found, default=len(_WEIGHTY))


def _terms(matched: pl.DataFrame) -> Iterator[str]:
    """Kernel families by how much their share of busy time moved, over all points."""
    sums: dict[str, list[float]] = {}
    totals = [0.0, 0.0]
    for row in matched.select("step_breakdown_a", "step_breakdown_b").iter_rows(named=True):
        for index, mark in enumerate("ab"):
            for family, seconds in json.loads(row[f"step_breakdown_{mark}"] or "{}").items():
                sums.setdefault(family, [0.0, 0.0])[index] += seconds
                totals[index] += seconds
    if not all(totals):
        return
    ordered = sorted(sums.items(), key=lambda item: -abs(item[1][1] - item[1][0]))
    for family, (one, two) in ordered[:4]:
        change = (two - one) / totals[0]
        if abs(change) > STILL:
            yield (
                f"{family.replace('_', ' ')} took {100 * one / totals[0]:.0f}% of busy time and "
                f"takes {100 * two / totals[1]:.0f}%: {number(one)} s → {number(two)} s, "
                f"{100 * change:+.1f}% of all"
            )


def _short(value: object) -> str:
    text = f"{value:.6g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 60 else f"{text[:57]}…"
