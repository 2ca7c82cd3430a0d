"""Spaces beyond what rows can hold, and whether a study's question is one that needs none."""

from __future__ import annotations

from dse.space import blocks, numeric
from dse.space.words import NUMERIC
from dse.study.study import CLOSED_LOOP, Study

__all__ = ["GUESSED", "MANY", "is_vast", "n_candidates", "needs_rows"]

MANY = 2_000_000
"""Candidates beyond which a study is sifted, if it can be."""


GUESSED = {
    "output_tok_per_s_per_gpu",
    "total_tok_per_s_per_gpu",
    "goodput_req_per_s_per_gpu",
    "tpot_mean_s",
    "ttft_mean_s",
    "e2e_mean_s",
    "usd_per_gpu_hour",
    "n_gpus",
}
"""What pools tell of a deployment without simulating it."""


def is_vast(study: Study) -> bool:
    """Whether `study` has more than `MANY` candidates and does without a row for each."""
    return needs_rows(study) is None and n_candidates(study, MANY) > MANY


def needs_rows(study: Study) -> str | None:
    """What to change of `study` so that it does without a row for every survivor, the likely best
    being told by their pools; None where it does.
    """
    found = None
    if study.search.method != "bound" or study.search.budget is None:
        found = "give search: {method: bound, budget: N}"
    elif study.load != CLOSED_LOOP or study.asked.trace is not None:
        found = "ask with load: closed_loop"
    elif study.asked.file.stopping.max_requests is not None:
        found = "leave stopping out of the workload"
    elif study.asked.file.sessions is not None:
        found = "leave sessions out of the workload"
    elif study.compare_by == "concurrency":
        found = "compare by another column than concurrency"
    elif not all(set(part.needs) <= GUESSED for part in study.parts):
        found = "ask for objectives that are means or rates"
    elif study.screens:
        found = "leave screens out"
    elif any(_is_mixed(study, branch.name) for branch in study.space.branches):
        found = "leave out conditions on layouts and loads at once"
    return found


def n_candidates(study: Study, enough: int) -> int:
    """Candidates of `study`, counted no further than beyond `enough`."""
    total = 0
    for block in blocks(study.space, study.catalog):
        total += block.lattice.frame.height * numeric(study.space, block.branch.name).height
        if total > enough:
            break
    return total


def _is_mixed(study: Study, branch: str) -> bool:
    columns = set(numeric(study.space, branch).columns)
    wheres = study.space.branch(branch).where
    return any(not each.columns <= columns and each.columns & set(NUMERIC) for each in wheres)
