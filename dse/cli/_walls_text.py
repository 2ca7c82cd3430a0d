"""How `dse walls` shows what it found in a terminal: tables, and bars of where time goes."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from dse.base.units import UNITS
from dse.base.units import show as quantity
from dse.cli._output import console

GIB = 2.0**30
COLOURS = {"hbm": "cyan", "flop": "magenta", "sfu": "magenta", "network": "yellow"}
STEPS = (("decode", "n_requests"), ("prefill", "new_tokens"))


def show(found: Mapping[str, Any]) -> None:
    """Print what `describe` or `fewest_gpus` found."""
    out = console()
    if "min_gpus" in found:
        out.print(_fewest(found))
        return
    out.print(_title(found))
    for reason in found["illegal_reasons"]:
        out.print(Text(f"  ✗ {reason}", style="red"))
    if found["memory"] is None:
        return
    out.print(_memory(found["memory"]))
    if found["steps"] is None:
        return
    for name, size in STEPS:
        out.print(_step(name, found["steps"][name], size, out))
    out.print(_order(found))
    out.print(_elasticities(found["elasticities"]))


def _title(found: Mapping[str, Any]) -> Text:
    replicas = f", {found['n_replicas']} replicas" if found["n_replicas"] > 1 else ""
    title = Text(f"{found['model']} on {found['n_gpus']} × {found['gpu']}", style="bold")
    title.append(f", {found['layout']}{replicas}, {found['engine']}: ", style="not bold")
    verdict = "fits" if found["legal"] else "does not start"
    return title.append(verdict, style="green" if found["legal"] else "red")


def _memory(memory: Mapping[str, Any]) -> Group:
    table = Table("memory of the heaviest rank", "GB", "GiB", box=None, pad_edge=False)
    rows = [("weights", memory["weight_bytes_per_gpu"])]
    rows += [(f"overhead: {name}", size) for name, size in memory["overheads"].items() if size]
    rows.append(("KV pool", memory["kv_pool_bytes_per_gpu"]))
    rows.append(("one request", memory["kv_bytes_per_request"]))
    for name, size in rows:
        table.add_row(name, f"{size / 1e9:.2f}", f"{size / GIB:.2f}")
    tokens = f"{memory['kv_pool_tokens']:,} tokens = {memory['n_blocks']:,} blocks of "
    tokens += f"{memory['block_tokens']} in one engine rank; {memory['b_max']:,} requests at once"
    per_token = f"KV: {memory['kv_bytes_per_token']:,.0f} B a token"
    for window in memory["kv_windows"]:
        per_token += f" + {window['bytes_per_token']:,.0f} B up to {window['window_tokens']:,}"
    if memory["kv_fixed_bytes_per_request"]:
        per_token += f" + {memory['kv_fixed_bytes_per_request']:,.0f} B a request"
    margin = f"{memory['verdict']}: {memory['margin_gib']:+.2f} GiB beyond one request"
    lines = (tokens, per_token, margin, f"({memory['definition']})")
    return Group(Padding(table, (0, 0, 0, 2)), *(Text(f"  {line}") for line in lines), Text())


def _step(name: str, step: Mapping[str, Any], size: str, out: Console) -> Group:
    unit = {"n_requests": "requests", "new_tokens": "new tokens"}[size]
    title = Text(f"{name}, {step[size]:,} {unit}: ", style="bold")
    title.append(f"{_time(step['t_opt_s'])} to {_time(step['t_sum_s'])}", style="bold")
    title.append(f", {step['binding']} binds", style="not bold")
    table = Table("resource", "term", "amount", "time", "", box=None, pad_edge=False)
    width = max(10, min(60, out.width - 60))
    longest = max((term["seconds"] for term in step["terms"]), default=0.0) or 1.0
    for term in _largest(step["terms"]):
        resource = term["resource"].replace("_", " ")
        bar = Text("█" * max(1, round(width * term["seconds"] / longest)))
        bar.stylize(COLOURS.get(resource.split()[0], "white"))
        amount = _amount(term["amount"], term["unit"])
        table.add_row(resource, term["name"], amount, _time(term["seconds"]), bar)
    note = [Text(f"  ({step['note']})")] if step.get("note") else []
    return Group(title, Padding(table, (0, 0, 0, 2)), *note, Text())


def _largest(terms: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Terms of at least a thousandth of the longest, longest first."""
    ranked = sorted(terms, key=lambda term: -float(term["seconds"]))
    yield from (term for term in ranked if term["seconds"] >= 1e-3 * ranked[0]["seconds"])


def _order(found: Mapping[str, Any]) -> Group:
    order = " → ".join(f"{each['wall']} at {each['concurrency']:,}" for each in found["wall_order"])
    lines = [Text(f"walls as requests of one replica grow: {order}")]
    ceiling = found["goodput_ceiling_tok_per_s_per_gpu"]
    ridge = found["ridge_flop_per_byte"]
    tail = f"ceiling {ceiling:,.0f} tok/s per GPU"
    if ridge is not None:
        tail += f"; ridge {ridge:,.0f} FLOP/B, GEMMs cross it at batch "
        tail += f"{found['gemm_ridge_batch']:,.0f}"
    lines.append(Text(f"{tail}; TTFT floor {_time(found['ttft_floor_s'])}"))
    return Group(*lines, Text())


def _elasticities(rows: Sequence[Mapping[str, Any]]) -> Table:
    table = Table("1% more of", "ceiling", "KV room", "decode", "prefill", box=None, pad_edge=False)
    columns = ("goodput_ceiling", "b_max", "decode_t_opt", "prefill_t_opt")
    for row in rows:
        table.add_row(row["fact"], *(_percent(row[name]) for name in columns))
    return table


def _fewest(found: Mapping[str, Any]) -> Group:
    title = "no cluster holds this load"
    if found["n_gpus"] is not None:
        n_gpus = found["n_gpus"]
        title = "1 GPU is enough" if n_gpus == 1 else f"{n_gpus:,} GPUs are the fewest"
    table = Table(
        "GPUs", "layout", "weights GiB", "KV GiB", "requests", "", box=None, pad_edge=False
    )
    for row in (*found["layouts"], *found["near_misses"]):
        sizes = (row["weight_bytes_per_gpu"], row["kv_pool_bytes_per_gpu"])
        memory = (f"{size / GIB:.2f}" for size in sizes)
        layout = f"{row['n_replicas']} × {row['layout']}"
        table.add_row(str(row["n_gpus"]), layout, *memory, f"{row['b_max']:,}", row["problem"])
    reasons = (Text(f"  ✗ {reason}", style="red") for reason in found["illegal_reasons"])
    return Group(Text(title, style="bold"), *reasons, table)


def _time(seconds: float) -> str:
    return quantity(seconds, UNITS["s"])


def _amount(amount: float, unit: str) -> str:
    if unit == "B":
        return quantity(amount, UNITS["B"])
    return f"{amount:,.0f} {unit}s" if unit == "message" else f"{amount:.3g} {unit}"


def _percent(value: float | None) -> str:
    return "" if not value else f"{value:+.2f}%"
