"""One project in which the small quickstart was run once."""

import pytest

from tests.pipeline.projects import Project, Said


@pytest.fixture(scope="session")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project.made(tmp_path_factory.mktemp("project"))


@pytest.fixture(scope="session")
def ran(project: Project) -> Said:
    """The first run of the small quickstart, as a document."""
    said = project.run("--json")
    assert said.code == 0, said.err
    return said


@pytest.fixture
def fresh(tmp_path) -> Project:
    return Project.made(tmp_path)
