"""What an op takes from each resource of a GPU, whatever the kernel: FLOP, HBM bytes, exponentials.

The roofline (Williams, Waterman & Patterson 2009) of `work` is what walls divide by peaks and
what kernel models divide by an efficiency, so the two cannot drift.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dse.hardware.dtype import DType
from dse.hardware.gpu import GPU
from dse.model.ops import (
    ComputeOp,
    DecodeAttention,
    Elementwise,
    Gemm,
    GroupedGemm,
    Indexer,
    LinearAttention,
    MLADecode,
    MLAPrefill,
    Num,
    PrefillAttention,
    least,
    most,
)

SIXTEEN_BIT = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`flop` at the peak named `compute`, `hbm_bytes` that must cross HBM (weights, KV),
    `activation_bytes` that do so only where they exceed L2, `sfu_ops` exponentials.
    """

    compute: str
    flop: Num = 0.0
    hbm_bytes: Num = 0.0
    activation_bytes: Num = 0.0
    sfu_ops: Num = 0.0

    def bytes_on(self, gpu: GPU) -> Num:
        """HBM bytes on `gpu`: activations that fit in L2 stay there."""
        return self.hbm_bytes + self.activation_bytes * (self.activation_bytes > gpu.l2_bytes)

    def flop_seconds(self, gpu: GPU) -> Num:
        """Seconds of arithmetic at the dense peak; a format that the GPU lacks runs at 16 bits."""
        peaks = gpu.peak_flop_per_s
        return self.flop / peaks.get(self.compute, peaks["bf16"])

    def hbm_seconds(self, gpu: GPU) -> Num:
        """Seconds of HBM traffic at the data sheet's bandwidth."""
        return self.bytes_on(gpu) / gpu.hbm_bytes_per_s

    def sfu_seconds(self, gpu: GPU) -> Num:
        """Seconds of exponentials on the special-function units."""
        return self.sfu_ops / gpu.sfu_op_per_s


def work(op: ComputeOp) -> Work:
    """The work of `op`; array fields give arrays."""
    rule: Callable[[Any], Work] = _RULES[type(op)]
    return rule(op)


def causal_pairs(q_tokens: Num, cached_tokens: Num, limit_tokens: Num | None) -> Num:
    """(query, key) pairs of a causal chunk: `T·P + T²/2`, keys of a query limited to the last
    `limit_tokens`.
    """
    if limit_tokens is None:
        return q_tokens * (cached_tokens + q_tokens / 2.0)
    return _seen(cached_tokens + q_tokens, limit_tokens) - _seen(cached_tokens, limit_tokens)


def _seen(position: Num, limit: Num) -> Num:
    """∫ min(x, limit) dx from 0 to `position`."""
    inside = least(position, limit)
    return inside * inside / 2.0 + limit * (position - inside)


def compute_format(weights: DType, activations: DType) -> str:
    """The peak a GEMM runs at: the weights' own, or 16 bits where only weights are quantised."""
    if activations.compute == weights.compute:
        return weights.compute
    return "bf16" if activations.compute == "bf16" else activations.compute


def _gemm(op: Gemm) -> Work:
    moved = op.m * op.k * op.activations.bytes_per_element + op.m * op.n * SIXTEEN_BIT
    return Work(
        compute=compute_format(op.weights, op.activations),
        flop=2.0 * op.m * op.n * op.k,
        hbm_bytes=op.n * op.k * op.weights.bytes_per_element * (op.m > 0),
        activation_bytes=moved,
    )


def _grouped(op: GroupedGemm) -> Work:
    elements = (3 if op.gated else 2) * op.d_model * op.d_ff
    inner = op.rows * op.d_ff * (3 if op.gated else 2) * SIXTEEN_BIT
    outer = op.rows * op.d_model * (op.activations.bytes_per_element + SIXTEEN_BIT)
    return Work(
        compute=compute_format(op.weights, op.activations),
        flop=2.0 * op.rows * elements,
        hbm_bytes=op.touched * elements * op.weights.bytes_per_element,
        activation_bytes=inner + outer,
    )


def _decode(op: DecodeAttention) -> Work:
    pairs = op.n_seqs * op.q_tokens * op.context_tokens * op.n_heads
    width = op.d_qk + op.d_v
    stored = op.n_kv_heads * width * op.kv.bytes_per_element
    return Work(
        compute=op.kv.compute,
        flop=2.0 * pairs * width,
        hbm_bytes=op.n_seqs * op.context_tokens * stored,
        sfu_ops=pairs,
    )


def _prefill(op: PrefillAttention) -> Work:
    pairs = op.n_seqs * op.n_heads * causal_pairs(op.q_tokens, op.cached_tokens, op.window_tokens)
    width = op.d_qk + op.d_v
    cached = op.cached_tokens
    if op.window_tokens is not None:
        cached = least(cached, op.window_tokens)
    stored = op.n_kv_heads * width * op.kv.bytes_per_element
    moved = op.n_seqs * op.q_tokens * (width * (op.n_heads + op.n_kv_heads)) * SIXTEEN_BIT
    return Work(
        compute=op.kv.compute,
        flop=2.0 * pairs * width,
        hbm_bytes=op.n_seqs * cached * stored,
        activation_bytes=moved,
        sfu_ops=pairs,
    )


def _mla_decode(op: MLADecode) -> Work:
    pairs = op.n_seqs * op.q_tokens * op.context_tokens * op.n_heads
    return Work(
        compute=op.kv.compute,
        flop=2.0 * pairs * (2.0 * op.d_latent + op.d_rope),
        hbm_bytes=op.n_seqs * op.context_tokens * op.bytes_per_token,
        sfu_ops=pairs,
    )


def _mla_prefill(op: MLAPrefill) -> Work:
    seen = causal_pairs(op.q_tokens, op.cached_tokens, op.selected_tokens)
    pairs = op.n_seqs * op.n_heads * seen
    width = op.d_qk + op.d_v
    keys = op.n_seqs * (op.cached_tokens + 2.0 * op.q_tokens)
    return Work(
        compute="bf16",
        flop=2.0 * pairs * width,
        activation_bytes=keys * width * op.n_heads * SIXTEEN_BIT,
        sfu_ops=pairs,
    )


def _indexer(op: Indexer) -> Work:
    return Work(
        compute="fp8",
        flop=2.0 * op.pairs * op.n_heads * op.d_head,
        hbm_bytes=op.key_bytes,
    )


def _linear(op: LinearAttention) -> Work:
    return Work(
        compute="bf16",
        flop=op.tokens * op.flop_per_token,
        hbm_bytes=2.0 * op.n_seqs * op.state_bytes,
        activation_bytes=op.tokens * op.activation_bytes_per_token,
    )


def _elementwise(op: Elementwise) -> Work:
    if op.name == "kv_write":
        return Work(compute="bf16", hbm_bytes=op.n_bytes)
    return Work(compute="bf16", activation_bytes=most(op.n_bytes, 0.0))


_RULES: dict[type, Callable[[Any], Work]] = {
    Gemm: _gemm,
    GroupedGemm: _grouped,
    DecodeAttention: _decode,
    PrefillAttention: _prefill,
    MLADecode: _mla_decode,
    MLAPrefill: _mla_prefill,
    Indexer: _indexer,
    LinearAttention: _linear,
    Elementwise: _elementwise,
}
