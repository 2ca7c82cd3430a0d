"""The only mutable record of a run: one request on its way through a replica."""

from dataclasses import dataclass, field


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """One request. Times are seconds of virtual time, NaN until they happen.

    `known_tokens` are prompt and generated so far, `computed_tokens` those whose KV is cached; a
    step moves the second towards the first. `order` ranks it among those waiting. `keys` name the
    content of its leading blocks, for prefix reuse; `blocks` are what it holds (block numbers, or
    their count in a pool that does not number them), the first `held_keys` of them shared.
    """

    index: int
    arrival_s: float
    isl_tokens: int
    osl_tokens: int
    order: int = 0
    keys: tuple[int, ...] = ()
    computed_tokens: int = 0
    generated_tokens: int = 0
    hit_tokens: int = 0
    held_keys: int = 0
    held_units: int = 0
    blocks: list[int] = field(default_factory=list)
    slot: int = 0
    n_preemptions: int = 0
    admitted_s: float = float("nan")
    first_token_s: float = float("nan")
    last_token_s: float = float("nan")
    finish_s: float = float("nan")

    @property
    def known_tokens(self) -> int:
        """Prompt tokens and generated ones."""
        return self.isl_tokens + self.generated_tokens

    @property
    def is_decoding(self) -> bool:
        """Whether all that is left to compute is the latest token, a generated one."""
        return self.generated_tokens > 0 and self.computed_tokens == self.known_tokens - 1

    @property
    def is_done(self) -> bool:
        """Whether all output tokens are out."""
        return self.generated_tokens >= self.osl_tokens
