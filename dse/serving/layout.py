"""The degrees of parallelism of one replica, and its rank arithmetic."""

from dataclasses import dataclass

from dse.model.shard import Shard


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """`tp · dp` ranks hold one of `pp` stages; experts are cut `ep · moe_tp = tp · dp` ways.

    `dp` is attention data parallelism *inside* one replica; `cp` decode context parallelism, which
    divides `tp`. `moe_tp` None follows from the identity. Ranks are numbered tp innermost, then dp,
    then pp.
    """

    tp: int = 1
    dp: int = 1
    ep: int = 1
    pp: int = 1
    cp: int = 1
    moe_tp: int | None = None
    redundant_experts: int = 0

    @property
    def n_gpus(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.dp * self.pp

    @property
    def stage_ranks(self) -> int:
        """Ranks of one pipeline stage."""
        return self.tp * self.dp

    @property
    def expert_tp(self) -> int:
        """Tensor parallel degree of one expert: `tp · dp / ep`, at least 1 (legality checks the
        identity).
        """
        return self.moe_tp if self.moe_tp is not None else max(1, self.stage_ranks // self.ep)

    def label(self) -> str:
        """The field's short name: `TP8`, `TEP8`, `EP16+DPA`, `TP4 PP2`."""
        parts = []
        if self.ep > 1 and self.ep == self.tp and self.dp == 1:
            parts.append(f"TEP{self.tp}")
        else:
            if self.tp > 1 or (self.dp == 1 and self.ep == 1):
                parts.append(f"TP{self.tp}")
            if self.ep > 1:
                parts.append(f"EP{self.ep}")
            if self.dp > 1:
                parts.append("DPA" if self.dp == self.ep else f"DPA{self.dp}")
        parts += [f"{n}{v}" for n, v in (("CP", self.cp), ("PP", self.pp)) if v > 1]
        return " ".join(parts) if self.ep == 1 or self.dp == 1 else "+".join(parts)

    def shard(
        self,
        *,
        shared_sharded: bool,
        moe_over_group: bool,
        moe_split: int,
        dense_over_dp: bool,
        dense_whole: bool,
        vocab_over_dp: bool,
    ) -> Shard:
        """How one layer is cut, given what the engine does with the shared expert, the dense FFN
        and the vocabulary under DP attention. A shared expert on the tokens of the whole group is
        cut over all its ranks; where ranks hold the dense FFN whole, TP ranks split the tokens.
        """
        whole, over_all = self.stage_ranks, shared_sharded or moe_over_group
        return Shard(
            tp=self.tp,
            dp=self.dp,
            ep=self.ep,
            moe_tp=self.expert_tp,
            cp=self.cp,
            shared_tp=whole if over_all else self.expert_tp if self.dp > 1 else self.tp,
            dense_tp=1 if dense_whole else whole if dense_over_dp else self.tp,
            vocab_tp=whole if vocab_over_dp else self.tp,
            redundant_experts=self.redundant_experts,
            moe_over_group=moe_over_group,
            moe_split=moe_split,
            dense_split=self.tp if dense_whole else 1,
        )
