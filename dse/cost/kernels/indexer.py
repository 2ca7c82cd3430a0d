"""The scoring pass of sparse attention (DeepSeek-V3.2's lightning indexer): FP8 products, ReLU."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from dse.cost.kernels._terms import Kernel, Terms, balance, log, log_us
from dse.hardware.gpu import GPU
from dse.model.ops import Indexer, Num


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerKernel(Kernel):
    """Every (query, key) pair costs one product per index head; index keys are read once."""

    feature_names: ClassVar[tuple[str, ...]] = (
        "flop_us",
        "hbm_us",
        "balance",
        "pairs_per_sm",
        "reuse",
    )
    kind: Literal["indexer"] = "indexer"

    def variant(self, op: Indexer) -> str:
        return "fp8"

    def features(self, op: Indexer, needs: Terms, moved_bytes: Num, gpu: GPU) -> tuple[Num, ...]:
        pairs, reuse = log(op.pairs / gpu.sm_count), log(op.pairs) - log(op.key_bytes)
        return (log_us(needs.flop_s), log_us(needs.hbm_s), balance(needs), pairs, reuse)
