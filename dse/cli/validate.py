"""`dse validate`: predictions against measured rows."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dse.base.errors import UserError
from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    import polars as pl

    from dse.evidence.case import Case

Names = Annotated[tuple[str, ...], Parameter(consume_multiple=True)]
SECONDS_PER_CASE = 0.15


def validate(
    file: Annotated[Path | None, Parameter(help="Measured serving rows, CSV.")] = None,
    /,
    *,
    silicon: Annotated[
        bool, Parameter(negative="", help="The serving sample of the installed silicon database.")
    ] = False,
    kernels: Annotated[
        str | None, Parameter(help="Kernels instead: `silicon` or a table in the schema.")
    ] = None,
    predictor: Annotated[str, Parameter(help="simulator, saturation or floor.")] = "simulator",
    tier: Annotated[str, Parameter(help="Kernel prices: auto, target, cross, roofline.")] = "auto",
    fit: Annotated[Path | None, Parameter(help="Saturation constants to predict with.")] = None,
    gpu: Annotated[Names, Parameter(help="With --kernels: these GPUs only.")] = (),
    hold_out: Annotated[Names, Parameter(help="With --tier cross: GPUs to forget.")] = (),
    grades: Annotated[str, Parameter(help="Of a file, the grades asked for.")] = "ABC",
    sample: Annotated[int | None, Parameter(help="At most so many rows, drawn at random.")] = None,
    out: Annotated[Path | None, Parameter(help="Every row with its predictions, CSV.")] = None,
    workers: Annotated[str, Parameter(help="auto, 0 (this process) or N.")] = "auto",
    json: Json = False,
) -> int:
    """Predict measured rows and say by slice how far off the predictions are.

    Gives count, MAPE, median error, bias and the share inside the stated 80% interval. A row that
    cannot be predicted is counted by its reason.
    """
    if sum((file is not None, silicon, kernels is not None)) != 1:
        raise UserError(
            "one source of measurements is needed", "a CSV file, --silicon or --kernels"
        )
    if kernels is not None:
        document = _kernels(kernels, tier, gpu, hold_out)
    else:
        frame, cases, by = _cases(file, grades, sample)
        document = _serving(frame, cases, by, predictor, tier, fit, out, workers)
    if json:
        emit_json(document)
    else:
        _show(document)
    return 0


def _cases(
    file: Path | None, grades: str, sample: int | None
) -> tuple["pl.DataFrame | None", list["Case"], tuple[str, ...]]:
    from dse.evidence.validate_file import SLICED_BY, only_graded, read_cases, sampled

    if file is None:
        from dse.evidence.serving_sample import SLICED_BY as by
        from dse.evidence.serving_sample import read_sample

        return None, sampled(read_sample(), sample), by
    frame, cases = read_cases(file)
    return frame, sampled(only_graded(cases, grades), sample), SLICED_BY


def _serving(
    frame: "pl.DataFrame | None",
    cases: list["Case"],
    by: tuple[str, ...],
    predictor: str,
    tier: str,
    fit: Path | None,
    out: Path | None,
    workers: str,
) -> dict[str, Any]:
    from dse.evidence.intervals import with_bounds
    from dse.evidence.validate import PREDICTORS, predictions, summary
    from dse.evidence.validate_file import answers
    from dse.run.pool import open_pool

    if predictor not in PREDICTORS:
        raise UserError(f"no predictor {predictor!r}", f"one of {', '.join(PREDICTORS)}")
    expected_s = SECONDS_PER_CASE * sum(case.deployment is not None for case in cases)
    with open_pool(workers, predicted_s=expected_s if predictor == "simulator" else 0.0) as pool:
        found = predictions(cases, predictor=predictor, pool=pool, tier=tier, fit=fit)
    if predictor == "simulator":
        found = with_bounds(found, cases)
    if out is not None:
        (found if frame is None else answers(frame, found)).write_csv(out)
    return summary(found, by) | {"predictor": predictor, "out": None if out is None else str(out)}


def _kernels(
    source: str, tier: str, gpus: tuple[str, ...], hold_out: tuple[str, ...]
) -> dict[str, Any]:
    from dse.evidence.validate_kernels_file import kernel_slices

    return kernel_slices(source, tier=tier, gpus=gpus, hold_out=hold_out)


def _show(document: dict[str, Any]) -> None:
    from rich.table import Table

    table = Table("slice", "metric", "rows", "median", "MAPE", "bias", "in 80%", box=None)
    for each in document["slices"]:
        inside = each["coverage_80"]
        table.add_row(
            each["slice"],
            each["metric"],
            str(each["n"]),
            f"{each['median_ape']:.1%}",
            f"{each['mape']:.1%}",
            f"{each['bias']:+.1%}",
            "" if inside is None else f"{inside:.0%}",
        )
    printed = console()
    printed.print(table)
    for reason, count in document["n_skipped"].items():
        printed.print(f"{count} rows not predicted: {reason}", style="dim")
    for rule, count in document.get("n_set_aside", {}).items():
        if rule:
            printed.print(f"{count} rows outside the clean slice: {rule}", style="dim")
