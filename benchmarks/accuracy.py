"""How far simulations are from measured serving rows, and how fast the comparison runs.

``python benchmarks/accuracy.py [N]`` predicts N rows of the silicon database's serving sample,
drawn at random (200), and prints errors beside those of AIConfigurator 0.12 on its 629 rows.
"""

import sys
import time

import polars as pl

from dse.evidence.serving_sample import read_sample
from dse.evidence.validate import predictions, slices
from dse.evidence.validate_file import sampled

PEER = {"tpot_s": 0.197, "ttft_s": 0.488}


def main(n_rows: int) -> None:
    """Predict, and print one line a slice."""
    cases = sampled(read_sample(), n_rows)
    started = time.process_time()
    found = predictions(cases)
    spent_s = time.process_time() - started
    done = found.filter((pl.col("status") == "ok") & (pl.col("set_aside") == ""))
    print(f"{'slice':24} {'metric':8} {'rows':>5} {'median':>8} {'peer':>8} {'ratio':>6}")
    for each in slices(done, ("engine", "gpu", "class"), metrics=tuple(PEER)):
        peer = PEER[each.metric]
        print(
            f"{each.slice:24} {each.metric:8} {each.n:5} {each.median_ape:8.1%} {peer:8.1%} "
            f"{each.median_ape / peer:6.2f}"
        )
    print(f"{n_rows / spent_s:.1f} rows per CPU second")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
