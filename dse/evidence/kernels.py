"""Measured kernels as ops: the silicon database's tables in the vocabulary of `dse.model.ops`.

A *slice* is one implementation of one family on one GPU in one number format. Coefficients are
fitted and scored by slice. Every reader yields ops whose fields are arrays, so the fit sees exactly
the formula that prices a deployment.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import polars as pl

from dse.catalog import Catalog
from dse.cost.kernels._terms import WINDOWED
from dse.cost.work import compute_format, work
from dse.evidence.kernels_gemm import stalled, static_scales
from dse.evidence.kernels_moe import COLD, mistuned
from dse.evidence.routing import expert_load
from dse.evidence.silicon import ENGINES, Table, tables
from dse.hardware.dtype import DType
from dse.model.ops import (
    DecodeAttention,
    Elementwise,
    Gemm,
    GroupedGemm,
    Indexer,
    LinearAttention,
    MLADecode,
    MLAPrefill,
    PrefillAttention,
)

Array = npt.NDArray[np.floating[Any]]
NO_WINDOW = 1e12
MIN_ROWS = 500

# Number formats of the tables: stored weights, and what enters the tensor cores.
FORMATS = {
    "bfloat16": (DType.BF16, DType.BF16),
    "fp8": (DType.FP8, DType.FP8),
    "fp8_block": (DType.FP8_BLOCK, DType.FP8),
    "nvfp4": (DType.NVFP4, DType.NVFP4),
    "int8_wo": (DType.INT8, DType.BF16),
    "int4_wo": (DType.INT4, DType.BF16),
    "sq": (DType.INT8, DType.INT8),
    "w4a16_mxfp4": (DType.MXFP4, DType.BF16),
    "w4a8_mxfp4_mxfp8": (DType.MXFP4, DType.FP8),
    "w4afp8": (DType.INT4, DType.FP8),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """Measured rows of one implementation: `op` with array fields, `seconds`, and for each row the
    `group` of shapes it belongs to (held out whole) and the `cohort` (whole model, MoE only).
    Rows that are not `usable` measure something the op does not describe.
    """

    family: str
    gpu: str
    engine: str
    version: str
    implementation: str
    compute: str
    op: Any
    seconds: Array
    group: npt.NDArray[np.int64]
    cohort: npt.NDArray[np.int64]
    usable: npt.NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.seconds)


def _as_it_is(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    return frame


@dataclass(frozen=True, slots=True, kw_only=True)
class Reader:
    """How one table becomes slices: split by the columns `keys`, grouped by those in `groups`.

    `prepare` may merge rows or correct times; `engines` limits the tables to those whose kernels
    stand for all.
    """

    family: str
    table: str
    keys: tuple[str, ...]
    groups: tuple[str, ...]
    cohorts: tuple[str, ...]
    convert: Callable[[dict[str, Array], dict[str, str]], tuple[Any, str]]
    prepare: Callable[[Table, pl.DataFrame], pl.DataFrame] = _as_it_is
    engines: tuple[str, ...] = ENGINES

    def slices(self, gpus: tuple[str, ...] | None = None) -> Iterator[Slice]:
        """Every slice of at least `MIN_ROWS` rows, of the catalog GPUs named (all by default)."""
        for table in tables(self.table):
            if (gpus is None or table.gpu in gpus) and table.engine in self.engines:
                yield from self._split(table)

    def _split(self, table: Table) -> Iterator[Slice]:
        keys = ("kernel_source", *self.keys)
        frame = table.scan().filter(pl.col("latency") > 0).collect()
        if "window_size" not in frame.columns:
            frame = frame.with_columns(window_size=pl.lit(0))
        frame = self.prepare(table, frame)
        frame = frame.sort(*keys, *self.groups)
        for values, part in frame.group_by(*keys, maintain_order=True):
            labels = dict(zip(keys, map(str, values), strict=True))
            if len(part) < MIN_ROWS or labels.get("gemm_dtype", "bfloat16") not in FORMATS:
                continue
            op, compute = self.convert(_columns(part), labels)
            yield Slice(
                family=self.family,
                gpu=table.gpu,
                engine=table.engine,
                version=table.version,
                implementation=labels["kernel_source"],
                compute=compute,
                op=op,
                seconds=part["latency"].to_numpy() * 1e-3,
                group=_number(part, self.groups),
                cohort=_number(part, self.cohorts),
                usable=_usable(table, part, op),
            )


def _usable(table: Table, part: pl.DataFrame, op: Any) -> npt.NDArray[np.bool_]:
    """All rows but GEMMs that stalled, experts that ran a badly chosen kernel and TensorRT-LLM's
    decode steps whose context exceeds the window: its kernel's time follows the whole context
    there, and an op holds what is read.
    """
    if table.name == "gemm":
        return ~stalled(part)
    if table.name == "moe":
        return ~mistuned(part, work(op).hbm_bytes > COLD * _l2_bytes(table.gpu))
    if table.name != "generation_attention" or table.engine != "trtllm":
        return np.ones(len(part), dtype=bool)
    window, context = part["window_size"].to_numpy(), part["step"].to_numpy() + 1
    return (window <= 0) | (context <= window)


@cache
def _l2_bytes(gpu: str) -> float:
    return Catalog.load().gpu(gpu).l2_bytes


def _columns(part: pl.DataFrame) -> dict[str, Any]:
    return {name: _array(part[name]) for name in part.columns}


def _array(column: pl.Series) -> Any:
    return column.to_numpy().astype(float) if column.dtype.is_numeric() else column.to_list()


def _number(part: pl.DataFrame, names: tuple[str, ...]) -> npt.NDArray[np.int64]:
    if not names:
        return np.zeros(len(part), dtype=np.int64)
    ranks = part.select(pl.struct(names).rank("dense")).to_series()
    return ranks.to_numpy().astype(np.int64)


def _gemm(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    weights, activations = FORMATS[labels["gemm_dtype"]]
    op = Gemm(m=c["m"], n=c["n"], k=c["k"], weights=weights, activations=activations)
    return op, compute_format(weights, activations)


def _window(c: dict[str, Array]) -> Array:
    return np.where(c["window_size"] > 0, c["window_size"], NO_WINDOW)


def _kv(labels: dict[str, str]) -> DType:
    return DType.FP8 if labels["kv_cache_dtype"] == "fp8" else DType.BF16


def _compute(label: str) -> str:
    return "fp8" if label == "fp8" else "bf16"


def _kv_heads(c: dict[str, Array]) -> Array:
    given = c["num_key_value_heads"]
    return np.where(given > 0, given, c["num_heads"])


def _prefill(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    op = PrefillAttention(
        n_seqs=c["batch_size"],
        q_tokens=c["isl"],
        cached_tokens=c["step"],
        n_heads=c["num_heads"],
        n_kv_heads=_kv_heads(c),
        d_qk=c["head_dim"],
        d_v=c["head_dim"],
        kv=_kv(labels),
        window_tokens=_window(c),
    )
    return op, _compute(labels["attn_dtype"])


def _decode(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    op = DecodeAttention(
        n_seqs=c["batch_size"],
        q_tokens=np.ones_like(c["batch_size"]),
        context_tokens=np.minimum(c["step"] + 1.0, _window(c)),
        n_heads=c["num_heads"],
        n_kv_heads=_kv_heads(c),
        d_qk=c["head_dim"],
        d_v=c["head_dim"],
        kv=_kv(labels),
        windowed=labels["path"] == WINDOWED,
    )
    return op, _compute(labels["attn_dtype"])


def _moe(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    weights, activations = FORMATS[labels["moe_dtype"]]
    load = expert_load(
        tokens=c["num_tokens"],
        n_experts=c["num_experts"],
        top_k=c["topk"],
        ep=c["moe_ep_size"],
        distribution=c["distribution"],  # type: ignore[arg-type]
    )
    op = GroupedGemm(
        tokens=c["num_tokens"],
        rows=load.rows,
        touched=load.touched,
        n_experts=c["num_experts"] / c["moe_ep_size"],
        top_k=c["topk"],
        d_model=c["hidden_size"],
        d_ff=c["inter_size"] / c["moe_tp_size"],
        gated="nongated" not in labels["kernel_source"],
        weights=weights,
        activations=activations,
    )
    return op, compute_format(weights, activations)


def _mla_decode(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    kv = _kv(labels)
    op = MLADecode(
        n_seqs=c["batch_size"],
        q_tokens=np.ones_like(c["batch_size"]),
        context_tokens=c["step"] + 1.0,
        n_heads=c["num_heads"],
        d_latent=512.0,
        d_rope=64.0,
        bytes_per_token=576.0 * kv.bytes_per_element,
        kv=kv,
    )
    return op, _compute(labels["mla_dtype"])


def _mla_prefill(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    op = MLAPrefill(
        n_seqs=c["batch_size"],
        q_tokens=c["isl"],
        cached_tokens=c["step"],
        n_heads=c["num_heads"],
        d_qk=192.0,
        d_v=128.0,
        kv=_kv(labels),
    )
    return op, _compute(labels["mla_dtype"])


def _quantise(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    """Scale and convert: 16 bits read, 8 written."""
    return Elementwise(name="quantise", n_bytes=3.0 * c["m"] * c["k"]), "bf16"


def _indexer(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    """GLM-5's lightning indexer: 32 heads of 128 in FP8, a scale of 4 bytes per key."""
    rows, keys = c["batch_size"], c["step"] + c["isl"]
    pairs = rows * c["isl"] * (c["step"] + (c["isl"] + 1.0) / 2.0)
    return Indexer(pairs=pairs, n_heads=32.0, d_head=128.0, key_bytes=rows * keys * 132.0), "fp8"


