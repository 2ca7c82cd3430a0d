"""The page stands alone, holds the store's numbers, and appears whole or not at all."""

import json
import re
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from polars.testing import assert_frame_equal

from dse.base.errors import UserError
from dse.report.content import content
from dse.report.page import html as page_of
from dse.report.page import policy, write
from dse.report.record import Outcome
from tests.report.outcomes import outcome
from tests.report.pages import dataset, script, tags


@pytest.fixture(scope="session")
def html(folder: Path) -> str:
    return (folder / "index.html").read_text("utf-8")


def test_the_page_holds_the_outcome_to_the_last_digit(html: str, made: Outcome) -> None:
    columns = ["point_id", "output_tok_per_s_per_gpu", "tpot_mean_s", "usd_per_mtok_output"]
    for name, frame in (("front", made.front), ("results", made.results)):
        held = {row["point_id"]: row for row in dataset(html, name)}
        assert len(held) == frame.height
        for row in frame.select(columns).iter_rows(named=True):
            assert {column: held[row["point_id"]][column] for column in columns} == row


def test_the_front_is_the_same_in_every_format(folder: Path, made: Outcome) -> None:
    whole = pl.read_parquet(folder / "front.parquet")
    assert_frame_equal(whole.select(made.front.columns), made.front)
    rows = json.loads((folder / "front.json").read_text("utf-8"))["front"]
    assert [row["point_id"] for row in rows] == made.front["point_id"].to_list()
    assert pl.read_csv(folder / "front.csv")["tpot_mean_s"].to_list() == pytest.approx(
        made.front["tpot_mean_s"].to_list(), rel=1e-12
    )


def test_the_page_asks_for_nothing(html: str) -> None:
    loading = {"img", "link", "iframe", "object", "embed", "video", "audio", "source"}
    assert [tag for tag, _ in tags(html) if tag in loading] == []
    assert [attributes for _, attributes in tags(html) if "src" in attributes] == []
    assert "@import" not in html.split("</style>", maxsplit=1)[0]
    rule = next(a["content"] for tag, a in tags(html) if tag == "meta" and "http-equiv" in a)
    assert rule is not None
    assert rule.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe-eval" not in rule


def test_only_the_scripts_of_the_page_may_run(html: str) -> None:
    bodies = re.findall(r"<script>(.*?)</script>", html, flags=re.DOTALL)
    rule = next(a["content"] for tag, a in tags(html) if tag == "meta" and "http-equiv" in a)
    assert policy(bodies) == rule


def test_the_page_is_small(html: str) -> None:
    assert len(html.encode()) < 1_500_000


def test_text_of_the_user_cannot_become_markup(made: Outcome) -> None:
    evil = "</script><img src=x onerror=alert(1)> & <b>"
    study = replace(made.study, question=evil)
    front = made.front.with_columns(engine=pl.lit(evil))
    found = page_of(content(replace(made, study=study, front=front, notes=(evil,))))
    assert [tag for tag, _ in tags(found) if tag == "img"] == []
    assert dataset(found, "front")[0]["engine"] == evil


def test_charts_name_data_that_the_page_has(html: str) -> None:
    specs, data = script(html, "specs"), script(html, "data")
    named = set(re.findall(r'\{"name": "(\w+)"\}', json.dumps(specs)))
    assert named
    assert named <= set(data)


def test_a_folder_that_cannot_be_made_is_the_users_error(made: Outcome, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(UserError, match="cannot be written") as caught:
        write(made, tmp_path / "taken" / "report", ("json",))
    assert caught.value.exit_code == 2
    assert "--out" in caught.value.remedy


def test_a_failure_leaves_the_last_report_as_it_was(
    made: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(made, tmp_path, ("json",))
    before = (tmp_path / "front.json").read_bytes()

    def full(self: Path, *_args: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(UserError, match="No space left on device"):
        write(replace(made, front=made.front.head(1)), tmp_path, ("csv", "json"))
    assert [path.name for path in tmp_path.iterdir()] == ["front.json"]
    assert (tmp_path / "front.json").read_bytes() == before


def test_an_unknown_format_suggests_the_nearest(made: Outcome, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="did you mean html"):
        write(made, tmp_path, ("htm",))
    assert list(tmp_path.iterdir()) == []


def test_an_infeasible_study_says_why(tmp_path: Path) -> None:
    empty = outcome()
    nothing = replace(
        empty,
        results=empty.results.with_columns(feasible=False, on_front=False),
        front=empty.front.clear(),
        details={},
    )
    write(nothing, tmp_path, ("html", "md", "svg", "parquet"))
    text = (tmp_path / "README.md").read_text("utf-8")
    assert "**Nothing is feasible.** None of 12,480 candidates keeps" in text
    assert "TP1 ×8 on 8 × h100-sxm (bf16 / bf16): weights and overheads do not fit a GPU" in text
    assert "Nothing is feasible" in (tmp_path / "index.html").read_text("utf-8")


def test_the_readme_shows_its_pictures(folder: Path) -> None:
    text = (folder / "README.md").read_text("utf-8")
    pictures = re.findall(r"\]\((\w+\.svg)\)", text)
    assert "front.svg" in pictures
    for name in pictures:
        assert (folder / name).read_text("utf-8").startswith("<svg")
