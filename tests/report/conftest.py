"""The made-up outcome, and its report written once."""

from pathlib import Path

import pytest

from dse.report.page import write
from dse.report.record import Outcome
from tests.report.outcomes import outcome


@pytest.fixture(scope="session")
def made() -> Outcome:
    return outcome()


@pytest.fixture(scope="session")
def folder(made: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("report")
    write(made, place, ("html", "md", "svg", "parquet", "csv", "json"))
    return place
