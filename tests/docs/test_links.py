"""Links of the documentation lead somewhere, and the index names every page."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
# Made by `dse run` and committed with it.
GENERATED = ROOT / "reports"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_exist(page):
    broken = []
    for target in LINK.findall(page.read_text("utf-8")):
        if re.match(r"[a-z]+:", target) or target.startswith("#"):
            continue
        place = (page.parent / target.partition("#")[0]).resolve()
        if not place.exists() and GENERATED not in place.parents:
            broken.append(target)
    assert broken == []


def test_the_index_names_every_page():
    index = (ROOT / "docs/README.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
    assert {name for name in pages if f"({name})" not in index} == set()


def test_the_limits_link_every_page_of_accuracy():
    limits = (ROOT / "docs/limits.md").read_text("utf-8")
    pages = {page.name for page in (ROOT / "docs").glob("accuracy*.md")}
    assert pages
    assert {name for name in pages if f"({name})" not in limits} == set()
