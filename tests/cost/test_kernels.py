"""Kernel models: never below the roofline, one formula for numbers and arrays, right tiers."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.base.errors import CatalogError
from dse.catalog import Catalog
from dse.cost.kernels import KERNELS, kernel_model
from dse.cost.kernels._coefficients import KernelSlice, KernelTable, facts, gpus, read, write
from dse.cost.kernels._head import Head, slowed, total
from dse.cost.kernels._reference import PRIORS, Wanted, choose
from dse.cost.kernels._terms import Terms
from dse.cost.work import causal_pairs
from dse.hardware import GPU, DType
from dse.model.ops import (
    ComputeOp,
    DecodeAttention,
    Elementwise,
    Gemm,
    GroupedGemm,
    Indexer,
    LinearAttention,
    MLADecode,
    MLAPrefill,
    PrefillAttention,
)
from tests import worlds

BF16, FP8 = DType.BF16, DType.FP8


def gemm(m: object, n: object = 4096, k: object = 4096, dtype: DType = BF16) -> Gemm:
    return Gemm(m=m, n=n, k=k, weights=dtype, activations=dtype)


def ops(tokens: int, seqs: int, context: int) -> list[ComputeOp]:
    """One op of every family."""
    heads = {"n_heads": 32, "n_kv_heads": 8, "d_qk": 128, "d_v": 128}
    return [
        gemm(tokens),
        gemm(tokens, dtype=FP8),
        Gemm(m=tokens, n=5120, k=2560, weights=DType.INT4, activations=BF16),
        GroupedGemm(
            tokens=tokens, rows=tokens * 2.0, touched=min(tokens * 2.0, 16.0), n_experts=16,
            top_k=8, d_model=4096, d_ff=1536, gated=True, weights=FP8, activations=FP8,
        ),
        PrefillAttention(n_seqs=seqs, q_tokens=tokens, cached_tokens=context, kv=BF16, **heads),
        PrefillAttention(
            n_seqs=seqs, q_tokens=tokens, cached_tokens=context, kv=FP8, window_tokens=128, **heads
        ),
        DecodeAttention(n_seqs=seqs, q_tokens=1, context_tokens=context, kv=FP8, **heads),
        MLADecode(
            n_seqs=seqs, q_tokens=2, context_tokens=context, n_heads=16, d_latent=512, d_rope=64,
            bytes_per_token=1152, kv=BF16,
        ),
        MLAPrefill(
            n_seqs=seqs, q_tokens=tokens, cached_tokens=context, n_heads=16, d_qk=192, d_v=128,
            kv=BF16, selected_tokens=2048,
        ),
        Indexer(pairs=seqs * context * 1.0, n_heads=64, d_head=128, key_bytes=132.0 * context),
        LinearAttention(
            n_seqs=seqs, tokens=tokens, state_bytes=1e6, flop_per_token=1e6,
            activation_bytes_per_token=2e4,
        ),
        Elementwise(name="norm", n_bytes=tokens * 16384.0),
        Elementwise(name="kv_write", n_bytes=tokens * 4096.0),
    ]  # fmt: skip


@pytest.fixture(scope="module")
def h100() -> GPU:
    return worlds.gpu(
        name="H100-SXM",
        architecture="hopper",
        hbm_bytes_per_s=3.35e12,
        peak_flop_per_s={"bf16": 989.4e12, "fp8": 1978.9e12},
        sfu_op_per_s=4.18e12,
        sm_count=132,
    )


@settings(max_examples=40)
@given(
    tokens=st.integers(1, 70_000),
    seqs=st.integers(1, 4096),
    context=st.integers(1, 300_000),
    bandwidth=st.floats(2e11, 2e13),
    flops=st.floats(5e13, 1e16),
    sms=st.integers(8, 400),
    architecture=st.sampled_from(["hopper", "blackwell", "blackwell-ultra", "ada", "cdna3", "new"]),
)
def test_no_kernel_is_faster_than_its_roofline(
    tokens: int,
    seqs: int,
    context: int,
    bandwidth: float,
    flops: float,
    sms: int,
    architecture: str,
) -> None:
    made_up = worlds.gpu(
        architecture=architecture,
        hbm_bytes_per_s=bandwidth,
        peak_flop_per_s={"bf16": flops, "fp8": 2 * flops},
        sm_count=sms,
    )
    model = kernel_model(made_up)
    for op in ops(tokens, seqs, context):
        seconds = model.seconds(op)
        assert np.isfinite(seconds)
        assert seconds >= model.roofline_seconds(op), op
        low, high = model.interval(op)
        assert 0.0 < low <= 1.0 <= high


@pytest.mark.parametrize("name", gpus())
def test_no_shipped_table_beats_the_roofline(name: str) -> None:
    here = worlds.gpu(name=name)
    for engine in ("vllm", "sglang", "trtllm"):
        model = kernel_model(here, engine, "target")
        assert model.tier == "target"
        for tokens in (1, 300, 20_000):
            for op in ops(tokens, tokens, 5000):
                assert model.seconds(op) >= model.roofline_seconds(op), (engine, op)


def test_arrays_give_what_numbers_give(h100: GPU) -> None:
    model = kernel_model(h100)
    m = np.array([1.0, 17.0, 256.0, 4096.0])
    n = np.array([[1024.0], [5120.0]])
    table = model.seconds(gemm(m, n))
    assert table.shape == (2, 4)
    for i in range(2):
        for j in range(4):
            assert table[i, j] == pytest.approx(
                model.seconds(gemm(float(m[j]), float(n[i, 0]))), rel=1e-5
            )


def test_an_op_without_work_takes_no_time(h100: GPU) -> None:
    model = kernel_model(h100)
    assert model.seconds(gemm(0)) == 0.0
    assert model.seconds(Elementwise(name="norm", n_bytes=0.0)) == 0.0


def test_roofline_by_hand() -> None:
    """1 TB/s and 100 TFLOP/s: 4096² in bf16 is 33.55 MB of weights, 33.55 µs; at m = 4096 it is
    137.4 GFLOP, 1.374 ms. Activations of 67 MB exceed the 50 MB of L2 but not the arithmetic."""
    model = kernel_model(worlds.gpu(), tier="roofline")
    assert model.tier == "roofline"
    assert model.seconds(gemm(1)) == pytest.approx(33.554432e-6)
    assert model.seconds(gemm(4096)) == pytest.approx(2 * 4096**3 / 1e14)


def test_a_constant_head_by_hand() -> None:
    """Half the bandwidth and 2 µs of launch: 10 µs at peak become 22, as nothing else costs."""
    head = Head.constant(compute=0.5, memory=0.5, launch_s=2e-6)
    terms = Terms(flop_s=0.0, hbm_s=1e-5, soft_s=0.0, features=())
    assert head.seconds(terms) == pytest.approx(22e-6, rel=1e-6)
    both = Terms(flop_s=1e-5, hbm_s=1e-5, soft_s=0.0, features=())
    assert head.seconds(both) == pytest.approx(2e-6 + 2e-5 * 2**0.25, rel=1e-6)


@given(st.lists(st.floats(-50, 50), min_size=4, max_size=4), st.floats(0, 1), st.floats(0, 1))
def test_the_head_is_bounded_whatever_its_outputs(
    outputs: list[float], flop_s: float, hbm_s: float
) -> None:
    terms = Terms(flop_s=flop_s, hbm_s=hbm_s, soft_s=0.0, features=())
    clipped = np.clip(np.array(outputs), -7, 7)
    assert total(slowed(terms, clipped)) >= max(flop_s, hbm_s)


def test_beyond_the_measured_range_efficiency_stays() -> None:
    layers = tuple(np.full(shape, 0.3, np.float32) for shape in ((1, 2), 2, (2, 2), 2, (2, 4), 4))
    head = Head(layers=layers, bounds=np.array([[0.0], [1.0]], dtype=np.float32))
    at_edge, beyond = head.outputs(np.array([[1.0], [9.0]], dtype=np.float32))[0]
    assert np.array_equal(at_edge, beyond)


def test_networks_price_by_the_geometric_mean_of_their_times() -> None:
    """And no share of it is below its limit, which a blend of several GPUs' shares relies on."""
    rng = np.random.default_rng(0)
    networks = [
        tuple(
            rng.normal(size=shape).astype(np.float32) for shape in ((2, 3), 3, (3, 3), 3, (3, 4), 4)
        )
        for _ in range(3)
    ]
    limits, features = rng.uniform(0.0, 1e-4, (3, 5000)), rng.normal(size=(2, 5000))
    terms = Terms(flop_s=limits[0], hbm_s=limits[1], soft_s=limits[2], features=tuple(features))
    each = [Head(layers=layers).seconds(terms) for layers in networks]
    several = Head(layers=networks[0], others=tuple(networks[1:]))
    assert several.seconds(terms) == pytest.approx(np.prod(each, axis=0) ** (1 / 3), rel=1e-5)
    shares = several.shares(terms)
    assert (shares.flop >= limits[0]).all()
    assert (shares.hbm >= limits[1]).all()


