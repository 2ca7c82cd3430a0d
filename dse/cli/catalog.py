"""`dse catalog`: what the catalog holds, one record of it, and new files for it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from dse.base.errors import CatalogError, UserError
from dse.cli._output import Json, console, emit_json

if TYPE_CHECKING:
    from dse.catalog import Catalog

app = App(name="catalog", result_action="return_value")
add = App(name="add", result_action="return_value")
app.command(add)

Roots = Annotated[
    tuple[Path, ...],
    Parameter(consume_multiple=False, help="A folder laid over the shipped catalog."),
]
Facts = Annotated[
    tuple[str, ...],
    Parameter(name="--set", consume_multiple=False, help="A fact, as hbm='300 GB'."),
]
Words = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]


@app.command(name="list")
def list_records(kind: str | None = None, /, *, catalog: Roots = (), json: Json = False) -> int:
    """Name every record of a kind, or of all kinds, with its source.

    Parameters
    ----------
    kind
        gpu, fabric, model, engine or price.
    """
    from dse.catalog import KINDS, Catalog, list_

    found = Catalog.load(*catalog)
    kinds = [kind] if kind else list(KINDS)
    rows = [{"kind": each, **row} for each in kinds for row in list_(found, each)]
    if json:
        emit_json({"records": rows})
        return 0
    for row in rows:
        tags = ", ".join(row["tags"]) if isinstance(row["tags"], list) else ""
        console().print(f"{row['kind']:7} {row['name']:34} {tags}", soft_wrap=True)
    return 0


@app.command
def show(*names: str, catalog: Roots = (), json: Json = False) -> int:
    """Print one record with its source: `show h200-sxm`, or `show model phi-4` to name the kind."""
    from dse.catalog import Catalog, to_yaml
    from dse.catalog import show as plain

    found = Catalog.load(*catalog)
    kind, name = _named(found, names)
    if json:
        file = _file(found, kind, name)
        emit_json({**plain(found, kind, name), "catalog_kind": kind, "file": file})
    else:
        print(to_yaml(found.record(kind, name)), end="")  # noqa: T201
    return 0


@add.default
def add_a_model(
    config: Path,
    /,
    *,
    name: str | None = None,
    source: str = "",
    ignore: Words = (),
    to: Path | None = None,
    json: Json = False,
) -> int:
    """Make a model's catalog file from its Hugging Face config.json.

    Parameters
    ----------
    config
        The file; hf_quant_config.json beside it is read too.
    name
        What the model is called; by default like the folder of its config.json.
    source
        Where the config is from.
    ignore
        A key of the config that is known to change nothing; may be given again.
    to
        The catalog folder to write into; without it the file is printed.
    """
    from dse.catalog import add_model

    return _made(add_model(config, name=name, source=source, ignore=ignore), "model", to, json)


@add.command(name="gpu")
def add_a_gpu(
    name: str,
    /,
    *,
    base: str | None = None,
    set_: Facts = (),
    to: Path | None = None,
    catalog: Roots = (),
    json: Json = False,
) -> int:
    """Make a GPU's catalog file from stated facts, or from another GPU and what differs.

    Parameters
    ----------
    name
        What the GPU is called.
    base
        The GPU that the new one is like.
    to
        The catalog folder to write into; without it the file is printed.
    """
    from dse.catalog import Catalog, add_gpu

    text = add_gpu(Catalog.load(*catalog), name, _facts(set_), base=base)
    return _made(text, "gpu", to, json)


def _made(text: str, kind: str, to: Path | None, json: bool) -> int:
    """Print a new catalog file, or write it into the folder `to`."""
    from dse.base.source import read_text
    from dse.catalog import KINDS, save
    from dse.catalog.listing import plain

    record: Any = read_text(text, KINDS[kind][1])
    file = str(save(text, kind, record.name, to)) if to else ""
    if json:
        emit_json({**plain(record), "catalog_kind": kind, "file": file})
    elif file:
        console().print(f"wrote {file}", soft_wrap=True)
    else:
        print(text, end="")  # noqa: T201
    return 0


def _named(catalog: "Catalog", names: tuple[str, ...]) -> tuple[str, str]:
    """The kind and name that the words mean; a name alone is looked for in every kind."""
    from dse.catalog import KINDS

    if len(names) == 2:
        return names[0], names[1]
    if len(names) != 1:
        raise UserError("one name, or a kind and a name, is needed", "dse catalog show h200-sxm")
    tried = []
    for kind in KINDS:
        try:
            catalog.record(kind, names[0])
        except CatalogError as error:
            tried.append(error)
        else:
            return kind, names[0]
    near = next((each for each in tried if "did you mean" in each.message), tried[0])
    raise near


def _file(catalog: "Catalog", kind: str, name: str) -> str:
    named = f"{name}" if Path(name).suffix in {".yaml", ".yml", ".json"} else ""
    if named:
        return named
    stem = catalog.engine(name).label if kind == "engine" else name
    return str(catalog.path(kind, stem))


def _facts(settings: tuple[str, ...]) -> dict[str, str]:
    pairs = [setting.partition("=") for setting in settings]
    wrong = [key for key, equals, _ in pairs if not equals]
    if wrong:
        raise UserError(f"--set {wrong[0]}: no value", "write it as --set hbm='300 GB'")
    return {key: value for key, _, value in pairs}
