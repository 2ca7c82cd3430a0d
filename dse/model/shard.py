"""How one layer is cut among the ranks of a pipeline stage."""

from dataclasses import dataclass

from dse.base.errors import UserError


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """Degrees that cut one layer; `tp · dp = ep · moe_tp` ranks hold a stage.

    `shared_tp` cuts the shared expert and `dense_tp` the dense FFN (engine profiles differ: 1 means
    replicated). `redundant_experts` are copies added so that `ep` divides the experts. Router and
    shared expert run on the tokens of the DP rank, or `moe_over_group` on those of all DP ranks;
    of the DP rank's tokens each TP rank runs one part in `moe_split`, of a dense FFN's one in
    `dense_split`.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1
    moe_tp: int = 1
    cp: int = 1
    shared_tp: int = 1
    dense_tp: int = 1
    vocab_tp: int = 1
    redundant_experts: int = 0
    moe_over_group: bool = False
    moe_split: int = 1
    dense_split: int = 1


WHOLE = Shard()


def kv_heads_per_rank(n_kv_heads: int, tp: int) -> int:
    """KV heads that one TP rank keeps: replicated, never fewer than one (GQA, arXiv:2305.13245)."""
    return max(1, n_kv_heads // tp)


def split(n: int, parts: int, what: str) -> int:
    """`n / parts` where it is whole; UserError naming `what` and the divisor otherwise."""
    if n % parts:
        raise UserError(f"{what} {n} % {parts} != 0", remedy=f"choose a divisor of {n}")
    return n // parts
