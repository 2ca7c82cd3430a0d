"""Families: a module dropped into a package is a member; one that breaks the rule is named."""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from dse.base.errors import DseError
from dse.base.family import Family

BASE = "class Shape:\n    pass\n"
INIT = """
from dse.base.family import Family
from shapes._base import Shape

SHAPES = Family(__name__, Shape)
"""
PART = """
from dataclasses import dataclass
from typing import Literal
from shapes._base import Shape

@dataclass(frozen=True, slots=True)
class {name}(Shape):
    size: int = 1
    kind: Literal["{kind}"] = "{kind}"
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A package `shapes` on the path, with a base and two parts."""
    folder = tmp_path / "shapes"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "_base.py").write_text(BASE)
    (folder / "square.py").write_text(PART.format(name="Square", kind="square"))
    (folder / "circle.py").write_text(PART.format(name="Circle", kind="circle"))
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "shapes"]:
        del sys.modules[name]


def shapes() -> Family[object]:
    family: Family[object] = import_module("shapes").SHAPES
    return family


def test_members_are_found_by_module(package: Path) -> None:
    family = shapes()
    assert family.kinds == ("circle", "square")
    assert len(family) == 2
    assert "circle" in family
    assert family["square"].__name__ == "Square"
    assert [part.__name__ for part in family.values()] == ["Circle", "Square"]
    assert repr(family) == "Family(shapes: circle, square)"
    assert len({family, family}) == 1


def test_a_new_module_is_a_new_member(package: Path) -> None:
    (package / "oval.py").write_text(PART.format(name="Oval", kind="oval"))
    assert shapes().kinds == ("circle", "oval", "square")


def test_a_module_may_declare_more_parts_than_its_own(package: Path) -> None:
    more = PART.format(name="Oval", kind="oval") + PART.format(name="Egg", kind="egg")
    (package / "oval.py").write_text(more)
    assert shapes().kinds == ("circle", "egg", "oval", "square")


def test_private_classes_and_modules_are_no_members(package: Path) -> None:
    (package / "_help.py").write_text("raise RuntimeError('never imported')")
    (package / "oval.py").write_text(
        PART.format(name="Oval", kind="oval") + "\nclass _Half(Shape):\n    pass\n"
    )
    assert shapes().kinds == ("circle", "oval", "square")


@pytest.mark.parametrize(
    ("code", "says"),
    [
        (PART.format(name="Oval", kind="ovul"), r"oval.py: declares no Shape of kind 'oval'"),
        ("", r"oval.py: declares no Shape of kind 'oval'.*kind: Literal\['oval'\]"),
        (
            PART.format(name="Oval", kind="oval") + PART.format(name="Disc", kind="circle"),
            r"oval.py: kind 'circle' is already declared in shapes.circle",
        ),
        (
            PART.format(name="Oval", kind="oval").replace("frozen", "order"),
            "oval.py: Oval is no part",
        ),
        (
            "from shapes._base import Shape\nclass Oval(Shape):\n    pass",
            "oval.py: Oval is no part",
        ),
        (
            PART.format(name="Oval", kind="oval").replace('= "oval"', '= "circle"'),
            "oval.py: Oval is no part",
        ),
    ],
)
def test_a_module_that_breaks_the_rule_is_named(package: Path, code: str, says: str) -> None:
    (package / "oval.py").write_text(code)
    with pytest.raises(DseError, match=says):
        shapes()


def test_an_unknown_kind_suggests_the_nearest(package: Path) -> None:
    with pytest.raises(KeyError, match="no kind 'sqare' in shapes; did you mean square?"):
        shapes()["sqare"]
