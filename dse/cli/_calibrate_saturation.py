"""`dse calibrate saturation`: constants of the saturation model from measured rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    from dse.saturation.constants import SaturationFit


def saturation(
    *,
    rows: Annotated[Path, Parameter(help="Measured rows of one engine sweep, CSV.")],
    out: Annotated[Path, Parameter(help="Where the fit is written, YAML.")] = Path(
        "saturation.yaml"
    ),
    json: Json = False,
) -> int:
    """Fit the saturation model to a sweep of serving measurements.

    Robust least squares on the logarithm of throughput; each constant comes with an interval, the
    file with the rows that it saw. `dse advise --fit` and `dse validate --fit` read it.
    """
    from datetime import date

    from dse.catalog import Catalog
    from dse.evidence.calibrate_saturation import calibrate_rows, write_fit

    fit, skipped = calibrate_rows(rows, Catalog.load(), date=date.today().isoformat())
    write_fit(fit, out)
    if json:
        emit_json(_document(fit, skipped, out))
    else:
        _show(fit, skipped, out)
    return 0


def _document(fit: "SaturationFit", skipped: Any, out: Path) -> dict[str, Any]:
    from dataclasses import asdict

    family = {
        "name": "saturation",
        "n_rows": fit.n_rows,
        "mape": fit.mape,
        "median_ape": fit.median_ape,
    }
    return {
        "families": [family],
        "out": str(out),
        "gpu": fit.gpu,
        "engine": fit.engine,
        "constants": asdict(fit.constants),
        "intervals": {name: asdict(interval) for name, interval in fit.intervals.items()},
        "n_skipped": skipped,
    }


def _show(fit: "SaturationFit", skipped: Any, out: Path) -> None:
    from rich.table import Table

    table = Table(title=f"{fit.gpu}, {fit.engine}: {fit.n_rows} rows, MAPE {fit.mape:.1%}")
    table.add_column("constant")
    table.add_column("value", justify="right")
    table.add_column("80% interval", justify="right")
    for name in fit.constants.names():
        value, interval = getattr(fit.constants, name), fit.intervals[name]
        scale, unit = (1e6, " µs") if name.endswith("_s") else (1.0, "")
        table.add_row(
            name.removesuffix("_s").replace("_", " "),
            f"{scale * value:.3g}{unit}",
            f"{scale * interval.low:.3g} – {scale * interval.high:.3g}{unit}",
        )
    printed = console()
    printed.print(table)
    for reason, count in skipped.items():
        printed.print(f"{count} rows set aside: {reason}", style="dim")
    printed.print(f"written to {out}")
