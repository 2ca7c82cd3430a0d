"""`dse show`: the stored answer of a study."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dse.cli._output import Json
from dse.cli.check import Settings
from dse.cli.run import tell

if TYPE_CHECKING:
    from dse.pipeline.run import Ran


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
    if (other := _other_run(ran)) is not None:
        sys.stderr.write(f"dse: note: the views of `dse query` show another run: {other}\n")
    # The page that stands in the report folder may be of another run: `dse report` writes this one.
    return tell(ran, None, json=json)


def _other_run(ran: "Ran") -> str | None:
    """The command of the study's last run where that asked something else; views show that one."""
    from dse.store import Store

    study = ran.outcome.study
    name = study.name.replace("'", "''")
    last = Store.open(ran.store).query(
        f"SELECT study_id, arguments FROM last_run WHERE study = '{name}'"
    )
    if not last.height or last["study_id"][0] == study.study_id:
        return None
    return str(last["arguments"][0])
