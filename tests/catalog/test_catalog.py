"""Finding records by name, glob, tag, version and file."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from dse.base.errors import CatalogError, SourceError
from dse.catalog import Catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def root_with(tmp_path: Path, folder: str, name: str, text: str) -> Path:
    (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / folder / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", ["h200-sxm", "H200_SXM", "h200sxm", "H200.sxm", "h200"])
def test_spelling_does_not_count(catalog: Catalog, name: str) -> None:
    assert catalog.gpu(name).name == "H200-SXM"


def test_names_that_fold_alike_are_told_apart_by_their_spelling(catalog: Catalog) -> None:
    assert catalog.model("opt-1.3b").name == "OPT-1.3B"
    assert catalog.model("OPT-13B").name == "OPT-13B"
    with pytest.raises(CatalogError, match="several models: opt-1.3b, opt-13b"):
        catalog.model("opt13b")


def test_the_owner_of_a_repository_is_left_out(catalog: Catalog) -> None:
    assert catalog.model("Qwen/Qwen3-32B") == catalog.model("qwen3-32b")


def test_globs_and_tags_name_several(catalog: Catalog) -> None:
    assert catalog.find("gpu", "h*-sxm") == ("h100-sxm", "h200-sxm")
    assert "mi300x" in catalog.find("gpu", "amd")
    assert set(catalog.find("gpu", "hopper")) >= {"h100-sxm", "h200-sxm", "h20-96gb"}
    with pytest.raises(CatalogError, match="choose one"):
        catalog.gpu("hopper")


def test_an_unknown_name_suggests_the_nearest(catalog: Catalog) -> None:
    with pytest.raises(CatalogError, match="did you mean h200-sxm"):
        catalog.gpu("h201-sxm")
    with pytest.raises(CatalogError, match="did you mean deepseek-v3"):
        catalog.model("deepsek-v3")
    with pytest.raises(CatalogError, match="did you mean gpu"):
        catalog.find("gpus", "h200")
    with pytest.raises(CatalogError):
        catalog.engine("vllm@99")


def test_engines_have_versions(catalog: Catalog) -> None:
    assert catalog.engine("vllm").label == "vllm@0.19"
    assert catalog.engine("vLLM@0.9").label == "vllm@0.9"
    assert catalog.engine("ideal").label == "ideal@1.0"


def test_the_newest_version_is_not_the_last_in_the_alphabet(tmp_path: Path) -> None:
    shipped = Catalog.load()
    text = shipped.files["engine"]["vllm@0.9"].read_text()
    newer = text.replace('version: "0.9"', 'version: "0.100"')
    root = root_with(tmp_path, "engines", "vllm@0.100.yaml", newer)
    assert Catalog.load(root).engine("vllm").label == "vllm@0.100"


def test_the_nearest_root_wins(tmp_path: Path) -> None:
    shipped = Catalog.load()
    text = shipped.files["gpu"]["h200-sxm"].read_text().replace("hbm: 143771 MiB", "hbm: 200 GB")
    near = Catalog.load(root_with(tmp_path, "gpus", "H200-SXM.yaml", text))
    assert near.gpu("h200-sxm").hbm_bytes == 200e9
    assert near.path("gpu", "h200-sxm").parent == tmp_path / "gpus"
    assert shipped.gpu("h200-sxm").hbm_bytes == 143771 * 2**20
    assert len(near.names("gpu")) == len(shipped.names("gpu"))


def test_a_root_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="nowhere"):
        Catalog.load(tmp_path / "nowhere")


def test_a_faulty_file_lists_all_of_its_faults(tmp_path: Path) -> None:
    root = root_with(tmp_path, "gpus", "mine.yaml", "name: mine\nhbm: 80\nhbm_speed: 2 TB/s\n")
    with pytest.raises(SourceError) as caught:
        Catalog.load(root).gpu("mine")
    text = str(caught.value)
    assert "mine.yaml:2" in text
    assert "needs a unit" in text
    assert "hbm_speed" in text


def test_names_may_be_files(tmp_path: Path, catalog: Catalog) -> None:
    path = catalog.files["gpu"]["b200-sxm"]
    assert catalog.gpu(str(path)) == catalog.gpu("b200-sxm")
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "vocab_size": 100,'
        '"num_attention_heads": 4, "num_hidden_layers": 2, "max_position_embeddings": 512}'
    )
    assert catalog.model(str(config)).n_layers == 2


def test_every_gpu_stands_in_a_fabric_that_there_is(catalog: Catalog) -> None:
    for name in catalog.names("gpu"):
        assert catalog.fabric(catalog.gpu(name).fabric).scale_up.n_gpus >= 1


def test_prices_are_dated_and_of_known_gpus(catalog: Catalog) -> None:
    quotes = catalog.prices("h100")
    assert len(quotes) >= 3, "a price that one source alone gives is no spread"
    assert [quote.date for quote in quotes] == sorted((q.date for q in quotes), reverse=True)
    for quote in catalog.prices():
        assert quote.gpu in catalog.names("gpu")


def test_a_catalog_crosses_processes(catalog: Catalog) -> None:
    assert pickle.loads(pickle.dumps(catalog)) == catalog


def test_loading_parses_nothing() -> None:
    code = (
        "import dse.catalog.catalog as c; c.Catalog.load();"
        "assert c._cached.cache_info().currsize == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
