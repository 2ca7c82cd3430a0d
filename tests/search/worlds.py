"""Made-up worlds for searches: points with true metrics, and bounds a known way off."""

from dataclasses import dataclass

import numpy as np
import polars as pl

from dse.pareto import OBJECTIVES
from dse.search import Bound, Question

TWO = (OBJECTIVES["output_tok_per_s_per_gpu"](), OBJECTIVES["tpot_mean"]())
THREE = (*TWO, OBJECTIVES["ttft_mean"]())
METRICS = tuple(each.column for each in THREE)


@dataclass
class World:
    """`n` points whose rate and TPOT trade off along each of a few layouts; replicates jitter."""

    n: int
    seed: int = 0
    looseness: tuple[float, ...] = (0.5, 0.03)
    replicates: int = 1
    planted: int | None = None
    broken: frozenset[int] = frozenset()

    def __post_init__(self):
        draw = np.random.default_rng(self.seed)
        layout = draw.integers(0, 8, self.n)
        batch = 2.0 ** draw.integers(0, 11, self.n)
        quality = 0.5 + 0.5 * draw.random(8)
        tpot = (0.005 + batch * 2e-5) / quality[layout] * (1 + 0.2 * draw.random(self.n))
        self.survivors = pl.DataFrame(
            {
                "point": pl.Series(draw.permutation(self.n) + 10, dtype=pl.UInt64),
                "tp": layout,
                "batch": batch,
            }
        )
        self.true = self.survivors.select(
            "point",
            output_tok_per_s_per_gpu=pl.Series(batch / tpot / 8),
            tpot_mean_s=pl.Series(tpot),
            ttft_mean_s=pl.Series(0.1 + batch * 1e-3 * (1 + draw.random(self.n))),
        )
        self.draws = {name: draw.random(self.n) for name in METRICS}
        self.calls = []

    def evaluate(self, points):
        self.calls.append(points["point"].to_list())
        rows = points.select("point").join(self.true, on="point", maintain_order="left")
        frames = []
        for replicate in range(self.replicates):
            shift = 1.0 + 0.01 * replicate
            frames.append(
                rows.with_columns(
                    *[pl.col(name) * shift for name in METRICS],
                    replicate=pl.lit(replicate, pl.Int32),
                    status=pl.when(pl.col("point").is_in(list(self.broken)))
                    .then(pl.lit("error"))
                    .otherwise(pl.lit("ok")),
                    error=pl.when(pl.col("point").is_in(list(self.broken))).then(pl.lit("no")),
                )
            )
        return pl.concat(frames)

    def bound(self, loose):
        """Optimistic by a random share of up to `loose`, for every replicate's sake."""
        whole = self.true.with_columns(
            pl.col("output_tok_per_s_per_gpu")
            * (1.0 + 0.01 * self.replicates + loose * pl.Series(self.draws[METRICS[0]])),
            pl.col("tpot_mean_s") / (1.0 + loose * pl.Series(self.draws[METRICS[1]])),
            pl.col("ttft_mean_s") / (1.0 + 3 * loose * pl.Series(self.draws[METRICS[2]])),
        )
        if self.planted is not None:
            lie = pl.col("point") == self.planted
            rate = pl.col(METRICS[0])
            whole = whole.with_columns(pl.when(lie).then(rate / 4.0).otherwise(rate))
        return lambda points: points.select("point").join(whole, on="point", maintain_order="left")

    def bounds(self):
        names = ("hardware", "engine", "third")
        pairs = zip(names, self.looseness, strict=False)
        return tuple(Bound(rung=name, of=self.bound(loose)) for name, loose in pairs)

    def question(self, objectives=TWO, **settings):
        return Question(objectives=objectives, bounds=self.bounds(), **settings)