def test_many_query_heads_of_a_kv_head_leave_the_kernel_that_shares_them() -> None:
    """TensorRT-LLM's kernel for 32 query heads a KV head and less takes 42 µs on an L40S for 16
    sequences of 2,048 tokens, the one for more 900 µs (silicon database); further tokens of a
    sequence, as speculation adds, are no heads.
    """
    model = kernel_model(Catalog.load().gpu("L40S"), "trtllm")

    def seconds(n_heads: int, q_tokens: int = 1) -> float:
        op = DecodeAttention(
            n_seqs=16, q_tokens=q_tokens, context_tokens=2048, n_heads=n_heads, n_kv_heads=2,
            d_qk=128, d_v=128, kv=DType.FP8,
        )  # fmt: skip
        return float(model.seconds(op))

    assert seconds(64) == pytest.approx(42e-6, rel=0.25)
    assert seconds(96) == pytest.approx(900e-6, rel=0.25)
    assert seconds(32, q_tokens=4) < 2.0 * seconds(32)


def test_a_window_limits_the_pairs() -> None:
    """Four queries after ten cached keys, window 3: the last 3 keys each, but for the ramp."""
    assert causal_pairs(4.0, 10.0, 3.0) == pytest.approx(12.0)
    assert causal_pairs(4.0, 0.0, None) == pytest.approx(8.0)


