"""How points are proposed: every survivor, best first with a proof, or by a sampler."""

from collections.abc import Callable, Mapping

import polars as pl

from dse.search import bound, exhaustive, optuna
from dse.search.grouped import search_each
from dse.search.question import (
    Answer,
    Bound,
    Certificate,
    Evaluate,
    Question,
    Round,
    Violation,
)

Search = Callable[[pl.DataFrame, Evaluate, Question], Answer]

METHODS: Mapping[str, Search] = {
    "bound": bound.search,
    "exhaustive": exhaustive.search,
    "optuna": optuna.search,
}

__all__ = [
    "METHODS",
    "Answer",
    "Bound",
    "Certificate",
    "Evaluate",
    "Question",
    "Round",
    "Search",
    "Violation",
    "search_each",
]
