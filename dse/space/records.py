"""Space: what may vary, with every name resolved and every axis's values known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from types import MappingProxyType

from dse.serving.deployment import Role
from dse.space.axes import Value
from dse.space.layouts import Degrees
from dse.space.where import Where

__all__ = ["Branch", "Dimension", "Space"]

Assignment = Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One or more structural axes that move together: a row gives each of `names` its value.

    A name is an axis (`model`, `gpu`, `n_gpus`, `tp`, `prefill_gpu`…) or the path of a fact
    (`gpu.hbm`); a row leaves a fact out that it keeps as the catalog has it.
    """

    names: tuple[str, ...]
    rows: tuple[Assignment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One branch of a space, a product: dimensions × degrees × cluster sizes × numeric axes.

    `degrees` has one role, or two when prefill and decode are apart; then `split` gives the
    replicas of each, or `auto` for all that fill the cluster. `contexts` are (ISL, OSL) in tokens.
    `numeric` holds any other numeric axis by column name: `batch`, `concurrency` or `req_per_s`.
    """

    name: str
    dimensions: tuple[Dimension, ...]
    degrees: Mapping[Role, Degrees]
    n_gpus: tuple[int, ...]
    split: str | tuple[tuple[int, int], ...]
    contexts: tuple[tuple[int, int], ...]
    numeric: Mapping[str, tuple[int | float, ...]] = field(default_factory=dict)
    where: tuple[Where, ...] = ()

    @property
    def roles(self) -> tuple[Role, ...]:
        """`both`, or `prefill` and `decode`."""
        return tuple(self.degrees)

    def assignments(self) -> Iterator[Assignment]:
        """Yield every combination of the dimensions, the last varying fastest."""
        for rows in product(*(dimension.rows for dimension in self.dimensions)):
            merged: dict[str, Value] = {}
            for row in rows:
                merged.update(row)
            yield MappingProxyType(merged)

    def varied(self) -> tuple[str, ...]:
        """Return the paths of the facts that vary, in order."""
        names = [name for dimension in self.dimensions for name in dimension.names if "." in name]
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """A named union of branches; `source` is the file it was read from."""

    source: str
    branches: tuple[Branch, ...]
    description: str = ""

    def branch(self, name: str) -> Branch:
        """Return the branch of this name; a `KeyError` if there is none."""
        return {branch.name: branch for branch in self.branches}[name]
