"""How tokens spread over experts: how many experts a batch touches, and on the fullest rank."""

import math
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Literal

from dse.model.ops import Num, least


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """Expert popularity: `uniform`, or `zipf` with `exponent` (the expert of rank r is chosen in
    proportion to r^-exponent), experts dealt to ranks round robin.
    """

    kind: Literal["uniform", "zipf"] = "uniform"
    exponent: float = 0.0

    def touched(self, n_tokens: Num, n_experts: int, top_k: int) -> Num:
        """Expected number of the `n_experts` experts that `n_tokens` tokens touch (union):
        Σ_e 1 − (1 − p_e)^n, with p_e the chance that a token picks expert e (physics, section 3).
        """
        total: Num = 0.0
        for chance, count in _chances(self.kind, self.exponent, n_experts, top_k):
            total = total + count * (1.0 - (1.0 - chance) ** n_tokens)
        return total

    def touched_on_fullest(self, n_tokens: Num, n_experts: int, top_k: int, ep: int) -> Num:
        """Expected experts touched on the rank that touches most, experts dealt round robin.

        A rank's count is nearly normal; the largest of `ep` such counts lies Φ⁻¹((ep − 3/8) /
        (ep + 1/4)) deviations above the mean (Blom 1958).
        """
        mean: Num = 0.0
        variance: Num = 0.0
        held = 0.0
        for chance, count in _on_hottest(self.kind, self.exponent, n_experts, top_k, ep):
            hit = 1.0 - (1.0 - chance) ** n_tokens
            mean, variance = mean + count * hit, variance + count * hit * (1.0 - hit)
            held += count
        largest = NormalDist().inv_cdf((ep - 0.375) / (ep + 0.25)) if ep > 1 else 0.0
        return least(mean + largest * variance**0.5, held)

    def imbalance(self, n_tokens: Num, n_experts: int, top_k: int, ep: int) -> Num:
        """E[rows of the fullest rank] ÷ mean rows of a rank, for `n_tokens` tokens over `ep` ranks.

        Uniform routing: the maximum of `ep` near-Poisson counts of mean λ is about
        λ + √(2 λ ln ep) (Gumbel, 1958), and never less than one row or more than all of them.
        Skewed routing adds the share of the hottest rank.
        """
        if ep == 1:
            return 1.0 + 0.0 * n_tokens
        mean = n_tokens * top_k / ep
        hot = hottest_share(self.kind, self.exponent, n_experts, top_k, ep) * ep
        spread = (2.0 * math.log(ep) * (1.0 - 1.0 / ep) / (mean * hot + 1e-9)) ** 0.5
        factor = hot * (1.0 + spread)
        return factor - (factor - ep) * (factor > ep)


UNIFORM = Routing()


@lru_cache(maxsize=512)
def _chances(
    kind: str, exponent: float, n_experts: int, top_k: int
) -> tuple[tuple[float, int], ...]:
    """(chance that a token picks the expert, number of such experts); chances sum to `top_k`."""
    if kind == "uniform" or exponent == 0.0:
        return ((top_k / n_experts, n_experts),)
    weights = [rank**-exponent for rank in range(1, n_experts + 1)]
    # A token picks its experts one after the other, none twice. With independent exponential
    # clocks of rates w_e the first top_k to ring are such a draw; the chances follow from the time
    # at which top_k have rung on average (Rosén 1972).
    low, high = 0.0, 1.0
    while _rung(weights, high) < top_k and high < 2.0**64:
        high *= 2.0
    for _ in range(64):
        middle = (low + high) / 2.0
        low, high = (middle, high) if _rung(weights, middle) < top_k else (low, middle)
    return tuple((1.0 - math.exp(-weight * high), 1) for weight in weights)


@lru_cache(maxsize=512)
def _on_hottest(
    kind: str, exponent: float, n_experts: int, top_k: int, ep: int
) -> tuple[tuple[float, float], ...]:
    """`_chances` of the experts of the rank that holds the most popular ones."""
    known = _chances(kind, exponent, n_experts, top_k)
    if len(known) == 1:
        return ((known[0][0], n_experts / ep),)
    chances = [chance for chance, _ in known]
    hottest = max((chances[rank::ep] for rank in range(ep)), key=sum)
    return tuple((chance, 1.0) for chance in hottest)


def _rung(weights: list[float], time: float) -> float:
    return sum(1.0 - math.exp(-weight * time) for weight in weights)


@lru_cache(maxsize=512)
def hottest_share(kind: str, exponent: float, n_experts: int, top_k: int, ep: int) -> float:
    """Share of all rows that the rank with the most popular experts gets on average."""
    if kind == "uniform" or exponent == 0.0:
        return 1.0 / ep
    chances = [chance for chance, _ in _chances(kind, exponent, n_experts, top_k)]
    return max(sum(chances[rank::ep]) for rank in range(ep)) / top_k
