"""A space's file: what it resolves to, and every fault of it, in its place, at once."""

import pytest

from dse.base.errors import SourceError
from dse.space import load_space, numeric, structures


def faults(spaced, text: str, **options) -> list[str]:
    with pytest.raises(SourceError) as raised:
        spaced(text, **options)
    return [str(fault) for fault in raised.value.faults]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("linkd: []", "space.yaml:1:1: linkd: unknown key; did you mean linked?"),
        (
            "model: tiny-mo",
            "space.yaml:1:8: model: no model 'tiny-mo' in the catalog; did you mean",
        ),
        ("gpu: [h200-sxm, h20000]", "space.yaml:1:17: gpu.1: no gpu 'h20000' in the catalog"),
        ("gpu: 'q*'", "no gpu 'q*'"),
        ("engine: vlllm", "no engine 'vlllm'"),
        ("gpu: *h100", "a leading `*` starts an alias, so quote a glob"),
        ("model: []", "space.yaml:1:8: model: the list is empty"),
        ("batch: 0", "0 is not from 1 to 1e+12"),
        ("precision: {weights: {powers_of: 2, to: 4}, kv: bf16}", "needs text, not a mapping"),
        ("batch: []", "space.yaml:1:8: batch: the axis is empty"),
        ("batch: {from: 9, to: 3, step: 1}", "the range from 9 to 3 is empty"),
        ("batch: 8 GB", "'8 GB' is not a count"),
        ("batch: 1\nbatch: 2", "space.yaml:2:1: batch: duplicate key, first on line 1"),
        ("precision: {weights: fp9, kv: bf16}", "no number format 'fp9'; did you mean fp8?"),
        ("precision: {weights: fp8}", "precision.kv: required key is missing"),
        ("context: {isl: 1k}", "context.osl: required key is missing"),
        ("layout: {tp: [1, 2], zp: 3}", "space.yaml:1:22: layout.zp: unknown key"),
        ("layout: {ep: all}", "layout.ep: 'all' is not a count"),
        ("where: [tpp < 3]", "space.yaml:1:9: where.0: 'tpp < 3' names tpp"),
        ("where: [tp < pp < 3]", "chains comparisons"),
        ("where: tp < 3", "where: needs a list, not 'tp < 3'"),
        ("prefill: {layout: {tp: 2}}", "space.yaml:1:1: prefill: needs decode beside it"),
        ("split: auto", "splits replicas between prefill and decode, which are not apart"),
        (
            "layout: {tp: 1}\nprefill: {}\ndecode: {}",
            "space.yaml:1:1: layout: the shared layout and prefill/decode exclude one another",
        ),
        ("linked: [{n_gpus: [1, 2], batch: [1, 2]}]", "'batch' cannot be linked"),
        (
            "linked: [{gpu.hbm: [80 GB, 90 GB], layout.tp: [1]}]",
            "linked lists need one length of 1 or more: gpu.hbm has 2, layout.tp has 1",
        ),
        ("linked: [{n_gpus: [1], layout.tp: [1]}]", "n_gpus is linked and also stated on its own"),
        ("linked: [{gpu.hbmm: [1 GB]}]", "'gpu.hbmm' is no fact of GPU; did you mean hbm?"),
        ("linked: [{fabric.scale_up: [1]}]", "'fabric.scale_up' is a whole record"),
        (
            "gpu: {base: h200-sxm, vary: {hbm: [141]}}",
            "space.yaml:1:35: gpu.vary.hbm: 141 is a bare number; a size needs a unit",
        ),
        ("gpu: {base: h200-sxm, vary: {hbm: [8 TB/s]}}", "a unit of another dimension"),
        (
            "engine: {base: vllm, vary: {scheduler: [statc]}}",
            "no kind 'statc'; did you mean static?",
        ),
        ("gpu: {base: h200-sxm, vary: {ram: [8 GB]}}", "'gpu.ram' is no fact of GPU"),
        ("gpu: {base: hopper, vary: {hbm: [8 GB]}}", "'hopper' names several; vary one at a time"),
        ("any_of: {a: {layout: {tp: 1}, gpus: 3}}", "space.yaml:1:31: any_of.a.gpus: unknown key"),
    ],
)
def test_each_fault_has_its_place_and_a_hint(spaced, text, message):
    try:
        found = faults(spaced, text)
    except pytest.fail.Exception:
        raise
    assert any(message in fault for fault in found), found


def test_a_syntax_error_is_the_only_fault(spaced):
    assert faults(spaced, "batch: [1, 2")[0].startswith("space.yaml:")


