"""What a space's YAML may say: the records that it is read into, and their JSON Schema's source."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from dse.base.errors import SpaceError
from dse.space.axes import Axis, Choice, Forms, Numbers, Positive, Quantities
from dse.space.options import dtype_of, routing_text, speculative_text

__all__ = [
    "AUTO",
    "BranchFile",
    "ContextFile",
    "LayoutFile",
    "Many",
    "Named",
    "PrecisionFile",
    "RoleFile",
    "SpaceFile",
    "SplitFile",
    "Text",
    "VariedFile",
]

AUTO = "auto"
ONE = Choice(of=(1,))


@dataclass(frozen=True, slots=True)
class Many:
    """Reads a single item as a list of one; an empty list is an error."""

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> Any:
        """Wrap whatever is no list."""
        items = handler(source)
        filled = {
            "type": "function-after",
            "function": {"type": "no-info", "function": _filled},
            "schema": items,
        }
        return {
            "type": "function-before",
            "function": {"type": "no-info", "function": _listed},
            "schema": filled,
            "json_schema_input_schema": {
                "type": "union",
                "choices": [items["items_schema"][0], items],
            },
        }


@dataclass(frozen=True, slots=True)
class Text:
    """Reads text in any spelling that `read` knows as its canonical one."""

    read: Callable[[str], str]

    def __get_pydantic_core_schema__(self, _source: object, _handler: object) -> Any:
        """Read text."""
        return {
            "type": "function-after",
            "function": {"type": "no-info", "function": self.read},
            "schema": {"type": "str"},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VariedFile:
    """A catalog record with facts that vary: the product of the axes in `vary`, by YAML key."""

    base: str
    vary: Mapping[str, Quantities]


Named = Annotated[tuple[str | VariedFile, ...], Many()]
"""Names, globs and tags of catalog records, or records with varied facts."""

Degrees = Numbers
AutoDegrees = Annotated[Axis | Literal["auto"], Forms(Positive, (AUTO,))]
Formats = Annotated[Axis, Forms(Annotated[str, Text(dtype_of)], ranges=False)]
Speculation = Annotated[Axis, Forms(Annotated[str, Text(speculative_text)], ranges=False)]
Routings = Annotated[Axis, Forms(Annotated[str, Text(routing_text)], ranges=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFile:
    """Degrees of one replica; `ep: auto` is every legal one."""

    tp: Degrees = ONE
    dp: Degrees = ONE
    ep: AutoDegrees = ONE
    pp: Degrees = ONE
    cp: Degrees = ONE


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisionFile:
    """Number formats of the weights and of the KV cache; several of each make their product."""

    weights: Formats
    kv: Formats


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextFile:
    """Prompt and output length, in tokens; several of each make their product."""

    isl: Numbers
    osl: Numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleFile:
    """The pool of one role: its layouts, and its own hardware or engine where it has them."""

    layout: LayoutFile = field(default_factory=LayoutFile)
    gpu: Named | None = None
    fabric: Named | None = None
    engine: Named | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitFile:
    """Replicas of each role."""

    prefill: Positive
    decode: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchFile:
    """The keys of a space or of one of its branches; a branch's own keys win over the space's.

    `n_gpus` is the size of the whole cluster, `batch` the requests that run at once in one replica.
    `speculative` is `none` or method:tokens:acceptance (`mtp:3:0.8`), `routing` the popularity of
    experts: `uniform` or `zipf:0.6`.
    """

    model: Named = ()
    gpu: Named = ()
    fabric: Named = ()
    engine: Named = ()
    n_gpus: Numbers | None = None
    precision: Annotated[tuple[PrecisionFile, ...], Many()] = ()
    context: Annotated[tuple[ContextFile, ...], Many()] = ()
    batch: Numbers | None = None
    speculative: Speculation | None = None
    routing: Routings | None = None
    layout: LayoutFile | None = None
    prefill: RoleFile | None = None
    decode: RoleFile | None = None
    split: Literal["auto"] | Annotated[tuple[SplitFile, ...], Many()] = "auto"
    where: tuple[str, ...] = ()
    linked: tuple[Mapping[str, tuple[str | int | float | bool, ...]], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpaceFile(BranchFile):
    """A whole space: what its branches share, and the branches, whose points are united."""

    description: str = ""
    any_of: Mapping[str, BranchFile] = field(default_factory=dict)


def _listed(value: object) -> object:
    return value if isinstance(value, list) else [value]


def _filled(items: tuple[object, ...]) -> tuple[object, ...]:
    if not items:
        raise SpaceError("the list is empty", "give at least one item or leave the key out")
    return items
