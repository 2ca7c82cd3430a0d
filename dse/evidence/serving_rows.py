"""Measured serving rows of any source as cases: what a row says is used, what it does not say is
the default of its engine, and a row that says too little is skipped with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from dse.catalog import Catalog
from dse.evidence.case import Case
from dse.evidence.inferencex import PROMPTS_PER_SLOT, Launch, launch, spread
from dse.evidence.measurement import Measurement
from dse.evidence.names import dtype_named, engine_named, gpu_named, model_named
from dse.evidence.sweep import sweep_rows
from dse.hardware import GPU, DType
from dse.model import Model
from dse.serving.arrivals import AllAtOnce, Arrivals, ClosedLoop
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import Engine
from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.serving.lengths import Constant, Lengths
from dse.serving.schedulers import Static
from dse.serving.workload import Workload
from dse.space.precision import precision_of

__all__ = ["serving_cases"]

# Offline jobs in published tables do not say how many requests they sent; this many waves of the
# engine's own cap make the start and the end small beside the steady state.
_WAVES: Final = 4
_MOST_REQUESTS: Final = 4000
# ROCm/vllm docs/dev-docker/README.md: throughput runs set --max-num-batched-tokens 131072 and
# --max-num-seqs to the number of prompts. Their tokens/s count answers alone: with prompts in them,
# 1,500 requests of 2048/2048 would yield less than the static batch of 128 in the same tables.
_ROCM: Final = "AMD ROCm/vllm"
_ROCM_TOKENS: Final = 131_072


class _Unusable(Exception):
    """A row cannot be predicted; the text says why."""


def serving_cases(rows: Iterable[Measurement], catalog: Catalog | None = None) -> list[Case]:
    """One case a row, in order; those that cannot be predicted carry the reason."""
    known = catalog or Catalog.load()
    return [_case(row, known) for row in rows]


def _case(row: Measurement, catalog: Catalog) -> Case:
    labels = {
        "gpu": row.gpu,
        "engine": row.framework or "unstated",
        "model": row.model,
        "grade": row.grade or "",
        "source": (row.file or row.source or "").removesuffix(".csv"),
        "mode": _mode(row),
        "isl/osl": f"{row.isl_tokens:g}/{row.osl_tokens:g}",
        "concurrency": str(row.concurrency),
        "layout": f"tp{row.tp} ep{row.ep} dp{row.dp_attn}",
    }
    case = Case(
        key=str(row.line), labels=labels, measured=_measured(row), statistic=_statistic(row)
    )
    try:
        deployment, workload, poll_steps = _task(row, catalog)
    except _Unusable as why:
        return replace(case, reason=str(why))
    pool = deployment.pools[0]
    labels |= {"gpu": pool.gpu.name, "engine": pool.engine.name, "model": deployment.model.name}
    labels["class"] = "MoE" if deployment.model.is_moe else "dense"
    return replace(case, deployment=deployment, workload=workload, poll_steps=poll_steps)


def _mode(row: Measurement) -> str:
    text = (row.load_mode or "").lower()
    if "static" in text or text.startswith("batch"):
        return "static"
    if "offline" in text:
        return "offline"
    if "at once" in text:
        return "at once"
    return "closed loop" if "closed-loop" in text or "max-concurrency" in text else "other"


def _measured(row: Measurement) -> dict[str, float]:
    tpot_s = row.tpot_s
    if _statistic(row) == "mean" and row.mean_tpot_s is not None:
        tpot_s = row.mean_tpot_s
    found = {
        "ttft_s": row.ttft_s,
        "tpot_s": tpot_s,
        "e2e_s": _e2e_s(row),
        "output_tok_per_s": row.output_tok_per_s,
        "total_tok_per_s": row.total_tok_per_s,
    }
    if _is_rocm(row):
        found["output_tok_per_s"] = found.pop("total_tok_per_s")
    return {name: value for name, value in found.items() if value}


def _e2e_s(row: Measurement) -> float | None:
    """The E2E latency; where the notes print the published figure in ms, that figure (some tables
    were read as if it were in seconds).
    """
    published = re.search(r"Latency \(ms\)'=([\d.]*\d)", row.notes)
    return float(published[1]) / 1e3 if published else row.e2e_s


def _statistic(row: Measurement) -> str:
    named = (row.ttft_stat or row.tpot_stat or row.e2e_stat or "").lower()
    return "mean" if named.startswith(("mean", "avg")) or _mode(row) == "static" else "p50"


def _task(row: Measurement, catalog: Catalog) -> tuple[Deployment, Workload, int]:
    """Deployment, workload and decode steps between two looks for new requests."""
    _refuse_untold(row)
    if row.engine_arguments and "at once" in (row.load_mode or ""):
        return *_sweep_task(row, catalog), 1
    deployment, launched = _deployment(row, catalog)
    return deployment, _workload(row, deployment), launched.poll_steps


def _refuse_untold(row: Measurement) -> None:
    if row.disagg:
        raise _Unusable("disaggregated: the layout of the pools is not stated")
    if (row.spec_decode or "none").lower() not in ("none", "no", "off"):
        raise _Unusable("speculative: the acceptance is not stated")
    said = f"{row.load_mode} {row.notes[:200]}".lower()
    if "sharegpt" in said and "dummy_dataset" not in said:
        raise _Unusable("lengths are those of a trace that the row does not give")
    if "shared prefix" in said or "shared-prefix" in said:
        raise _Unusable("what the prompts share is not stated")


def _sweep_task(row: Measurement, catalog: Catalog) -> tuple[Deployment, Workload]:
    found, skipped = sweep_rows([row], catalog)
    if not found:
        raise _Unusable(next(iter(skipped)))
    workload = Workload(
        arrivals=AllAtOnce(),
        n_requests=int(found[0].n_requests),
        isl=Constant(n_tokens=round(row.isl_tokens)),
        osl=Constant(n_tokens=round(row.osl_tokens)),
    )
    return found[0].deployment, workload


def _deployment(row: Measurement, catalog: Catalog) -> tuple[Deployment, Launch]:
    model, gpu = model_named(catalog, row.model), gpu_named(catalog, row.gpu)
    if model is None or gpu is None:
        raise _Unusable(f"no {'model' if model is None else 'GPU'} in the catalog")
    engine = engine_named(catalog, row.framework or "", row.framework_version or "", gpu)
    if engine is None:
        raise _Unusable("no profile of this engine")
    layout, n_replicas = _layout(row, model)
    weights = _weights(row, model, gpu)
    launched = Launch()
    if _is_inferencex(row):
        launched = launch(
            engine, model, gpu, weights,
            isl_tokens=row.isl_tokens, concurrency=row.concurrency, dp=layout.dp,
        )  # fmt: skip
        engine = launched.applied(engine)
    kv = _kv(row, weights, engine, launched)
    precision = precision_of(model, gpu, weights=weights, kv=kv)
    engine, fabric = _as_run(row, engine), catalog.fabric(gpu.fabric)
    if _mode(row) in ("static", "offline"):
        # Random tokens may run past the context that a model was trained for.
        longest = round(row.isl_tokens + row.osl_tokens)
        model = replace(model, max_context_tokens=max(model.max_context_tokens, longest))
    illegal = check(model, precision, layout, engine, gpu, fabric=fabric)
    if illegal:
        raise _Unusable(f"illegal: {illegal[0].rule}")
    pool = Pool(gpu=gpu, fabric=fabric, layout=layout, engine=engine, n_replicas=n_replicas)
    return Deployment(model=model, precision=precision, pools=(pool,)), launched


def _is_inferencex(row: Measurement) -> bool:
    return "InferenceX" in (row.source or "")


def _is_rocm(row: Measurement) -> bool:
    return (row.source or "").startswith(_ROCM)


def _layout(row: Measurement, model: Model) -> tuple[Layout, int]:
    """Tensor parallel degree as stated, else over all GPUs; attention DP takes its place."""
    if row.n_gpus is None and row.tp is None:
        raise _Unusable("the row does not say n_gpus, tp")
    pp = row.pp or 1
    n_gpus = row.n_gpus or (row.tp or 1) * pp
    tp = row.tp or n_gpus
    stated = row.ep or "1"
    ep = int(stated) if stated.isdigit() else (tp if stated == "on" else 1)
    if n_gpus % (tp * pp):
        raise _Unusable(f"{n_gpus} GPUs are no replicas of tp {tp} and pp {pp}")
    if tp % ep:
        raise _Unusable(f"tp {tp} is no multiple of ep {ep}")
    if not model.is_moe:
        ep = 1
    dp, tp = (tp, 1) if row.dp_attn and model.is_moe else (1, tp)
    layout = Layout(tp=tp, dp=dp, ep=ep, moe_tp=tp * dp // ep, pp=pp)
    return layout, n_gpus // layout.n_gpus


def _weights(row: Measurement, model: Model, gpu: GPU) -> DType:
    stated = dtype_named(row.precision_weights)
    if stated is None:
        named = re.search(r"(?i)(fp8|awq)", row.model)
        if named is None:
            return model.checkpoint if model.checkpoint is not DType.NVFP4 else DType.BF16
        stated = DType.INT4 if named[0].lower() == "awq" else DType.FP8
    if stated is DType.FP8 and model.checkpoint is DType.FP8_BLOCK:
        return DType.FP8_BLOCK
    if stated is DType.NVFP4 and not gpu.supports(DType.NVFP4):
        return DType.MXFP4
    return stated


def _kv(row: Measurement, weights: DType, engine: Engine, launched: Launch) -> DType:
    """As stated; `auto` is 16 bits; unstated follows the launch script, then TensorRT-LLM's
    recipes, which quantise the cache with the weights, and is 16 bits elsewhere.
    """
    stated = dtype_named(row.precision_kv)
    if stated is not None:
        return DType.FP8 if stated in (DType.FP8, DType.FP8_BLOCK) else DType.BF16
    if row.precision_kv:
        return DType.BF16
    quantised = weights in (DType.FP8, DType.FP8_BLOCK, DType.NVFP4)
    recipe = DType.FP8 if engine.name == "trtllm" and quantised else DType.BF16
    return launched.kv or recipe


def _as_run(row: Measurement, engine: Engine) -> Engine:
    """The engine as its benchmark drives it: an offline one has no API server, a fixed batch no
    scheduler.
    """
    mode = _mode(row)
    if mode in ("static", "offline"):
        engine = replace(engine, host=replace(engine.host, arrival_s=0.0))
    prompts = row.note("num_prompts")
    if prompts and _is_rocm(row):
        engine = replace(engine, max_num_seqs=int(prompts), max_num_batched_tokens=_ROCM_TOKENS)
    if mode == "static":
        most = max(engine.max_num_seqs, row.concurrency)
        engine = replace(engine, scheduler=Static(), max_num_seqs=most)
    return engine


def _workload(row: Measurement, deployment: Deployment) -> Workload:
    mode, n = _mode(row), row.concurrency
    if n < 1 and mode != "offline":
        raise _Unusable("the load is not stated")
    arrivals: Arrivals = AllAtOnce()
    noted = row.note("n") or row.note("n_requests") or row.note("num_prompts")
    n_requests = int(noted or PROMPTS_PER_SLOT * n)
    if mode == "static":
        n_requests = n
    elif mode in ("offline", "at once"):
        n_requests = int(noted or n)
        if "num_prompts=batch" not in (row.load_mode or "") and noted is None:
            engine = deployment.pools[0].engine
            waves = _WAVES * engine.max_num_seqs * deployment.pools[0].n_replicas
            n_requests = min(_MOST_REQUESTS, waves)
    elif mode == "closed loop":
        arrivals = ClosedLoop(concurrency=n)
    else:
        raise _Unusable(f"load: {(row.load_mode or 'not stated').split('(')[0].strip()}")
    return Workload(
        arrivals=arrivals,
        n_requests=max(n_requests, n if mode == "closed loop" else 1),
        isl=_lengths(row, row.isl_tokens),
        osl=_lengths(row, row.osl_tokens),
    )


def _lengths(row: Measurement, nominal: float) -> Lengths:
    if _is_inferencex(row):
        return spread(nominal)
    return Constant(n_tokens=max(1, round(nominal)))
