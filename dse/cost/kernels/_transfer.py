"""Carrying an efficiency from the GPU it was measured on to another: what changes and why.

*Power.* A data sheet's peak assumes the boost clock; large GEMMs run at the clock that the power
limit allows. The share of peak they sustain falls in a line with peak per watt: 0.84 at 0.78
(A100, RTX PRO 6000), 0.76 at 1.41 (H100, H200), 0.67 at 2.05 (B300), 0.66 at 2.25 (B200) TFLOP/s/W,
own fit to the silicon database's 16-bit GEMMs (TensorRT-LLM).

*Issue.* What a kernel loses beyond that (scaling, softmax, pipeline fill) costs clocks of an SM, so
it weighs more where the tensor cores of an SM do more per clock: on an H20 a quarter of what it
weighs on an H100. This holds for the same kernels, so within an architecture; the kernels of a new
one hide more, and no scaling fits them better (own test, Hopper to Blackwell).

*Bytes in flight.* An SM keeps only so many loads in flight (Little's law), so a memory faster than
36 GB/s for each SM is reached less well: 0.84 of it on an H200, 0.78 on a B200.
"""

from dataclasses import dataclass

from dse.hardware.gpu import GPU

SUSTAINED_AT_REST = 0.95
SUSTAINED_PER_TFLOP_PER_WATT = 0.135
LEAST_SUSTAINED = 0.3
# MI300X reaches 620 of 1,307 TFLOP/s in 16 bits where an H100 reaches 720 of 989 (SemiAnalysis,
# "MI300X vs H100 vs H200 Benchmark Part 1", 2024): 0.65 of what its power would sustain. About 0.45
# of peak in 16 bits and FP8 alike, and 0.81 of the HBM (arXiv:2510.27583).
VENDOR_SHARE = {"amd": 0.65}
# FP8 with a scale a block: the vector units of CDNA multiply each partial sum, and CDNA 4 doubled
# the matrix cores, not them. AITER's tuned GEMM of 32,768 x 7,168 x 2,048 takes 1,205 µs on an
# MI300X, 0.31 of peak, that of 1,112 x 7,168 x 4,608 takes 63 µs on an MI355X, 0.23 (ROCm/aiter,
# aiter/configs/model_configs/a8w8_blockscale_tuned_gemm_ds_v3.csv at 082a563); fused experts reach
# 0.31 on an MI308X (a8w8_blockscale_tuned_fmoe_ds_v3.csv at 0b1924d). Own fit to the large GEMMs.
BLOCK_SCALED = ("fp8_block",)
BLOCK_SCALED_SHARE = {"cdna3": 0.69, "cdna4": 0.50}
MEMORY_SHARE = 0.84
EASY_BYTES_PER_S_PER_SM = 36e9
MEMORY_LOSS_PER_BYTE_PER_S = 0.0036e-9
LEAST_MEMORY_SHARE = 0.4


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What an efficiency depends on: the sustained share of peak (0-1), the tensor cores' work per
    clock and SM (FLOP, 16-bit) and the reachable share of the memory bandwidth (0-1).
    """

    sustained: float
    flop_per_clock_per_sm: float
    memory: float

    @classmethod
    def of(cls, gpu: GPU, variant: str = "") -> "Traits":
        """The traits of `gpu`, from its data sheet, for kernels of the number format `variant`."""
        peak = gpu.peak_flop_per_s["bf16"]
        per_watt = peak / gpu.tdp_watts / 1e12
        sustained = SUSTAINED_AT_REST - SUSTAINED_PER_TFLOP_PER_WATT * per_watt
        excess = max(gpu.hbm_bytes_per_s / gpu.sm_count - EASY_BYTES_PER_S_PER_SM, 0.0)
        memory = MEMORY_SHARE - MEMORY_LOSS_PER_BYTE_PER_S * excess
        share = VENDOR_SHARE.get(gpu.vendor, 1.0)
        if variant in BLOCK_SCALED:
            share *= BLOCK_SCALED_SHARE.get(gpu.architecture, 1.0)
        return cls(
            sustained=max(sustained, LEAST_SUSTAINED) * share,
            flop_per_clock_per_sm=peak / (gpu.sm_count * gpu.boost_hz),
            memory=max(memory, LEAST_MEMORY_SHARE),
        )


H100 = Traits(sustained=0.759, flop_per_clock_per_sm=3785.0, memory=0.84)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """From one GPU's efficiencies to another's: `power` replaces `power_there` in the inverse
    efficiency of arithmetic, the rest of which is scaled by `issue`; `memory` scales the inverse
    efficiency of memory.
    """

    power_there: float
    power: float
    issue: float
    memory: float

    @classmethod
    def between(cls, there: Traits, here: Traits, *, kin: bool) -> "Transfer":
        """What changes from a GPU with the traits `there` to one with `here`; `kin` if they share
        an architecture, hence kernels.
        """
        return cls(
            power_there=1.0 / there.sustained,
            power=1.0 / here.sustained,
            issue=here.flop_per_clock_per_sm / there.flop_per_clock_per_sm if kin else 1.0,
            memory=there.memory / here.memory,
        )
