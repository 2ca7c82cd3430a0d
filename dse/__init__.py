"""Design-space exploration for LLM serving: declare, prune, simulate, report the front.

The public names below are found in their homes on first use, so that `import dse` costs nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from dse._version import __version__

if TYPE_CHECKING:
    from dse.base.errors import DseError
    from dse.catalog import Catalog
    from dse.hardware import GPU, DType, Fabric
    from dse.model import Model
    from dse.serving.deployment import Deployment
    from dse.serving.engine import Engine
    from dse.serving.layout import Layout
    from dse.serving.slo import SLO
    from dse.serving.workload import Workload

__all__ = [
    "GPU",
    "SLO",
    "Catalog",
    "DType",
    "Deployment",
    "DseError",
    "Engine",
    "Fabric",
    "Layout",
    "Model",
    "Workload",
    "__version__",
]

_HOMES = {
    "Catalog": "dse.catalog",
    "DType": "dse.hardware",
    "Deployment": "dse.serving.deployment",
    "DseError": "dse.base.errors",
    "Engine": "dse.serving.engine",
    "Fabric": "dse.hardware",
    "GPU": "dse.hardware",
    "Layout": "dse.serving.layout",
    "Model": "dse.model",
    "SLO": "dse.serving.slo",
    "Workload": "dse.serving.workload",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dse' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
