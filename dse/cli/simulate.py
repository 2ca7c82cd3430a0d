"""`dse simulate`: one deployment under one load, in virtual time."""

import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dse.base.errors import UserError
from dse.cli._flags import DeploymentFlags, SLOFlags, WorkloadFlags
from dse.cli._output import Json, emit_json

JSON_LINES = {".jsonl", ".ndjson"}
NO_FLAGS, NO_LOAD, NO_SLO = DeploymentFlags(), WorkloadFlags(), SLOFlags()


def simulate(
    flags: DeploymentFlags = NO_FLAGS,
    load: WorkloadFlags = NO_LOAD,
    slo: SLOFlags = NO_SLO,
    *,
    seed: Annotated[int, Parameter(help="Replicate: which requests are drawn.")] = 0,
    tier: Annotated[str, Parameter(help="Kernel model: auto, target, cross or roofline.")] = "auto",
    log: Annotated[Path | None, Parameter(help="Write the event log (CSV or JSON lines).")] = None,
    timeline: Annotated[
        Path | None, Parameter(help="Write an HTML chart of batch, queue and KV over time.")
    ] = None,
    json: Json = False,
) -> int:
    """Simulate one deployment under one load.

    Prints latencies, throughput, goodput under the SLO, where step time goes, and what the KV cache
    did. The same flags and seed give the same numbers on any machine.
    """
    from dse.cli._deployment import deployment_of, require_legal, slo_of, split
    from dse.sim import simulate as run
    from dse.sim.log import Log

    flags, load = split(flags, load)
    deployment = deployment_of(flags)
    require_legal(deployment, flags.gpus)
    workload, promised = _workload(load), slo_of(slo)
    events = Log() if log or timeline else None
    started = time.process_time()
    metrics = run(deployment, workload, seed, tier=tier, log=events)
    found = _document(metrics, promised) | {"cpu_s": time.process_time() - started}
    if events is not None:
        _write(events, log, timeline)
    if json:
        emit_json(found)
    else:
        from dse.cli._simulate_text import show

        show(found, metrics)
    return 0


def _workload(load: WorkloadFlags) -> Any:
    from dse.cli._deployment import workload_of

    workload = workload_of(load)
    if load.trace is None:
        return workload
    from dse.study.trace import read_trace

    _refuse_beside_a_trace(load)
    recorded = read_trace(load.trace)
    n_requests = load.requests or len(recorded.rows)
    if n_requests > len(recorded.rows):
        raise UserError(
            f"--requests {n_requests} of {load.trace}, which has {len(recorded.rows)}",
            "ask for fewer, or leave --requests out",
        )
    return replace(workload, arrivals=recorded, n_requests=n_requests, isl=None, osl=None)


def _refuse_beside_a_trace(load: WorkloadFlags) -> None:
    """A trace brings its arrivals, lengths and prefixes: a flag beside it would be lost."""
    for name in ("concurrency", "rate", "isl", "osl", "prefix_cached"):
        if getattr(load, name) != getattr(NO_LOAD, name):
            flag = name.replace("_", "-")
            raise UserError(f"--{flag} is given beside --trace", "leave one of the two out")


def _document(metrics: Any, promised: Any) -> dict[str, Any]:
    """The keys of the machine-readable contract."""
    latencies = {f"{name}_s": asdict(getattr(metrics, name)) for name in _LATENCIES}
    figures = {name: getattr(metrics, name) for name in _FIGURES}
    parts = [{"family": k, "seconds": s} for k, s in metrics.step_breakdown.items()]
    return {
        **latencies,
        **figures,
        "goodput_req_per_s": metrics.goodput_req_per_s(promised),
        "slo_attainment": metrics.slo_attainment(promised),
        "step_breakdown": parts,
        "resource_breakdown": [
            {"resource": k, "seconds": s} for k, s in metrics.resource_breakdown.items()
        ],
    }


_LATENCIES = ("ttft", "tpot", "itl", "e2e", "queue")
_FIGURES = (
    "request_per_s", "input_tok_per_s", "output_tok_per_s", "total_tok_per_s",
    "output_tok_per_s_per_gpu", "total_tok_per_s_per_gpu", "tok_per_s_per_user", "duration_s",
    "n_requests", "n_measured", "n_rejected", "n_steps", "n_preemptions", "n_gpus",
    "prefix_hit_fraction", "kv_peak_fraction", "kv_mean_fraction", "batch_mean", "mfu", "mbu",
    "energy_joules", "joules_per_output_token", "served_by", "served_because", "stopped",
)  # fmt: skip


def _write(events: Any, log: Path | None, timeline: Path | None) -> None:
    """Write the event log and the chart of a run."""
    import polars as pl

    rows = [event._asdict() for event in sorted(events.events, key=lambda e: e.time_s)]
    frame = pl.DataFrame(rows)
    if log is not None:
        write = frame.write_ndjson if log.suffix.lower() in JSON_LINES else frame.write_csv
        try:
            write(log)
        except OSError as error:
            raise UserError(f"{log} cannot be written: {error}", "give another --log") from error
    if timeline is not None:
        from dse.report.timeline import write_timeline

        try:
            write_timeline(frame.filter(pl.col("kind") == "step"), timeline)
        except OSError as error:
            raise UserError(
                f"{timeline} cannot be written: {error}", "give another --timeline"
            ) from error