def _gated_delta(c: dict[str, Array], labels: dict[str, str]) -> tuple[Any, str]:
    """Convolution and recurrence of a gated delta network, state in fp32."""
    d_inner, keys = c["num_v_heads"] * c["head_v_dim"], c["num_k_heads"] * c["head_k_dim"]
    convolved = d_inner + 2.0 * keys
    recurrent = d_inner * c["head_k_dim"]
    op = LinearAttention(
        n_seqs=c["batch_size"],
        tokens=c["num_tokens"],
        state_bytes=4.0 * recurrent + 2.0 * convolved * (c["d_conv"] - 1.0),
        flop_per_token=6.0 * recurrent,
        activation_bytes_per_token=2.0 * (2.0 * convolved + 2.0 * d_inner),
    )
    return op, "bf16"


def _whole_mixer(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """One row a shape: the convolution and the recurrence, which tables list apart, added."""
    keys = ("phase", "batch_size", "seq_len", "num_tokens", "d_conv", *DELTA_SHAPE)
    each = frame.group_by(*keys, "kernel_source").agg(pl.col("latency").mean())
    both = each.group_by(keys).agg(pl.col("latency").sum(), pl.len().alias("parts"))
    return both.filter(pl.col("parts") == 2).with_columns(kernel_source=pl.lit("gated_delta"))


def _paths(table: Table, frame: pl.DataFrame) -> pl.DataFrame:
    """With a window, FlashAttention-2 neither splits the context nor lets the query heads of a
    group share a tile: up to eight times the time of the same keys without one.
    """
    other = pl.col("kernel_source").str.contains(SPLIT_BY_WINDOW) & (pl.col("window_size") > 0)
    return frame.with_columns(path=pl.when(other).then(pl.lit(WINDOWED)).otherwise(pl.lit("")))


SPLIT_BY_WINDOW = "flash_attn_fa2"
DELTA_SHAPE = ("num_k_heads", "head_k_dim", "num_v_heads", "head_v_dim")
ATTENTION_GROUP = ("num_heads", "num_key_value_heads", "head_dim", "window_size")
MOE_MODEL = ("hidden_size", "inter_size", "topk", "num_experts")
READERS = {
    reader.family: reader
    for reader in (
        Reader(
            family="gemm", table="gemm", keys=("gemm_dtype",), groups=("n", "k"), cohorts=(),
            convert=_gemm, prepare=static_scales,
        ),
        Reader(
            family="moe", table="moe", keys=("moe_dtype",),
            groups=(*MOE_MODEL, "moe_tp_size", "moe_ep_size"), cohorts=MOE_MODEL, convert=_moe,
        ),
        Reader(
            family="prefill_attention", table="context_attention",
            keys=("attn_dtype", "kv_cache_dtype"), groups=ATTENTION_GROUP, cohorts=(),
            convert=_prefill,
        ),
        Reader(
            family="decode_attention", table="generation_attention",
            keys=("attn_dtype", "kv_cache_dtype", "path"), groups=ATTENTION_GROUP, cohorts=(),
            convert=_decode, prepare=_paths,
        ),
        Reader(
            family="mla_decode", table="generation_mla", keys=("mla_dtype", "kv_cache_dtype"),
            groups=("num_heads", "batch_size"), cohorts=(), convert=_mla_decode,
        ),
        Reader(
            family="mla_prefill", table="context_mla", keys=("mla_dtype", "kv_cache_dtype"),
            groups=("num_heads", "batch_size"), cohorts=(), convert=_mla_prefill,
        ),
        Reader(
            family="elementwise", table="scale_matrix", keys=("quant_dtype",), groups=("k",),
            cohorts=(), convert=_quantise, engines=("trtllm",),
        ),
        Reader(
            family="indexer", table="glm5_mqa_logits_module", keys=("mla_dtype",),
            groups=("batch_size", "isl"), cohorts=(), convert=_indexer,
        ),
        Reader(
            family="linear_attention", table="gdn", keys=(), groups=DELTA_SHAPE, cohorts=(),
            convert=_gated_delta, prepare=_whole_mixer,
        ),
    )
}  # fmt: skip


@cache
def measured(family: str, gpu: str) -> tuple[Slice, ...]:
    """Every slice of `family` on the catalog GPU `gpu`, read once: scores and baselines of several
    tiers go over the same rows.
    """
    return tuple(READERS[family].slices((gpu,)))
