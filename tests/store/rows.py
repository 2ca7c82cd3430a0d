"""Rows of results, and what a store holds of them."""

import polars as pl


def rows(n, *, start=0, status="ok", replicate=0, **metrics):
    frame = pl.DataFrame(
        {
            "point_id": [f"{i:032x}" for i in range(start, start + n)],
            "replicate": pl.Series([replicate] * n, dtype=pl.Int32),
            "physics_id": ["p" * 32] * n,
            "status": [status] * n,
        }
    )
    values = metrics or {"tpot_mean_s": 0.025}
    return frame.with_columns(**{name: pl.lit(value) for name, value in values.items()})


def held(store, table="result"):
    """All rows of a table, those still waiting included."""
    store.flush()
    return store.query(f"FROM {table} ORDER BY point_id")


def answered(store, ids):
    """Two finished runs of a study, the later of which answered with four points on two GPUs."""
    store.replace(pl.DataFrame([{"study_id": "s", "name": "chat"}]), "study")
    for run, day in (("old", 1), ("new", 2)):
        row = {"run_id": run, "study_id": "s", "status": "done", "physics_id": "p" * 32}
        started = pl.datetime(2026, 1, day)
        store.replace(pl.DataFrame([row]).with_columns(started_at=started), "run")
    rate = pl.int_range(4) + pl.lit(100.0)
    for replicate in (0, 1):
        its = ids.with_columns(replicate=replicate, output_tok_per_s_per_gpu=rate + 10 * replicate)
        store.append(its)
    gpu = pl.Series(["a", "a", "b", "b"])
    store.append(ids.select("point_id", gpu=gpu), "point")
    flags = {"feasible": [True, False, True, True], "on_front": [True, False, False, True]}
    answer = ids.with_columns(gpu=gpu, run_id=pl.lit("new"), n_replicates=2)
    answer = answer.with_columns(output_tok_per_s_per_gpu=rate + 5.0)
    store.answer(answer.with_columns(**{name: pl.Series(values) for name, values in flags.items()}))
