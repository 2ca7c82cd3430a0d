"""`dse show`: the stored answer of a study."""

from pathlib import Path

from dse.base.errors import StoreError
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
    from dse.pipeline.api import store_path
    from dse.pipeline.stored import stored
    from dse.store import Store
    from dse.study import load_study

    asked = load_study(study, scenario=scenario, set_=set_)
    where = store or store_path(study)
    if not where.exists():
        raise StoreError(f"{where} does not exist", f"dse run {study}")
    with Store.open(where) as opened:
        ran = stored(asked, opened)
    # The page that stands in the report folder may be of another run: `dse report` writes this one.
    return tell(ran, None, json=json)
