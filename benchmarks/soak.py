"""Properties on random examples, again and again: `python -m benchmarks.soak --minutes 10`.

The tests take the same examples each time. This takes others, with a new seed each round, until the
time is over, and prints the rounds and each failing test with the seed that finds it again.
"""

import argparse
import random
import subprocess
import sys
import time

PROPERTIES = (
    "tests/search/test_engine_bound.py",
    "tests/search/test_loop_bound.py",
    "tests/search/test_prefix.py",
    "tests/search/test_bound.py",
    "tests/search/test_grouped.py",
    "tests/walls/test_soundness.py",
    "tests/cost/test_kernels.py",
    "tests/cost/test_collectives.py",
    "tests/saturation/test_model.py",
    "tests/space/test_fuzz.py",
    "tests/space/test_enumerate.py",
)


def main() -> int:
    """Rounds until the time is over; 1 if any failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("tests", nargs="*", default=PROPERTIES)
    asked = parser.parse_args()
    end, rounds, failed = time.monotonic() + 60.0 * asked.minutes, 0, 0
    while time.monotonic() < end:
        seed = random.randrange(2**32)
        found = _round(seed, asked.tests)
        rounds += 1
        if found.returncode:
            failed += 1
            print(f"seed {seed}:", *_failures(found.stdout), sep="\n  ", flush=True)
    print(f"{rounds} rounds, {failed} with a failure")
    return 1 if failed else 0


def _round(seed: int, tests: list[str]) -> "subprocess.CompletedProcess[str]":
    options = ["--hypothesis-profile=random", f"--hypothesis-seed={seed}", "-q", "--tb=short"]
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _failures(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR", "E   "))]


if __name__ == "__main__":
    sys.exit(main())