@pytest.mark.parametrize("key", ["model", "gpu", "engine", "n_gpus", "precision", "context"])
def test_what_a_space_needs(spaced, key):
    base = "\n".join(
        line
        for line in (
            "model: tiny-dense",
            "gpu: h200-sxm",
            "engine: vllm@0.19",
            "n_gpus: 8",
            "precision: {weights: bf16, kv: bf16}",
            "context: {isl: 1000, osl: 100}",
        )
        if not line.startswith(key)
    )
    (fault,) = faults(spaced, "batch: 1", base=base)
    assert f"required key '{key}' is missing in branch all" in fault


def test_all_faults_of_a_file_come_at_once(spaced):
    found = faults(
        spaced,
        """
model: tiny-mo
gpu: {base: h200-sxm, vary: {hbm: [141]}}
batch: []
layout: {tp: [1, x]}
where: [tpp < 3]
colour: red
""",
    )
    lines = [fault.split(":")[1] for fault in found]
    assert lines == sorted(lines)
    assert set(lines) == {"1", "2", "3", "4", "5", "6"}


def test_faults_of_branches_come_once_each(spaced):
    text = "model: nothing\nany_of:\n  a: {layout: {tp: 1}}\n  b: {layout: {tp: x}}\n"
    assert len(faults(spaced, text)) == 2


def test_a_glob_a_tag_and_a_list_name_records(spaced, catalog):
    branch = spaced("gpu: ['h?00-sxm', h20-96gb]").branches[0]
    names = [row["gpu"] for each in branch.dimensions for row in each.rows if "gpu" in row]
    assert names == ["h100-sxm", "h200-sxm", "h20-96gb"]
    hopper = spaced("gpu: hopper").branches[0]
    assert len([row for each in hopper.dimensions for row in each.rows if "gpu" in row]) > 3


def test_names_do_not_depend_on_spelling(spaced, catalog):
    (one,) = structures(spaced("gpu: H200_SXM\nmodel: Tiny.Dense"), catalog)
    assert (one.columns["gpu"], one.columns["model"]) == ("h200-sxm", "tiny-dense")


def test_varied_facts_are_a_product_beside_the_plain_record(spaced, catalog):
    text = """
gpu:
  - h200-sxm
  - base: h200-sxm
    vary: {hbm: [141 GB, 192 GB], hbm_bandwidth: [4.8 TB/s, 6.4 TB/s, 8 TB/s]}
"""
    found = list(structures(spaced(text), catalog))
    assert len(found) == 1 + 2 * 3
    plain, first, *_, last = found
    assert plain.columns["gpu.hbm"] == catalog.gpu("h200-sxm").hbm_bytes
    assert (first.columns["gpu.hbm"], first.columns["gpu.hbm_bandwidth"]) == (141e9, 4.8e12)
    assert last.deployment.pools[0].gpu.hbm_bytes == 192e9
    assert last.deployment.pools[0].gpu.hbm_bytes_per_s == 8e12
    assert catalog.gpu("h200-sxm").hbm_bytes != 192e9


def test_facts_of_mappings_and_of_other_records_vary(spaced, catalog):
    text = """
gpu: {base: h200-sxm, vary: {peak.fp8: [2 PFLOP/s]}}
engine: {base: vllm, vary: {max_num_batched_tokens: [2Ki, 8Ki]}}
model: {base: tiny-dense, vary: {d_model: [512]}}
"""
    found = list(structures(spaced(text), catalog))
    pool = found[0].deployment.pools[0]
    assert pool.gpu.peak_flop_per_s["fp8"] == 2e15
    assert [s.columns["engine.max_num_batched_tokens"] for s in found] == [2048, 8192]
    assert found[0].deployment.model.d_model == 512


def test_linked_axes_move_together(spaced, catalog):
    text = """
linked:
  - {fabric.scale_up.bandwidth: [450 GB/s, 900 GB/s], fabric.scale_up.gpus: [8, 72]}
  - {n_gpus: [2, 4], layout.tp: [1, 2]}
"""
    base = "\n".join(
        [
            "model: tiny-dense",
            "gpu: h200-sxm",
            "engine: vllm@0.19",
            "precision: {weights: bf16, kv: bf16}",
            "context: {isl: 1000, osl: 100}",
            "batch: 1",
        ]
    )
    found = list(structures(spaced(text, base=base), catalog))
    rows = [
        (s.columns["fabric.scale_up.gpus"], s.columns["n_gpus"], s.columns["tp"]) for s in found
    ]
    assert rows == [(8, 2, 1), (8, 4, 2), (72, 2, 1), (72, 4, 2)]
    assert found[-1].deployment.pools[0].fabric.scale_up.bytes_per_s == 900e9


