"""Every command that the documentation shows is run as it stands, on a small study."""

import itertools
import json
import re
import shlex
from pathlib import Path

import pytest

from tests.model.configs import PLAIN
from tests.pipeline.projects import HERE, SMALL, Project, dse

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "dse/skill.md"]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", flags=re.DOTALL | re.MULTILINE)


def commands() -> list[str]:
    """Lines of shell blocks and of indented blocks that call `dse`, each once."""
    found = []
    for page in PAGES:
        text = page.read_text("utf-8")
        blocks = [block for kind, block in FENCED.findall(text) if kind in ("", "sh")]
        lines = [line for block in blocks for line in block.splitlines()]
        lines += [line[4:] for line in text.splitlines() if line.startswith("    dse ")]
        found += [line for line in lines if line.startswith("dse ")]
    return list(dict.fromkeys(re.sub(r"\s+#.*", "", line).strip() for line in found))


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project with a run, a model's config and a GPU of its own."""
    made = Project.made(tmp_path_factory.mktemp("documented"))
    assert made.run("--quiet").code == 0
    config = made.folder / "path/to/config.json"
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(PLAIN))
    mine = ("--to", made.folder / "mine")
    facts = ("--base", "h200", "--set", "hbm=288 GB")
    assert dse("catalog", "add", "gpu", "H400", *facts, *mine).code == 0
    assert dse("catalog", "add", config, "--name", "my-model", "--source", "x", *mine).code == 0
    (made.folder / "sweep.csv").write_text(kernel_sweep())
    return made


def kernel_sweep() -> str:
    """GEMMs of a GPU with 288 GB at three quarters of an H200's FLOP/s and 5 µs a launch."""
    lines = ["family,engine,implementation,latency_us,m,n,k,weights,activations"]
    for m, n, k in itertools.product(range(64, 2048, 128), (2048, 4096, 8192), (2048, 4096, 8192)):
        microseconds = 5.0 + 2.0 * m * n * k / (0.75 * 989.4e6)
        lines.append(f"gemm,vllm,cublas,{microseconds:.3f},{m},{n},{k},bf16,bf16")
    return "\n".join(lines) + "\n"


def test_there_are_commands_of_every_kind():
    named = {line.split()[1] for line in commands()}
    assert {
        "check", "run", "show", "walls", "explain", "simulate", "advise", "triage", "query",
        "export", "catalog",
    } <= named  # fmt: skip


@pytest.mark.parametrize("line", commands())
def test_a_shown_command_runs(project, tmp_path, monkeypatch, line):
    words = shlex.split(line)[1:]
    monkeypatch.chdir(project.folder)
    if words[:2] == ["catalog", "add"]:
        words[words.index("--to") + 1] = str(tmp_path)
    if words[0] in {"run", "show"}:
        words += [*SMALL, *(HERE if words[0] == "run" else ())]
    if words[0] == "simulate":
        words += ["--requests", "40"]
    said = dse(*words)
    assert said.code == 0, said.err + said.out
    assert said.out or "--parquet" in words
    if "--json" in words:
        assert said.document()
