"""Context: no request is longer than the model's positions reach."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.model.ops import Num
from dse.walls.floors import Columns
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class Context(Wall):
    """Prompt and answer of the shortest request against the model's context."""

    cites: ClassVar[str] = "the model's configuration"
    unit: ClassVar[str] = "tokens"
    says: ClassVar[str] = "requests are longer than the model's context"
    kind: Literal["context"] = "context"

    def demand(self, c: Columns) -> Num:
        return c["isl_low_tokens"] + c["osl_low_tokens"]

    def limit(self, c: Columns) -> Num:
        return c["max_context_tokens"]
