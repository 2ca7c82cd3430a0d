"""The documentation's examples of YAML and Python load and run as they stand."""

import re
from pathlib import Path

import pytest

from dse.base.parse import parse_tree
from dse.catalog import Catalog
from dse.space import load_space, size
from dse.space.overlay import overlay
from dse.study import load_study

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/spaces-and-studies.md").read_text()
BLOCKS = re.findall(r"```(yaml|python)\n(.*?)```", PAGE, flags=re.DOTALL)
YAML = [text for kind, text in BLOCKS if kind == "yaml"]


def test_the_page_has_a_space_a_what_if_and_a_study():
    assert [kind for kind, _ in BLOCKS] == ["yaml", "yaml", "yaml", "python"]


def test_the_space_of_the_page_is_the_shipped_one():
    catalog = Catalog.load()
    shown = load_space(parse_tree(YAML[0], "page"), catalog)
    shipped = load_space(ROOT / "spaces/deepseek_h20.yaml", catalog)
    assert shown.branches == shipped.branches


def test_the_what_if_of_the_page_multiplies_the_space():
    catalog = Catalog.load()
    plain = parse_tree(YAML[0], "page")
    varied = load_space(overlay(plain, parse_tree(YAML[1], "page")), catalog)
    assert size(varied, catalog).n_points > 5 * size(load_space(plain, catalog), catalog).n_points


def test_the_study_of_the_page_loads(tmp_path):
    (tmp_path / "spaces").mkdir()
    (tmp_path / "studies").mkdir()
    (tmp_path / "spaces/deepseek_h20.yaml").write_text(YAML[0])
    (tmp_path / "studies/shown.yaml").write_text(YAML[2])
    assert load_study(tmp_path / "studies/shown.yaml").search.method == "bound"


def test_the_python_of_the_page_runs(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    (text,) = [text for kind, text in BLOCKS if kind == "python"]
    names: dict[str, object] = {}
    exec(text, names)
    assert names["frame"].height == 144
