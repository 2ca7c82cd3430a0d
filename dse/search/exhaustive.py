"""Every survivor is simulated: what other methods are compared with."""

import polars as pl

from dse.search.gather import optimistic
from dse.search.ledger import Ledger
from dse.search.question import Answer, Evaluate, Question

METHOD = "exhaustive"


def search(survivors: pl.DataFrame, evaluate: Evaluate, question: Question) -> Answer:
    """Simulate all of `survivors`, in rounds of bounded size; the front is exact."""
    ledger = Ledger(survivors=survivors, evaluate=evaluate, question=question)
    for points in survivors.iter_slices(question.round_size):
        ledger.simulate(points)
        if question.bounds:
            ledger.limits.append(optimistic(question.bounds[-1], points, question))
        n_left = survivors.height - ledger.n_simulated
        ledger.close_round(n_dropped=0, n_left=n_left, gap=float("inf") if n_left else 0.0)
    return ledger.answer(METHOD, 0.0)
