"""Runs killed at random moments: what the resumed store holds against an undisturbed one's.

    python benchmarks/crash.py [--runs 20] [--points 24]

Each run simulates the same points in a process of its own, dies by SIGKILL at a random moment, and
is started again until it ends by itself. Printed for each: kills, results kept from before the last
one, and whether the final store equals that of a run that nobody disturbed.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from dse.store import KEYS, Store

ROOT = Path(__file__).parents[1]
CHUNK_PAUSE_S = "0.03"


def start(store, points):
    """A run in a process of its own."""
    command = [sys.executable, "-m", "tests.run.points", str(store), str(points), CHUNK_PAUSE_S]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def killed(store, points, dice, usual_s):
    """Kill and restart until a run ends by itself; how often, and how much the last one found."""
    kills = kept = 0
    while True:
        process = start(store, points)
        try:
            process.wait(timeout=dice.uniform(0.2, usual_s))
        except subprocess.TimeoutExpired:
            process.kill()
            kills += 1
        _, said = process.communicate()
        if process.returncode == 0:
            return kills, kept
        if process.returncode > 0:
            raise SystemExit(said.decode())
        kept = Store.open(store).results().height if store.exists() else 0
        if kills > 3:
            usual_s *= 2


def contents(path):
    """All that a store knows of results."""
    store = Store.open(path)
    results = store.results().sort(KEYS)
    tables = [results.select(sorted(results.columns)), store.results(table="latency_sketch")]
    return [tables[0], tables[1].sort(KEYS), store.query("FROM point ORDER BY ALL")]


def main():
    """Disturb the runs asked for and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--points", type=int, default=24)
    asked = parser.parse_args()
    dice, rows = random.Random(0), []
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.duckdb"
        began = time.perf_counter()
        start(whole, asked.points).communicate()
        usual_s = time.perf_counter() - began
        expected = contents(whole)
        for run in range(asked.runs):
            store = Path(folder) / f"{run}.duckdb"
            kills, kept = killed(store, asked.points, dice, usual_s)
            found = contents(store)
            equal = all(a.equals(b) for a, b in zip(found, expected, strict=True))
            rows.append({"run": run, "kills": kills, "kept": kept, "equal": equal})
            print(rows[-1], flush=True)
    table = pl.DataFrame(rows)
    print(f"{asked.runs} runs, {table['kills'].sum()} kills, {table['equal'].sum()} stores equal")


if __name__ == "__main__":
    main()
