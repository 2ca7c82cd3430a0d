"""Structure: one structural combination of a space, a deployment or the reason why it is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from dse.base.errors import SpaceError
from dse.hardware import GPU, Fabric
from dse.model import Model
from dse.model.ffn import UNIFORM, Routing
from dse.model.precision import Precision
from dse.serving.deployment import Deployment, Pool, Role, SpeculativeDecoding
from dse.serving.engine import Engine
from dse.serving.layout import Layout
from dse.serving.legality import Illegal
from dse.space.facts import fact

__all__ = ["Cell", "Parts", "Structure"]

Cell = str | int | float
DEGREES = ("tp", "dp", "ep", "moe_tp", "pp", "cp")
# The tensor degree of an expert follows from the others; leaving it out of the record keeps the
# identity of a layout that is written without it.
_STATED = ("tp", "dp", "ep", "pp", "cp")


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """The records that the structures of a block share; `hardware` by role."""

    model: Model
    precision: Precision
    hardware: Mapping[Role, tuple[GPU, Fabric, Engine]]
    speculative: SpeculativeDecoding | None = None
    routing: Routing = UNIFORM

    @property
    def roles(self) -> tuple[Role, ...]:
        """`both`, or `prefill` and `decode`."""
        return tuple(self.hardware)

    def fact(self, path: str) -> Cell | None:
        """Return a fact by its path, `model.d_model` or `decode_gpu.hbm`; None if it has none.

        A path without a role is an error where the roles differ in it.
        """
        root, *keys = path.split(".")
        if root == "model":
            return _cell(fact(self.model, keys))
        role, _, kind = root.rpartition("_")
        records = [
            held[("gpu", "fabric", "engine").index(kind)]
            for name, held in self.hardware.items()
            if role in {"", name}
        ]
        first, *others = (_cell(fact(record, keys)) for record in records)
        if any(other != first for other in others):
            message = f"{path} differs between prefill and decode"
            raise SpaceError(message, f"write prefill_{path} or decode_{path}")
        return first


@dataclass(frozen=True, slots=True, kw_only=True)
class Structure:
    """One structural combination: all of a point but its numeric axes.

    `columns` are its row's cells by column name (degrees carry `prefill_` and `decode_` when the
    roles are apart, and `n_replicas` counts those that decode); a cell that has no value is left
    out. `illegal` says why no engine could start
    it. `index` is its place among all combinations of the space, legal or not, before conditions.
    """

    index: int
    branch: str
    columns: Mapping[str, Cell]
    illegal: tuple[Illegal, ...] = ()
    parts: Parts = field(repr=False, compare=False)

    @property
    def deployment(self) -> Deployment | None:
        """What `simulate` takes; None if it is illegal."""
        if self.illegal:
            return None
        pools = tuple(self._pool(role) for role in self.parts.roles)
        parts = self.parts
        joint = parts.hardware[parts.roles[0]][1].scale_out if len(pools) > 1 else None
        return Deployment(
            model=parts.model,
            precision=parts.precision,
            pools=pools,
            routing=parts.routing,
            speculative=parts.speculative,
            interconnect=joint,
        )

    @property
    def busy_replicas(self) -> int:
        """Replicas that hold running requests: all of them, or those that decode."""
        return int(self.columns["n_replicas"])

    def fact(self, path: str) -> Cell | None:
        """Return a fact of the structure's records, such as `gpu.hbm`, whether it varies or not."""
        return self.parts.fact(path)

    def _pool(self, role: Role) -> Pool:
        prefix = "" if role == "both" else f"{role}_"
        gpu, fabric, engine = self.parts.hardware[role]
        degrees = (int(self.columns[f"{prefix}{degree}"]) for degree in _STATED)
        return Pool(
            gpu=gpu,
            fabric=fabric,
            layout=_layout(*degrees),
            engine=engine,
            role=role,
            n_replicas=int(self.columns[f"{prefix}n_replicas"]),
        )


def _cell(value: object) -> Cell | None:
    value = getattr(value, "kind", value)  # a part of a family is told by its kind
    assert value is None or isinstance(value, str | int | float)
    return value


@lru_cache(maxsize=4096)
def _layout(tp: int, dp: int, ep: int, pp: int, cp: int) -> Layout:
    return Layout(tp=tp, dp=dp, ep=ep, pp=pp, cp=cp)
