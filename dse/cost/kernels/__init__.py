"""How long kernels take: roofline divided by a learned, bounded efficiency, by family.

One module a family (`KERNELS`) says what limits a kernel and which features decide its efficiency;
`kernel_model` gives the price list of a GPU.
"""

from collections.abc import Mapping, Sequence
from typing import get_args

from dse.base.errors import CatalogError, UserError
from dse.base.family import Family
from dse.cost.kernels import _coefficients, _reference
from dse.cost.kernels._base import KernelModel
from dse.cost.kernels._model import FittedKernels, RooflineKernels, Tier
from dse.cost.kernels._terms import Kernel, Terms
from dse.hardware.gpu import GPU

KERNELS = Family(__name__, Kernel)

__all__ = [
    "KERNELS",
    "FittedKernels",
    "Kernel",
    "KernelModel",
    "RooflineKernels",
    "Terms",
    "Tier",
    "kernel_model",
]


def kernel_model(
    gpu: GPU,
    engine_impl: str | Sequence[str] | None = None,
    tier: Tier = "auto",
    *,
    named: Mapping[str, str] | None = None,
    without: Sequence[str] = (),
) -> KernelModel:
    """The kernel model of `gpu`: its `target` table where one ships (tier `auto`), else `cross`.

    `engine_impl` names an engine (`vllm`, `sglang`, `trtllm`) or an implementation (`fa3`), or
    several, best first; others get the default order. `named` puts one before them for a family or
    a number format of it (`{"gemm/fp8": "sglang"}`). `without` names GPUs whose tables the cross
    tier must not see. CatalogError where tier `target` is asked of a GPU without a table,
    UserError for an unknown tier.
    """
    if tier not in get_args(Tier):
        raise UserError(f"no kernel tier {tier!r}", f"one of {', '.join(get_args(Tier))}")
    if tier == "roofline":
        return RooflineKernels(gpu=gpu)
    own = None if tier == "cross" else _reference.target(gpu)
    if tier == "target" and own is None:
        known = ", ".join(_coefficients.gpus()) or "none"
        raise CatalogError(
            f"no kernel table for {gpu.name}; measured: {known}",
            "use tier cross, or fit a table with `dse calibrate kernels --table FILE`",
        )
    return FittedKernels(
        gpu=gpu,
        asked=(engine_impl,) if isinstance(engine_impl, str) else tuple(engine_impl or ()),
        own=own,
        kin=_reference.references(gpu, without),
        named=tuple(sorted((named or {}).items())),
        families={kind: part() for kind, part in KERNELS.items()},
    )
