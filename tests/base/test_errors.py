"""The error tree: exit codes, remedies, transport between processes."""

import pickle

import pytest

from dse.base import errors
from dse.base.errors import DseError, Fault, SourceError, did_you_mean


def test_the_drawing_shows_every_error() -> None:
    drawing = errors.__doc__ or ""
    classes = [value for value in vars(errors).values() if isinstance(value, type)]
    for error in classes:
        if issubclass(error, DseError):
            assert f" {error.__name__} " in drawing


@pytest.mark.parametrize(
    ("error", "code"),
    [("DseError", 1), ("UserError", 2), ("SourceError", 2), ("CatalogError", 2), ("SpaceError", 2),
     ("StudyError", 2), ("InfeasibleError", 3), ("IllegalError", 3), ("StoreError", 4),
     ("SimulationError", 1)],
)  # fmt: skip
def test_exit_codes(error: str, code: int) -> None:
    assert getattr(errors, error).exit_code == code


def test_an_error_says_what_to_do() -> None:
    error = DseError("the store is locked", "wait for the other run")
    assert str(error) == "the store is locked (wait for the other run)"
    assert (error.message, error.remedy) == ("the store is locked", "wait for the other run")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_source_error_lists_its_faults_once_and_in_order() -> None:
    late, early = Fault("a.yaml", 9, 1, "x", "wrong"), Fault("a.yaml", 2, 4, "", "bad")
    error = SourceError([late, early, late])
    assert error.faults == (early, late)
    assert str(error) == "a.yaml:2:4: bad\na.yaml:9:1: x: wrong"
    assert pickle.loads(pickle.dumps(error)).faults == error.faults


@pytest.mark.parametrize(
    ("word", "hint"),
    [("mlaa", "; did you mean mla?"), ("H200_SXM", "; did you mean h200-sxm?"), ("zebra", "")],
)
def test_did_you_mean(word: str, hint: str) -> None:
    assert did_you_mean(word, ["mla", "gqa", "h200-sxm"]) == hint
