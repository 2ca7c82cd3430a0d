"""Number formats, GPUs and fabrics."""

import pytest

from dse.catalog import Catalog
from dse.hardware import GPU, DType, Fabric, Link

CATALOG = Catalog.load()


@pytest.mark.parametrize(
    ("dtype", "size"),
    [
        (DType.BF16, 2),
        (DType.FP8, 1),
        (DType.FP8_BLOCK, 1 + 4 / 16384),
        (DType.MXFP8, 1 + 1 / 32),
        (DType.NVFP4, 0.5 + 1 / 16),
        (DType.MXFP4, 0.5 + 1 / 32),
        (DType.INT4, 0.5 + 2.5 / 128),
        (DType.INT4_G32, 0.5 + 2 / 32),
    ],
)
def test_bytes_count_the_scales(dtype: DType, size: float) -> None:
    assert dtype.bytes_per_element == size


def test_every_format_weighs_computes_and_blocks() -> None:
    for dtype in DType:
        assert 0.5 <= dtype.bytes_per_element <= 4
        assert dtype.compute in {"fp32", "bf16", "fp8", "fp4", "int8"}
        assert dtype.block_elements in {1, 16, 32, 128}


def test_ridge_points_of_h20_and_h100() -> None:
    # Floor First: 74 and 590 FLOP/B in FP8.
    assert CATALOG.gpu("h20").ridge_flop_per_byte(DType.FP8) == 74
    assert CATALOG.gpu("h100").ridge_flop_per_byte(DType.FP8) == pytest.approx(590, abs=1)


@pytest.mark.parametrize(
    ("gpu", "dtype", "has"),
    [
        ("a100", DType.FP8, False),
        ("h100", DType.FP8_BLOCK, True),
        ("h100", DType.NVFP4, False),
        ("b200", DType.NVFP4, True),
        ("mi300x", DType.FP8, True),
        ("mi300x", DType.MXFP4, False),
        ("l40s", DType.FP8, True),
        ("a100", DType.INT4, True),
    ],
)
def test_formats_of_tensor_cores(gpu: str, dtype: DType, has: bool) -> None:
    found = CATALOG.gpu(gpu)
    assert found.supports(dtype) is has
    if not has:
        with pytest.raises(KeyError):
            found.peak(dtype)


def test_a_gpu_is_what_it_does_and_not_what_it_is_called() -> None:
    found = CATALOG.gpu("h200")
    facts = {name: getattr(found, name) for name in GPU.__slots__}
    assert GPU(**{**facts, "name": "other", "source": "elsewhere", "tags": ()}) == found
    assert GPU(**{**facts, "hbm_bytes": 1.0}) != found


def test_a_group_leaves_its_domain_when_it_is_larger() -> None:
    near = Link(n_gpus=8, bytes_per_s=1e11, latency_s=1e-5, latency_floor_s=1e-6)
    far = Link(n_gpus=64, bytes_per_s=1e10, latency_s=3e-5, latency_floor_s=5e-6)
    fabric = Fabric(name="f", kind="nvlink", scale_up=near, scale_out=far, source="made")
    assert not fabric.crosses(8)
    assert fabric.crosses(9)
    assert [fabric.domains(n) for n in (1, 8, 9, 64)] == [1, 1, 2, 8]


def test_h800_differs_from_h100_in_its_links() -> None:
    h800, h100 = CATALOG.gpu("h800"), CATALOG.gpu("h100")
    assert h800.peak_flop_per_s == h100.peak_flop_per_s
    assert CATALOG.fabric(h800.fabric).scale_up.bytes_per_s == 200e9
    assert CATALOG.fabric(h100.fabric).scale_up.bytes_per_s == 450e9


def test_a_mesh_gives_one_peer_a_seventh() -> None:
    link = CATALOG.fabric("xgmi-mi300x").scale_up
    assert link.bytes_per_s == 448e9
    assert link.bytes_per_s * link.peer_fraction == pytest.approx(64e9, rel=0.001)
