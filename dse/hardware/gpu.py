"""One accelerator as its data sheet gives it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from dse.base.bounds import require_positive
from dse.base.errors import UserError
from dse.base.keys import Key
from dse.base.units import Bytes, BytesPerSecond, Count, FlopPerSecond, Hertz, OpPerSecond, Watts
from dse.hardware.dtype import DType


@dataclass(frozen=True, slots=True, kw_only=True)
class GPU:
    """One accelerator: dense peaks without sparsity, driver-visible memory, one-way bandwidths.

    `peak_flop_per_s` is keyed by compute format (`bf16`, `fp8`, `fp4`, `int8`, `fp32`); a format
    that is absent is one that the tensor cores do not have. `fabric` names the catalog fabric the
    part usually stands in. `kernel_table` is a file of kernel coefficients of this GPU; the
    catalog fills in `kernels/NAME.json` of a root.
    """

    name: str = field(compare=False)
    vendor: str
    architecture: str
    hbm_bytes: Bytes
    hbm_datasheet_bytes: Bytes
    hbm_bytes_per_s: Annotated[BytesPerSecond, Key("hbm_bandwidth")]
    peak_flop_per_s: Mapping[str, FlopPerSecond]
    sfu_op_per_s: OpPerSecond
    l2_bytes: Bytes
    sm_count: Count
    boost_hz: Annotated[Hertz, Key("boost")]
    tdp_watts: Watts
    idle_watts: Watts
    fabric: str
    source: str = field(compare=False)
    tags: tuple[str, ...] = field(default=(), compare=False)
    conflicts: str = field(default="", compare=False)
    kernel_table: str = ""

    def __post_init__(self) -> None:
        """Refuse what no floor can divide by."""
        require_positive(self, "hbm_bytes", "hbm_bytes_per_s", "sfu_op_per_s")
        for key, peak in self.peak_flop_per_s.items():
            if not peak > 0:
                remedy = "give more than 0, or leave out a format that the tensor cores lack"
                raise UserError(f"peak.{key} of {self.name} is {peak:g}", remedy)

    def peak(self, dtype: DType) -> float:
        """Dense peak in FLOP/s of arithmetic on `dtype`; KeyError if the GPU lacks the format."""
        return self.peak_flop_per_s[dtype.compute]

    def supports(self, dtype: DType) -> bool:
        """Whether the tensor cores compute natively on `dtype`."""
        return dtype.compute in self.peak_flop_per_s

    def ridge_flop_per_byte(self, dtype: DType) -> float:
        """Ridge point: the arithmetic intensity (FLOP/B) above which `dtype` is compute-bound."""
        return self.peak(dtype) / self.hbm_bytes_per_s
