"""The export family: a deployment as the launch command of a serving engine, and back."""

from dse.base.family import Family
from dse.export._asked import Longest, longest, with_batch
from dse.export._base import Exporter, Launch
from dse.export._export import export, parse
from dse.export._script import Export

EXPORTERS = Family(__name__, Exporter)

__all__ = [
    "EXPORTERS",
    "Export",
    "Exporter",
    "Launch",
    "Longest",
    "export",
    "longest",
    "parse",
    "with_batch",
]
