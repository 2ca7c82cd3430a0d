"""`dse report`: a study's report again, from what its store holds."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from dse.base.errors import StoreError
from dse.cli._output import Json, emit_json
from dse.cli.check import Settings
from dse.cli.run import report_folder

Formats = Annotated[
    tuple[str, ...],
    Parameter(
        name="--format",
        consume_multiple=False,
        help="html, md, svg, png, parquet, csv or json; may be repeated, or separated by commas.",
    ),
]


def report(
    study: Path,
    /,
    *,
    format_: Formats = (),
    store: Path | None = None,
    out: Path | None = None,
    scenario: str | None = None,
    set_: Settings = (),
    json: Json = False,
) -> int:
    """Write the report of a study that was run; nothing is simulated.

    Parameters
    ----------
    study
        The YAML file of a study that was run.
    store
        The DuckDB file that remembers results (default: dse.duckdb of the project).
    out
        The folder of the report (default: reports/NAME).
    scenario
        The scenario of the study whose overrides are laid on.
    """
    import sys

    from dse.pipeline.api import store_path
    from dse.pipeline.stored import stored
    from dse.report.page import DEFAULT, write
    from dse.store import Store
    from dse.study import load_study

    asked = load_study(study, scenario=scenario, set_=set_)
    where = store or store_path(study)
    if not where.exists():
        raise StoreError(f"{where} does not exist", f"dse run {study}")
    with Store.open(where) as opened:
        ran = stored(asked, opened)
    wanted = tuple(name for text in format_ for name in text.split(",") if name)
    files = write(ran.outcome, out or report_folder(study), wanted or DEFAULT)
    if json:
        emit_json({"study": asked.name, "files": [str(file) for file in files]})
    else:
        sys.stdout.writelines(f"{file}\n" for file in files)
    return 0
