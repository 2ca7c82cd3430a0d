"""What a report is built of: figures and tables, in sections, over named datasets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from dse.report.tables import Table

__all__ = ["Figure", "Part", "Rows", "Section"]

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A chart with what it says to those who cannot see it (`alt`), and its `caption`.

    A `wide` one has a row of the page to itself.
    """

    name: str
    spec: Mapping[str, Any]
    alt: str
    caption: str
    title: str = ""
    wide: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section of the report; `lead` tables come before its charts, `tables` after them, `lists`
    are titled pairs of term and text.
    """

    name: str
    title: str
    lines: tuple[str, ...] = ()
    lead: tuple[Table, ...] = ()
    charts: tuple[Figure, ...] = ()
    tables: tuple[Table, ...] = ()
    lists: tuple[tuple[str, tuple[tuple[str, str], ...]], ...] = ()
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A section and the datasets that its charts name."""

    section: Section
    datasets: Mapping[str, Rows] = field(default_factory=dict)
