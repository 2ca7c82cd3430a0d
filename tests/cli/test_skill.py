"""The guide, its copy in the documentation, and the keys that it names."""

import re
from pathlib import Path

from dse.cli._app import COMMANDS
from tests.pipeline.projects import dse

ROOT = Path(__file__).parents[2]


def test_the_guide_is_printed_and_is_the_documented_one():
    said = dse("skill")
    assert said.code == 0
    assert said.out == (ROOT / "docs/skill/SKILL.md").read_text("utf-8")
    assert dse("skill", "--json").document()["skill"] == said.out


def test_it_names_commands_that_there_are():
    named = set(re.findall(r"\bdse ([a-z]+)", dse("skill").out))
    assert {"walls", "run", "explain", "triage", "advise", "export", "compare"} <= named
    assert named <= {*COMMANDS, "ops"}
