"""What the compiled path works on: a few arrays of records.

Requests, targets (ranks of all replicas), slots (micro-batches) and replicas are numbers: `r`, `t`,
`s` and `e` throughout. Few arrays, because each is seven arguments of every compiled function.
"""

from typing import Any, NamedTuple

import numpy as np

from dse.cost.tables import Array

# Numbers that do not change in a run. `chunked`, `decode_first`, `empty_only` and `reserve` are
# the scheduler, `multiple` and `graph_max` the padding of CUDA graphs, `end` closes block lists;
# `answers` says whether answers bring about requests,
# `hands_over` that another pool decodes.
FIXED = np.dtype(
    [(name, "i8") for name in (
        "n_targets", "n_replicas", "dp", "pp", "max_tokens", "max_seqs", "q_tokens", "n_units",
        "block_tokens", "n_keys", "end", "multiple", "graph_max", "n_draft", "concurrency", "pool",
        "first_target", "first_replica", "n_windows",
    )]
    + [(name, "?") for name in (
        "chunked", "decode_first", "empty_only", "reserve", "least_loaded", "uniform", "overlapped",
        "answers", "hands_over",
    )]
    + [(name, "f8") for name in (
        "full_bytes", "fixed_bytes", "step_s", "request_s", "prefill_token_s", "arrival_s",
        "acceptance", "launch_s", "prefill_gap",
    )]
    + [("seed", "u8")],
    align=True,
)  # fmt: skip

# What every step touches comes first: one cache line.
REQUEST = np.dtype(
    [(name, "i8") for name in (
        "isl", "osl", "computed", "generated", "held", "held_keys", "key_count",
    )]
    + [("last_s", "f8")]
    + [(name, "i8") for name in (
        "key_start", "rank_by", "successor", "order", "hit", "preempted",
    )]
    + [(name, "f8") for name in (
        "arrival_s", "think", "asked", "admitted_s", "first_s", "finish_s",
        "transfer_s",
    )],
    align=True,
)  # fmt: skip

# A rank: its free units and queue; the sums of its batch; its row and cell of the decode table with
# the lookups made there.
TARGET = np.dtype(
    [(name, "i8") for name in (
        "free", "heap_n", "spare_n", "n_decode", "n_chunks", "new", "context", "row", "left",
        "lookups", "lookup_sum",
    )]
    + [("share", "f8")]
)  # fmt: skip
PLACE = np.dtype([("run_n", "i8"), ("chunk_n", "i8")])
CHUNK = np.dtype(
    [("running", "i8"), ("request", "i8"), ("new", "i8"), ("context", "i8"), ("decode", "?")],
    align=True,
)
NODE = np.dtype(
    [("before", "i8"), ("after", "i8"), ("count", "i8"), ("spare", "i8"), ("holders", "i8"),
     ("present", "?")],
    align=True,
)  # fmt: skip
REPLICA = np.dtype(
    [("free_s", "f8"), ("wake_s", "f8"), ("next_slot", "i8"), ("dirty", "?"), ("stable", "?")],
    align=True,
)
FLIGHT = np.dtype([("end_s", "f8"), ("begun", "i8")])
DUE = np.dtype([("time", "f8"), ("seq", "i8"), ("request", "i8"), ("pool", "i8")])
LINE = np.dtype([("rest", "f8"), ("at", "f8"), ("slope", "f8")])
WINDOW = np.dtype([("tokens", "i8"), ("bytes", "f8")])
SUMS = np.dtype(
    [(name, "i8") for name in (
        "n_steps", "kv_peak", "n_decode", "n_prefill", "n_routed", "n_due", "n_seq", "n_begun",
        "next_root", "n_done", "gap_bin",
    )]
    + [(name, "f8") for name in ("busy", "host", "seqs_s", "kv_s", "gap_low", "gap_high")]
)  # fmt: skip


class State(NamedTuple):
    """`rq[r]` requests, `tg[t]` ranks, `ts[t, s]` and `ch[t, s, i]` running requests and chunks,
    `heap[t, i]` queues, `nd[t, node]` block lists, `rp[e]` replicas, `es[e, s]` steps in flight,
    `due[i]` arrivals, `tot[pool]` sums (those of the whole run in the first), `gaps[pool]` between
    tokens, `residue[t, context mod block]` of a leap, `cell[t, stage]` its lines, `roots` first
    turns, `keys` of contents, `windows[pool]` of layers.
    """

    rq: Any
    tg: Any
    ts: Any
    ch: Any
    heap: Any
    nd: Any
    rp: Any
    es: Any
    due: Any
    tot: Any
    gaps: Any
    residue: Any
    cell: Any
    roots: Any
    keys: Any
    windows: Any


class Curves(NamedTuple):
    """The step tables in few arrays: grids `x[i, :n[i]]` of the one-dimensional tables TOKEN,
    GROUP, HEAD and DRAFT with values `z[i, stage]`, and the two sheets.
    """

    n: Any
    x: Array
    z: Array
    seqs: Array
    context: Array
    chunk: Array
    decode: Array
    prefill: Array
    stage_count: Array
