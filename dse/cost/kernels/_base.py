"""The contract of a kernel model: Op × GPU → seconds."""

from typing import Protocol

from dse.model.ops import ComputeOp, Num


class KernelModel(Protocol):
    """Prices ops on one GPU. Array fields give arrays of seconds.

    `tier` is `roofline` (peaks, no launch: what walls use), `cross` (no measurement on the target)
    or `target`. `physics_id` digests the coefficients that price a point. `in_step` says that times
    were taken inside the engine's own steps: what a step takes beyond isolated kernels
    (`EngineHost.prefill_gap`) is then in them, and is not added again.
    """

    @property
    def in_step(self) -> bool: ...

    @property
    def tier(self) -> str: ...

    @property
    def physics_id(self) -> str: ...

    def seconds(self, op: ComputeOp) -> Num:
        """Seconds of one run of `op`, launch included; never less than `roofline_seconds`."""
        ...

    def roofline_seconds(self, op: ComputeOp) -> Num:
        """Seconds at the GPU's peaks."""
        ...

    def interval(self, op: ComputeOp) -> tuple[Num, Num]:
        """Factors (low, high) of an 80% prediction interval around `seconds`."""
        ...