def test_target_needs_a_table() -> None:
    with pytest.raises(CatalogError, match="no kernel table for unit"):
        kernel_model(worlds.gpu(), tier="target")


def test_a_gpu_with_a_table_is_target_and_can_forget_it(h100: GPU) -> None:
    assert kernel_model(h100).tier == "target"
    forgetful = kernel_model(h100, tier="cross", without=("H200-SXM",))
    assert forgetful.tier == "cross"
    assert forgetful.physics_id != kernel_model(h100, tier="cross").physics_id


def test_identity_follows_the_engine_and_the_gpu(h100: GPU) -> None:
    base = kernel_model(h100, "vllm").physics_id
    assert base == kernel_model(h100, "vllm").physics_id
    assert base != kernel_model(h100, "sglang").physics_id
    faster = dataclasses.replace(h100, hbm_bytes_per_s=4e12)
    assert base != kernel_model(faster, "vllm").physics_id


def test_every_family_has_a_prior_and_names_its_features(h100: GPU) -> None:
    assert set(PRIORS) == set(KERNELS)
    for op in ops(64, 8, 1000):
        part = KERNELS[op.family]()
        assert len(part.terms(op, h100).features) == len(part.feature_names)


def test_a_table_survives_writing_and_reading(tmp_path: object) -> None:
    layers = tuple(
        np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
        for shape in ((2, 3), (3,), (3, 3), (3,), (3, 4), (4,))
    )
    other = tuple(layer + 1.0 for layer in layers)
    bounds = np.array([[0, 0], [1, 2]], dtype=np.float32)
    head = Head(layers=layers, bounds=bounds, others=(other,))
    each = KernelSlice.encode(
        head, family="gemm", variant="bf16", engine="vllm", version="1", implementation="x",
        compute="bf16", d_heads=(), n_rows=5, low=0.9, high=1.1,
    )  # fmt: skip
    gpu = worlds.gpu()
    table = KernelTable(
        gpu=gpu.name, architecture=gpu.architecture, gpu_facts=facts(gpu), provenance={},
        slices=(each,), digest="",
    )  # fmt: skip
    path = tmp_path / "unit.json"  # type: ignore[operator]
    write(path, table)
    found = read(path).slices[0]
    assert found == each
    for was, now in zip(head.layers, found.head.layers, strict=True):
        assert np.array_equal(was, now)
    for networks, was in zip(found.head.others, head.others, strict=True):
        assert all(np.array_equal(*pair) for pair in zip(networks, was, strict=True))


def test_the_engine_asked_for_decides_the_slice() -> None:
    def made(
        engine: str, implementation: str, n_rows: int, d_heads: tuple[int, ...]
    ) -> KernelSlice:
        return KernelSlice(
            family="decode_attention", variant="bf16", engine=engine, version="1",
            implementation=implementation, compute="bf16", d_heads=d_heads, n_rows=n_rows,
            low=0.9, high=1.1, sizes=(), weights="",
        )  # fmt: skip

    slices = (
        made("vllm", "fa3", 100, (64, 128)),
        made("sglang", "fa3", 900, (64, 128)),
        made("sglang", "triton", 50, (256,)),
    )
    table = KernelTable(
        gpu="x", architecture="y", gpu_facts={}, provenance={}, slices=slices, digest=""
    )

    def chosen(d_head: float, *asked: str) -> KernelSlice | None:
        return choose(table, Wanted("decode_attention", "bf16", d_head, asked), "bf16")

    assert chosen(128.0, "vllm") is slices[0]
    assert chosen(128.0) is slices[0]
    assert chosen(128.0, "sglang") is slices[1]
    assert chosen(256.0, "sglang") is slices[2]
    assert chosen(128.0, "triton", "sglang") is slices[2]
    assert choose(table, Wanted("gemm", "bf16", 0.0, ()), "bf16") is None
