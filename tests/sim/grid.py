"""A kernel model of one GPU and model straight from measured grids (LLMServingSim's profiles)."""

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from dse.model.ops import DecodeAttention, Elementwise, Gemm, PrefillAttention
from dse.model.ops import Num as Number

# Projections of Llama-3.1-8B by (n, k), and elementwise kernels by name.
GEMMS = {
    (6144, 4096): "qkv_proj",
    (4096, 4096): "o_proj",
    (28672, 4096): "gate_up_proj",
    (4096, 14336): "down_proj",
    (128256, 4096): "lm_head",
}
ELEMENTWISE = {"norm": "layernorm", "rope": "rotary_emb", "activation": "act_fn"}
D_MODEL_BYTES = {"norm": 4096 * 8, "rope": 2 * 2 * 40 * 128, "activation": 14336 * 6}


class GridKernels:
    """Times of `folder`'s dense.csv, per_sequence.csv and attention.csv, linear in between."""

    tier = "target"
    in_step = True
    physics_id = "grid"

    def __init__(self, folder: Path) -> None:
        self.curves: dict[str, Any] = {}
        for name, count in (("dense.csv", "tokens"), ("per_sequence.csv", "sequences")):
            found = defaultdict(list)
            for row in _rows(folder / name):
                found[row["layer"]].append((float(row[count]), float(row["time_us"]) * 1e-6))
            self.curves |= {layer: np.array(sorted(points)).T for layer, points in found.items()}
        decode, prefill = {}, {}
        for row in _rows(folder / "attention.csv"):
            chunk, cached, n, context = (
                int(row[key]) for key in ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
            )
            if not chunk:
                decode[n, context] = float(row["time_us"]) * 1e-6
            elif not n:
                prefill[chunk, cached] = float(row["time_us"]) * 1e-6
        self.decode, self.prefill = _grid(decode), _grid(prefill)

    def seconds(self, op: Any) -> Number:
        if isinstance(op, Gemm):
            return self._curve(GEMMS[int(op.n), int(op.k)], op.m)
        if isinstance(op, Elementwise):
            if op.name not in ELEMENTWISE:
                return 0.0 * np.asarray(op.n_bytes)
            return self._curve(ELEMENTWISE[op.name], op.n_bytes / D_MODEL_BYTES[op.name])
        if isinstance(op, DecodeAttention):
            return _sheet(self.decode, op.n_seqs, op.context_tokens)
        assert isinstance(op, PrefillAttention)
        return _sheet(self.prefill, op.q_tokens, op.cached_tokens)

    def roofline_seconds(self, op: Any) -> Number:
        return self.seconds(op)

    def _curve(self, layer: str, x: Number) -> Number:
        xs, ys = self.curves[layer]
        return np.interp(x, xs, ys)


def _rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def _grid(times: dict[tuple[int, int], float]) -> tuple[Any, Any, Any]:
    xs, ys = (sorted({key[i] for key in times}) for i in (0, 1))
    return np.array(xs), np.array(ys), np.array([[times[x, y] for y in ys] for x in xs])


def _sheet(grid: tuple[Any, Any, Any], x: Number, y: Number) -> Number:
    """Bilinear; beyond the grid its last segments go on."""
    xs, ys, zs = grid
    x, y = np.broadcast_arrays(np.maximum(x, xs[0]), np.maximum(y, ys[0]))
    i = np.clip(np.searchsorted(xs, x, "right") - 1, 0, len(xs) - 2)
    j = np.clip(np.searchsorted(ys, y, "right") - 1, 0, len(ys) - 2)
    right, up = (x - xs[i]) / (xs[i + 1] - xs[i]), (y - ys[j]) / (ys[j + 1] - ys[j])
    low = zs[i, j] + right * (zs[i + 1, j] - zs[i, j])
    high = zs[i, j + 1] + right * (zs[i + 1, j + 1] - zs[i, j + 1])
    return low + up * (high - low)
