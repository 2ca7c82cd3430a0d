"""A checkpoint's number formats from the two that a user names: weights and KV."""

from __future__ import annotations

from dse.hardware import GPU, DType
from dse.model import Model
from dse.model.precision import QUANTISED_CLASSES, Precision

__all__ = ["precision_of"]

# Formats whose GEMMs take activations of the same width (W8A8, W4A4); all others are weight-only.
_ACTIVATIONS = {
    DType.FP8: DType.FP8,
    DType.FP8_BLOCK: DType.FP8,
    DType.INT8: DType.INT8,
    DType.NVFP4: DType.NVFP4,
}


def precision_of(model: Model, gpu: GPU, *, weights: DType, kv: DType) -> Precision:
    """Return the formats of `model` stored with `weights` and a KV cache in `kv`.

    The model's own checkpoint keeps its exceptions; any other format quantises the usual linear
    layers. Activations follow the weights where the GPU computes in their format, else 16 bits;
    MXFP4 meets MXFP8 on Blackwell (TensorRT-LLM's and FlashInfer's W4A8 experts).
    """
    native = weights == model.checkpoint
    activations = _ACTIVATIONS.get(weights, DType.BF16)
    if weights is DType.MXFP4 and gpu.vendor == "nvidia" and gpu.supports(DType.MXFP4):
        activations = DType.FP8
    return Precision(
        weights=weights,
        activations=activations if gpu.supports(activations) else DType.BF16,
        kv=kv,
        quantised=model.quantised if native else QUANTISED_CLASSES,
        exceptions=dict(model.exceptions) if native else {},
    )
