"""Reports in a headless Chromium: no console message, no request, nothing cut, links that work.

A proxy that refuses whatever is asked of it stands for the network: the page must never ask.
"""

import html
import json
import re
import shutil
import socketserver
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from dse.report.page import policy, write
from dse.report.record import Outcome

pytestmark = pytest.mark.chromium

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
QUIET = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-default-apps",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=20000",
)
SIZES = {"desktop": (1280, 1600), "tablet": (820, 1600), "phone": (390, 1600), "paper": (680, 1600)}
USEFUL = 0.6
"""The share of a chart's column that its plot fills at least; the rest is axes."""
MOST_TICKS = 22
"""Labels of one axis at most: more are a crowd."""
# A window has at least 500 pixels: the page stands in a frame of the width that is asked for.
FRAME = """<!doctype html><body style="margin: 0">
<iframe src="probed.html" style="border: 0; width: {width}px; height: {height}px"></iframe>
<script>addEventListener("message", (event) => {{
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = event.data;
  document.body.append(out);
}});</script></body>"""
# What is asked of the page once it is drawn; the answer is written into the document around it.
PROBE = """
const PAPER = false;
const wait = setInterval(() => {
  if (document.body.dataset.ready !== "true") return;
  clearInterval(wait);
  if (PAPER) {
    for (const sheet of document.styleSheets)
      for (const rule of [...sheet.cssRules])
        if (rule.media && rule.media.mediaText === "print")
          for (const own of rule.cssRules) sheet.insertRule(own.cssText, sheet.cssRules.length);
    window.dispatchEvent(new Event("beforeprint"));
  }
  const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
  const charts = [...document.querySelectorAll("[data-chart]")];
  const name = (element) => element.closest("[data-chart]").dataset.chart;
  const empty = charts.filter((place) => !place.querySelector("svg")).map(name);
  const svgs = [...document.querySelectorAll("[data-chart] svg")];
  const cut = svgs.filter((svg) => svg.getBoundingClientRect().right
    > svg.closest("[data-chart]").getBoundingClientRect().right + 1).map(name);
  const plots = Object.fromEntries(charts.map((place) => {
    const cells = place.querySelectorAll(".cell > g > path.background");
    const frame = place.querySelectorAll(".role-frame > g > path.background");
    const inner = [...(cells.length ? cells : frame)].map((path) => path.getBoundingClientRect());
    const row = inner.filter((box) => Math.abs(box.top - inner[0].top) < 2);
    const drawn = row.reduce((sum, box) => sum + box.width, 0);
    return [place.dataset.chart, drawn / place.clientWidth];
  }));
  const short = [...document.querySelectorAll("[data-chart] svg text")]
    .filter((text) => text.textContent.includes("…"))
    .map((text) => `${name(text)}: ${text.textContent}`);
  const scrolls = (element) => {
    const style = getComputedStyle(element);
    return ["auto", "scroll"].includes(style.overflowX) || style.display.startsWith("inline");
  };
  const over = [...document.querySelectorAll("body *:not(svg *):not(script)")]
    .filter((element) => element.scrollWidth > element.clientWidth + 1 && element.clientWidth > 0)
    .filter((element) => !scrolls(element))
    .map((element) => `${element.tagName}.${element.className} ${element.scrollWidth}`);
  const boxes = (place, what) => [...place.querySelectorAll(what)]
    .filter((each) => getComputedStyle(each).opacity !== "0")
    .map((each) => [each.getBoundingClientRect(), each.textContent])
    .filter(([box]) => box.width > 0);
  const meet = (a, b, gap) => a.left < b.right + gap && b.left < a.right + gap
    && a.top < b.bottom && b.top < a.bottom;
  const ticks = [...document.querySelectorAll("[data-chart] .role-axis-label")].flatMap((axis) => {
    const labels = boxes(axis, "text").filter(([, text]) => text);
    return labels.slice(1).filter(([box], i) => meet(box, labels[i][0], 3))
      .map(([, text], i) => `${name(axis)}: ${text}`);
  });
  for (const place of charts) {
    const titles = boxes(place, ".role-axis-title text");
    titles.forEach(([box, text], i) => {
      if (titles.slice(0, i).some(([other]) => meet(box, other, 3)))
        ticks.push(`${place.dataset.chart}: ${text}`);
    });
  }
  const most = Math.max(0, ...charts.map((place) =>
    Math.max(0, ...[...place.querySelectorAll(".role-axis-label")].map((axis) =>
      new Set(boxes(axis, "text").filter(([, text]) => text).map(([box]) => box.left | 0)).size))));
  const bare = charts.filter((place) => [...place.querySelectorAll(".role-axis-label")]
    .some((axis) => !boxes(axis, "text").length)).map((place) => place.dataset.chart);
  const covered = charts.flatMap((place) => {
    const marks = boxes(place, ".mark-rect.role-mark path, .mark-symbol.role-mark path");
    return boxes(place, ".role-axis-label text")
      .filter(([label]) => marks.some(([mark]) => meet(label, mark, 0)))
      .map(([, text]) => `${place.dataset.chart}: ${text}`);
  });
  const unsaid = [...document.querySelectorAll(".sheet")].filter((sheet) => {
    const box = sheet.querySelector(".scroll");
    const hint = getComputedStyle(sheet.querySelector(".hint")).display !== "none";
    return hint !== (!PAPER && box.scrollWidth > box.clientWidth + 1);
  }).map((sheet) => sheet.innerText.slice(0, 40));
  const torn = [...document.querySelectorAll("thead th")].filter((th) => {
    const range = document.createRange();
    const walk = document.createTreeWalker(th, NodeFilter.SHOW_TEXT);
    for (let node = walk.nextNode(); node; node = walk.nextNode())
      for (const word of node.textContent.matchAll(/[A-Za-z]+/g)) {
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (range.getClientRects().length > 1) return true;
      }
    return false;
  }).map((th) => th.textContent);
  const hidden = [...document.querySelectorAll(".scroll")]
    .filter((box) => box.scrollWidth > box.clientWidth + 1)
    .map((box) => `${box.scrollWidth} of ${box.clientWidth}: ${box.innerText.slice(0, 60)}`);
  const rows = [...document.querySelectorAll("tr[data-point]")];
  const before = document.getElementById("picked").textContent;
  const other = rows.find((row) => row.dataset.point !== rows[0].dataset.point);
  other.click();
  const marked = [...document.querySelectorAll("tr[aria-selected=true]")]
    .every((row) => row.dataset.point === other.dataset.point);
  const changed = document.getElementById("picked").textContent !== before;
  const head = document.querySelector("#front table.sortable th button");
  const cells = () => [...document.querySelectorAll("#front tbody tr td:first-child")]
    .map((cell) => cell.dataset.value);
  head.click(); const up = cells(); head.click(); const down = cells();
  parent.postMessage(JSON.stringify(
    { wide, empty, cut, plots, short, over, hidden, ticks, most, bare, covered, unsaid, torn,
      marked, changed, up, down }), "*");
}, 50);
"""


