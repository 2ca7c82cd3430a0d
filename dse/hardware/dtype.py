"""Number formats: what an element weighs in memory, and which peak its arithmetic runs at."""

from enum import StrEnum


class DType(StrEnum):
    """A storage format of weights, activations or KV, scales included.

    `compute` is the format of the tensor-core peak that prices a GEMM with such weights:
    block scales do not change the peak, and int4 weights are dequantised to 16 bits.
    """

    FP32 = "fp32"
    BF16 = "bf16"
    FP16 = "fp16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    MXFP8 = "mxfp8"
    INT8 = "int8"
    NVFP4 = "nvfp4"
    MXFP4 = "mxfp4"
    INT4 = "int4"
    INT4_G32 = "int4_g32"

    @property
    def bytes_per_element(self) -> float:
        """Bytes of one element in a weight tensor with its share of the scales."""
        return _BYTES[self]

    @property
    def compute(self) -> str:
        """The key of `GPU.peak_flop_per_s` that this format computes at."""
        return _COMPUTE[self]

    @property
    def block_elements(self) -> int:
        """The block or group width that a sharded dimension must stay a multiple of; 1 if none."""
        return _BLOCK[self]


# FP8 128x128 blocks carry one fp32 scale; NVFP4 one fp8 scale per 16; MXFP8 and MXFP4 one e8m0 per
# 32; INT4 group-128 a 16-bit scale and a 4-bit zero point per group (AWQ/GPTQ layouts); INT4
# group-32 a 16-bit scale (compressed-tensors, symmetric).
_BYTES = {
    DType.FP32: 4.0,
    DType.BF16: 2.0,
    DType.FP16: 2.0,
    DType.FP8: 1.0,
    DType.FP8_BLOCK: 1.0 + 4.0 / 16384.0,
    DType.MXFP8: 1.0 + 1.0 / 32.0,
    DType.INT8: 1.0,
    DType.NVFP4: 0.5 + 1.0 / 16.0,
    DType.MXFP4: 0.5 + 1.0 / 32.0,
    DType.INT4: 0.5 + 2.5 / 128.0,
    DType.INT4_G32: 0.5 + 2.0 / 32.0,
}
_COMPUTE = {
    DType.FP32: "fp32",
    DType.BF16: "bf16",
    DType.FP16: "bf16",
    DType.FP8: "fp8",
    DType.FP8_BLOCK: "fp8",
    DType.MXFP8: "fp8",
    DType.INT8: "int8",
    DType.NVFP4: "fp4",
    DType.MXFP4: "fp4",
    DType.INT4: "bf16",
    DType.INT4_G32: "bf16",
}
_BLOCK = dict.fromkeys(DType, 1) | {
    DType.FP8_BLOCK: 128,
    DType.MXFP8: 32,
    DType.NVFP4: 16,
    DType.MXFP4: 32,
    DType.INT4: 128,
    DType.INT4_G32: 32,
}
