"""What a store knows of one point: killed with its margin, simulated, or dropped with its proof."""

from pathlib import Path
from typing import Any

from dse.base.errors import UserError
from dse.store import Store
from dse.walls.kinds import WALLS

VERDICT = ("demand", "limit", "unit", "margin", "nearest_feasible")


def stored_verdict(store: Path, point: str) -> dict[str, Any]:
    """The verdict on the point whose id starts with `point`; UserError if the store has none."""
    if not store.exists():
        raise UserError(f"no store {store}", "name it with --store, or describe the point by flags")
    wanted = "".join(char for char in point.lower() if char in "0123456789abcdef")
    if wanted != point.lower() or not wanted:
        raise UserError(f"{point!r} is no point_id", "ids are hexadecimal; `dse query` lists them")
    known = Store.open(store)
    # Of the last run of each study: another SLO gave the same point another verdict.
    its = f"WHERE starts_with(point_id, '{wanted}')"
    answered = known.query(f"SELECT * FROM answered {its} ORDER BY feasible DESC")
    killed = known.query(f"SELECT * FROM near_misses {its} ORDER BY margin")
    if killed.height and not (answered.height and answered["feasible"][0]):
        return _missed(killed.row(0, named=True))
    if not answered.height:
        raise UserError(f"{store} knows no point {point!r}", "see `dse query 'FROM near_misses'`")
    return _answered(answered.row(0, named=True))


def _missed(row: dict[str, Any]) -> dict[str, Any]:
    """A point that a wall killed, or that was simulated and misses the SLO."""
    wall = WALLS.get(row["killed_by"])
    nearest = row["nearest_feasible"]
    return {
        "point_id": row["point_id"],
        "status": "killed" if wall else "simulated, infeasible",
        "killed_by": row["killed_by"],
        "reason": wall.says if wall else "too few requests meet the SLO",
        **{key: row[key] for key in VERDICT},
        "nearest_feasible": nearest.split(" or ") if nearest else [],
    }


def _answered(row: dict[str, Any]) -> dict[str, Any]:
    status = "on the front" if row["on_front"] else "dominated"
    if not row["feasible"]:
        status = "simulated, infeasible"
    return {
        "point_id": row["point_id"],
        "status": status,
        "killed_by": None if row["feasible"] else "slo",
        **dict.fromkeys(VERDICT),
        "nearest_feasible": [],
        "front_rank": row["front_rank"],
        "metrics": {key: value for key, value in row.items() if isinstance(value, float)},
    }