@dataclass
class Proxy:
    """Counts and refuses connections."""

    port: int = 0
    asked: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(NAMES)} is on PATH")
    return found


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    seen = Proxy()

    class Refuse(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            seen.asked.append(self.rfile.readline(500).decode(errors="replace").strip())
            self.wfile.write(b"HTTP/1.1 502 refused\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Refuse) as server:
        seen.port = server.server_address[1]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield seen
        server.shutdown()


@pytest.fixture(scope="module")
def page(made: Outcome, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("chromium")
    # Several formats, with long names: tables are as wide as they get.
    weights = pl.when(pl.col("tp") == 4).then(pl.lit("fp8_block")).otherwise("weights")
    frames = (made.results, made.front)
    results, front = (frame.with_columns(weights=weights) for frame in frames)
    write(replace(made, results=results, front=front), folder, ("html",))
    return folder / "index.html"


def opened(
    browser: str, page: Path, proxy: Proxy, profile: Path, *flags: str
) -> subprocess.CompletedProcess[str]:
    command = [browser, *QUIET, f"--user-data-dir={profile}"]
    command += [f"--proxy-server=127.0.0.1:{proxy.port}", *flags, page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=110, check=True)


def messages(run: subprocess.CompletedProcess[str]) -> list[str]:
    """What the page wrote to its console, warnings and refusals included."""
    return [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def of_the_page(proxy: Proxy) -> list[str]:
    """Requests that are not the browser's own housekeeping."""
    own = ("google", "gvt1", "chromium")
    return [line for line in proxy.asked if line and not any(name in line for name in own)]


def probed(browser: str, page: Path, proxy: Proxy, folder: Path, size: str) -> dict[str, Any]:
    """What the page says of itself at a size; `paper` has the style and the event of printing."""
    width, height = SIZES[size]
    copy = folder / "probed.html"
    probe = PROBE.replace("PAPER = false", f"PAPER = {str(size == 'paper').lower()}")
    # The page's policy lets only its own scripts run: the probe has to be let in by its digest.
    known = policy([probe]).split("script-src ")[1].split(";")[0]
    text = page.read_text("utf-8").replace("script-src ", f"script-src {known} ", 1)
    body, end = text.rsplit("</body>", 1)
    copy.write_text(f"{body}<script>{probe}</script></body>{end}", "utf-8")
    around = folder / "frame.html"
    around.write_text(FRAME.format(width=width, height=height), "utf-8")
    window = f"--window-size={max(width, 500)},{height}"
    run = opened(browser, around, proxy, folder / "profile", window, "--dump-dom")
    match = re.search(r'<pre id="probe">(.*?)</pre>', run.stdout, flags=re.DOTALL)
    assert match, f"the page was not drawn in time: {messages(run)}"
    assert messages(run) == []
    assert of_the_page(proxy) == []
    found: dict[str, Any] = json.loads(html.unescape(match[1]))
    return found


@pytest.mark.parametrize("size", SIZES)
def test_it_opens_whole_at_every_size(
    browser: str, page: Path, proxy: Proxy, tmp_path: Path, size: str
) -> None:
    found = probed(browser, page, proxy, tmp_path, size)
    assert found["empty"] == []
    assert found["cut"] == []
    assert found["wide"] <= 0
    assert found["short"] == []
    assert found["over"] == []
    assert found["ticks"] == []
    assert found["most"] <= MOST_TICKS
    assert found["bare"] == []
    assert found["covered"] == []
    assert found["unsaid"] == []
    assert found["torn"] == []
    assert {name: share for name, share in found["plots"].items() if share < USEFUL} == {}
    if size in ("desktop", "paper"):
        assert found["hidden"] == []
    if size != "paper":
        assert found["marked"]
        assert found["changed"]
        assert found["up"] == sorted(found["up"])
        assert found["down"] == sorted(found["down"], reverse=True)


def test_the_policy_lets_the_page_run_as_it_is(
    browser: str, page: Path, proxy: Proxy, tmp_path: Path
) -> None:
    run = opened(browser, page, proxy, tmp_path / "profile", "--dump-dom")
    assert 'data-ready="true"' in run.stdout
    assert messages(run) == []


def test_it_prints(browser: str, page: Path, proxy: Proxy, tmp_path: Path) -> None:
    printed = tmp_path / "report.pdf"
    run = opened(
        browser,
        page,
        proxy,
        tmp_path / "profile",
        "--no-pdf-header-footer",
        f"--print-to-pdf={printed}",
    )
    data = printed.read_bytes()
    assert data.startswith(b"%PDF")
    pages = max(map(int, re.findall(rb"/Count (\d+)", data)))
    assert 3 <= pages <= 20
    assert messages(run) == []
