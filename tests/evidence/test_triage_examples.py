"""Rows with their verdicts: one a kind, evenly over residuals, each with its reading."""

import polars as pl

from dse.evidence.triage_examples import examples, examples_table

LIMITS = {"dense > 16": 3.0}


def row(
    model: str, residual: float, ratio: float, t_sum_s: float = 0.012, tier: str = "target"
) -> dict[str, object]:
    return {
        "model": model, "gpu": "g", "engine": "e", "n_requests": 32.0, "regime": "dense > 16",
        "measured_s": 0.01 * residual, "t_opt_s": 0.01, "t_sum_s": t_sum_s, "residual": residual,
        "mbu": 0.5, "ratio": ratio, "slow": ratio > 1.25, "binding": "hbm", "tier": tier,
    }  # fmt: skip


def test_each_kind_once_and_evenly() -> None:
    rows = pl.DataFrame([row(f"m{i % 50}", 1.0 + i / 20, 1.0) for i in range(150)])
    found = examples(rows, 10)
    assert found.height == 10
    assert found["model"].n_unique() == 10
    assert found["residual"].is_sorted()


def test_readings_say_when_the_threshold_is_wrong() -> None:
    rows = pl.DataFrame(
        [
            row("below", 0.9, 0.5),
            row("inside", 1.1, 1.0),
            row("normal", 2.0, 1.0),
            row("missed", 2.5, 1.5),
            row("alarm", 4.0, 1.0),
            row("right", 5.0, 2.0),
            row("fast", 2.2, 0.7),
            row("nearly fast", 2.3, 0.85),
            row("relatives", 6.0, 2.0, tier="cross"),
        ]
    )
    text = examples_table(rows, LIMITS, 1.25)
    found = dict(line.split("|")[1:13:11] for line in text.splitlines() if "| g |" in line)
    readings = {name.strip(): reading.strip().split(":")[0] for name, reading in found.items()}
    assert readings == {
        "below": "faster than its bytes allow",
        "inside": "overlap as good as hardware gives",
        "normal": "normal for its engine",
        "missed": "missed",
        "alarm": "false alarm",
        "right": "right",
        "fast": "no profiler, but too fast",
        "nearly fast": "normal for its engine",
        "relatives": "open",
    }
