"""Every command prints one JSON document, and nothing else on stdout, when it is asked to."""

import pytest

from tests.pipeline.projects import HERE, SMALL, Project, dse

ONE = ("--model", "llama-3.1-8b", "--gpu", "h100-sxm")
LOAD = ("--isl", "200", "--osl", "20", "--concurrency", "4")
STUDY = "studies/quickstart.yaml"
CALLS = [
    ("check", STUDY),
    ("check", "spaces/quickstart.yaml"),
    ("run", STUDY, *HERE, *SMALL),
    ("show", STUDY, *SMALL),
    ("report", STUDY, *SMALL, "--format", "md"),
    ("compare", STUDY, STUDY),
    ("query", "FROM front"),
    ("query", "SELECT 1 AS one, NULL AS nothing, 'nan'::DOUBLE AS odd, [1] AS many"),
    ("walls", *ONE),
    ("walls", *ONE, "--min-gpus"),
    ("explain", *ONE, *LOAD),
    ("simulate", *ONE, *LOAD, "--requests", "8", "--tier", "roofline"),
    ("advise", *ONE, "--isl", "200", "--osl", "20"),
    ("triage", *ONE, "--measured-tpot", "20ms"),
    ("export", *ONE, "--engine", "vllm"),
    ("export", *ONE, "--engine", "sglang"),
    ("catalog", "list", "gpu"),
    ("catalog", "show", "h100-sxm"),
    ("schema", "space"),
    ("schema", "--markdown"),
    ("skill",),
    ("init", "mine"),
]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    made = Project.made(tmp_path_factory.mktemp("documents"))
    for _ in range(2):
        assert made.run("--quiet").code == 0
    return made


@pytest.mark.parametrize("arguments", CALLS, ids=" ".join)
def test_success_is_one_document(project, monkeypatch, arguments):
    monkeypatch.chdir(project.folder)
    said = dse(*arguments, "--json")
    assert said.code == 0, said.err + said.out
    assert said.document()
    assert "NaN" not in said.out
    assert "Traceback" not in said.err
