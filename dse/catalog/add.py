"""New catalog files: a model from its config.json, a GPU from stated facts or from another GPU."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from dse.base.errors import CatalogError
from dse.base.parse import parse_tree, setting
from dse.base.source import build
from dse.base.tree import Marked, merge
from dse.catalog.catalog import KINDS, Catalog
from dse.catalog.write import to_yaml
from dse.hardware import GPU
from dse.model.hf import load


def add_model(
    config: str | Path, *, name: str | None = None, source: str = "", ignore: Iterable[str] = ()
) -> str:
    """The catalog file of the model that a Hugging Face `config.json` describes.

    `source` says where the config is from; `ignore` names keys known to change nothing. A
    `UserError` names every key that is missing, unknown or not modelled.
    """
    model = load(config, ignore=ignore, source=source)
    return to_yaml(model if name is None else replace(model, name=_file_name(name)))


def add_gpu(
    catalog: Catalog, name: str, facts: Mapping[str, str], *, base: str | None = None
) -> str:
    """The catalog file of a GPU with `facts` (`{"hbm": "141 GB", "peak.fp8": "1979 TFLOP/s"}`).

    Facts go by their YAML keys and lie on those of `base`, another GPU, where one is named. Without
    a `source` among them a derived GPU says what it was derived from. Faults come all at once.
    """
    _file_name(name)
    # Tags may be short names of the base and conflicts are of its sources: neither is inherited.
    shape = replace(catalog.gpu(base), tags=(), conflicts="") if base else None
    tree = parse_tree(to_yaml(shape) if shape else "{}", f"gpu {name}")
    if base and "source" not in facts:
        changed = ", ".join(f"{key} = {value}" for key, value in facts.items())
        tree = merge(tree, _quoted("source", f"{base} with {changed or 'nothing changed'}"))
    for key, value in {**facts, "name": name}.items():
        tree = merge(tree, _fact(key, value))
    return to_yaml(build(tree, GPU))


def save(text: str, kind: str, name: str, root: str | Path) -> Path:
    """Write a catalog file into `root`; one that is there already is never overwritten."""
    if kind not in KINDS:
        raise CatalogError(f"no kind {kind!r}", ", ".join(KINDS))
    path = Path(root) / KINDS[kind][0] / f"{_file_name(name).lower()}.yaml"
    if path.exists():
        raise CatalogError(f"{path} exists", "choose another name, or remove it first")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def _file_name(name: str) -> str:
    """`name`, or a CatalogError where it would name no file, or one in another folder."""
    if not re.fullmatch(r"[A-Za-z0-9][\w .+-]*", name):
        raise CatalogError(
            f"{name!r} is no name of a record", "begin with a letter or digit, and use no slash"
        )
    return name


def _fact(key: str, value: str) -> Marked:
    is_text = key in {"name", "source", "conflicts"}
    return _quoted(key, value) if is_text else setting(f"{key}={value}")


def _quoted(key: str, value: str) -> Marked:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return setting(f'{key}="{escaped}"')
