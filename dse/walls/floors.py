"""Floors and ceilings of points as formulas over columns.

Each function takes `c`, a mapping of column names to arrays that broadcast, so that a formula is
written once for the rows of a frame and for a product of axes. All are optimistic for the
simulator: peak rates, floor constants, mean-rank experts, perfect packing, no queue but what work
itself makes.
"""

from collections.abc import Mapping, MutableMapping
from typing import Any, NamedTuple

import numpy as np

from dse.cost.coefficients import MAX_KNOTS
from dse.model.ops import Num

Columns = MutableMapping[str, Any]
CEILING = "ceiling"
TINY = 1e-18
LINES = ("hbm", "flop", "sfu", "net")


def single_step_s(c: Columns) -> Num:
    """Seconds of a step that decodes the shortest request alone: `t_opt` at batch 1."""
    context = first_context_tokens(c)
    tokens = c["tokens_per_step_max"]
    experts = c["experts_all_hbm_s"] * (1.0 - np.exp(c["experts_log_miss"] * tokens))
    times = [
        c["hbm_step_s"] + c["hbm_request_s"] + experts + context_s(c, "hbm", context),
        c["flop_step_s"] + c["flop_request_s"] + c["flop_group_s"] + context_s(c, "flop", context),
        c["sfu_request_s"] + context_s(c, "sfu", context),
        c["net_step_s"] + c["net_token_s"] + c["net_group_s"],
    ]
    return greatest(times)


def prompt_s(c: Columns) -> Num:
    """Seconds of the shortest prompt alone: per resource the sum over its chunks."""
    tokens, budget = new_tokens(c), c["prefill_budget_tokens"]
    chunks = (tokens + budget - 1.0) // budget
    log_miss, rest = c["prefill_experts_log_miss"], tokens - (chunks - 1.0) * budget
    touched = (chunks - 1.0) * (1.0 - np.exp(log_miss * budget))
    touched = touched + (1.0 - np.exp(log_miss * rest))
    hbm = chunks * c["prefill_hbm_step_s"] + tokens * c["prefill_hbm_token_s"]
    latency = chunks * c["prefill_net_step_s"]
    times = [
        hbm + touched * c["prefill_experts_all_hbm_s"],
        prompt_work_s(c, "flop", 1.0) + c["prefill_flop_step_s"] + c["prefill_flop_row_s"],
        prompt_work_s(c, "sfu", 1.0),
        latency + prompt_work_s(c, "net", 1.0),
    ]
    return greatest(times)


def prompt_work_s(c: Columns, line: str, group_share: Num) -> Num:
    """Seconds of one resource that the shortest prompt takes of its rank, whatever its chunks;
    `group_share` prompts run in the expert group at once.
    """
    tokens = new_tokens(c)
    if line == "net":
        return tokens * (c["prefill_net_token_s"] + group_share * c["prefill_net_group_s"])
    name = f"prefill_{line}"
    if line == "hbm":
        return tokens * c[f"{name}_token_s"]
    per_token = c[f"{name}_token_s"] + group_share * c[f"{name}_group_s"]
    high, low = c["isl_low_tokens"], c["isl_low_tokens"] - tokens
    pairs = c[f"prefill_position_{line}_slope_s"] * _seen(high, low)
    for i in range(MAX_KNOTS):
        knot = c[f"prefill_position_knot_{i}_tokens"]
        cap = c[f"prefill_position_{line}_cap_{i}_s"]
        pairs = pairs + cap * _seen(high, low, knot)
    return tokens * per_token + pairs


def tokens_per_s(c: Columns, *, slo_tpot_s: Num | None = None) -> Num:
    """Output tokens/s of the deployment at most; of requests whose TPOT is within `slo_tpot_s`
    where one is given.

    Over a run of J steps with Σn requests computed, each resource needs `J·a + Σn·b` for decoding
    (b averages over contexts, exactly as reads do) and ρ per token for prefilling. The first token
    of an answer comes with its prompt, so a share f of the tokens is decoded, and the rate is at
    most `q / (f·(a/n + b) + q·ρ)` at the mean n. Slots, KV and the SLO bound n.
    """
    rate = decoded_tokens_per_s(c, slo_tpot_s=slo_tpot_s)
    if not np.any(c["is_disaggregated"]):
        return rate
    apart = np.minimum(rate, prefilled_tokens_per_s(c))
    return np.where(c["is_disaggregated"] > 0.5, apart, rate)


