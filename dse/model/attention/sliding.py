"""Sliding-window attention: a query reads at most the last `window` tokens (arXiv:2310.06825)."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.base.units import Tokens
from dse.hardware.dtype import DType
from dse.model.attention import gqa
from dse.model.ops import ComputeOp, Num, least
from dse.model.precision import Precision
from dse.model.shard import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliding(gqa.GQA):
    """GQA whose reads stop at `window_tokens`; what is *stored* is the engine's choice."""

    cites: ClassVar[str] = "arXiv:2310.06825"

    window_tokens: Tokens
    kind: Literal["sliding"] = "sliding"  # type: ignore[assignment]

    @property
    def window(self) -> int | None:
        return self.window_tokens

    def read_bytes(self, context_tokens: Num, shard: Shard, kv: DType) -> Num:
        return self.kv_bytes_per_token(shard, kv) * least(context_tokens, self.window_tokens)

    def decode_ops(
        self, n_seqs: Num, q_tokens: Num, context_tokens: Num, shard: Shard, p: Precision
    ) -> list[ComputeOp]:
        seen = least(context_tokens, self.window_tokens)
        return gqa.GQA.decode_ops(self, n_seqs, q_tokens, seen, shard, p)
