"""`dse check`: read a study or a space, list its faults, say its size and what it will cost."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from dse.base.units import counted
from dse.cli._output import Json, console, emit_json

MOST_RULES = 3

Settings = Annotated[
    tuple[str, ...],
    Parameter(name="--set", consume_multiple=False, help="Override a key: search.method=bound."),
]


def check(
    file: Path,
    /,
    *,
    scenario: str | None = None,
    set_: Settings = (),
    json: Json = False,
) -> int:
    """Read a study or space, list all of its faults, and predict what answering it costs.

    Parameters
    ----------
    file
        The YAML file of a study or of a space.
    scenario
        The scenario of the study whose overrides are laid on.
    """
    from dse.study.check import check as check_file

    found = check_file(file, scenario=scenario, set_=set_)
    if json:
        emit_json(found)
    else:
        _print(file, found)
    return 0 if found["ok"] else 2


def _print(file: Path, found: dict[str, Any]) -> None:
    if not found["ok"]:
        _print_faults(file, found["faults"])
        return
    out = console()
    n_points, n_structural = found["n_points"], found["n_structural"]
    sizes = f"{counted(n_points, 'point')}, {counted(n_structural, 'structure')}"
    out.print(f"{file}: {found['kind']}, {sizes}", soft_wrap=True)
    _print_axes(found)
    if refused := found.get("refused"):
        _print_refused(refused)
    elif predicted := found.get("predicted"):
        low, high = predicted["n_simulations"]
        cheap, dear = predicted["cpu_s"]
        out.print(
            f"illegal {counted(predicted['n_illegal'], 'point')}; predicted {low:,} to {high:,} "
            f"simulations, {cheap:,.1f} to {dear:,.1f} CPU s, fewer where walls kill or results "
            "are reused; start, enumeration and report come on top; a first run compiles the "
            "simulator"
        )
    for name in found.get("unsupported", ()):
        out.print(f"cannot be simulated: {name}")
    for note in found.get("notes", ()):
        out.print(f"note: {note}")


def _print_refused(refused: list[dict[str, Any]]) -> None:
    """Why no engine could start any point; an example of each rule has its numbers."""
    out = console()
    out.print("Nothing is legal: no engine could start any of these points.")
    for each in refused[:MOST_RULES]:
        rule = each["rule"].replace("_", " ")
        out.print(f"  {rule}, {counted(each['n_structures'], 'structure')}: {each['reason']}")
    out.print("`dse walls --model … --gpu … --layout …` says it of one deployment.")


def _print_axes(found: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("branch", "axis", "n", "values", box=None, pad_edge=False)
    for branch, axes in found["values"].items():
        title = f"{branch} ({found['branches'][branch]:,})"
        for axis, values in axes.items():
            if len(values) > 1 or axis in {"model", "gpu", "n_gpus", "context"}:
                table.add_row(title, axis, str(len(values)), _shown(values))
                title = ""
    console().print(table)


def _shown(values: list[Any]) -> str:
    texts = [f"{value:g}" if isinstance(value, float) else str(value) for value in values]
    return ", ".join(texts if len(texts) <= 12 else [*texts[:5], "…", *texts[-2:]])


def _print_faults(file: Path, faults: list[dict[str, Any]]) -> None:
    import sys

    for fault in faults:
        place = f"{fault['file']}:{fault['line']}:{fault['column']}"
        path = f"{fault['path']}: " if fault["path"] else ""
        sys.stderr.write(f"{place}: {path}{fault['message']}\n")
    count = counted(len(faults), "fault")
    sys.stderr.write(f"dse: {count} in {file}; nothing was run\n")
