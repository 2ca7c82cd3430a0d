"""The whole program on one screen: a study is judged, searched, simulated, stored and told."""

from dse.pipeline.answering import answer_study
from dse.pipeline.judged import Judged, judge_space
from dse.pipeline.run import run

__all__ = ["Judged", "answer_study", "judge_space", "run"]
