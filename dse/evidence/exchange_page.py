"""The part on expert exchange of the accuracy page: held-out node counts, and what they rest on."""

from collections.abc import Iterator, Sequence

import numpy as np
import polars as pl

from dse.evidence.calibrate_collectives import NETWORK_GPU
from dse.evidence.collective_rows import EXCHANGES, NORMAL, exchange_tables
from dse.evidence.exchange_links import LARGE_TOKENS, LEAST_BUSY
from dse.evidence.unseen import Unseen

INTRO = (
    "Expert exchange (DeepEP), one node count held out at a time. Two and four nodes are "
    "interpolated, one and eight extrapolated; one node then takes its in-domain start and "
    "bandwidth from the rows across nodes. *Priced* are rows of up to 256 tokens a rank for "
    "the low-latency kernels, of more for the normal ones, which are fitted to these alone. "
    "The normal kernels' eight-node rows enter no fit (below).\n"
)
RULE = (
    "**Normal kernels: which rows agree.** Bytes over a link bound a large exchange, so its busier "
    "link should work for most of the time. Sweeps across nodes, and published rates, that leave "
    f"both links idle for over {1 - LEAST_BUSY:.0%} of the time (median of {LARGE_TOKENS} tokens "
    "and more, each transfer where whole calls wait) are *links idle*; rates of kernels before "
    "several queue pairs (deepseek-ai/DeepEP#130), or of unknown date, are *other kernels*; the "
    "rest is *consistent*: the same kernels, at most four groups of experts a token (one a node). "
    "Nothing published enters a fit, and each row is predicted by the fit to the H100 rows of the "
    "other node counts. *Port* is what leaves a rank (copies that stay are printed by the "
    "benchmark, not sent), of 50 GB/s; *busy* the share of the time that the busier link needs.\n"
)


def exchange_page(rows: Sequence[Unseen]) -> str:
    """Tables of every scored exchange of `rows`, as Markdown."""
    whole = [row for row in rows if row.engine in ("deepep low-latency", "deepep normal")]
    normal = [row for row in rows if row.state is not None]
    return "\n".join(
        (
            INTRO,
            "| GPU | direction | kernels | held out | rows | median | mean | bias | inside | "
            "priced: rows | median | mean |",
            "|---|---|---|---|---|---|---|---|---|---|---|---|",
            *(_whole(row) for row in whole),
            "",
            RULE,
            "| slice | unseen | direction | rows | median | mean | worst source |",
            "|---|---|---|---|---|---|---|",
            *_by_state(normal),
            "",
            "| GPU | direction | source | nodes | rows | port GB/s | busy | error | slice |",
            "|---|---|---|---|---|---|---|---|---|",
            *(_source(row.priced) for row in normal),
            "",
            f"Whole calls of {LARGE_TOKENS} tokens by SMs, ms (transfer + notification), of "
            f"{NETWORK_GPU}. What links bound falls with SMs until they are full; on eight nodes "
            "neither direction does, and both take the same time a byte:\n",
            *_by_sms(),
        )
    )


def _whole(row: Unseen) -> str:
    error, priced = np.abs(row.error), np.abs(row.priced.error)
    return (
        f"| {row.gpu} | {row.collective} | {row.engine} | {row.held} | {len(error)} | "
        f"{np.median(error):.1%} | {error.mean():.1%} | {np.median(row.error):+.1%} | "
        f"{row.inside.mean():.0%} | {len(priced)} | {np.median(priced):.1%} | {priced.mean():.1%} |"
    )


def _by_state(rows: Sequence[Unseen]) -> Iterator[str]:
    groups: dict[tuple[str, str, str], list[Unseen]] = {}
    for row in rows:
        groups.setdefault((str(row.state), row.held, row.collective), []).append(row.priced)
    for (state, held, direction), members in sorted(groups.items()):
        error = np.abs(np.concatenate([each.error for each in members]))
        worst = max(float(np.median(np.abs(each.error))) for each in members)
        yield (
            f"| {state} | {held} | {direction} | {len(error)} | {np.median(error):.1%} | "
            f"{error.mean():.1%} | {worst:.1%} |"
        )


def _source(row: Unseen) -> str:
    assert row.port_bytes is not None
    assert row.busy is not None
    port = float(np.median(row.port_bytes / row.measured_s)) / 1e9
    return (
        f"| {row.gpu} | {row.collective} | {row.engine} | {row.held} | {len(row.error)} | "
        f"{port:.1f} | {np.median(row.busy):.2f} | {np.median(row.error):+.1%} | {row.state} |"
    )


def _by_sms() -> Iterator[str]:
    found = exchange_tables(NORMAL, NETWORK_GPU)
    if not found:
        return
    frame = found[-1].scan().filter(pl.col("num_token") == LARGE_TOKENS).collect()
    sms = sorted(frame["dispatch_sms"].unique())
    yield "| nodes | direction | " + " | ".join(f"{n} SMs" for n in sms) + " |"
    yield "|---" * (2 + len(sms)) + "|"
    for nodes in sorted(frame["node_num"].unique()):
        for kind in EXCHANGES:
            name = kind.removeprefix("ep_")
            part = frame.filter(pl.col("node_num") == nodes)
            part = part.select(f"{name}_sms", f"{name}_transmit_us", f"{name}_notify_us")
            cells = {
                n: f"{sent / 1e3:.2f} + {wait / 1e3:.2f}" for n, sent, wait in part.iter_rows()
            }
            yield f"| {nodes} | {kind} | " + " | ".join(cells.get(n, "") for n in sms) + " |"
