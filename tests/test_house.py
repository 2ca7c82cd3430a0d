"""The house rules that a machine can hold: sizes, layers, public names, words, start-up."""

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dse

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "dse").rglob("*.py"))
TRACKED = subprocess.run(
    ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
).stdout.splitlines()
# Split so that this file does not contain what it forbids.
FORBIDDEN = re.compile("/" + r"work/|/" + r"root/|pypi\." + r"org|pythonhosted\." + "org")
HEAVY = {"altair", "duckdb", "moocore", "numba", "optuna", "pint", "polars", "ray", "scipy"}


def modules() -> list[str]:
    found = pkgutil.walk_packages(dse.__path__, "dse.")
    return sorted(info.name for info in found if not info.name.endswith("__main__"))


def test_no_file_is_longer_than_400_lines() -> None:
    tests = sorted((ROOT / "tests").rglob("*.py"))
    sizes = {path: len(path.read_text("utf-8").splitlines()) for path in SOURCES + tests}
    assert {str(path.relative_to(ROOT)): size for path, size in sizes.items() if size > 400} == {}


def test_imports_point_down() -> None:
    script = Path(sys.executable).with_name("lint-imports")
    run = subprocess.run(
        [script, "--no-logo"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("name", modules())
def test_public_names_are_sorted_and_there(name: str) -> None:
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    assert len(set(names)) == len(names)
    assert list(names) == sorted(names, key=natural)
    assert [public for public in names if not hasattr(module, public)] == []


def natural(name: str) -> tuple[int, str]:
    """Order constants, then classes, then functions, as the linter sorts `__all__`."""
    return (0 if name.isupper() else 1 if name[:1].isupper() else 2, name)


def unlisted(path: Path) -> set[str]:
    """Return the public functions and classes that a module with an `__all__` leaves out of it."""
    body = ast.parse(path.read_text("utf-8")).body
    lists = [
        ast.literal_eval(node.value)
        for node in body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    defined = {node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    public = {name for name in defined if not name.startswith("_")}
    return public.difference(*lists) if lists else set()


def test_every_public_name_of_a_module_is_listed() -> None:
    assert {str(path): names for path in SOURCES if (names := unlisted(path))} == {}


@pytest.mark.parametrize("name", TRACKED)
def test_the_project_names_no_machine_and_no_registry(name: str) -> None:
    path = ROOT / name
    if path.is_file():
        found = FORBIDDEN.search(path.read_text("utf-8", errors="replace"))
        assert found is None, f"{name} contains {found}"


def test_start_up_imports_nothing_heavy() -> None:
    script = "import sys, dse, dse.cli; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert HEAVY & set(run.stdout.split()) == set()
