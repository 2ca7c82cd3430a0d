"""Kernel times of one's own: `kernels/NAME.json` in a catalog root prices that GPU."""

from dataclasses import replace
from pathlib import Path

import pytest

from dse.base.errors import CatalogError
from dse.catalog import Catalog
from dse.cost.kernels import kernel_model
from dse.cost.kernels._coefficients import load, write
from dse.cost.kernels._model import FittedKernels
from dse.cost.step import compile_step
from dse.hardware import DType
from dse.model.ops import Gemm
from tests import worlds

WIDE = Gemm(m=4096, n=8192, k=8192, weights=DType.BF16, activations=DType.BF16)


def root(tmp_path: Path, gpu: str, *, families: tuple[str, ...], in_step: bool = False) -> Path:
    """A catalog root with the L40S's coefficients of some families as those of `gpu`."""
    table = load("L40S")
    kept = tuple(each for each in table.slices if each.family in families)
    (tmp_path / "kernels").mkdir()
    path = tmp_path / "kernels" / f"{gpu}.json"
    write(path, replace(table, gpu=gpu, slices=kept, in_step=in_step))
    return tmp_path


def test_an_unmeasured_gpu_becomes_a_measured_one(tmp_path: Path) -> None:
    before = kernel_model(Catalog.load().gpu("rtx-4090"), "vllm")
    own = Catalog.load(root(tmp_path, "RTX-4090", families=("gemm",))).gpu("rtx-4090")
    after = kernel_model(own, "vllm")
    assert (before.tier, after.tier) == ("cross", "target")
    assert before.physics_id != after.physics_id
    assert before.seconds(WIDE) != after.seconds(WIDE)


def test_where_a_table_lies_does_not_count(tmp_path: Path) -> None:
    ids = []
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        catalog = Catalog.load(root(tmp_path / name, "RTX-4090", families=("gemm",)))
        ids.append(kernel_model(catalog.gpu("rtx-4090"), "vllm").physics_id)
    assert ids[0] == ids[1]


def test_a_shipped_table_prices_the_families_that_ones_own_lacks(tmp_path: Path) -> None:
    gpu = Catalog.load(root(tmp_path, "H100-SXM", families=("gemm",))).gpu("h100-sxm")
    own, shipped = kernel_model(gpu, "vllm"), kernel_model(Catalog.load().gpu("h100-sxm"), "vllm")
    assert isinstance(own, FittedKernels)
    assert own.own is not None
    families = {each.family for each in own.own.slices}
    assert {"gemm", "decode_attention", "moe"} <= families
    assert own.seconds(WIDE) > 1.1 * shipped.seconds(WIDE), "an H100 with an L40S's efficiency"


@pytest.mark.parametrize("in_step", [False, True])
def test_the_gap_of_prompt_steps_is_not_added_twice(tmp_path: Path, in_step: bool) -> None:
    here = root(tmp_path, "L40S", families=("gemm",), in_step=in_step)
    catalog = Catalog.load(here)
    card, engine = catalog.gpu("l40s"), catalog.engine("vllm@0.19")
    deployment = worlds.deployment(worlds.tiny(), on=card, by=engine)
    cost = compile_step(deployment, deployment.pools[0])
    assert cost.host.prefill_gap == (0.0 if in_step else 0.2)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"gpu": "RTX-4090"}'])
def test_what_is_no_table_is_named(tmp_path: Path, text: str) -> None:
    path = root(tmp_path, "RTX-4090", families=()) / "kernels" / "RTX-4090.json"
    path.write_text(text)
    with pytest.raises(CatalogError, match=r"RTX-4090\.json: no kernel coefficients"):
        kernel_model(Catalog.load(tmp_path).gpu("rtx-4090"))


def test_another_gpus_table_is_refused(tmp_path: Path) -> None:
    here = root(tmp_path, "RTX-4090", families=("gemm",))
    (here / "kernels" / "RTX-4090.json").rename(here / "kernels" / "L4.json")
    with pytest.raises(CatalogError, match="measured on RTX-4090, not on L4"):
        kernel_model(Catalog.load(here).gpu("l4"))
