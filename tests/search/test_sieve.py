"""What a sieve keeps: of deployments that are alike the likely best, and of equals the smallest."""

import numpy as np
import polars as pl
import pytest

from dse.search import sieve
from dse.search.sieve import Sieve
from tests.search.worlds import TWO


def guesses(n, seed):
    draw = np.random.default_rng(seed)
    tpot = np.exp(draw.uniform(np.log(0.005), np.log(0.05), n))
    return pl.DataFrame(
        {
            "row": draw.permutation(n),
            "load": draw.integers(0, 11, n),
            "n_gpus": 2.0 ** draw.integers(3, 9, n),
            "output_tok_per_s_per_gpu": tpot * 2e4 * draw.uniform(0.2, 1.0, n),
            "tpot_mean_s": tpot,
            "replicas": np.full(n, 2.0),
            "strain": draw.uniform(0.1, 1.5, n),
            "group": draw.choice(["a", "b"], n),
        }
    )


@pytest.fixture
def small(monkeypatch):
    """A sieve that is full early."""
    monkeypatch.setattr(sieve, "_KEPT", 400)
    monkeypatch.setattr(sieve, "_FULL", 3000)


def kept(frames):
    held = Sieve(objectives=TWO, tolerance=0.02)
    for i, frame in enumerate(frames):
        held.add(frame, grid=i % 2)
    return held.kept()


def test_of_each_kind_the_best_stay(small):
    frame = guesses(20_000, 1)
    found = kept([frame]).join(frame, on=["row", "load"])
    assert 400 < found.height < 2400
    for _, group in frame.group_by("group"):
        easy = group.filter(pl.col("strain") < 0.8).sort("output_tok_per_s_per_gpu")
        assert easy["row"][-1] in set(found["row"])
        fast = group.filter(pl.col("tpot_mean_s") < 0.0052).sort("output_tok_per_s_per_gpu")
        assert fast["row"][-1] in set(found["row"])


def test_the_order_in_which_they_come_is_no_matter(small):
    frame = guesses(30_000, 2)
    parts = [frame[start : start + 1000] for start in range(0, frame.height, 1000)]
    # The grid is told by the part, so parts go by twos.
    ahead = kept(parts)
    behind = kept([part for pair in range(28, -1, -2) for part in parts[pair : pair + 2]])
    order = ["grid", "row", "load"]
    assert ahead.sort(order).equals(behind.sort(order))
    assert ahead.height < 3000


def test_of_equals_the_smallest_clusters_stay(small):
    frame = guesses(5000, 3).with_columns(
        pl.lit(100.0).alias("output_tok_per_s_per_gpu"),
        pl.lit(0.01).alias("tpot_mean_s"),
        pl.lit(0.5).alias("strain"),
    )
    found = kept([frame]).join(frame, on=["row", "load"])
    assert found.height == 800
    assert found["n_gpus"].max() <= frame.sort("n_gpus")["n_gpus"][1000]


def test_nothing_added_is_nothing_kept():
    found = kept([])
    assert found.is_empty()
    assert found.columns == ["grid", "row", "load"]
