"""The serving sample of the public silicon database as cases, cleaned by stated rules.

The sample is a CSV of the optional extra (`pip install dse[silicon]`); the package is read, never
imported. No row is dropped silently: each rule sets rows aside by name, or gives the reason why a
row cannot be predicted.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl

from dse.base.errors import UserError
from dse.catalog import Catalog
from dse.cost.account import prompt_floor_s
from dse.evidence.case import Case
from dse.evidence.inferencex import PROMPTS_PER_SLOT, Launch, launch, spread
from dse.evidence.names import dtype_named, engine_named, gpu_named, model_named
from dse.evidence.silicon import root
from dse.hardware import GPU, DType
from dse.model import Model
from dse.serving.arrivals import ClosedLoop
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.serving.lengths import Lengths, Uniform
from dse.serving.workload import Workload
from dse.space.precision import precision_of

__all__ = ["SLICED_BY", "read_sample", "sample_path"]

SLICED_BY = ("gpu", "engine", "model", "class", "precision", "source")
SAMPLE = "silicon_sample.csv"
_DISAGREE = 1.25
_ABOUT = (0.9, 1.1)
_MTP_DATE = "2026-01-14"
# What the database's own FP8 runs on TensorRT-LLM do before each linear layer, since their
# checkpoints hold no scales of activations: 7-10 µs for a small input (its `computescale` table).
_SCALE_PASS_S = 7e-6
_SLOW = 10.0
# The sample does not say which statistic its latencies are. TTFT of the InferenceX rows holds the
# burst of the first prompts, as a mean does and a median does not.
STATISTIC = "mean"
_SAME = ("model_path", "system", "backend", "gemm_quant_mode", "isl", "osl", "concurrency")
_SHAPE = ("tp", "dp", "ep", "moe_tp")


def sample_path() -> Path:
    """Where the installed extra keeps the sample; `UserError` without it."""
    folder = root()
    path = folder.parent / SAMPLE if folder is not None else Path(SAMPLE)
    if not path.is_file():
        raise UserError(f"no {SAMPLE} in the silicon database", "pip install 'dse[silicon]'")
    return path


def read_sample(path: Path | None = None, catalog: Catalog | None = None) -> list[Case]:
    """Every row of the sample as a case, disaggregated ones and duplicates with their reason."""
    known = catalog or Catalog.load()
    frame = pl.read_csv(path or sample_path(), infer_schema_length=None)
    rows = _cleaned(frame)
    return [_case(row, known) for row in rows.iter_rows(named=True)]


def _cleaned(frame: pl.DataFrame) -> pl.DataFrame:
    """`frame` with the layout as it ran, `rule` where a row is set aside, `repeats` of another."""
    noted = pl.col("silicon_data_source").str.extract(r"silicon_concurrency=(\d+)").cast(pl.Int64)
    content = [name for name in frame.columns if name not in {"id", "silicon_data_source"}]
    rows = frame.with_columns(
        concurrency=pl.coalesce(noted, "batch_size"),
        repeats=~pl.struct(content).is_first_distinct(),
    )
    layouts = [_layout(row) for row in rows.iter_rows(named=True)]
    shaped = rows.with_columns(
        pl.Series(name, [layout[name] for layout, _ in layouts], dtype=pl.Int64) for name in _SHAPE
    ).with_columns(pl.Series("rule", [rule for _, rule in layouts], dtype=pl.String))
    return _with_twins(shaped)


def _with_twins(rows: pl.DataFrame) -> pl.DataFrame:
    """Set rows aside that ran with MTP which is not marked.

    InferenceX publishes the image 1.2.0rc6.post3, and 1.1.0rc2.post2 from 2026-01-14 on, with MTP
    only. Of other models with draft modules, twins that are equal in all that is said and differ in
    TPOT by more than a quarter are doubted.
    """
    twins = rows.filter((pl.col("mode") == "agg") & ~pl.col("repeats"))
    spread = twins.group_by([*_SAME, *_SHAPE]).agg(
        ratio=pl.col("silicon_tpot_ms").max() / pl.col("silicon_tpot_ms").min()
    )
    measured = pl.col("silicon_data_source").str.extract(r"measured=(\d{4}-\d\d-\d\d)")
    version = pl.col("backend_version").fill_null("")
    speculated = (version == "1.2.0rc6.post3") | (
        (version == "1.1.0rc2.post2") & (measured.fill_null("") >= _MTP_DATE)
    )
    joined = rows.join(
        spread, on=[*_SAME, *_SHAPE], how="left", nulls_equal=True, maintain_order="left"
    )
    drafting = pl.col("model_path").str.contains("DeepSeek|Qwen3.5|GLM")
    doubted = drafting & (pl.col("ratio") > _DISAGREE).fill_null(value=False)
    unmarked = pl.col("model_path").str.contains("DeepSeek") & (pl.col("backend") == "trtllm")
    rule = (
        pl.when(pl.col("rule") != "")
        .then("rule")
        .when(unmarked & speculated)
        .then(pl.lit("speculation not marked"))
        .when(doubted)
        .then(pl.lit("twins disagree"))
        .otherwise(pl.lit(""))
    )
    return joined.with_columns(rule=rule)


def _layout(row: Mapping[str, Any]) -> tuple[dict[str, int], str]:
    """The degrees that ran, and the rule by which a row is set aside.

    Rows with tp (or dp) of 16 or 64 and experts 4 × 4 or 8 × 8 carry the product of both degrees;
    their twins show the square root to be the truth. Rows with tp = dp count the world as tp.
    """
    tp, dp, moe_tp, ep = (int(row[n] or 0) or 1 for n in _DEGREES)
    side = moe_tp
    if moe_tp == ep and side > 1 and tp * dp == side * side and max(tp, dp) == side * side:
        whole = (1, side) if dp > 1 else (side, 1)
        return _degrees(*whole, ep=side, moe_tp=1), ""
    if dp > 1 and tp == dp and ep == tp * dp:
        return _degrees(1, dp, ep=dp, moe_tp=1), ""
    if tp * dp == ep * moe_tp:
        return _degrees(tp, dp, ep=ep, moe_tp=moe_tp), ""
    if ep == 1 and dp == 1:
        return _degrees(tp, 1, ep=1, moe_tp=tp), "" if moe_tp == 1 else "tp·dp ≠ ep·moe_tp"
    fitting = ep if (tp * dp) % ep == 0 else 1
    return _degrees(tp, dp, ep=fitting, moe_tp=tp * dp // fitting), "tp·dp ≠ ep·moe_tp"


_DEGREES = ("tp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")


def _degrees(tp: int, dp: int, *, ep: int, moe_tp: int) -> dict[str, int]:
    return {"tp": tp, "dp": dp, "ep": ep, "moe_tp": moe_tp}


def _case(row: Mapping[str, Any], catalog: Catalog) -> Case:
    labels = {
        "gpu": row["system"],
        "engine": row["backend"],
        "version": row["backend_version"] or "unstated",
        "model": row["model_path"].rpartition("/")[2],
        "mode": row["mode"],
        "precision": row["gemm_quant_mode"] or "bf16",
        "isl/osl": f"{row['isl']}/{row['osl']}",
        "concurrency": str(row["concurrency"]),
        "layout": f"tp{row['tp']} dp{row['dp']} ep{row['ep']}",
        "source": "InferenceX" if _is_inferencex(row) else "other",
    }
    measured = {"ttft_s": row["silicon_ttft_ms"] / 1e3, "tpot_s": row["silicon_tpot_ms"] / 1e3}
    found = {
        "key": row["id"],
        "labels": labels,
        "measured": measured,
        "set_aside": row["rule"],
        "statistic": STATISTIC,
    }
    if row["repeats"]:
        return Case(**found, reason="repeats another row")
    if row["mode"] != "agg":
        return Case(**found, reason="disaggregated")
    deployment, reason, launched = _deployment(row, catalog)
    if deployment is None:
        return Case(**found, reason=reason)
    labels["class"] = "MoE" if deployment.model.is_moe else "dense"
    if not found["set_aside"] and _holds_warm_up(row, deployment):
        found["set_aside"] = "TTFT holds a warm-up"
    workload, polls = _workload(row), launched.poll_steps
    return Case(**found, deployment=deployment, workload=workload, poll_steps=polls)


def _holds_warm_up(row: Mapping[str, Any], deployment: Deployment) -> bool:
    """Whether mean TTFT is a second above what the first burst takes at a tenth of the floor's
    speed: kernels were compiled while it was measured.
    """
    ttft_s = row["silicon_ttft_ms"] / 1e3
    if ttft_s < 1.0:
        return False
    alone_s = prompt_floor_s(deployment, deployment.pools[0], int(row["isl"]))
    return bool(ttft_s - 1.0 > _SLOW * alone_s * int(row["concurrency"]))


def _is_inferencex(row: Mapping[str, Any]) -> bool:
    return bool(re.match(r"db-dump|source_file=(\d{4}-|kimi|qwen3\.5)", row["silicon_data_source"]))


def _deployment(row: Mapping[str, Any], catalog: Catalog) -> tuple[Deployment | None, str, Launch]:
    model, gpu = model_named(catalog, row["model_path"]), gpu_named(catalog, row["system"])
    if model is None or gpu is None:
        return None, f"no {'model' if model is None else 'GPU'} in the catalog", Launch()
    engine = engine_named(catalog, row["backend"], row["backend_version"] or "", gpu)
    if engine is None:
        return None, "no engine profile", Launch()
    if not model.is_moe:
        row = {**row, "ep": 1, "moe_tp": row["tp"] * row["dp"]}
    layout = Layout(tp=row["tp"], dp=row["dp"], ep=row["ep"], moe_tp=row["moe_tp"])
    weights, launched = _weights(row, model, gpu), Launch()
    if _is_inferencex(row):
        launched = launch(
            engine, model, gpu, weights,
            isl_tokens=row["isl"], concurrency=int(row["concurrency"]), dp=layout.dp,
        )  # fmt: skip
        engine = launched.applied(engine)
    elif engine.name == "trtllm" and weights is DType.FP8:
        engine = replace(engine, scale_pass_s=_SCALE_PASS_S)
    precision = precision_of(model, gpu, weights=weights, kv=launched.kv or _kv(row))
    fabric = catalog.fabric(gpu.fabric)
    illegal = check(model, precision, layout, engine, gpu, fabric=fabric)
    if illegal:
        return None, f"illegal: {illegal[0].rule}", launched
    pool = Pool(gpu=gpu, fabric=fabric, layout=layout, engine=engine)
    return Deployment(model=model, precision=precision, pools=(pool,)), "", launched


def _weights(row: Mapping[str, Any], model: Model, gpu: GPU) -> DType:
    """The stated format; where none is stated, that of the checkpoint's name."""
    if "gpt-oss" in row["model_path"]:
        return model.checkpoint
    stated = dtype_named(row["gemm_quant_mode"])
    # The FP8 checkpoints that InferenceX serves of expert models are scaled by blocks of 128 × 128.
    by_block = model.checkpoint is DType.FP8_BLOCK or (model.is_moe and _is_inferencex(row))
    if stated is DType.FP8 and by_block:
        return DType.FP8_BLOCK
    return stated or DType.BF16


def _kv(row: Mapping[str, Any]) -> DType:
    """FP8 where the engines' recipes for such checkpoints say so: TensorRT-LLM with FP8 or FP4
    weights, and every FP4 checkpoint; 16 bits elsewhere.
    """
    quantised = row["gemm_quant_mode"] is not None
    fp4 = row["gemm_quant_mode"] == "nvfp4"
    return DType.FP8 if fp4 or (quantised and row["backend"] == "trtllm") else DType.BF16


def _workload(row: Mapping[str, Any]) -> Workload:
    as_drawn = spread if _is_inferencex(row) else _about
    return Workload(
        arrivals=ClosedLoop(concurrency=int(row["concurrency"])),
        n_requests=PROMPTS_PER_SLOT * int(row["concurrency"]),
        isl=as_drawn(row["isl"]),
        osl=as_drawn(row["osl"]),
    )


def _about(nominal: int) -> Lengths:
    """Lengths of a client that asks for equal ones: near enough, but never in step.

    Equal to the token, the requests of a closed loop would end together for ever, which no server
    was seen to do.
    """
    low, high = (max(1, round(nominal * factor)) for factor in _ABOUT)
    return Uniform(low_tokens=low, high_tokens=high)
