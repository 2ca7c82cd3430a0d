"""`dse report`: a study's report again, from what its store holds."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

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
        The folder of the report (default: reports/NAME; with --set or --scenario
        reports/NAME-DIGEST).
    scenario
        The scenario of the study whose overrides are laid on.
    """
    import sys

    from dse.pipeline.api import show

    found = show(study, store=store, scenario=scenario, set_=set_)
    wanted = tuple(name for text in format_ for name in text.split(",") if name)
    asked = found.ran.outcome.study
    folder = out or report_folder(study, asked, is_changed=bool(scenario or set_))
    files = found.write(folder, wanted)
    if json:
        emit_json({"study": found.ran.outcome.study.name, "files": [str(file) for file in files]})
    else:
        sys.stdout.writelines(f"{file}\n" for file in files)
    return 0
