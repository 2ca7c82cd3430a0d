"""Which tensor is stored, and which op computed, in which format."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from dse.hardware.dtype import DType

# Quantised checkpoints quantise linear layers; the rest stays 16-bit unless the model says more.
QUANTISED_CLASSES = ("attention", "dense_ffn", "expert", "shared_expert", "state")


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """`weights` for the classes in `quantised`, `other` for the rest; `kv` for the cache.

    `exceptions` gives single tensor classes a format of their own (mixed-precision checkpoints).
    `activations` is what enters a GEMM: FP8 for FP8 weights (W8A8), 16 bits for weight-only ones.
    """

    weights: DType = DType.BF16
    activations: DType = DType.BF16
    kv: DType = DType.BF16
    other: DType = DType.BF16
    quantised: tuple[str, ...] = QUANTISED_CLASSES
    exceptions: Mapping[str, DType] = field(default_factory=dict)

    def of(self, cls: str) -> DType:
        """The storage format of tensor class `cls`."""
        if cls in self.exceptions:
            return self.exceptions[cls]
        return self.weights if cls in self.quantised else self.other

    def activation_of(self, cls: str) -> DType:
        """The format in which activations enter a GEMM with weights of class `cls`."""
        weights = self.of(cls)
        return self.activations if weights is self.weights else self.other
