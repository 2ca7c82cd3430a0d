"""Every attention kind: it reads what it says, and is cut as it says."""

import pytest

from dse.catalog import Catalog
from dse.cost.work import work
from dse.hardware import DType
from dse.model.attention import Attention
from dse.model.precision import Precision
from dse.model.shard import WHOLE, Shard

MODELS = [
    "llama-3.1-8b",
    "gpt-oss-120b",
    "deepseek-v3",
    "deepseek-v3.2",
    "deepseek-v4-flash",
    "minimax-m3",
    "gemma-4-31b",
    "mimo-v2-flash",
]
PARTS = {
    f"{name}-{part.kind}-{getattr(part, 'ratio', 0)}": part
    for name in MODELS
    for part in dict.fromkeys(g.attention for g in Catalog.load().model(name).layers)
}
CONTEXTS = (100, 3000, 100_000)


@pytest.fixture(params=PARTS.values(), ids=PARTS.keys())
def part(request: pytest.FixtureRequest) -> Attention:
    found: Attention = request.param
    return found


@pytest.mark.parametrize("kv", [DType.BF16, DType.FP8])
@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("tp", [1, 2])
def test_decode_ops_read_what_is_stated(part: Attention, context: int, kv: DType, tp: int) -> None:
    shard = Shard(tp=tp)
    ops = part.decode_ops(3, 1, context, shard, Precision(kv=kv))
    read = sum(work(op).hbm_bytes for op in ops)
    assert read == pytest.approx(3 * part.read_bytes(context, shard, kv), rel=1e-9)


def test_reads_grow_with_context_and_never_beyond_what_is_stored(part: Attention) -> None:
    kv, last = DType.BF16, 0.0
    stored = part.kv_bytes_per_token(WHOLE, kv), part.state_bytes(WHOLE, kv)
    for context in CONTEXTS:
        read = part.read_bytes(context, WHOLE, kv)
        assert last <= read <= stored[0] * context + stored[1] + 1e-6
        last = read


def test_context_parallel_divides_what_grows(part: Attention) -> None:
    whole, cut = (part.kv_bytes_per_token(Shard(tp=8, cp=cp), DType.BF16) for cp in (1, 8))
    assert cut == pytest.approx(whole / 8)


def test_tensor_parallel_cuts_per_head_weights(part: Attention) -> None:
    whole, half = (sum(t.total_elements for t in part.tensors(4096, Shard(tp=tp))) for tp in (1, 2))
    assert whole / 2 <= half < whole


@pytest.mark.parametrize("name", MODELS)
def test_latents_and_entries_are_whole_on_every_rank(name: str) -> None:
    for group in Catalog.load().model(name).layers:
        found = group.attention
        one, eight = (found.kv_bytes_per_token(Shard(tp=tp), DType.BF16) for tp in (1, 8))
        if found.kind in {"mla", "sparse", "compressed"}:
            assert one == eight
        elif found.kind in {"gqa", "sliding"}:
            heads = found.n_kv_heads
            assert eight == one / min(8, heads)


def test_prefill_in_chunks_costs_what_one_chunk_costs(part: Attention) -> None:
    p = Precision()

    def flop(tokens: int, cached: int) -> float:
        ops = part.prefill_ops(1, tokens, cached, WHOLE, p)
        return sum(work(op).flop for op in ops if op.family != "gemm")

    whole = flop(4096, 0)
    chunks = sum(flop(1024, cached) for cached in range(0, 4096, 1024))
    assert chunks == pytest.approx(whole, rel=0.02)


def test_recurrent_state_is_read_and_written_once() -> None:
    layers = Catalog.load().model("qwen3-next-80b-a3b").layers
    mixer = next(g.attention for g in layers if g.attention.kind == "linear")
    (op,) = mixer.decode_ops(5, 1, 1000, WHOLE, Precision())
    assert work(op).hbm_bytes == 2 * 5 * mixer.state_bytes(WHOLE, DType.BF16)
    assert mixer.read_bytes(10, WHOLE, DType.BF16) == mixer.read_bytes(1e6, WHOLE, DType.BF16)
