"""Which coefficients price an op: kernels that an engine runs, not the oddest of those measured."""

import numpy as np
import pytest

from dse.catalog import Catalog
from dse.cost.kernels import kernel_model
from dse.cost.kernels._coefficients import KernelSlice, KernelTable
from dse.cost.kernels._reference import Wanted, choose, likely
from dse.cost.kernels._transfer import Traits
from dse.hardware import DType
from dse.model.ops import DecodeAttention, Gemm
from tests import worlds


def made(engine: str, implementation: str, busy_share: float, **facts: object) -> KernelSlice:
    """A slice without coefficients."""
    base = {
        "family": "moe", "variant": "fp8", "version": "1", "compute": "fp8", "d_heads": (),
        "n_rows": 100, "low": 0.9, "high": 1.1, "sizes": (), "weights": "",
    }  # fmt: skip
    return KernelSlice(
        engine=engine, implementation=implementation, busy_share=busy_share, **(base | facts)
    )  # type: ignore[arg-type]


def table(*slices: KernelSlice) -> KernelTable:
    return KernelTable(
        gpu="x", architecture="y", gpu_facts={}, provenance={}, slices=slices, digest=""
    )


def test_experts_that_never_used_the_hardware_are_opted_into_by_name() -> None:
    odd, able = made("vllm", "cutlass", 0.11), made("trtllm", "torch_flow", 0.42)
    here = table(odd, able)
    assert choose(here, Wanted("moe", "fp8", 0.0, ("vllm",)), "fp8") is able
    assert choose(here, Wanted("moe", "fp8", 0.0, ("cutlass", "vllm")), "fp8") is odd
    assert choose(table(odd), Wanted("moe", "fp8", 0.0, ("vllm",)), "fp8") is odd


def test_attention_falls_back_by_head_size_and_is_priced_so() -> None:
    facts = {"family": "prefill_attention", "variant": "bf16"}
    slow = made("vllm", "triton", 0.1, d_heads=(192,), **facts)
    fast = made("trtllm", "torch_flow", 0.6, d_heads=(128,), **facts)
    wanted = Wanted("prefill_attention", "bf16", 192.0, ("vllm",))
    assert choose(table(slow, fast), wanted, "bf16") is slow


def test_a_fallback_is_not_carried_to_another_architecture() -> None:
    odd, able = made("vllm", "cutlass", 0.11), made("trtllm", "torch_flow", 0.42)
    wanted = Wanted("moe", "fp8", 0.0, ("cutlass", "vllm"))
    assert likely(table(odd, able), wanted, "fp8", most=3) == (able,)
    assert likely(table(odd, able), wanted, "fp8", most=1) == (odd,)


def test_a_windowed_layer_takes_the_path_of_its_own_implementation_only() -> None:
    facts = {"family": "decode_attention", "d_heads": (128,)}
    plain = made("vllm", "fa2", 0.7, variant="bf16", **facts)
    windowed = made("vllm", "fa2", 0.2, variant="bf16_windowed", **facts)
    other = made("sglang", "flashinfer", 0.8, variant="bf16", **facts)
    here = table(plain, windowed, other)

    def chosen(engine: str, *, window: bool) -> KernelSlice | None:
        wanted = Wanted("decode_attention", "bf16", 128.0, (engine,), windowed=window)
        return choose(here, wanted, "bf16")

    assert chosen("vllm", window=True) is windowed
    assert chosen("vllm", window=False) is plain
    assert chosen("sglang", window=True) is other


def test_a_window_costs_more_where_a_kernel_stops_splitting() -> None:
    """64 sequences of 64 keys on an L40S, 32 heads of 8 KV heads: 63.5 µs with a window, 26.1
    without (silicon database, vLLM, FlashAttention-2); FlashInfer takes the same either way."""
    gpu = Catalog.load().gpu("L40S")
    shape = {"n_seqs": 64.0, "q_tokens": 1.0, "context_tokens": 64.0, "n_heads": 32.0,
             "n_kv_heads": 8.0, "d_qk": 128.0, "d_v": 128.0, "kv": DType.BF16}  # fmt: skip
    plain, windowed = (DecodeAttention(**shape, windowed=w) for w in (False, True))  # type: ignore[arg-type]
    ours = kernel_model(gpu, "vllm", "target")
    assert ours.seconds(plain) == pytest.approx(26.1e-6, rel=0.1)
    assert ours.seconds(windowed) == pytest.approx(63.5e-6, rel=0.1)
    theirs = kernel_model(gpu, "sglang", "target")
    assert theirs.seconds(windowed) == theirs.seconds(plain)


ENGINES = ("vllm", "sglang", "trtllm")


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["H100-SXM", "H200-SXM", "B200-SXM", "GB200"])
def test_fewer_bits_seldom_cost_more(name: str, engine: str) -> None:
    """A decode step's GEMM of eight-bit weights against the same in sixteen, from one sequence on.
    Below 20 MB of weights a quantised kernel's launch may cost what its bytes save. SGLang's kernel
    on a GB200 measures 1.27 times its sixteen bits for 8 x 2,560 x 8,192, 1.34 for seven rows."""
    model = kernel_model(Catalog.load().gpu(name), engine, "target")
    m = np.array([1.0, 2.0, 8.0, 32.0, 64.0])
    n = np.array([2560.0, 5120.0, 8192.0, 14336.0, 28672.0])[:, None]
    k = np.array([3584.0, 8192.0, 16384.0])[:, None, None]
    wide = model.seconds(Gemm(m=m, n=n, k=k, weights=DType.BF16, activations=DType.BF16))
    narrow = model.seconds(Gemm(m=m, n=n, k=k, weights=DType.FP8, activations=DType.FP8))
    large = np.broadcast_to(n * k * 2.0 > 20e6, wide.shape)
    assert np.max(narrow[large] / wide[large]) < 1.35
    assert np.mean(narrow) < 0.75 * np.mean(wide)


def test_block_scales_cost_the_vector_units_of_cdna() -> None:
    """AITER's tuned GEMMs of 32,768 x 7,168 x 2,048 on an MI300X (1,205 µs) and 1,112 x 7,168 x
    4,608 on an MI355X (63 µs); other formats and vendors keep what they sustain."""
    catalog = Catalog.load()
    for name, (m, n, k), us in (
        ("MI300X", (32768, 7168, 2048), 1205.4),
        ("MI355X", (1112, 7168, 4608), 62.9),
    ):
        model = kernel_model(catalog.gpu(name), "sglang")
        op = Gemm(m=m, n=n, k=k, weights=DType.FP8_BLOCK, activations=DType.FP8)
        assert model.seconds(op) == pytest.approx(us * 1e-6, rel=0.2)
    amd, nvidia = catalog.gpu("MI300X"), worlds.gpu()
    assert Traits.of(amd, "fp8_block").sustained < 0.75 * Traits.of(amd, "fp8").sustained
    assert Traits.of(nvidia, "fp8_block") == Traits.of(nvidia, "fp8")


def test_another_gpu_is_priced_by_one_network_of_a_reference() -> None:
    gpu = Catalog.load().gpu("H200-SXM")
    op = Gemm(m=64, n=4096, k=4096, weights=DType.BF16, activations=DType.BF16)
    own = kernel_model(gpu, "vllm", "target").priced(op).parts[0].head
    assert own.others
    carried = [part.head for part in kernel_model(gpu, "vllm", "cross").priced(op).parts]
    assert carried
    assert not any(head.others for head in carried)
    assert own.alone.layers is own.layers
