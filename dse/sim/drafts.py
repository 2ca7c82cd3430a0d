"""How many tokens a decoding request gets in one step under speculative decoding."""

from dataclasses import dataclass

MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15


@dataclass(frozen=True, slots=True)
class Drafts:
    """`n_draft` tokens proposed, each accepted with probability `acceptance` given the one before.

    The draw depends on the seed, the request and its token position only: every deployment meets
    the same luck, and no order of events changes it.
    """

    n_draft: int = 0
    acceptance: float = 0.0
    seed: int = 0

    def yielded(self, request_index: int, position: int) -> int:
        """Tokens out of the step that starts at generated token `position`: 1 to n_draft + 1."""
        if self.n_draft == 0:
            return 1
        drawn = uniform(self.seed, request_index, position)
        n_out, chance = 1, self.acceptance
        while n_out <= self.n_draft and drawn < chance:
            n_out += 1
            chance *= self.acceptance
        return n_out


def uniform(seed: int, request_index: int, position: int) -> float:
    """A number in [0, 1) from three integers (SplitMix64, Steele et al., OOPSLA 2014)."""
    z = (seed + (request_index + 1) * GOLDEN + (position + 1) * 0xD1B54A32D192ED03) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    z ^= z >> 31
    return float(z >> 11) * (1.0 / (1 << 53))
