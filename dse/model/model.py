"""A model: its layers in order, its vocabulary, and what its checkpoint stores."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated

from dse.base.bounds import require_positive
from dse.base.keys import Key
from dse.base.units import Bytes, Count, Tokens
from dse.hardware.dtype import DType
from dse.model.attention import ATTENTIONS, Attention
from dse.model.ffn import FFN, FFNS
from dse.model.precision import QUANTISED_CLASSES
from dse.model.shard import WHOLE, Shard
from dse.model.tensor import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerGroup:
    """`repeat` equal layers in a row; `n_norms` norm vectors of d_model each.

    `evenly_cut` is an accounting rule of some papers: tensors that engines keep whole on every TP
    rank (MLA down-projections, router, norms) count as cut over tp too.
    """

    repeat: Count
    attention: Annotated[Attention, ATTENTIONS]
    ffn: Annotated[FFN, FFNS]
    n_norms: int = 2
    evenly_cut: bool = False

    def tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        """Weight tensors of one layer on one rank."""
        cut = self._tensors(d_model, shard)
        if not self.evenly_cut:
            return cut
        whole = self._tensors(d_model, replace(shard, tp=1, dense_tp=1, shared_tp=1))
        return tuple(
            part if part.cls == "expert" else replace(each, elements=each.elements / shard.tp)
            for part, each in zip(cut, whole, strict=True)
        )

    def _tensors(self, d_model: int, shard: Shard) -> tuple[Tensor, ...]:
        norms = Tensor("norms", "norm", self.n_norms * d_model)
        return (
            *self.attention.tensors(d_model, shard),
            *self.ffn.tensors(d_model, shard),
            norms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculative:
    """Multi-token prediction: `n_layers` extra modules, each a layer like `layer` plus a
    2·d_model × d_model projection; loaded only when speculation is on.
    """

    n_layers: int
    layer: LayerGroup


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal:
    """Encoders beside the language model: `parameters` counted whole on each rank in 16 bits."""

    parameters: float
    note: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One checkpoint. `checkpoint` is the format of the tensor classes in `quantised`;
    `exceptions` those stored otherwise. `checkpoint_bytes`, where known, are the real bytes of the
    files and win over the arithmetic. `published_parameters` is what its authors state.
    """

    name: str = field(compare=False)
    d_model: Count
    vocab_size: Count
    layers: tuple[LayerGroup, ...]
    tied_embeddings: bool
    max_context_tokens: Tokens
    source: str = field(compare=False)
    checkpoint: DType = DType.BF16
    quantised: tuple[str, ...] = QUANTISED_CLASSES
    exceptions: Mapping[str, DType] = field(default_factory=dict)
    checkpoint_bytes: Annotated[Bytes | None, Key("checkpoint_size")] = None
    published_parameters: float | None = field(default=None, compare=False)
    extra_parameters: float = 0.0
    speculative: Speculative | None = None
    multimodal: Multimodal | None = None
    learned_positions: int = 0
    tags: tuple[str, ...] = field(default=(), compare=False)
    notes: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse a model that holds or reads nothing."""
        require_positive(self, "d_model", "vocab_size", "max_context_tokens", "n_layers")

    @property
    def n_layers(self) -> int:
        """Layers, without speculative modules."""
        return sum(group.repeat for group in self.layers)

    @property
    def is_moe(self) -> bool:
        """Whether any layer routes tokens to experts."""
        return any(group.ffn.is_moe for group in self.layers)

    def expanded(self) -> Iterator[LayerGroup]:
        """Each layer in order."""
        for group in self.layers:
            for _ in range(group.repeat):
                yield group

    def stage(self, index: int, pp: int) -> tuple[LayerGroup, ...]:
        """The layers of pipeline stage `index` of `pp`, run-length grouped; the first stages take
        the remainder.
        """
        base, extra = divmod(self.n_layers, pp)
        start = index * base + min(index, extra)
        stop = start + base + (1 if index < extra else 0)
        found, position = [], 0
        for group in self.layers:
            low, high = max(start, position), min(stop, position + group.repeat)
            position += group.repeat
            if low < high:
                found.append(_repeated(group, high - low))
        return tuple(found)

    def embedding_tensors(self, vocab_tp: int = 1, pad: int = 1) -> tuple[Tensor, ...]:
        """Embedding, head (absent when tied) and the final norm; vocabulary padded to `pad`."""
        vocab = -(-self.vocab_size // pad) * pad / vocab_tp
        embed = Tensor("embed_tokens", "embedding", vocab * self.d_model)
        positions = Tensor("embed_positions", "embedding", self.learned_positions * self.d_model)
        head = Tensor("lm_head", "head", 0.0 if self.tied_embeddings else vocab * self.d_model)
        return (embed, positions, head, Tensor("final_norm", "norm", self.d_model))

    def parameters(self) -> float:
        """All parameters of the language model, without speculative modules or encoders."""
        total = sum(t.total_elements for t in self.embedding_tensors()) + self.extra_parameters
        for group in self.layers:
            tensors = group.tensors(self.d_model, WHOLE)
            total += group.repeat * sum(t.total_elements for t in tensors)
        return total

    def active_parameters(self) -> float:
        """Parameters that one token uses: all but the experts that it is not routed to."""
        idle = 0.0
        for group in self.layers:
            experts = sum(
                t.total_elements
                for t in group.ffn.tensors(self.d_model, WHOLE)
                if t.cls == "expert"
            )
            used = group.ffn.touched_elements(1, self.d_model, WHOLE)
            idle += group.repeat * (experts - used)
        return self.parameters() - idle


def _repeated(group: LayerGroup, repeat: int) -> LayerGroup:
    return replace(group, repeat=repeat)
