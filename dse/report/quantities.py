"""What each column of a result means to a reader: its title, unit, scale and definition."""

from dataclasses import dataclass
from math import floor, isfinite, log10
from typing import Any

from dse.base.units import unit_of_name

__all__ = ["DEFINITIONS", "Quantity", "cell", "is_known", "number", "quantity"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """How a column is shown: `value · scale` in `unit`. `better` says which way is good, if any."""

    column: str
    title: str
    unit: str = ""
    scale: float = 1.0
    better: str = ""

    @property
    def label(self) -> str:
        """Title and unit, as an axis or a table head carries them."""
        return f"{self.title} ({self.unit})" if self.unit else self.title


def _q(column: str, title: str, unit: str = "", scale: float = 1.0, better: str = "") -> Quantity:
    return Quantity(column=column, title=title, unit=unit, scale=scale, better=better)


_KNOWN = {
    each.column: each
    for each in (
        _q("gpu", "GPU"),
        _q("n_gpus", "GPUs"),
        _q("layout", "layout"),
        _q("family", "layout family"),
        _q("precision", "weights / KV"),
        _q("context", "ISL / OSL", "tokens"),
        _q("point_id", "point"),
        _q("tp", "TP"),
        _q("dp", "DP"),
        _q("ep", "EP"),
        _q("moe_tp", "MoE TP"),
        _q("pp", "PP"),
        _q("cp", "CP"),
        _q("kv", "KV"),
        _q("n_replicas", "replicas"),
        _q("isl_tokens", "ISL", "tokens"),
        _q("osl_tokens", "OSL", "tokens"),
        _q("req_per_s", "offered load", "req/s"),
        _q("request_per_s", "served", "req/s", 1.0, "max"),
        _q("goodput_req_per_s", "goodput", "req/s", 1.0, "max"),
        _q("goodput_req_per_s_per_gpu", "goodput per GPU", "req/s/GPU", 1.0, "max"),
        _q("output_tok_per_s", "output", "tok/s", 1.0, "max"),
        _q("output_tok_per_s_per_gpu", "output per GPU", "tok/s/GPU", 1.0, "max"),
        _q("total_tok_per_s_per_gpu", "input + output per GPU", "tok/s/GPU", 1.0, "max"),
        _q("tok_per_s_per_user", "interactivity", "tok/s/user", 1.0, "max"),
        _q("usd_per_mtok_output", "cost of output", "USD/Mtok", 1.0, "min"),
        _q("usd_per_mtok_input", "cost of input", "USD/Mtok", 1.0, "min"),
        _q("usd_per_mtok_total", "cost of all tokens", "USD/Mtok", 1.0, "min"),
        _q("usd_per_gpu_hour", "price", "USD/GPU/h", 1.0, "min"),
        _q("joules_per_output_token", "energy per output token", "J/tok", 1.0, "min"),
        _q("joules_per_token", "energy per output token", "J/tok", 1.0, "min"),
        _q("tok_per_joule", "output per joule", "tok/J", 1.0, "max"),
        _q("slo_attainment", "SLO attainment", "%", 100.0, "max"),
        _q("mfu", "MFU", "%", 100.0, "max"),
        _q("mbu", "MBU", "%", 100.0, "max"),
        _q("kv_peak_fraction", "KV peak", "%", 100.0),
        _q("prefix_hit_fraction", "prefix hits", "%", 100.0),
        _q("gpus_needed", "GPUs needed"),
        _q("kv_bytes_freed", "KV freed", "GB", 1e-9),
        _q("n_preemptions", "preemptions"),
        _q("break_even_usd_per_gpu_hour", "break-even price", "USD/GPU/h"),
    )
}
_TEXTS = frozenset({"model", "engine", "weights", "branch", "batch", "concurrency", "feasible"})
_LATENCIES = {"ttft": "TTFT", "tpot": "TPOT", "itl": "ITL", "e2e": "E2E"}

DEFINITIONS: tuple[tuple[str, str], ...] = (
    ("TTFT", "arrival of a request to its first output token, queueing included"),
    ("TPOT", "(E2E − TTFT) / (OSL − 1) of one request; undefined for one output token"),
    ("ITL", "each gap between consecutive tokens of a request"),
    ("E2E", "arrival of a request to its last token"),
    ("goodput", "requests per second that meet every bound of the SLO at once"),
    ("attainment", "share of requests that meet every bound of the SLO at once"),
    ("interactivity", "output tokens per second that one user sees, 1 / TPOT"),
    ("concurrency", "requests in flight (closed loop)"),
    ("cost of output", "price of a GPU hour ÷ output tokens per GPU hour; input rides along"),
    ("cost of all tokens", "price of a GPU hour ÷ input and output tokens per GPU hour"),
    ("energy", "an estimate: idle + (TDP − idle) · max(MFU, MBU), of the GPUs alone"),
    ("MFU", "achieved ÷ dense peak FLOP/s, counting the model's work only"),
    ("MBU", "(weights + live KV) per step ÷ step time ÷ peak HBM bandwidth"),
    ("TP, DP, EP, PP, CP", "degrees of tensor, attention-data, expert, pipeline, context parallel"),
    ("wall", "a sound test: it removes no point that the simulator would find feasible"),
    ("screen", "a heuristic cut that the study asked for; counted apart from walls"),
    ("front", "points that no other feasible point beats in every objective"),
    ("TPOT floor", "[t_opt, t_sum]: all resources perfectly overlapped, or one after the other"),
)
"""Metric and word, as every report prints them beside its numbers."""


def quantity(column: str) -> Quantity:
    """How `column` is shown; columns that are not known go by their name's unit suffix."""
    for prefix, word in (("lo_", "low"), ("hi_", "high")):
        if column.startswith(prefix):
            inner = quantity(column.removeprefix(prefix))
            return _q(column, f"{inner.title}, {word}", inner.unit, inner.scale)
    for prefix in ("prefill_", "decode_"):
        if column.startswith(prefix) and column.removeprefix(prefix) in _KNOWN:
            inner = _KNOWN[column.removeprefix(prefix)]
            return _q(column, f"{prefix[:-1]} {inner.title}", inner.unit, inner.scale)
    if column in _KNOWN:
        return _KNOWN[column]
    if (first := column.partition("_")[0]) in _LATENCIES and column.endswith("_s"):
        return _latency(column, first)
    unit = unit_of_name(column)
    if unit is None:
        return _q(column, column.replace("_", " "))
    if unit.symbol == "s":
        return _q(column, column.removesuffix("_s").replace("_", " "), "ms", 1e3)
    if unit.symbol == "B":
        return _q(column, column.removesuffix("_bytes").replace("_", " "), "GB", 1e-9)
    return _q(column, column.removesuffix(f"_{unit.suffix}").replace("_", " "), unit.symbol)


def is_known(column: str) -> bool:
    """Whether readers ask for a column: identity, degrees, load, latencies, rates, costs, bands."""
    bare = column
    for prefix in ("lo_", "hi_", "prefill_", "decode_"):
        bare = bare.removeprefix(prefix)
    latency = bare.partition("_")[0] in _LATENCIES and bare.endswith("_s")
    return bare in _KNOWN or bare in _TEXTS or latency


def number(value: float, digits: int = 3) -> str:
    """A number as people read it: `digits` significant ones, thousands separated, no exponent."""
    if not isfinite(value):
        return "–"
    if value == 0:
        return "0"
    decimals = max(digits - 1 - floor(log10(abs(value))), 0)
    if decimals > 8:
        return f"{value:.{digits - 1}e}"
    text = f"{value:,.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def cell(column: str, value: Any) -> str:
    """A table cell in the column's own unit; `–` where there is nothing."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and quantity(column).scale == 1.0:
        return f"{value:,}"
    if isinstance(value, int | float):
        return number(value * quantity(column).scale)
    return str(value)


def _latency(column: str, first: str) -> Quantity:
    words = column.removesuffix("_s").removeprefix(f"{first}_").replace("_", " ")
    seconds = first in ("ttft", "e2e")
    unit, scale = ("s", 1.0) if seconds else ("ms", 1e3)
    return _q(column, f"{_LATENCIES[first]} {words}", unit, scale, "min")
