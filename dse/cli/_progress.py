"""Progress of a run on stderr: one live line in a terminal, a plain line now and then elsewhere."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dse.pipeline.run import Watch
from dse.search import Round

PLAIN_EVERY_S = 5.0


@contextmanager
def progress(*, quiet: bool) -> Iterator[Watch]:
    """Who watches a run for as long as the block lasts; nobody if `quiet`."""
    if quiet:
        yield Watch()
    elif sys.stderr.isatty():
        with _live() as watch:
            yield watch
    else:
        yield _plain()


@contextmanager
def _live() -> Iterator[Watch]:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    from dse.cli._output import console

    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[said]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("judging", total=None, said="")
        counted = {"results": 0, "survivors": 0}

        def judged(n_candidates: int, n_survivors: int) -> None:
            counted["survivors"] = n_survivors
            said = f"{n_survivors:,} of {n_candidates:,} survive"
            bar.update(task, description="searching", total=n_survivors, said=said)

        def round_(found: Round) -> None:
            done = counted["survivors"] - found.n_left
            bar.update(task, completed=done, said=f"{_said(found)}, {counted['results']:,} results")

        def done(n_results: int) -> None:
            counted["results"] += n_results
            bar.update(task, said=f"{counted['results']:,} results")

        yield Watch(judged=judged, round=round_, done=done)


def _plain() -> Watch:
    last = {"at": time.monotonic()}

    def say(text: str) -> None:
        sys.stderr.write(f"dse: {text}\n")
        sys.stderr.flush()

    def round_(found: Round) -> None:
        now = time.monotonic()
        if now - last["at"] >= PLAIN_EVERY_S:
            last["at"] = now
            say(_said(found))

    return Watch(
        judged=lambda n, alive: say(f"{alive:,} of {n:,} candidates survive the walls"),
        round=round_,
    )


def _said(found: Round) -> str:
    gap = "" if found.gap == float("inf") else f", gap {found.gap:.1%}"
    return (
        f"{found.n_simulated:,} simulated, {found.n_dropped:,} dropped, {found.n_left:,} left, "
        f"front {found.n_front}{gap}"
    )
