"""`dse skill`: the working discipline, as a guide to follow."""

from importlib.resources import files


def skill() -> int:
    """Print the guide by which an engineer or an optimisation loop works with dse."""
    print(files("dse").joinpath("skill.md").read_text(encoding="utf-8"), end="")  # noqa: T201
    return 0
