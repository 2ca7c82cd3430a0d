"""A store of one's own."""

import pytest

from dse.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / 'a project\'s "store" ä.duckdb'


@pytest.fixture
def store(path):
    with Store.open(path) as opened:
        yield opened
