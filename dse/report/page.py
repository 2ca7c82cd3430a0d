"""A study's report as files: a page that stands alone, Markdown with pictures, and the front."""

import base64
import hashlib
import io
import json
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from dse._version import __version__
from dse.base.errors import UserError, did_you_mean
from dse.report.content import Content, content
from dse.report.files import Writer, write_all
from dse.report.record import Outcome
from dse.report.section import Rows

__all__ = [
    "FORMATS",
    "html",
    "pictures",
    "policy",
    "write",
    "write_content",
]

FORMATS = ("html", "md", "svg", "png", "parquet", "csv", "json")
DEFAULT = ("html", "md", "svg", "parquet")
PAGE_COLOURS = {"ink": "var(--ink)", "muted": "var(--muted)", "grid": "var(--grid)"}
PICTURE_COLOURS = {"ink": "#16191d", "muted": "#545c66", "grid": "#e4e7eb"}
PICTURE_WIDTH = 760


def write(outcome: Outcome, folder: Path, formats: Sequence[str] = DEFAULT) -> list[Path]:
    """Write the report of `outcome` into `folder`, whole or not at all; returns the files.

    `html` is `index.html`, `md` is `README.md` (which shows the `svg`), `svg` and `png` one picture
    a chart, `parquet`, `csv` and `json` the front with every column. Raises `UserError` for an
    unknown format or a folder that cannot be written.
    """
    _require_known(formats)
    return write_content(content(outcome), folder, formats)


def write_content(found: Content, folder: Path, formats: Sequence[str]) -> list[Path]:
    """Write a report that is already put together; as `write`."""
    _require_known(formats)
    made: dict[str, str | bytes | Writer] = {}
    if "html" in formats:
        made["index.html"] = html(found)
    if "md" in formats:
        from dse.report.readme import readme

        made["README.md"] = readme(found, pictures="svg" if "svg" in formats else "")
    for kind in ("svg", "png"):
        if kind in formats:
            made |= pictures(found, kind)
    made |= _fronts(found, formats)
    return write_all(folder, made)


def _require_known(formats: Sequence[str]) -> None:
    for name in formats:
        if name not in FORMATS:
            raise UserError(
                f"no report format {name!r}{did_you_mean(name, FORMATS)}", ", ".join(FORMATS)
            )


def html(found: Content) -> str:
    """The page: one file with its style, scripts and data, that asks nothing of a network."""
    import jinja2
    from markupsafe import Markup

    from dse.report.charts.theme import config
    from dse.report.vega import bundle

    folder = files("dse.report").joinpath("templates")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(folder.joinpath("index.html.j2").read_text("utf-8"))
    style = folder.joinpath("style.css").read_text("utf-8")
    script = folder.joinpath("page.js").read_text("utf-8")
    scripts = [_closed(bundle()), script]
    specs = {each.name: each.spec for section in found.sections for each in section.charts}
    shown = [{"column": q.column, "label": q.label, "scale": q.scale} for q in found.shown]
    return template.render(
        csp=policy(scripts),
        version=__version__,
        generated=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        name=found.name,
        question=found.question,
        eyebrow=found.eyebrow,
        answer=found.answer,
        alerts=found.alerts,
        sections=found.sections,
        style=Markup(style),
        data=_embedded({name: _columns(rows) for name, rows in found.datasets.items()}),
        specs=_embedded(specs),
        config=_embedded(config(**PAGE_COLOURS)),
        shown=_embedded(shown),
        bundle=Markup(scripts[0]),
        script=Markup(scripts[1]),
    )


def pictures(found: Content, kind: str) -> dict[str, str | bytes]:
    """One picture a chart, `<name>.svg` or `.png`, on white."""
    from dse.report.charts.theme import config, with_legends
    from dse.report.vega import png, svg, with_data

    look = {**config(**PICTURE_COLOURS, font="sans-serif"), "background": "white", "padding": 10}
    look["aria"] = False  # the picture as a whole has a text; one a mark would treble its size
    draw = svg if kind == "svg" else png
    made: dict[str, str | bytes] = {}
    plain = {name: [_plain_row(row) for row in rows] for name, rows in found.datasets.items()}
    for section in found.sections:
        for each in section.charts:
            fitted = with_legends(look, each.spec, PICTURE_WIDTH)
            spec = with_data({**each.spec, "config": fitted}, plain, width=PICTURE_WIDTH)
            made[f"{each.name}.{kind}"] = draw(spec)
    return made


def policy(scripts: Sequence[str]) -> str:
    """A content security policy that lets these scripts run and nothing load from anywhere."""
    digests = [base64.b64encode(hashlib.sha256(each.encode()).digest()) for each in scripts]
    allowed = " ".join(f"'sha256-{each.decode()}'" for each in digests)
    rest = "style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; {rest}"


def _embedded(value: object) -> Any:
    """JSON for a script element: no `<` that could close it, no number that JSON lacks."""
    from markupsafe import Markup

    text = json.dumps(_plain_value(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028"))


def _columns(rows: Rows) -> dict[str, Any]:
    """Rows as one list of names and one of values, which is half as long."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {"columns": names, "rows": [[row.get(name) for name in names] for row in rows]}


def _plain_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with null for what JSON lacks."""
    return {name: _plain_value(value) for name, value in row.items()}


def _plain_value(value: Any) -> Any:
    """Plain data for JSON; NaN and infinities are null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_value(each) for each in value]
    return value if value is None or isinstance(value, str | int) else str(value)


def _closed(script: str) -> str:
    return script.replace("</script", "<\\/script")


def _fronts(found: Content, formats: Sequence[str]) -> dict[str, str | bytes | Writer]:
    made: dict[str, str | bytes | Writer] = {}
    if "parquet" in formats:
        buffer = io.BytesIO()
        found.front.write_parquet(buffer)
        made["front.parquet"] = buffer.getvalue()
    if "csv" in formats:
        made["front.csv"] = found.front.write_csv()
    if "json" in formats:
        rows = [_plain_row(row) for row in found.front.to_dicts()]
        made["front.json"] = json.dumps({"front": rows}, indent=2, ensure_ascii=False)
    return made
