"""Measured kernels of H20 and H800: the bench tables of InferSim (Alibaba, Apache-2.0), collected
with their source paths in one CSV. Dense GEMM in FP8 (DeepGEMM), attention and MLA in 16 bits.

InferSim times DeepGEMM alone, on inputs in FP8 already. The silicon database, hence a price, times
a linear layer: its input arrives in 16 bits and is converted first (in aiconfigurator's
collector/sglang/collect_gemm.py, `sglang_per_token_group_quant_fp8` before `gemm_nt_f8f8bf16`). At
n = 128 and k = 65,536 that pass is most of the time, so it comes off the price before they meet.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from dse.cost.kernels import KernelModel
from dse.hardware.dtype import DType
from dse.model.ops import (
    ComputeOp,
    DecodeAttention,
    Elementwise,
    Gemm,
    MLADecode,
    MLAPrefill,
    PrefillAttention,
)

QUANTISED_BYTES = 3.0  # an element of the input: 16 bits read, 8 written
HEADS_MLA = 128.0  # of DeepSeek-V3, the only MLA shape of the tables


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredOp:
    """One kernel: `gpu` as the source names it, `group` of attention or GEMM, and its seconds."""

    gpu: str
    group: str
    op: ComputeOp
    seconds: float

    def priced_s(self, model: KernelModel) -> float:
        """Seconds that `model` gives what the row timed, never below its roofline."""
        seconds = float(model.seconds(self.op))
        if not isinstance(self.op, Gemm):
            return seconds
        done_before = Elementwise(name="quantise", n_bytes=QUANTISED_BYTES * self.op.m * self.op.k)
        alone = seconds - float(model.seconds(done_before))
        return max(alone, float(model.roofline_seconds(self.op)))


def read_infersim(path: Path) -> Iterator[MeasuredOp]:
    """The GEMM, MHA and MLA rows of the collected CSV."""
    with path.open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            op = _op(row) if row["source_path"].startswith("bench_data/") else None
            if op is not None and row["latency_us"]:
                seconds = float(row["latency_us"]) * 1e-6
                yield MeasuredOp(gpu=row["gpu"], group=op.family, op=op, seconds=seconds)


def _op(row: Mapping[str, str]) -> ComputeOp | None:
    _, table, phase, *_ = row["source_path"].split("/")
    if table == "gemm":
        return Gemm(
            m=float(row["m_or_tokens"]),
            n=float(row["n"]),
            k=float(row["k"]),
            weights=DType.FP8_BLOCK,
            activations=DType.FP8,
        )
    if table not in ("mha", "mla") or not row["kv_len"]:
        return None
    kv = DType.FP8 if row["dtype"].endswith("kv fp8") else DType.BF16
    return _mha(row, phase, kv) if table == "mha" else _mla(row, phase, kv)


def _mha(row: Mapping[str, str], phase: str, kv: DType) -> ComputeOp:
    heads, kv_heads, d = (float(row[name]) for name in ("heads_q", "heads_kv", "head_dim"))
    keys = float(row["kv_len"])
    if phase == "decode":
        return DecodeAttention(
            n_seqs=float(row["batch"]), q_tokens=1.0, context_tokens=keys, n_heads=heads,
            n_kv_heads=kv_heads, d_qk=d, d_v=d, kv=kv,
        )  # fmt: skip
    return PrefillAttention(
        n_seqs=1.0, q_tokens=keys, cached_tokens=0.0, n_heads=heads, n_kv_heads=kv_heads,
        d_qk=d, d_v=d, kv=DType.BF16,
    )  # fmt: skip


def _mla(row: Mapping[str, str], phase: str, kv: DType) -> ComputeOp:
    keys = float(row["kv_len"])
    if phase == "decode":
        return MLADecode(
            n_seqs=float(row["batch"]), q_tokens=1.0, context_tokens=keys, n_heads=HEADS_MLA,
            d_latent=512.0, d_rope=64.0, bytes_per_token=576.0 * kv.bytes_per_element, kv=kv,
        )  # fmt: skip
    return MLAPrefill(
        n_seqs=1.0, q_tokens=keys, cached_tokens=0.0, n_heads=HEADS_MLA, d_qk=192.0, d_v=128.0,
        kv=DType.BF16,
    )  # fmt: skip