def test_a_branch_overrides_what_the_branches_share(spaced, catalog):
    text = """
gpu: h100-sxm
batch: {powers_of: 2, to: 8}
layout: {tp: [1, 2]}
where: [tp > 0]
any_of:
  shared: {}
  own: {gpu: h200-sxm, batch: {from: 3, to: 5, step: 1}, layout: {pp: 2}, where: [tp < 2]}
  longer: {batch: {to: 16}}
"""
    space = spaced(text)
    found = {
        name: [s for s in structures(space, catalog) if s.branch == name]
        for name in ("shared", "own", "longer")
    }
    assert [len(each) for each in found.values()] == [2, 1, 2]
    (own,) = found["own"]
    assert (own.columns["gpu"], own.columns["tp"], own.columns["pp"]) == ("h200-sxm", 1, 2)
    assert numeric(space, "own")["batch"].to_list() == [3, 4, 5]
    assert numeric(space, "longer")["batch"].to_list() == [1, 2, 4, 8, 16]


def test_a_role_may_have_hardware_of_its_own(spaced, catalog):
    text = """
prefill: {gpu: h100-sxm, layout: {tp: 2}}
decode: {gpu: [h200-sxm, h20-96gb], layout: {tp: 2}}
where: [decode_gpu.hbm > 120 GB]
n_gpus: 4
"""
    base = "\n".join(
        [
            "model: tiny-dense",
            "engine: vllm@0.19",
            "precision: {weights: bf16, kv: bf16}",
            "context: {isl: 1000, osl: 100}",
            "batch: 1",
        ]
    )
    (found,) = structures(spaced(text, base=base), catalog)
    assert found.columns["gpu"] == "h100-sxm+h200-sxm"
    assert (found.columns["prefill_gpu"], found.columns["decode_gpu"]) == ("h100-sxm", "h200-sxm")
    prefill, decode = found.deployment.pools
    assert (prefill.gpu.name, decode.gpu.name) == (
        catalog.gpu("h100-sxm").name,
        catalog.gpu("h200-sxm").name,
    )


def test_includes_are_laid_under_a_file(write, catalog):
    write("base.yaml", "model: tiny-dense\ngpu: h200-sxm\nengine: vllm@0.19\nn_gpus: 8\n")
    write("more/common.yaml", "include: ../base.yaml\nprecision: {weights: bf16, kv: bf16}\n")
    path = write(
        "space.yaml",
        "include: more/common.yaml\nn_gpus: 4\nbatch: 2\ncontext: {isl: 10, osl: 10}\n",
    )
    (found,) = structures(load_space(path, catalog), catalog)
    assert found.columns["n_gpus"] == 4


def test_a_circular_include_is_a_fault(write, catalog):
    write("a.yaml", "include: b.yaml\n")
    path = write("b.yaml", "include: a.yaml\n")
    with pytest.raises(SourceError, match="circular include"):
        load_space(path, catalog)


def test_a_missing_file_is_a_fault(tmp_path, catalog):
    with pytest.raises(SourceError, match="cannot be read"):
        load_space(tmp_path / "none.yaml", catalog)


def test_options_are_axes_and_columns_where_they_are_stated(spaced, catalog):
    text = """
model: tiny-moe
speculative: [none, mtp:3:0.80]
routing: [uniform, zipf:0.6]
where: [speculative = 'none' or routing = 'uniform']
"""
    found = list(structures(spaced(text), catalog))
    rows = [(s.columns["speculative"], s.columns["routing"]) for s in found]
    assert rows == [("none", "uniform"), ("none", "zipf:0.6"), ("mtp:3:0.8", "uniform")]
    assert found[2].deployment.speculative.tokens_per_step == pytest.approx(1 + 0.8 + 0.64 + 0.512)
    assert found[1].deployment.routing.exponent == 0.6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speculative: mtp", "'mtp' is no speculative decoding"),
        ("speculative: mtp:0:0.5", "write method:tokens:acceptance"),
        ("speculative: mtp:3:1.5", "write method:tokens:acceptance"),
        ("routing: zipf", "'zipf' is no routing"),
        ("routing: zipf:x", "'zipf:x' is no routing"),
    ],
)
def test_an_option_that_means_nothing_is_a_fault(spaced, text, message):
    assert any(message in fault for fault in faults(spaced, text))
