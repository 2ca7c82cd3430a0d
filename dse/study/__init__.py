"""The question asked of a space: its record and its loader."""

from dse.study.asked import Asked, Load
from dse.study.grammar import Search, StudyFile, Target
from dse.study.price import Owned, Price, Quoted
from dse.study.read import load_study
from dse.study.study import Study

__all__ = [
    "Asked",
    "Load",
    "Owned",
    "Price",
    "Quoted",
    "Search",
    "Study",
    "StudyFile",
    "Target",
    "load_study",
]
