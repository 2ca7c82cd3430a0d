"""The catalog: every GPU, fabric, model, engine and price list, found by name and read when asked.

A root is a folder with one folder a kind (`gpus/`, `models/`, …) and one YAML file a thing, named
like it. Roots stack: a study's own come first, the shipped one last, and the nearest wins.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from dse.base.errors import CatalogError, did_you_mean
from dse.base.source import read
from dse.catalog.prices import PriceList, Quote, quotes
from dse.hardware import GPU, Fabric
from dse.model import Model
from dse.serving.engine import Engine

T = TypeVar("T")

SHIPPED: Final = Path(__file__).parent
KINDS: Final[Mapping[str, tuple[str, type]]] = {
    "gpu": ("gpus", GPU),
    "fabric": ("fabrics", Fabric),
    "model": ("models", Model),
    "engine": ("engines", Engine),
    "price": ("prices", PriceList),
}


@dataclass(frozen=True, slots=True)
class Catalog:
    """Names to files, by kind; `roots` nearest first. Files are parsed when they are asked for.

    Names match without regard to case, `-`, `_`, `.` and spaces. A tag that one record alone has
    names it too (`h200` is `h200-sxm`).
    """

    roots: tuple[Path, ...]
    files: Mapping[str, Mapping[str, Path]]

    @classmethod
    def load(cls, *roots: str | Path) -> Catalog:
        """Index `roots` and, below them, the shipped catalog."""
        found = tuple(Path(root) for root in roots)
        for root in found:
            if not root.is_dir():
                raise CatalogError(f"{root}: no such catalog folder", "name a folder with gpus/ …")
        stacked = (*found, SHIPPED)
        return cls(stacked, {kind: _index(stacked, KINDS[kind][0]) for kind in KINDS})

    def names(self, kind: str) -> tuple[str, ...]:
        """Every name of a kind, sorted."""
        return tuple(sorted(self._files(kind)))

    def find(self, kind: str, name: str) -> tuple[str, ...]:
        """The names that `name` means: one name, a glob such as `h*-sxm`, or a tag.

        Sorted; a `CatalogError` suggests the nearest if there is none.
        """
        files = self._files(kind)
        wanted = fold(name)
        if "*" in name or "?" in name:
            found = [stem for stem in files if fnmatchcase(fold(stem), wanted)]
        else:
            found = self._named(kind, name)
        if not found:
            raise CatalogError(
                f"no {kind} {name!r} in the catalog{did_you_mean(name, files)}",
                f"`dse catalog list {kind}` names all {len(files)}",
            )
        return tuple(sorted(found))

    def _named(self, kind: str, name: str) -> list[str]:
        """Stems that `name` is, else that fold like it, else that carry it as a tag.

        `opt-1.3b` and `opt-13b` fold alike: the spelling decides before the folding does. The
        owner of a repository id (`Qwen/Qwen3-32B`) is left out.
        """
        files, bare = self.files[kind], name.rpartition("/")[2]
        spelled = [stem for stem in files if stem.lower() == bare.lower()]
        wanted = fold(bare)
        return (
            spelled
            or [stem for stem in files if fold(stem) == wanted]
            or [stem for stem in files if wanted in map(fold, self._tags(kind, stem))]
        )

    def path(self, kind: str, name: str) -> Path:
        """The file that `name`, or the one tag it is, stands in."""
        found = self.find(kind, name)
        if len(found) > 1:
            raise CatalogError(f"{name!r} names several {kind}s: {', '.join(found)}", "choose one")
        return self.files[kind][found[0]]

    def gpu(self, name: str) -> GPU:
        """The GPU of this name, tag or YAML file, with the kernel times that a root of one's own
        has of it.
        """
        found = self._record("gpu", name, GPU)
        tables = (root / "kernels" / f"{found.name}.json" for root in self.roots)
        table = next((path for path in tables if path.is_file()), None)
        return replace(found, kernel_table=str(table.absolute())) if table else found

    def fabric(self, name: str) -> Fabric:
        """The fabric of this name, tag or YAML file."""
        return self._record("fabric", name, Fabric)

    def model(self, name: str) -> Model:
        """The model of this name, YAML file or Hugging Face `config.json`."""
        if name.endswith(".json"):
            from dse.model.hf import load

            return load(Path(name))
        return self._record("model", name, Model)

    def engine(self, name: str) -> Engine:
        """The engine `vllm@0.19`, or the newest version of `vllm`."""
        if "@" in name or _is_file(name):
            return self._record("engine", name, Engine)
        versions = [stem for stem in self.files["engine"] if fold(stem.split("@")[0]) == fold(name)]
        if not versions:
            return self._record("engine", name, Engine)
        return self._record("engine", max(versions, key=_version), Engine)

    def prices(self, gpu: str | None = None) -> tuple[Quote, ...]:
        """Every quote, or those of one GPU, newest first."""
        lists = tuple(_read(path, PriceList) for _, path in sorted(self.files["price"].items()))
        found = quotes(lists)
        if gpu is None:
            return found
        stems = {fold(stem) for stem in self.find("gpu", gpu)}
        return tuple(quote for quote in found if fold(quote.gpu) in stems)

    def record(self, kind: str, name: str) -> object:
        """The record of any kind, as `dse catalog show` prints it."""
        getters = {"gpu": self.gpu, "fabric": self.fabric, "model": self.model}
        getter = {**getters, "engine": self.engine}.get(kind)
        return getter(name) if getter else self._record(kind, name, KINDS[kind][1])

    def _record(self, kind: str, name: str, record: type[T]) -> T:
        return _read(Path(name) if _is_file(name) else self.path(kind, name), record)

    def _files(self, kind: str) -> Mapping[str, Path]:
        if kind not in self.files:
            raise CatalogError(f"no kind {kind!r}{did_you_mean(kind, KINDS)}", ", ".join(KINDS))
        return self.files[kind]

    def _tags(self, kind: str, stem: str) -> tuple[str, ...]:
        record = KINDS[kind][1]
        if "tags" not in getattr(record, "__slots__", ()):
            return ()
        return cast("tuple[str, ...]", cast("Any", _read(self.files[kind][stem], record)).tags)


def fold(name: str) -> str:
    """A name as it is compared: lower case, without `-`, `_`, `.` and spaces."""
    return re.sub(r"[-_.\s]", "", name).lower()


def _is_file(name: str) -> bool:
    return name.endswith((".yaml", ".yml"))


def _version(stem: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", stem.partition("@")[2]))


def _index(roots: tuple[Path, ...], folder: str) -> dict[str, Path]:
    """Stem → file; of two files of one name, whatever their case, the nearer root's stays."""
    found: dict[str, tuple[str, Path]] = {}
    for path in _yaml_files(roots, folder):
        found.setdefault(path.stem.lower(), (path.stem, path))
    return dict(found.values())


def _yaml_files(roots: tuple[Path, ...], folder: str) -> Iterator[Path]:
    for root in roots:
        yield from sorted((root / folder).glob("*.yaml"))


def _read(path: Path, record: type[T]) -> T:
    return cast("T", _cached(path, cast("Hashable", record)))


@cache
def _cached(path: Path, record: Any) -> object:
    return read(path, record)
