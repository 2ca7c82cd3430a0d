"""What the gallery claims of each curated report holds in the report as it stands."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2] / "reports"
# Reports of one's own may lie there too.
NAMES = sorted(path.stem for path in (ROOT.parent / "studies").glob("*.yaml"))
GALLERY = (ROOT / "README.md").read_text("utf-8")


@cache
def text(name: str) -> str:
    return (ROOT / name / "README.md").read_text("utf-8")


def headline(name: str) -> str:
    found = re.search(r"^\*\*(.+ on .+ under .+)\*\*$", text(name), re.MULTILINE)
    assert found
    return found[1]


def rows(name: str, title: str) -> list[dict[str, str]]:
    """The first table under a heading, by its heads without their units."""
    part = text(name).split(f"\n## {title}\n")[1]
    lines = part[part.index("\n| ") + 1 :].split("\n\n")[0].splitlines()
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    heads = [head.partition(" (")[0] for head in cells[0]]
    return [dict(zip(heads, row, strict=True)) for row in cells[2:]]


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def cost(row: dict[str, str]) -> float:
    return number(row["cost of output"])


def cheapest(name: str) -> dict[str, dict[str, str]]:
    """The cheapest row of each GPU, the cheapest GPU first."""
    found: dict[str, dict[str, str]] = {}
    for row in sorted(rows(name, "What to buy"), key=cost):
        found.setdefault(row["GPU"], row)
    return found


def share_to_spare(name: str, metric: str) -> float:
    found = re.search(rf"- {metric} p\d+ ≤ .*, (\d+)% to spare", text(name))
    assert found
    return float(found[1])


def test_the_gallery_has_every_report_with_a_picture_and_its_question() -> None:
    flat = " ".join(GALLERY.split())
    for name in NAMES:
        assert f"]({name}/README.md)" in GALLERY
        question = text(name).splitlines()[0].removeprefix("# ")
        assert f"**Question.** {question}" in flat
    pictures = re.findall(r"\]\((\w+/[\w-]+\.svg)\)", GALLERY)
    assert {picture.partition("/")[0] for picture in pictures} == set(NAMES)
    assert all((ROOT / picture).exists() for picture in pictures)
    assert len(re.findall(r"^\*\*(?:Answer|Learned)\.\*\*", GALLERY, re.MULTILINE)) == 2 * len(
        NAMES
    )


@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_two_sentences(name: str) -> None:
    part = GALLERY.split(f"]({name}/README.md)")[1]
    found = " ".join(part.split("**Answer.** ")[1].split("\n\n")[0].split())
    assert len(re.findall(r"\.(?: |$)", found)) == 2


def test_quickstart() -> None:
    assert "in fp8" in headline("quickstart")
    assert re.search(r"8 × h200-sxm, 2 replicas of TP4", headline("quickstart"))
    buy = cheapest("quickstart")
    first = next(iter(buy))
    assert (first, buy[first]["layout"]) == ("h100-sxm", buy["h200-sxm"]["layout"])
    assert 1.1 < number(buy[first]["break-even price"]) / number(buy[first]["price"]) < 7 / 6
    assert share_to_spare("quickstart", "TTFT") < share_to_spare("quickstart", "TPOT")
    used = re.search(r"KV pool: (\d+)% used", text("quickstart"))
    assert used
    assert int(used[1]) < 50


def test_chat_8b() -> None:
    buy = cheapest("chat_8b")
    order = list(buy)
    assert order[0] == "rtx-5090"
    assert buy["rtx-5090"]["weights / KV"].startswith("fp8")
    assert buy["rtx-5090"]["layout"].startswith("TP1")
    assert cost(buy[order[1]]) > 1.5 * cost(buy["rtx-5090"])
    assert order[-1] == "l4"
    assert number(buy["l4"]["price"]) < number(buy["rtx-pro-6000"]["price"]) / 2
    assert max(number(row["price"]) for row in buy.values()) == number(buy["rtx-pro-6000"]["price"])
    most = max(buy, key=lambda gpu: number(buy[gpu]["goodput per GPU"]))
    assert most == "rtx-pro-6000"
    assert "Recommended: the lowest cost of output" in text("chat_8b")
    assert order[0] in headline("chat_8b")
    assert all(row["weights / KV"].startswith("fp8") for row in buy.values())


def test_procurement_70b() -> None:
    assert "in fp8 with fp8 KV on 8 × b200-sxm, 8 replicas of TP1" in headline("procurement_70b")
    buy = cheapest("procurement_70b")
    order = list(buy)
    assert order[0] == "b200-sxm"
    assert cost(buy[order[1]]) > 2 * cost(buy["b200-sxm"])
    assert order[-1] == "a100-sxm"
    assert number(buy["a100-sxm"]["price"]) == min(number(row["price"]) for row in buy.values())
    other = next(
        row
        for row in rows("procurement_70b", "What to buy")
        if row["GPU"] == "b200-sxm" and row["weights / KV"] == "fp8 / bf16"
    )
    assert cost(other) > 1.1 * cost(buy["b200-sxm"])


def n_gpus(layout: str) -> int:
    """GPUs of a replica, from its label: TP × attention ranks × stages."""
    tp = re.search(r"TP(\d+)", layout)
    dp = re.search(r"DPA(\d+)", layout)
    pp = re.search(r"PP(\d+)", layout)
    ep = re.search(r"EP(\d+)\+DPA(?!\d)", layout)
    found = int(tp[1]) if tp else 1
    found *= int(dp[1]) if dp else int(ep[1]) if ep else 1
    return found * (int(pp[1]) if pp else 1)


def test_long_context_moe() -> None:
    assert "gb200" in headline("long_context_moe")
    buy = cheapest("long_context_moe")
    assert cost(buy["gb200"]) == pytest.approx(cost(buy["b200-sxm"]), rel=0.1)
    output = {gpu: number(row["output per GPU"]) for gpu, row in buy.items()}
    assert 1.15 < output["gb200"] / output["b200-sxm"] < 1.25
    members = rows("long_context_moe", "Pareto front")
    assert max(n_gpus(row["layout"]) for row in members) <= 8


def test_deepseek_h20_layouts() -> None:
    members = rows("deepseek_h20_layouts", "Pareto front")
    most, fastest = members[0], min(members, key=lambda row: number(row["TPOT mean"]))
    assert "EP" in most["layout"]
    assert "DPA" in most["layout"]
    assert "TP8 PP2" in fastest["layout"]
    assert number(most["concurrency"]) > 10 * number(fastest["concurrency"])
    miss = rows("deepseek_h20_layouts", "Why not the others")[0]
    assert miss["what stops it"] == "hbm"
    assert re.match(r"TP8 ×\d", miss["layout"])
    assert number(miss["over by"].removesuffix("%")) < 1
    study = (ROOT.parent / "studies/deepseek_h20_layouts.yaml").read_text("utf-8")
    assert "screens: [branch <> 'apart']" in study
