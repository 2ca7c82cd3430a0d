"""`dse show`: the stored answer of a study."""

from pathlib import Path

from dse.cli._output import Json
from dse.cli.check import Settings
from dse.cli.run import tell


def show(
    study: Path,
    /,
    *,
    store: Path | None = None,
    scenario: str | None = None,
    set_: Settings = (),
    json: Json = False,
) -> int:
    """Print the answer that the store holds for a study; nothing is simulated.

    Parameters
    ----------
    study
        The YAML file of a study that was run.
    store
        The DuckDB file that remembers results (default: dse.duckdb of the project).
    scenario
        The scenario of the study whose overrides are laid on.
    """
    from dse.pipeline.api import show as answer

    ran = answer(study, store=store, scenario=scenario, set_=set_).ran
    # The page that stands in the report folder may be of another run: `dse report` writes this one.
    return tell(ran, None, json=json)
