"""Identity is content: what the simulator reads changes it, what people read does not."""

from dataclasses import dataclass, replace
from types import MappingProxyType

import pytest

from dse.hardware import GPU, Fabric, Link
from dse.model.attention import ATTENTIONS
from dse.model.ffn import FFNS
from dse.model.model import LayerGroup, Model
from dse.model.precision import Precision
from dse.run.identity import deployment_id, facts, physics_id, point_id
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import Engine, EngineHost, EngineMemory, EngineRules
from dse.serving.layout import Layout


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    isl_tokens: int = 4000
    osl_tokens: int = 1000
    concurrency: int = 64
    name: str = ""


def deployment():
    link = Link(n_gpus=8, bytes_per_s=450e9, latency_s=5e-6, latency_floor_s=2e-6)
    gpu = GPU(
        name="unit",
        vendor="none",
        architecture="hopper",
        hbm_bytes=100e9,
        hbm_datasheet_bytes=100e9,
        hbm_bytes_per_s=1e12,
        peak_flop_per_s={"bf16": 100e12, "fp8": 200e12},
        sfu_op_per_s=1e12,
        l2_bytes=50e6,
        sm_count=100,
        boost_hz=1e9,
        tdp_watts=700.0,
        idle_watts=70.0,
        fabric="unit",
        source="made up",
    )
    engine = Engine(
        name="ideal",
        version="1",
        memory=EngineMemory(
            pool_rule="of_total",
            context_bytes=0.0,
            graph_bytes=0.0,
            multi_gpu_bytes=0.0,
            activation_bytes_per_token_width=0.0,
        ),
        host=EngineHost(step_s=0.0, request_s=0.0, prefill_token_s=0.0, arrival_s=0.0),
        rules=EngineRules(),
        source="made up",
        max_num_batched_tokens=8192,
        max_num_seqs=256,
        block_tokens=16,
        hbm_fraction=0.9,
    )
    group = LayerGroup(
        repeat=2,
        attention=ATTENTIONS["gqa"](n_heads=8, n_kv_heads=2, d_head=128),
        ffn=FFNS["dense"](d_ff=4096),
    )
    model = Model(
        name="tiny",
        d_model=1024,
        vocab_size=32000,
        layers=(group,),
        tied_embeddings=False,
        max_context_tokens=8192,
        source="made up",
    )
    fabric = Fabric(name="unit", kind="switch", scale_up=link, scale_out=link, source="made up")
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(tp=2), engine=engine)
    return Deployment(model=model, precision=Precision(), pools=(pool,))


def changed(part, **fields):
    """The deployment with the record named `part` of its pool, or its model, changed."""
    whole = deployment()
    if part == "model":
        return replace(whole, model=replace(whole.model, **fields))
    pool = whole.pools[0]
    return replace(whole, pools=(replace(pool, **{part: replace(getattr(pool, part), **fields)}),))


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("gpu", {"name": "other", "source": "elsewhere", "tags": ("a",), "conflicts": "none"}),
        ("gpu", {"vendor": "other", "hbm_datasheet_bytes": 1.0}),
        ("fabric", {"name": "other", "source": "elsewhere"}),
        ("engine", {"name": "other", "version": "2", "source": "elsewhere", "notes": "n"}),
        ("model", {"name": "other", "source": "s", "notes": "n", "published_parameters": 1e9}),
    ],
)
def test_what_people_read_is_not_in_it(part, fields):
    assert deployment_id(changed(part, **fields)) == deployment_id(deployment())


@pytest.mark.parametrize(
    ("part", "fields"),
    [
        ("gpu", {"hbm_bytes_per_s": 1.1e12}),
        ("gpu", {"peak_flop_per_s": {"bf16": 100e12}}),
        ("layout", {"ep": 2}),
        ("engine", {"max_num_seqs": 128}),
        ("engine", {"host": EngineHost(step_s=1e-3, request_s=0, prefill_token_s=0, arrival_s=0)}),
        ("model", {"d_model": 2048}),
        ("model", {"max_context_tokens": 4096}),
    ],
)
def test_what_the_simulator_reads_is_in_it(part, fields):
    assert deployment_id(changed(part, **fields)) != deployment_id(deployment())


def test_equal_content_is_equal_whatever_holds_it():
    same = changed("gpu", peak_flop_per_s=MappingProxyType({"fp8": 200e12, "bf16": 100_000e9}))
    assert deployment_id(same) == deployment_id(deployment())


def test_workload_and_load_are_in_it_and_their_names_are_not():
    ids = {
        point_id(deployment(), Load()),
        point_id(deployment(), Load(concurrency=65)),
        point_id(deployment(), Load(), {"req_per_s": 8.0}),
        point_id(changed("layout", tp=4), Load()),
    }
    assert len(ids) == 4
    assert point_id(deployment(), Load(name="chat")) == point_id(deployment(), Load())
    assert point_id(deployment(), Load(concurrency=64.0)) == point_id(deployment(), Load())


def test_physics_is_version_and_coefficients():
    assert len({physics_id(1), physics_id(2), physics_id(1, ["a"]), physics_id(1, ["b"])}) == 4


def test_parts_are_told_apart_by_their_kind():
    assert facts(FFNS["dense"](d_ff=4096))["kind"] == "dense"


def test_ids_are_the_same_on_every_machine():
    """Recorded once. A change makes every stored result stale: bump on purpose only."""
    assert physics_id(1, ["abc"]) == "1134c61858fab3b22b359aa24a6542f5"
