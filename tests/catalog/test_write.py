"""What is written is read back as the same record; new files keep what is there."""

import json
from pathlib import Path

import pytest

from dse.base.errors import CatalogError, SourceError, UserError
from dse.base.source import read_text
from dse.catalog import KINDS, Catalog, add_gpu, add_model, list_, save, show, to_yaml
from dse.hardware import GPU
from dse.model import Model
from tests.model.configs import LATENT, PLAIN

CATALOG = Catalog.load()


@pytest.mark.parametrize("kind", ["gpu", "fabric", "model", "engine", "price"])
def test_every_record_survives_a_round_trip(kind: str) -> None:
    for name in CATALOG.names(kind):
        record = CATALOG.record(kind, name)
        again = read_text(to_yaml(record), KINDS[kind][1], name)
        assert again == record
        assert (again.name, again.source.split()) == (record.name, record.source.split())


def test_layers_that_come_again_are_aliases() -> None:
    text = to_yaml(CATALOG.model("gpt-oss-20b"))
    assert text.count("kind: moe") == 2
    assert "*sliding, *gqa, *sliding" in text
    assert max(map(len, text.splitlines())) <= 100


def test_a_model_is_added_from_its_config(tmp_path: Path) -> None:
    path = tmp_path / "tiny" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(LATENT))
    text = add_model(path, name="tiny-mla", source="made for this test")
    found = read_text(text, Model)
    assert (found.name, found.source) == ("tiny-mla", "made for this test")
    assert read_text(add_model(path), Model).name == "tiny", "named like its folder"
    root = tmp_path / "mine"
    assert save(text, "model", "tiny-mla", root) == root / "models" / "tiny-mla.yaml"
    assert Catalog.load(root).model("Tiny_MLA") == found
    with pytest.raises(CatalogError, match="exists"):
        save(text, "model", "tiny-mla", root)
    with pytest.raises(CatalogError, match="no kind"):
        save(text, "modell", "tiny-mla", root)


def test_a_config_with_unknown_keys_is_not_added(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**PLAIN, "new_trick": 1}))
    with pytest.raises(UserError, match="new_trick"):
        add_model(path)
    assert read_text(add_model(path, ignore=["new_trick"]), Model).n_layers == 4


def test_a_gpu_is_derived_from_another() -> None:
    text = add_gpu(CATALOG, "H400", {"hbm": "300 GB", "peak.fp4": "5 PFLOP/s"}, base="h200")
    found = read_text(text, GPU)
    assert (found.name, found.hbm_bytes) == ("H400", 300e9)
    assert found.peak_flop_per_s["fp4"] == 5e15
    assert found.peak_flop_per_s["bf16"] == CATALOG.gpu("h200").peak_flop_per_s["bf16"]
    assert found.source == "h200 with hbm = 300 GB, peak.fp4 = 5 PFLOP/s"
    assert found.tags == (), "h200 must go on naming one GPU"


def test_a_gpu_that_is_not_whole_names_what_is_missing() -> None:
    with pytest.raises(SourceError) as caught:
        add_gpu(CATALOG, "half", {"hbm": "80"})
    text = str(caught.value)
    assert "needs a unit" in text
    assert "hbm_bandwidth" in text
    assert "source" in text


def test_lists_and_records_as_plain_data() -> None:
    rows = list_(CATALOG, "gpu")
    assert len(rows) == len(CATALOG.names("gpu"))
    assert all(row["source"] and Path(str(row["file"])).is_file() for row in rows)
    record = show(CATALOG, "gpu", "H20")
    assert record["hbm_bytes_per_s"] == 4e12
    assert json.loads(json.dumps(record)) == record
    model = show(CATALOG, "model", "mixtral-8x7b")
    assert model["n_layers"] == 32
    assert model["checkpoint"] == "bf16"
    assert json.loads(json.dumps(model)) == model
