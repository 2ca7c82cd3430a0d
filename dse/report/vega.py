"""Vega outside Altair: the script bundle of a page, and specs as static pictures."""

import json
from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

from dse.base.kept import kept

__all__ = ["VEGA_LITE", "bundle", "png", "svg", "with_data"]

VEGA_LITE = "6.4"

Spec = Mapping[str, Any]
Datasets = Mapping[str, list[dict[str, Any]]]


@cache
def bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script that needs no network; sets `vegaEmbed`.

    To put it together takes seconds, so it is kept for the versions that it is made of.
    """
    import vl_convert

    def made() -> str:
        # The whole bundle is what the function gives without a snippet; its stub asks for one.
        return str(vl_convert.javascript_bundle(vl_version=VEGA_LITE))  # type: ignore[call-arg]

    versions = (version("vl-convert-python"), vl_convert.get_vega_version(), VEGA_LITE)
    return kept(f"vega-{'-'.join(versions)}.js", made)


def with_data(spec: Spec, datasets: Datasets, *, width: int | None = None) -> dict[str, Any]:
    """A spec that stands alone: with the datasets that it names, and a width in pixels."""
    text = json.dumps(spec)
    from dse.report.charts.theme import MOST_ABREAST

    used = {name: rows for name, rows in datasets.items() if f'{{"name": "{name}"}}' in text}
    whole: dict[str, Any] = {**spec, "datasets": {**spec.get("datasets", {}), **used}}
    if width is not None and spec.get("width") == "container":
        whole["width"] = width
    if width is not None and "facet" in spec:
        columns = min(int(spec["columns"]), MOST_ABREAST)
        room = width - spec["spacing"] * (columns - 1)
        whole |= {"columns": columns, "spec": {**spec["spec"], "width": room // columns}}
    return whole


def svg(spec: Spec) -> str:
    """The picture of a spec that stands alone."""
    import vl_convert

    return str(vl_convert.vegalite_to_svg(dict(spec), vl_version=VEGA_LITE))


def png(spec: Spec, scale: float = 2.0) -> bytes:
    """The picture of a spec that stands alone, `scale` pixels a unit."""
    import vl_convert

    return bytes(vl_convert.vegalite_to_png(dict(spec), vl_version=VEGA_LITE, scale=scale))
