"""`dse compare`: two studies, runs or files of rows side by side."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    from dse.report.compare import Side


def compare(
    a: Annotated[str, Parameter(help="A study, a run_id, or a file of rows.")],
    b: Annotated[str, Parameter(help="The other; the same study twice: its last two runs.")],
    /,
    *,
    store: Path | None = None,
    out: Path | None = None,
    json: Json = False,
) -> int:
    """What moved between two studies, runs or catalogs, and which fact or term moved it.

    Parameters
    ----------
    store
        The store of runs and studies (default: dse.duckdb of the study's project, or here).
    out
        A folder: writes the comparison there as a page, as Markdown with pictures, and as JSON.
    """
    from dse.report.compare import compare as compared
    from dse.report.compared import text

    before = 1 if _same(a, b) else 0
    found = compared(_side(a, store, before), _side(b, store, 0))
    files = []
    if out is not None:
        from dse.report.compared import content_of
        from dse.report.page import write_content

        files = write_content(content_of(found), out, ("html", "md", "svg", "json"))
    if json:
        emit_json(
            {
                "a": found.a,
                "b": found.b,
                "rows": found.rows(),
                "why": list(found.why),
                "changed": {name: list(pair) for name, pair in found.changed.items()},
                "n_common": found.matched.height,
                "only_a": found.only_a["point_id"].to_list(),
                "only_b": found.only_b["point_id"].to_list(),
                "files": [str(file) for file in files],
            }
        )
        return 0
    shown = console()
    shown.print(text(found, shown.width))
    for file in files[:1]:
        shown.print(f"Page: {file}")
    return 0


def _same(a: str, b: str) -> bool:
    """Whether both name one thing; a study may be named by any path to it."""
    return a == b or (a.endswith((".yaml", ".yml")) and Path(a).resolve() == Path(b).resolve())


def _side(what: str, store: Path | None, back: int) -> "Side":
    from dse.base.errors import UserError
    from dse.pipeline.api import STORE, store_path
    from dse.report import sides
    from dse.store import Store

    path = Path(what)
    if path.suffix in {".parquet", ".json"}:
        return sides.of_file(path)
    is_study = path.suffix in {".yaml", ".yml"}
    where = store or (store_path(path) if is_study else Path(STORE))
    if not where.exists():
        raise UserError(f"no store {where}", "name it with --store, or run the study first")
    opened = Store.open(where)
    if is_study:
        return sides.of_study(opened, path.stem, back)
    known = opened.query("SELECT name FROM study")["name"].to_list()
    return sides.of_study(opened, what, back) if what in known else sides.of_run(opened, what)
