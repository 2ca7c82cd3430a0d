"""How many distinct ranks or domains the experts of one token stand on, under uniform routing.

Some models choose groups of experts first and experts within them, so that a token leaves for few
nodes (DeepSeek-V3: four of eight groups, arXiv:2412.19437 §2.1.2). Groups stand on ranks in order.
"""

import math
from functools import cache


@cache
def distinct(parts: int, top_k: int, groups: int = 1, top_groups: int = 1) -> float:
    """Expected number of `parts` that hold one of the `top_k` experts of a token, whose experts
    come from at most `top_groups` of `groups`.

    Without a limit `n(1 − (1 − 1/n)^k)` of `n`. With one, a token keeps the groups of its best
    experts: as many as it had hit freely, up to the limit. Within 5% of sampled top-8 of 256
    experts on 2 to 16 nodes, by group maximum (DeepEP's benchmark) and by the two best (DeepSeek).
    """
    if top_groups >= groups:
        groups = top_groups = 1
    total = 0.0
    for hit, chance in enumerate(_occupied(top_k, groups)):
        if chance > 0.0:
            total += chance * _parts_of(min(hit, top_groups), parts, top_k, groups)
    return total


def _occupied(balls: int, bins: int) -> list[float]:
    """Chance of each number of occupied bins, from none to `balls`."""
    chance = [1.0] + [0.0] * balls
    for _ in range(balls):
        stays = [each * min(n / bins, 1.0) for n, each in enumerate(chance)]
        fresh = [each * max(1.0 - n / bins, 0.0) for n, each in enumerate(chance)]
        chance = [stay + new for stay, new in zip(stays, [0.0, *fresh[:-1]], strict=True)]
    return chance


def _parts_of(hit: int, parts: int, top_k: int, groups: int) -> float:
    """Parts of `hit` of the groups, several of which stand on a part or each on several."""
    if parts > groups:
        share = parts / groups
        return hit * share * (1.0 - float((1.0 - 1.0 / share) ** (top_k / hit)))
    others = groups - groups / parts
    missed = [max(others - i, 0.0) / (groups - i) for i in range(hit)]
    return parts * (1.0 - math.prod(missed))