def decoded_tokens_per_s(c: Columns, *, slo_tpot_s: Num | None = None) -> Num:
    """Output tokens/s that the pool which decodes allows at most; see `tokens_per_s`."""
    slots, q, known = _slots(c), c["tokens_per_step_max"], _ceiling(c)
    hbm, net = known.lines["hbm"], known.lines["net"]
    running = np.maximum(np.minimum(slots, known.by_kv), TINY)
    # The chord falls with its length, so the shorter of two lengths gives the greater.
    slope = np.maximum(c["dp"] * q * _chord(c, slots), known.slope_in_kv)
    # What a step reads whatever its batch: the chord's share of one request is taken out.
    step = slope / -c["dp"] + hbm.step
    fitting = running
    if slo_tpot_s is not None:
        bound = q * slo_tpot_s
        fitting = np.maximum(bound - step, TINY) / (slope + hbm.tight)
        fitting = np.minimum(fitting, np.minimum(running, _fitting(known.lines, bound)))
    inverse = 1.0 / fitting
    by_hbm = step * inverse + slope + known.request["hbm"]
    by_net = net.step * inverse + known.request["net"]
    busy = np.maximum(np.maximum(by_hbm, by_net), known.busiest)
    # A request's own steps follow one another, however many micro-batches the stages hold.
    return np.minimum(c["pp"] / busy, running / known.in_series) * known.scale


def prefilled_tokens_per_s(c: Columns) -> Num:
    """Output tokens/s that the pool which prefills allows at most."""
    work = greatest([prompt_work_s(c, line, c["prefill_dp"]) for line in LINES])
    reads = new_tokens(c) / c["prefill_budget_tokens"] * c["prefill_hbm_step_s"]
    ranks = c["prefill_n_replicas"] * c["prefill_dp"] * c["prefill_pp"]
    return c["osl_high_tokens"] * ranks / np.maximum(work, reads)


def _slots(c: Columns) -> Num:
    """Requests of one DP rank that are in flight, no more than the engine has slots for."""
    return np.minimum(c["in_flight"] / (c["n_replicas"] * c["dp"]), c["max_num_seqs"])


def _requests_in_kv(c: Columns) -> Num:
    """Requests of one DP rank whose KV fits the pool, on average over steps."""
    start = first_context_tokens(c)
    stop = start + _span(c)
    mean_bytes = c["kv_fixed_bytes"] + c["kv_full_bytes_per_token"] * (start + stop) / 2.0
    for i in range(MAX_KNOTS):
        held = _mean_least(start, stop, c[f"kv_window_{i}_tokens"])
        mean_bytes = mean_bytes + c[f"kv_window_{i}_bytes_per_token"] * held
    return c["kv_pool_bytes"] / (mean_bytes + 1e-9)


def first_context_tokens(c: Columns) -> Num:
    """Context of the shortest request when it starts to decode, less what it shares with others."""
    return np.maximum(c["isl_low_tokens"] - c["shared_tokens"], 1.0)


def new_tokens(c: Columns) -> Num:
    """Prompt tokens of the shortest request that no cache can hold."""
    return np.maximum(c["isl_low_tokens"] - c["shared_tokens"], 1.0)


def context_s(c: Columns, line: str, context: Num) -> Num:
    """Seconds of one resource that one request's attention takes on `context` tokens."""
    total = c[f"context_{line}_slope_s"] * context
    for i in range(MAX_KNOTS):
        seen = np.minimum(context, c[f"context_knot_{i}_tokens"])
        total = total + c[f"context_{line}_cap_{i}_s"] * seen
    return total


def greatest(values: list[Num]) -> Num:
    """The largest of several columns."""
    found = values[0]
    for value in values[1:]:
        found = np.maximum(found, value)
    return found


class _Line(NamedTuple):
    """One resource: a step over n requests of a rank takes `step + n · request`.

    `request` averages over the contexts that a request passes; `tight` is (E√b)² from below, which
    is what bounds the mean n of steps that all keep an SLO (Cauchy).
    """

    step: Num
    request: Num
    tight: Num


class _Ceiling(NamedTuple):
    """What the ceiling of a point needs and no load changes.

    `request` are seconds per request and step, its prompt's share in them; `busiest` the largest of
    those that no batch dilutes; `in_series` a step of one request alone; `scale` requests per step
    and rank → tokens/s of the deployment.
    """

    lines: dict[str, _Line]
    by_kv: Num
    slope_in_kv: Num
    request: dict[str, Num]
    busiest: Num
    in_series: Num
    scale: Num


