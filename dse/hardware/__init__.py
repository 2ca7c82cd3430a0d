"""What computes: number formats, GPUs and the fabrics between them."""

from dse.hardware.dtype import DType
from dse.hardware.fabric import Fabric, Link
from dse.hardware.gpu import GPU

__all__ = ["GPU", "DType", "Fabric", "Link"]
