"""KV capacity: the shortest request must fit the pool alone; how many fit at once is no verdict."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from dse.model.ops import Num
from dse.walls.floors import Columns
from dse.walls.kinds._base import Wall


@dataclass(frozen=True, slots=True, kw_only=True)
class KVCapacity(Wall):
    """Tokens of the shortest request at its end against the longest one that the pool holds.

    More requests than fit only queue, so they are no reason to kill. A pool that only prefills
    holds prompts.
    """

    cites: ClassVar[str] = "arXiv:2309.06180"
    unit: ClassVar[str] = "tokens"
    says: ClassVar[str] = "no request fits the KV pool, even alone"
    kind: Literal["kv_capacity"] = "kv_capacity"

    def demand(self, c: Columns) -> Num:
        # The last token is sampled and never stored.
        return c["isl_low_tokens"] + c["osl_low_tokens"] - 1.0

    def limit(self, c: Columns) -> Num:
        prompt_only = c["prefill_kv_longest_tokens"] + c["osl_low_tokens"] - 1.0
        return np.minimum(c["kv_longest_tokens"], prompt_only)
