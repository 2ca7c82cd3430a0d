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
    from dse.pipeline.api import Report, run, show
    from dse.serving.deployment import Deployment
    from dse.serving.engine import Engine
    from dse.serving.layout import Layout
    from dse.serving.slo import SLO
    from dse.serving.workload import Workload
    from dse.sim import PointMetrics, simulate
    from dse.space import Space, load_space
    from dse.store import Store
    from dse.study import Study, load_study
    from dse.study.check import check

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
    "PointMetrics",
    "Report",
    "Space",
    "Store",
    "Study",
    "Workload",
    "__version__",
    "check",
    "load_space",
    "load_study",
    "run",
    "show",
    "simulate",
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
    "PointMetrics": "dse.sim",
    "Report": "dse.pipeline.api",
    "SLO": "dse.serving.slo",
    "Space": "dse.space",
    "Store": "dse.store",
    "Study": "dse.study",
    "Workload": "dse.serving.workload",
    "check": "dse.study.check",
    "load_space": "dse.space",
    "load_study": "dse.study",
    "run": "dse.run",
    "show": "dse.pipeline.api",
    "simulate": "dse.sim",
}


def __getattr__(name: str) -> object:
    """Import a public name from its home when it is first asked for."""
    if name not in _HOMES:
        raise AttributeError(f"module 'dse' has no attribute {name!r}")
    home = import_module(_HOMES[name])
    # `dse.run` is a package that can be called.
    return home if home.__name__ == f"dse.{name}" else getattr(home, name)


def __dir__() -> list[str]:
    """List the public names."""
    return __all__
