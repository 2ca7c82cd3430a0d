"""From a model on a layout to the ops and collectives of one rank.

A step falls into parts that depend on different sums of its batch, so that each part can be priced
once and looked up: `token` (the rank's tokens), `group` (all tokens of its expert group), `decode`
(sequences and their context), `prefill` (one chunk), `head` (rows of logits). Every function gives
the ops of one pipeline stage as `Counted`: an op and how often the stage runs it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, TypeVar

from dse.model.attention import Attention
from dse.model.ffn import FFN, UNIFORM, Routing
from dse.model.model import LayerGroup, Model
from dse.model.ops import Collective, ComputeOp, Elementwise, Gemm, Num, Op
from dse.model.precision import Precision
from dse.model.shard import Shard
from dse.serving.deployment import Deployment, Pool
from dse.serving.exchange import Exchange, is_whole_group

T = TypeVar("T")

SIXTEEN_BIT = 2.0
FP8 = 1.0


@dataclass(frozen=True, slots=True)
class Counted:
    """`op`, run `count` times in a stage."""

    op: Op
    count: float


@dataclass(frozen=True)
class Program:
    """One pool's model as the work of a rank. `q_tokens` is tokens per decoding request and step
    (1, or drafted + 1 under speculation).
    """

    model: Model
    precision: Precision
    pool: Pool
    routing: Routing = UNIFORM

    @cached_property
    def stages(self) -> tuple[tuple[LayerGroup, ...], ...]:
        """Layers of each pipeline stage."""
        pp = self.pool.layout.pp
        return tuple(self.model.stage(i, pp) for i in range(pp))

    @cached_property
    def shard(self) -> Shard:
        """How one layer is cut among the ranks of a stage."""
        return self.pool.shard()

    @cached_property
    def _exchange_kind(self) -> Exchange:
        return self.pool.exchange

    @cached_property
    def _attentions(self) -> tuple[tuple[tuple[Attention, int], ...], ...]:
        """The attentions of each stage and how many layers have them."""
        return tuple(_repeats((each.attention, each.repeat) for each in s) for s in self.stages)

    @cached_property
    def _ffns(self) -> tuple[tuple[tuple[FFN, int], ...], ...]:
        """The FFNs of each stage and how many layers have them."""
        return tuple(_repeats((each.ffn, each.repeat) for each in s) for s in self.stages)

    def token_ops(self, stage: int, m: Num) -> Iterator[Counted]:
        """Projections, dense FFN, shared experts, router and norms for `m` tokens of the rank."""
        d, shard, p = self.model.d_model, self.shard, self.precision
        for attention, repeat in self._attentions[stage]:
            yield from _counted(attention.linear_ops(m, d, shard, p), repeat)
        for ffn, repeat in self._ffns[stage]:
            yield from _counted(ffn.local_ops(m, d, shard, p), repeat)
        for split, norms in self._norms(stage).items():
            # A fused residual-add and norm reads two tensors and writes two.
            n_bytes = m / split * d * 4 * SIXTEEN_BIT
            yield Counted(Elementwise(name="norm", n_bytes=n_bytes), norms)
        if stage == 0:
            yield Counted(Elementwise(name="embedding", n_bytes=m * d * 2 * SIXTEEN_BIT), 1)

    def _norms(self, stage: int) -> dict[int, int]:
        """Norms, by how many parts of the DP rank's tokens its TP ranks take one of."""
        found: dict[int, int] = {}
        for group in self.stages[stage]:
            scatters = self.pool.engine.tp_tokens == "scatter"
            split = self._split(group.ffn) if scatters else 1
            found[split] = found.get(split, 0) + group.repeat * group.n_norms
        return found

    def _split(self, ffn: FFN) -> int:
        shard = self.shard
        if ffn.is_moe:
            return shard.moe_split
        return shard.dense_split if "dense" in ffn.widths() else 1

    def group_ops(self, stage: int, m_group: Num) -> Iterator[Counted]:
        """Routed experts of the rank for the `m_group` tokens of its expert group."""
        d, shard, p = self.model.d_model, self.shard, self.precision
        for ffn, repeat in self._ffns[stage]:
            yield from _counted(ffn.group_ops(m_group, d, shard, p, self.routing), repeat)

    def decode_ops(
        self, stage: int, n_seqs: Num, q_tokens: Num, context_tokens: Num
    ) -> Iterator[Counted]:
        """Attention of `n_seqs` decoding sequences on a mean context of `context_tokens`."""
        shard, p = self.shard, self.precision
        for attention, repeat in self._attentions[stage]:
            ops = attention.decode_ops(n_seqs, q_tokens, context_tokens, shard, p)
            yield from _counted(ops, repeat)

    def prefill_ops(
        self, stage: int, n_seqs: Num, q_tokens: Num, cached_tokens: Num
    ) -> Iterator[Counted]:
        """Attention of `n_seqs` chunks of `q_tokens` new tokens on `cached_tokens` cached ones."""
        shard, p = self.shard, self.precision
        for attention, repeat in self._attentions[stage]:
            ops = attention.prefill_ops(n_seqs, q_tokens, cached_tokens, shard, p)
            yield from _counted(ops, repeat)

    def head_ops(self, n_rows: Num) -> Iterator[Counted]:
        """Logits of `n_rows` positions (one a sequence) and sampling; last stage only."""
        model, shard = self.model, self.shard
        width = model.vocab_size / shard.vocab_tp
        p = self.precision
        yield Counted(
            Gemm(m=n_rows, n=width, k=model.d_model, weights=p.of("head"), activations=p.other), 1
        )
        # Softmax over fp32 logits: written, read for the maximum and read for the sum.
        yield Counted(Elementwise(name="sampling", n_bytes=n_rows * width * 3 * 4), 1)
        if shard.vocab_tp > 1:
            n_bytes = n_rows * model.vocab_size * SIXTEEN_BIT
            yield Counted(Collective(kind="all_gather", n_bytes=n_bytes, n_ranks=shard.vocab_tp), 1)

    def collectives(self, stage: int, m: Num, m_group: Num) -> Iterator[Counted]:
        """Messages of a stage for `m` tokens of the rank and `m_group` of its expert group."""
        for scatters, repeat in self._reducing(stage).items():
            yield from _counted(self._attention_messages(m, scatters=scatters), repeat)
        for ffn, repeat in self._ffns[stage]:
            if ffn.is_moe:
                yield from _counted(self._expert_messages(ffn, m, m_group), repeat)
            elif ffn.kind != "none":  # type: ignore[attr-defined]
                yield from _counted(self._dense_messages(ffn, m, m_group), repeat)
        if stage + 1 < self.pool.layout.pp:
            layout = self.pool.layout
            n_bytes = m * self.model.d_model * SIXTEEN_BIT
            stride = layout.stage_ranks
            yield Counted(Collective(kind="p2p", n_bytes=n_bytes, n_ranks=2, stride=stride), 1)

    def _reducing(self, stage: int) -> dict[bool, int]:
        """Layers with attention, by whether its sums stay scattered over the TP ranks."""
        found: dict[bool, int] = {}
        for group in self.stages[stage]:
            if group.attention.kind != "none":  # type: ignore[attr-defined]
                scatters = self._scatters(group.ffn)
                found[scatters] = found.get(scatters, 0) + group.repeat
        return found

    def _scatters(self, ffn: FFN) -> bool:
        """Whether `ffn` starts from its own share of tokens, or gathers those of all ranks."""
        layout, engine = self.pool.layout, self.pool.engine
        gathers = ffn.is_moe and is_whole_group(layout, engine)
        return gathers or (engine.tp_tokens == "scatter" and self._split(ffn) > 1)

    def _attention_messages(self, m: Num, *, scatters: bool) -> list[Op]:
        layout, n_bytes = self.pool.layout, m * self.model.d_model * SIXTEEN_BIT
        ops: list[Op] = []
        if layout.cp > 1:
            # Decode context parallelism gathers queries and merges partial outputs (vLLM DCP).
            ops.append(Collective(kind="all_gather", n_bytes=n_bytes, n_ranks=layout.cp))
            ops.append(Collective(kind="reduce_scatter", n_bytes=n_bytes, n_ranks=layout.cp))
        if layout.tp > 1:
            kind: Literal["reduce_scatter", "all_reduce"]
            kind = "reduce_scatter" if scatters else "all_reduce"
            ops.append(Collective(kind=kind, n_bytes=n_bytes, n_ranks=layout.tp))
        return ops

    def _dense_messages(self, ffn: FFN, m: Num, m_group: Num) -> list[Op]:
        layout, width = self.pool.layout, self.model.d_model * SIXTEEN_BIT
        if self._split(ffn) > 1:
            return [Collective(kind="all_gather", n_bytes=m * width, n_ranks=layout.tp)]
        if layout.dp > 1 and self.pool.engine.memory.dense_ffn_over_dp:
            ranks = layout.stage_ranks
            return [
                Collective(kind="all_gather", n_bytes=m_group * width, n_ranks=ranks),
                Collective(kind="reduce_scatter", n_bytes=m_group * width, n_ranks=ranks),
            ]
        if layout.tp > 1:
            return [Collective(kind="all_reduce", n_bytes=m * width, n_ranks=layout.tp)]
        return []

    def _expert_messages(self, ffn: FFN, m: Num, m_group: Num) -> list[Op]:
        layout, width = self.pool.layout, self.model.d_model * SIXTEEN_BIT
        exchange = self._exchange_kind
        if exchange == "none":
            return []
        if exchange == "all_reduce":
            return [Collective(kind="all_reduce", n_bytes=m * width, n_ranks=layout.tp)]
        if exchange == "deepep":
            return self._exchange(ffn, m)
        ranks = layout.stage_ranks
        ops: list[Op] = [
            Collective(kind="all_gather", n_bytes=m_group * width, n_ranks=ranks),
            Collective(kind="reduce_scatter", n_bytes=m_group * width, n_ranks=ranks),
        ]
        if layout.tp > 1 and (self._scatters(ffn) or self._split(ffn) > 1):
            ops.append(Collective(kind="all_gather", n_bytes=m * width, n_ranks=layout.tp))
        return ops

    def _exchange(self, ffn: FFN, m: Num) -> list[Op]:
        layout, d = self.pool.layout, self.model.d_model
        # Each TP rank of a DP rank sends its share of the tokens; TP ranks gather the results.
        tokens = m / layout.tp
        sent = FP8 if self.precision.of("expert").bytes_per_element < SIXTEEN_BIT else SIXTEEN_BIT
        routing = {
            "top_k": ffn.top_k,  # type: ignore[attr-defined]
            "groups": ffn.n_groups,  # type: ignore[attr-defined]
            "top_groups": ffn.top_groups,  # type: ignore[attr-defined]
        }
        shape = {"n_ranks": layout.ep, "tokens": tokens, "stride": layout.expert_tp, **routing}
        ops: list[Op] = [
            Collective(kind="ep_dispatch", n_bytes=tokens * d * sent, **shape),
            Collective(kind="ep_combine", n_bytes=tokens * d * SIXTEEN_BIT, **shape),
        ]
        if layout.tp > 1:
            n_bytes = m * d * SIXTEEN_BIT
            ops.append(Collective(kind="all_gather", n_bytes=n_bytes, n_ranks=layout.tp))
        return ops


def program(deployment: Deployment, pool: Pool) -> Program:
    """The program of one rank of `pool` in `deployment`."""
    return Program(
        model=deployment.model,
        precision=deployment.precision,
        pool=pool,
        routing=deployment.routing,
    )


def _counted(ops: list[ComputeOp] | list[Op], count: float) -> Iterator[Counted]:
    for op in ops:
        yield Counted(op, count)


def _repeats(parts: Iterable[tuple[T, int]]) -> tuple[tuple[T, int], ...]:
    """Each part once, with the sum of its repeats."""
    found: dict[T, int] = {}
    for part, repeat in parts:
        found[part] = found.get(part, 0) + repeat
    return tuple(found.items())
