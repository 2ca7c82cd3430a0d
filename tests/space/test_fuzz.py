"""Whatever stands in a space or a study, the reader answers with faults, never with a crash."""

import copy
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dse.base.errors import SourceError, UserError
from dse.base.parse import parse_tree
from dse.space import load_space, size
from dse.study import load_study

ROOT = Path(__file__).parents[2]
SPACE = """
model: [tiny-moe, {base: tiny-dense, vary: {d_model: [512, 1024]}}]
gpu: {base: h200-sxm, vary: {hbm: [141 GB, 192 GB], peak.fp8: [2 PFLOP/s]}}
engine: vllm@0.19
precision: {weights: [bf16, fp8], kv: bf16}
context: [{isl: 1000, osl: [10, 100]}]
batch: {powers_of: 2, from: 1, to: 64}
speculative: [none, 'mtp:1:0.5']
any_of:
  together: {n_gpus: 8, layout: {tp: [1, 2], ep: auto}, where: [tp * n_gpus > 3, isl < 9k]}
  apart:
    n_gpus: {log: [1, 8], per_decade: 2}
    prefill: {layout: {tp: 2}, gpu: h100-sxm}
    decode: {layout: {dp: [1, 2]}}
    split: [{prefill: 1, decode: 2}]
  moved: {linked: [{n_gpus: [2, 4], layout.tp: [1, 2]}]}
"""
STUDY = """
question: Which?
space: {}
workload: {lengths: {uniform: [0.8, 1.0]}, requests: 10 x concurrency}
load: closed_loop
slo: {ttft: 3 s, tpot: 50 ms, attainment: 0.99}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
constraints: [usd_per_mtok_output <= 2]
search: {method: bound, seeds: 3, tolerance: 2%}
price: {h200-sxm: [1 USD/h], h100-sxm: {capex: 1 USD, years: 2, utilisation: 0.5}}
target: {req_per_s: 200}
overrides: {a: {space: {batch: [1]}}}
scenarios: {b: [a]}
"""

scalars = st.sampled_from(
    [None, True, 0, -1, 3, 2.5, 1e308, "", "x", "*", "auto", "8 GB", "8Ki", "tp < 3", "none", "a.b"]
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["tp", "base", "vary", "powers_of", "to", "from", "step", "log", "isl", "x"]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=4,
)


def places(data: object, path: tuple[object, ...] = ()) -> list[tuple[object, ...]]:
    """Every path of a tree."""
    children = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    found = [path] if path else []
    for key, value in children:
        found += places(value, (*path, key))
    return found


def changed(data: object, path: tuple[object, ...], value: object) -> object:
    copied = copy.deepcopy(data)
    inner = copied
    for step in path[:-1]:
        inner = inner[step]
    inner[path[-1]] = value
    return copied


SPACE_DATA = parse_tree(SPACE, "space").data
STUDY_DATA = {**parse_tree(STUDY, "study").data, "space": SPACE_DATA}


def test_the_unchanged_files_are_sound(catalog, tmp_path):
    space = load_space(parse_tree(SPACE, "space"), catalog)
    assert size(space, catalog).n_points > 0
    (tmp_path / "study.yaml").write_text(json.dumps(STUDY_DATA))
    assert load_study(tmp_path / "study.yaml", catalog).space.branches == space.branches


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(places(SPACE_DATA)), value=values)
def test_a_space_is_read_or_refused(catalog, path, value):
    text = json.dumps(changed(SPACE_DATA, path, value))
    try:
        space = load_space(parse_tree(text, "space"), catalog)
    except SourceError:
        return
    counted = size(space, catalog)
    assert counted.n_points == sum(counted.branches.values())


@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(path=st.sampled_from(places(STUDY_DATA)), value=values)
def test_a_study_is_read_or_refused(catalog, tmp_path_factory, path, value):
    file = tmp_path_factory.getbasetemp() / "fuzzed.yaml"
    file.write_text(json.dumps(changed(STUDY_DATA, path, value)))
    try:
        study = load_study(file, catalog)
    except SourceError:
        return
    assert study.text


@pytest.mark.parametrize("text", ["", "[]", "3", "model", "a: &x [*x]", "? [1]\n: 2"])
def test_a_file_that_is_no_mapping_is_a_fault(catalog, text):
    with pytest.raises(UserError) as raised:
        load_space(parse_tree(text, "space"), catalog)
    assert raised.value.faults
