"""`dse catalog list | show | add`."""

import json
from pathlib import Path
from typing import Any

import pytest

from dse.catalog import Catalog
from dse.cli import main
from tests import commands
from tests.model.configs import PLAIN


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    return commands.run(capsys, "catalog", *arguments)


def document(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, _ = run(capsys, *arguments, "--json")
    assert code == 0
    found: dict[str, Any] = json.loads(out)
    return found


def test_list_names_records_with_their_source(capsys):
    rows = document(capsys, "list", "gpu")["records"]
    assert {row["name"] for row in rows} == set(Catalog.load().names("gpu"))
    assert all(row["source"] for row in rows)
    everything = document(capsys, "list")["records"]
    assert {row["kind"] for row in everything} == {"gpu", "fabric", "model", "engine", "price"}
    code, out, _ = run(capsys, "list", "engine")
    assert code == 0
    assert "vllm@0.19" in out


@pytest.mark.parametrize(
    ("words", "kind", "key", "value"),
    [
        (["h200"], "gpu", "hbm_bytes_per_s", 4.8e12),
        (["gpu", "H200_SXM"], "gpu", "name", "H200-SXM"),
        (["nvlink4-8"], "fabric", "kind", "nvlink"),
        (["engine", "vllm"], "engine", "version", "0.19"),
        (["mixtral-8x7b"], "model", "n_layers", 32),
    ],
)
def test_show_prints_a_record_with_its_source(capsys, words, kind, key, value):
    found = document(capsys, "show", *words)
    assert found["catalog_kind"] == kind
    assert found[key] == value
    assert "https://" in found["source"]
    assert Path(found["file"]).is_file()


def test_show_prints_the_yaml(capsys):
    code, out, _ = run(capsys, "show", "h20")
    assert code == 0
    assert "hbm_bandwidth: 4 TB/s" in out


def test_an_unknown_name_exits_2_with_the_nearest(capsys):
    code, out, err = run(capsys, "show", "deepsek-v3")
    assert (code, out) == (2, "")
    assert "did you mean deepseek-v3" in err
    code, out, _ = run(capsys, "show", "gpu", "h201-sxm", "--json")
    assert code == 2
    assert "h200-sxm" in json.loads(out)["error"]["message"]
    assert run(capsys, "show")[0] == 2
    assert run(capsys, "list", "gpus")[0] == 2


def test_add_a_model(capsys, tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({**PLAIN, "new_trick": 1}))
    code, out, err = run(capsys, "add", config)
    assert (code, out) == (2, "")
    assert "new_trick" in err
    options = ["--name", "tiny", "--ignore", "new_trick", "--source", "a test", "--to", tmp_path]
    found = document(capsys, "add", config, *options)
    assert (found["name"], found["source"], found["catalog_kind"]) == ("tiny", "a test", "model")
    assert Catalog.load(tmp_path).model("tiny").n_layers == 4
    assert run(capsys, "add", config, *options)[0] == 2, "never overwritten"
    code, out, _ = run(capsys, "show", "tiny", "--catalog", tmp_path)
    assert code == 0
    assert "d_model: 64" in out


def test_add_a_gpu(capsys, tmp_path):
    facts = ["--base", "h200", "--set", "hbm=288 GB", "--set", "hbm_bandwidth=8 TB/s"]
    code, out, _ = run(capsys, "add", "gpu", "H400", *facts)
    assert code == 0
    assert "hbm: 288 GB" in out
    found = document(capsys, "add", "gpu", "H400", *facts, "--to", tmp_path)
    assert found["hbm_bytes"] == 288e9
    assert Catalog.load(tmp_path).gpu("h400").hbm_bytes_per_s == 8e12
    code, _, err = run(capsys, "add", "gpu", "H400", "--set", "hbm")
    assert code == 2
    assert "--set" in err


@pytest.mark.parametrize("name", ["", "../../evil", "a/b", ".hidden", "/abs"])
def test_a_name_that_is_no_file_of_the_folder_is_refused(name, tmp_path):
    words = ("catalog", "add", "gpu", name, "--base", "h200-sxm", "--to", str(tmp_path), "--json")
    with pytest.raises(SystemExit) as stopped:
        main(list(words))
    assert stopped.value.code == 2
    assert list(tmp_path.rglob("*")) == []