def _ceiling(c: Columns) -> _Ceiling:
    """The ceiling's constants, kept in `c`, as loads are looked at in parts."""
    if CEILING not in c:
        q, lines, by_kv = c["tokens_per_step_max"], _lines(c), _requests_in_kv(c)
        decoded = np.maximum(1.0 - 1.0 / c["osl_low_tokens"], 1e-9)
        share = q * (1.0 - c["is_disaggregated"]) / c["osl_high_tokens"] / decoded
        request = {
            line: lines[line].request + share * prompt_work_s(c, line, c["dp"]) for line in LINES
        }
        c[CEILING] = _Ceiling(
            lines=lines,
            by_kv=by_kv,
            slope_in_kv=c["dp"] * q * _chord(c, by_kv),
            request=request,
            busiest=np.maximum(request["flop"], request["sfu"]),
            in_series=greatest([each.step + each.request / c["dp"] for each in lines.values()]),
            scale=q * c["dp"] * c["n_replicas"] / decoded,
        )
    found: _Ceiling = c[CEILING]
    return found


def _lines(c: Columns) -> dict[str, _Line]:
    """Every resource, with the experts of one request alone; a batch reads the chord's more."""
    q, dp = c["tokens_per_step_max"], c["dp"]
    start = first_context_tokens(c)
    stop = start + _span(c)
    step = {
        "hbm": c["hbm_step_s"] + _experts_s(c, q),
        "flop": 0.0,
        "sfu": 0.0,
        "net": c["net_step_s"],
    }
    request = {
        "hbm": c["hbm_request_s"],
        "flop": c["flop_request_s"] + dp * c["flop_group_s"],
        "sfu": c["sfu_request_s"],
        "net": c["net_token_s"] + dp * c["net_group_s"],
    }
    found = {}
    for line in LINES:
        low = request[line] + (context_s(c, line, start) if line != "net" else 0.0)
        high = request[line] + (context_s(c, line, stop) if line != "net" else 0.0)
        # Attention is concave in context, so the trapezoid stays below the mean.
        tight = ((low**0.5 + high**0.5) / 2.0) ** 2
        found[line] = _Line(step=step[line], request=(low + high) / 2.0, tight=tight)
    return found


def _experts_s(c: Columns, n_tokens: Num) -> Num:
    """Seconds of reading the experts that `n_tokens` tokens of the expert group touch."""
    return c["experts_all_hbm_s"] * (1.0 - np.exp(c["experts_log_miss"] * n_tokens))


def _chord(c: Columns, requests: Num) -> Num:
    """Slope per token of the chord of `_experts_s` from one request to `requests` a rank: below the
    union of experts, which is concave, wherever a step has no more.
    """
    q = c["tokens_per_step_max"]
    tokens = np.maximum(requests * c["dp"] * q, q)
    return (_experts_s(c, tokens) - _experts_s(c, q)) / np.maximum(tokens - q, 1.0)


def _fitting(lines: Mapping[str, _Line], bound_s: Num) -> Num:
    """Requests of a rank that steps of `bound_s` allow on average, HBM aside."""
    rooms = []
    for line in ("flop", "sfu", "net"):
        room = np.maximum(bound_s - lines[line].step, 0.0)
        rooms.append(room / (lines[line].tight + TINY))
    return np.maximum(np.minimum(np.minimum(rooms[0], rooms[1]), rooms[2]), TINY)


def _span(c: Columns) -> Num:
    """Tokens by which a request's context surely grows; none under speculation, where the steps may
    fall on its start.
    """
    grows = c["tokens_per_step_max"] < 1.5
    return np.maximum(c["osl_low_tokens"] - 1.0, 0.0) * grows


def _mean_least(start: Num, stop: Num, bound: Num) -> Num:
    """A lower bound of the mean of `min(x, bound)` for x from `start` to `stop` (concave)."""
    return (np.minimum(start, bound) + np.minimum(stop, bound)) / 2.0


def _seen(high: Num, low: Num, limit: Num | None = None) -> Num:
    """∫ min(x, limit) dx from `low` to `high`."""
    if limit is None:
        return (high * high - low * low) / 2.0
    return _below(high, limit) - _below(low, limit)


def _below(position: Num, limit: Num) -> Num:
    inside = np.minimum(position, limit)
    return inside * inside / 2.0 + limit * (position - inside)
