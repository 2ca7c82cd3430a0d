"""Rows of an engine sweep as deployments under a load: what a saturation fit is made from.

A row is used if its launch arguments are printed, all its requests are equally long and nothing in
it speculates or is disaggregated; the others are counted by reason, never guessed.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from dse.base.errors import CatalogError
from dse.catalog.catalog import Catalog
from dse.cost.memory import rank_memory
from dse.evidence.measurement import Measurement
from dse.hardware.dtype import DType
from dse.model.precision import Precision
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import Engine
from dse.serving.layout import Layout
from dse.serving.schedulers import PrefillFirst

# vLLM 0.8.0 made the V1 engine the default: https://github.com/vllm-project/vllm/releases/tag/v0.8.0
V1_DATE = "2025-03-18"
# Token budget of V0 with chunked prefill: https://github.com/vllm-project/vllm/pull/4580
V0_CHUNKED_TOKENS = 512

_FORMATS = {"fp16": DType.BF16, "bf16": DType.BF16, "auto": DType.BF16, "fp8": DType.FP8}


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One measured row: `deployment` served `n_requests`, at most `concurrency` of them at a time
    in flight; the engine's own cap is in the deployment.
    """

    measured: Measurement
    deployment: Deployment
    concurrency: float
    n_requests: float


def sweep_rows(
    rows: Iterable[Measurement], catalog: Catalog
) -> tuple[tuple[SweepRow, ...], Mapping[str, int]]:
    """The rows that a fit can use, and how many were set aside for each reason."""
    found, skipped = [], Counter[str]()
    for row in rows:
        reason = _unusable(row)
        if not reason:
            try:
                found.append(_sweep_row(row, catalog))
                continue
            except CatalogError as error:
                reason = error.message
        skipped[reason] += 1
    return tuple(found), dict(skipped)


def _unusable(row: Measurement) -> str:
    if "vllm" not in (row.framework or "").lower():
        return "engine is not vLLM"
    if not row.engine_arguments:
        return "launch arguments are not printed"
    if row.output_tok_per_s is None:
        return "no output throughput"
    if row.isl_tokens % 1 or row.osl_tokens % 1:
        return "lengths are means of an unstated distribution"
    if (row.spec_decode or "none").lower() != "none" or row.disagg:
        return "speculative or disaggregated"
    if not row.note("n") or "at once" not in (row.load_mode or ""):
        return "number of requests or their arrivals are not stated"
    return ""


def _sweep_row(row: Measurement, catalog: Catalog) -> SweepRow:
    n_requests = row.note("n") or 0.0
    deployment = _deployment(row, catalog)
    if row.kv_pool_tokens:
        pool = deployment.pools[0]
        per_token = rank_memory(deployment, pool).kv_bytes_per_token
        deployment = replace(deployment, kv_pool_bytes=row.kv_pool_tokens * per_token)
    return SweepRow(
        measured=row, deployment=deployment, concurrency=n_requests, n_requests=n_requests
    )


def _deployment(row: Measurement, catalog: Catalog) -> Deployment:
    gpu = catalog.gpu(_gpu_name(row.gpu))
    layout = Layout(tp=row.tp or row.n_gpus or 1, pp=row.pp or 1)
    pool = Pool(
        gpu=gpu,
        fabric=catalog.fabric(gpu.fabric),
        layout=layout,
        engine=_engine(row, catalog),
        n_replicas=max((row.n_gpus or layout.n_gpus) // layout.n_gpus, 1),
    )
    weights = _format(row.precision_weights)
    activations = weights if weights is DType.FP8 else DType.BF16
    precision = Precision(
        weights=weights, activations=activations, kv=_format(row.precision_kv or "auto")
    )
    return Deployment(model=catalog.model(row.model), precision=precision, pools=(pool,))


def _gpu_name(text: str) -> str:
    """The part's own name: what stands before a parenthesis, without the vendor."""
    return re.sub(r"^(NVIDIA|AMD Instinct)\s+", "", text.partition("(")[0].strip())


def _format(text: str | None) -> DType:
    word = re.split(r"[\s/_]", (text or "auto").lower())[0]
    if word not in _FORMATS:
        raise CatalogError(f"no number format {text!r}", f"one of {', '.join(_FORMATS)}")
    return _FORMATS[word]


def _engine(row: Measurement, catalog: Catalog) -> Engine:
    """The engine profile of the row's version, or of its date, under its launch arguments."""
    version = re.search(r"\d+\.\d+", row.framework_version or "")
    is_v0 = (row.date or V1_DATE) < V1_DATE
    name = f"vllm@{version[0]}" if version else "vllm@0.6" if is_v0 else "vllm"
    engine, given = catalog.engine(name), row.engine_arguments
    chunked = "enable-chunked-prefill" in given or not is_v0
    budget = V0_CHUNKED_TOKENS if chunked and is_v0 else engine.max_num_batched_tokens
    return replace(
        engine,
        scheduler=engine.scheduler if chunked else PrefillFirst(),
        max_num_seqs=int(given.get("max-num-seqs") or engine.max_num_seqs),
        max_num_batched_tokens=int(given.get("max-num-batched-tokens") or budget),
        prefix_caching="prefix_caching=False" not in row.notes and engine.prefix_caching,
    )
