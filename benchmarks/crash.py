"""Runs killed at random moments: what the resumed store holds against an undisturbed one's.

    python benchmarks/crash.py [--runs 20] [--points 24]

Each run simulates the same points in a process of its own and dies by SIGKILL, then is started
again and ends by itself. Kills are spread evenly over a run's work: the share of it after which a
run dies is drawn from its own twentieth (of 20 runs), and both the number of chunks done by then
and the moment within a chunk follow from it. Printed for each: the share, results kept from before
the kill, and whether the final store equals that of a run that nobody disturbed.
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
    """A run in a process of its own, which says `chunk` after each."""
    command = [sys.executable, "-m", "tests.run.points", str(store), str(points), CHUNK_PAUSE_S]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


def chunk_times(process):
    """When each chunk of a run was done."""
    times = [time.perf_counter() for _ in process.stdout]
    if process.wait():
        raise SystemExit("the run failed")
    return times


def killed(store, points, share, n_chunks, chunk_s):
    """Kill a run after `share` of its work; whether it was still at work."""
    whole, part = divmod(share * n_chunks, 1)
    process = start(store, points)
    for _ in range(int(whole)):
        process.stdout.readline()
    time.sleep(part * chunk_s)
    process.kill()
    process.communicate()
    return process.returncode < 0


def contents(path):
    """All that a store knows of results, in one order."""
    if not path.exists():
        return [pl.DataFrame()] * 3
    store = Store.open(path)
    results = store.query("FROM result").sort(KEYS)
    sketches = store.query("FROM latency_sketch").sort(KEYS)
    return [results.select(sorted(results.columns)), sketches, store.query("FROM point ORDER BY 1")]


def main():
    """Disturb the runs asked for and print what came of them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--points", type=int, default=24)
    asked = parser.parse_args()
    dice, rows = random.Random(0), []
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole.duckdb"
        times = chunk_times(start(whole, asked.points))
        chunk_s = (times[-1] - times[0]) / max(len(times) - 1, 1)
        expected = contents(whole)
        for run in range(asked.runs):
            store = Path(folder) / f"{run}.duckdb"
            share = (run + dice.random()) / asked.runs
            was_killed = killed(store, asked.points, share, len(times), chunk_s)
            kept = contents(store)[0].height
            chunk_times(start(store, asked.points))
            found = contents(store)
            equal = all(a.equals(b) for a, b in zip(found, expected, strict=True))
            rows.append({"run": run, "share": share, "killed": was_killed, "kept": kept})
            rows[-1]["equal"] = equal
            print({**rows[-1], "share": round(share, 2)}, flush=True)
    table = pl.DataFrame(rows)
    print(
        f"{asked.runs} runs of {expected[0].height} results, {table['killed'].sum()} killed, "
        f"{table['equal'].sum()} stores equal"
    )


if __name__ == "__main__":
    main()
