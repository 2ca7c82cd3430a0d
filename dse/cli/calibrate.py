"""`dse calibrate`: fit kernel or saturation constants to measured tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import App, Parameter

from dse.base.errors import UserError
from dse.base.units import counted
from dse.cli._calibrate_saturation import saturation
from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    from dse.evidence.calibrate_kernels import SliceFit

app = App(name="calibrate", result_action="return_value")
app.command(saturation)


@app.command
def kernels(
    *,
    gpu: Annotated[str, Parameter(help="The GPU that was measured, as the catalog names it.")],
    table: Annotated[
        Path | None, Parameter(help="A kernel table in the documented schema (Parquet or CSV).")
    ] = None,
    families: Annotated[
        tuple[str, ...],
        Parameter(consume_multiple=True, help="Without a table: families of the silicon database."),
    ] = (),
    in_step: Annotated[
        bool, Parameter(help="The table was measured inside the engine's steps, not in isolation.")
    ] = False,
    out: Annotated[
        Path, Parameter(help="Folder for the coefficients: kernels/ of a catalog of yours.")
    ] = Path("kernels"),
    json: Json = False,
) -> int:
    """Fit the kernel model to a table measured on one GPU, or to the installed silicon database.

    A sixth of the shape groups of every slice stays out of the fit and is what the errors are of.
    """
    from dse.catalog import Catalog
    from dse.evidence.calibrate_kernels import Excluded, calibrate_kernels, calibrate_table
    from dse.evidence.kernels import READERS

    unknown = sorted(set(families) - set(READERS))
    if unknown:
        raise UserError(f"no family {', '.join(unknown)}", f"one of {', '.join(READERS)}")
    record, said = Catalog.load().gpu(gpu), console(stderr=True).print
    if table is not None:
        found = calibrate_table(table, record, into=out, report=said, in_step=in_step)
    else:
        found = calibrate_kernels(
            [record], families=families or tuple(READERS), into=out, report=said
        )
    fits = [each for each in found if not isinstance(each, Excluded)]
    if not fits:
        raise UserError(f"no rows of {record.name} could be fitted", "see what was excluded above")
    document = {
        "families": [_family(each) for each in fits],
        "excluded": [
            {"name": each.family, "n_rows": each.n_rows, "rule": each.rule}
            for each in found
            if isinstance(each, Excluded)
        ],
        "out": str(out / f"{record.name}.json"),
    }
    if json:
        emit_json(document)
    else:
        console().print(f"{counted(len(fits), 'slice')} fitted, written to {document['out']}")
    return 0


def _family(each: "SliceFit") -> dict[str, object]:
    import numpy as np

    error = np.abs(each.ratio - 1.0)
    return {
        "name": each.source.family,
        "variant": each.variant,
        "engine": each.source.engine,
        "implementation": each.source.implementation,
        "n_rows": each.n_rows,
        "mape": float(error.mean()),
        "median_ape": float(np.median(error)),
    }
