"""`dse skill`: the working discipline, as a guide to follow."""

from importlib.resources import files

from dse.cli._output import Json, emit_json


def skill(*, json: Json = False) -> int:
    """Print the guide by which an engineer or an optimisation loop works with dse."""
    text = files("dse").joinpath("skill.md").read_text(encoding="utf-8")
    if json:
        emit_json({"skill": text})
    else:
        print(text, end="")  # noqa: T201
    return 0
