"""Who else is asked about: points that a proof makes needless, and a reader of the answer does not.

Where bounds are all but exact little more than the front is simulated. Whoever decides asks for the
runner-up of another kind, and what becomes of the best under another load.
"""

import numpy as np
import polars as pl

from dse.search.gather import best_first, judged
from dse.search.guessed import Guessed
from dse.search.ledger import Ledger

# Points are of one kind that share these, as far as they have them, and use the same degrees.
_SAME = ("gpu", "engine", "branch", "weights", "kv")
_DEGREES = ("tp", "pp", "dp", "ep")
_CONTEXT = ("isl_tokens", "osl_tokens")
# Of each kind the best guess is taken that likely keeps the SLO, and the best that surely does.
_STRAINS = (1.0, 0.8)


def contenders(ledger: Ledger) -> pl.DataFrame:
    """The survivors to simulate beside the front, in their order: of each kind the likely best in
    the best one's context, and the best one's structure under its other loads; so many of either
    as the question says at most.
    """
    survivors, most, objectives = (
        ledger.survivors,
        ledger.question.contenders,
        ledger.question.objectives,
    )
    if not most:
        return survivors.clear()
    results = ledger.frame()
    best = best_first(judged(results, objectives), objectives)
    if best.is_empty():
        return survivors.clear()
    alike = survivors.filter(pl.col(name) == best[name][0] for name in _CONTEXT)
    own = alike.filter(pl.col("structure") == best["structure"][0]).head(most)
    wanted = pl.concat([_likely_best(alike, ledger, most), own.select("point")])
    return survivors.join(wanted, on="point", how="semi", maintain_order="left").join(
        results, on="point", how="anti", maintain_order="left"
    )


def _likely_best(points: pl.DataFrame, ledger: Ledger, most: int) -> pl.DataFrame:
    """The `point` of the likely best of each kind, those that come nearest to the best."""
    guessed = Guessed.none(ledger.question)
    guessed.add(points, np.arange(points.height), ledger.question)
    known = points[guessed.places].with_columns(
        _cost=pl.Series(guessed.costs[:, 0], dtype=pl.Float64),
        _strain=pl.Series(guessed.strain, dtype=pl.Float64),
    )
    degrees = {f"_{name}": pl.col(name) > 1 for name in _DEGREES if name in points.columns}
    kinds = [*(name for name in _SAME if name in points.columns), *degrees]
    ranked = known.with_columns(**degrees).sort("_cost", "point")
    chosen = [
        ranked.filter(pl.col("_strain") <= strain)
        .unique(kinds, keep="first", maintain_order=True)
        .head(most)
        .select("point")
        for strain in _STRAINS
    ]
    return pl.concat(chosen).unique(maintain_order=True)
