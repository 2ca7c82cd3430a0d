"""The commands that read and write studies, as people and programs call them."""

import json
import subprocess
import sys
from pathlib import Path

from tests.commands import run

ROOT = Path(__file__).parents[2]


def test_check_prints_sizes_and_exits_0(capsys):
    code, out, err = run(capsys, "check", ROOT / "studies/quickstart.yaml")
    assert (code, err) == (0, "")
    assert "study, 144 points, 16 structures" in out


def test_check_prints_one_document(capsys):
    code, out, _ = run(capsys, "check", ROOT / "studies/quickstart.yaml", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["ok"] is True
    assert found["faults"] == []
    assert (found["n_points"], found["n_structural"]) == (144, 16)


def test_check_takes_a_scenario_and_settings(capsys):
    path = ROOT / "studies/procurement_70b.yaml"
    options = ["--scenario", "pessimist", "--set", "space.n_gpus=[8, 16]", "--json"]
    code, out, _ = run(capsys, "check", path, *options)
    found = json.loads(out)
    assert code == 0
    assert found["values"]["h100"]["context"] == ["32768/1024"]
    assert found["values"]["h100"]["n_gpus"] == [8, 16]


def test_faults_go_to_stderr_and_exit_2(capsys, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("question: x\nspace: none.yaml\nlod: closed_loop\nobjectives: [tpot]\n")
    code, out, err = run(capsys, "check", path)
    assert (code, out) == (2, "")
    assert f"{path}:2:8: space: no file" in err
    assert "did you mean load?" in err
    assert "nothing was run" in err


def test_faults_as_a_document(capsys, tmp_path):
    path = tmp_path / "study.yaml"
    path.write_text("question: x\nspace: none.yaml\nload: closed_loop\nobjectives: [tpot_mean]\n")
    code, out, err = run(capsys, "check", path, "--json")
    found = json.loads(out)
    assert (code, err, found["ok"]) == (2, "", False)
    assert {fault["path"] for fault in found["faults"]} >= {"space"}


def test_an_unknown_scenario_exits_2(capsys):
    code, _, err = run(capsys, "check", ROOT / "studies/procurement_70b.yaml", "--scenario", "tody")
    assert code == 2
    assert "did you mean today?" in err


def test_schema_is_json(capsys):
    code, out, _ = run(capsys, "schema", "space")
    assert code == 0
    assert "any_of" in json.loads(out)["properties"]


def test_schema_as_a_page(capsys):
    code, out, _ = run(capsys, "schema", "--markdown")
    assert code == 0
    assert out.startswith("# YAML reference")


def test_init_writes_a_study_that_checks(capsys, tmp_path):
    code, out, _ = run(capsys, "init", tmp_path, "--name", "mine")
    assert code == 0
    assert "studies/mine.yaml" in out.replace("\n", "")
    assert run(capsys, "check", tmp_path / "studies/mine.yaml")[0] == 0


def test_init_overwrites_nothing(capsys, tmp_path):
    run(capsys, "init", tmp_path)
    before = (tmp_path / "studies/first.yaml").read_text()
    code, _, err = run(capsys, "init", tmp_path)
    assert code == 2
    assert "exists" in err
    assert (tmp_path / "studies/first.yaml").read_text() == before


def test_init_says_where_it_cannot_write(capsys, tmp_path):
    (tmp_path / "studies").write_text("a file where a folder is wanted")
    code, _, err = run(capsys, "init", tmp_path)
    assert code == 2
    assert "cannot be written" in err
    assert list((tmp_path / "spaces").iterdir()) == []


def test_checking_a_study_loads_no_library_that_only_an_answer_needs() -> None:
    study = ROOT / "studies/quickstart.yaml"
    script = (
        "import sys\nfrom dse.cli import main\n"
        f"try: main(['check', {str(study)!r}])\n"
        "except SystemExit as done: print(done.code, *sys.modules)\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    code, *loaded = run.stdout.splitlines()[-1].split()
    assert code == "0"
    assert {"altair", "duckdb", "numba", "pint", "ray", "scipy", "vl_convert"} & {*loaded} == set()
