"""What `check` says of the files: sizes, values, predictions; and the starter and the reference."""

import json
from pathlib import Path

import jsonschema
import pytest

from dse.base.errors import SourceError, UserError
from dse.base.parse import parse_tree
from dse.base.source import schema
from dse.space import points, size, structures
from dse.study import load_study
from dse.study.check import check, is_study
from dse.study.predict import SHARES, predict, predicted_s
from dse.study.reference import RECORDS, reference
from dse.study.starter import starter

ROOT = Path(__file__).parents[2]
STUDIES = sorted((ROOT / "studies").glob("*.yaml"))


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_each_shipped_study_is_sound(path):
    found = check(path)
    assert found["ok"], found["faults"]
    assert found["unsupported"] == []
    assert 0 < found["n_structural"] <= found["n_points"]
    low, high = found["predicted"]["n_simulations"]
    assert 0 < low <= high


@pytest.mark.parametrize("path", sorted((ROOT / "spaces").glob("*.yaml")), ids=lambda p: p.stem)
def test_each_shipped_space_is_sound(path):
    found = check(path)
    assert (found["ok"], found["kind"]) == (True, "space")
    assert found["n_points"] == sum(found["branches"].values())


def test_the_quickstart_is_counted_by_hand():
    found = check(ROOT / "studies/quickstart.yaml")
    # 2 GPUs × 2 weight formats × 4 layouts, at 9 batches of one context.
    assert (found["n_structural"], found["n_points"]) == (16, 144)
    assert found["axes"]["all"] == {
        "model": 1,
        "gpu": 2,
        "engine": 1,
        "weights+kv": 2,
        "tp": 4,
        "n_gpus": 1,
        "context": 1,
        "batch": 9,
    }
    assert found["values"]["all"]["batch"] == [2**k for k in range(9)]


def test_check_echoes_counts_as_they_were_read(study_file):
    found = check(study_file(space="context: {isl: 8Ki, osl: 1k}\nbatch: [8k]"))
    assert found["values"]["all"]["context"] == ["8192/1000"]
    assert found["values"]["all"]["batch"] == [8000]


def test_check_lists_every_fault_and_nothing_else(study_file):
    found = check(study_file("lod: x", space="modl: x"))
    assert found["ok"] is False
    assert {Path(fault["file"]).name for fault in found["faults"]} == {"study.yaml", "space.yaml"}
    assert set(found["faults"][0]) == {"file", "line", "column", "path", "message"}


def test_a_missing_file_is_a_fault(tmp_path):
    found = check(tmp_path / "none.yaml")
    assert not found["ok"]
    assert "cannot be read" in found["faults"][0]["message"]


def test_a_space_without_points_is_said(study_file):
    found = check(study_file(space="batch: [1]\nwhere: [tp > 64]"))
    assert found["n_points"] == 0
    assert "no point satisfies the conditions" in found["notes"]


def test_percentile_objectives_are_noted(study_file):
    found = check(study_file("objectives: [output_tok_per_s_per_gpu, ttft_p99]"))
    assert any("drops few points" in note for note in found["notes"])


def test_a_file_is_told_a_study_by_its_keys(study_file):
    path = study_file()
    assert is_study(path)
    assert not is_study(path.parent / "space.yaml")


def test_the_prediction_adds_up_what_each_legal_point_takes(study_file):
    study = load_study(study_file("search: {method: exhaustive, seeds: 2}", space="batch: [1, 8]"))
    legal = [s for s in structures(study.space, study.catalog) if not s.illegal]
    each = points(study.space, legal).select(predicted_s(study)).collect()["predicted_s"]
    found = predict(study)
    assert found.n_simulations == (2 * len(each), 2 * len(each))
    assert found.cpu_s[1] == pytest.approx(2 * each.sum())


def test_illegal_points_are_not_predicted(study_file):
    study = load_study(study_file(space="layout: {tp: [1, 3]}\nbatch: [1, 8]"))
    found = predict(study)
    assert found.n_illegal == 2 * 2
    low, high = SHARES["bound"]
    assert found.n_simulations == (round(4 * low) * 3, round(4 * high) * 3)


def test_a_searched_load_is_probed_several_times(study_file):
    text = "load: max_goodput\nslo: {ttft: 1 s}\nworkload: {requests: 100}"
    study = load_study(
        study_file(text + "\nsearch: {method: exhaustive, seeds: 1}", space="n_gpus: 8")
    )
    assert predict(study).n_simulations[1] > size(study.space, study.catalog).n_points


def test_the_starter_is_a_sound_study(tmp_path):
    for name, text in starter("mine").items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = check(tmp_path / "studies/mine.yaml")
    assert found["ok"], found["faults"]
    assert found["n_points"] > 100


@pytest.mark.parametrize("name", ["", "../up", "a b"])
def test_a_starter_needs_a_name_for_files(name):
    with pytest.raises(UserError, match="is no name for a file"):
        starter(name)


@pytest.mark.parametrize("kind", RECORDS)
def test_every_kind_of_file_has_a_schema(kind):
    found = schema(RECORDS[kind])
    assert json.loads(json.dumps(found)) == found
    assert found["additionalProperties"] is False


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("space", "spaces/*.yaml"),
        ("study", "studies/*.yaml"),
        ("gpu", "dse/catalog/gpus/*.yaml"),
        ("fabric", "dse/catalog/fabrics/*.yaml"),
        ("model", "dse/catalog/models/*.yaml"),
        ("engine", "dse/catalog/engines/*.yaml"),
    ],
)
def test_shipped_files_satisfy_the_schema_that_editors_get(kind, pattern):
    validator = jsonschema.Draft202012Validator(schema(RECORDS[kind]))
    paths = sorted(ROOT.glob(pattern))
    assert paths
    for path in paths:
        data = parse_tree(path.read_text(), path.name).data
        assert [f"{path.name}: {error.message}" for error in validator.iter_errors(data)] == []


def test_the_committed_reference_is_the_generated_one():
    assert (ROOT / "docs/yaml-reference.md").read_text() == reference()


def test_a_study_that_is_a_list_is_refused(tmp_path):
    (tmp_path / "s.yaml").write_text("- question: x\n")
    with pytest.raises(SourceError, match="a study is a mapping of keys"):
        load_study(tmp_path / "s.yaml")


def test_what_cannot_be_simulated_is_named(study_file):
    found = check(study_file(space="batch: [1]\nspeculative: [none, mtp:3:0.8]"))
    assert found["unsupported"] == ["speculative mtp:3:0.8: llama-3.1-8b has no such module"]
