"""The public names of the package: all there, all in their homes, none imported early."""

import subprocess
import sys

import pytest

import dse


@pytest.mark.parametrize("name", dse.__all__)
def test_a_public_name_is_found(name: str) -> None:
    assert getattr(dse, name) is not None
    assert name in dir(dse)


def test_each_public_name_but_the_version_has_a_home() -> None:
    assert sorted(dse._HOMES) == sorted(set(dse.__all__) - {"__version__"})


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Zebra'"):
        dse.Zebra  # noqa: B018


def test_importing_the_package_imports_no_other() -> None:
    script = "import sys, dse; print(*(name for name in sys.modules if name.startswith('dse.')))"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert run.stdout.split() == ["dse._version"]
