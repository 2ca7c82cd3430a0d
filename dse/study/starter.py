"""The study and the space that `dse init` writes."""

from __future__ import annotations

import re

from dse.base.errors import UserError

__all__ = ["starter"]

_SPACE = """\
# What may vary. `dse check spaces/{name}.yaml` counts it; `dse schema space` is its JSON Schema.
description: Qwen3-32B on one node of eight GPUs

model: qwen3-32b               # a name of `dse catalog list model`, a list, a quoted glob, a file
gpu: [h100-sxm, h200-sxm]      # or a tag (hopper), or {{base: h200-sxm, vary: {{hbm: [192 GB]}}}}
engine: vllm@0.19              # without a version: the newest profile
n_gpus: 8                      # size of the cluster; replicas = n_gpus / GPUs of one replica
precision: {{weights: [bf16, fp8], kv: bf16}}
context: {{isl: 2000, osl: 500}} # prompt and answer in tokens; a list of such is a choice

# A list is a choice; so are {{from: 8, to: 64, step: 8}}, {{powers_of: 2, from: 1, to: 256}} and
# {{log: [1, 1000], per_decade: 5}}.
batch: {{powers_of: 2, from: 1, to: 256}}   # requests that run at once in one replica
layout: {{tp: [1, 2, 4, 8]}}     # also dp, pp, cp, and ep (`auto`: every legal one)

# Conditions are SQL on the words above and on facts of the catalog, in their units.
where: [hbm >= 70 GB, batch * n_replicas <= 2048]
"""

_STUDY = """\
# The question asked of the space. `dse check studies/{name}.yaml` says what it costs to answer.
question: How is Qwen3-32B best served on eight GPUs, and what does each choice cost?
space: ../spaces/{name}.yaml

# Lengths are multiples of the context's; a run has this many requests.
workload: {{lengths: {{uniform: [0.8, 1.0]}}, requests: 10 x concurrency}}

# closed_loop: concurrency = batch x replicas. Or {{concurrency: [64, 256]}}, {{req_per_s: [1, 2]}},
# or max_goodput: the highest rate that keeps the SLO (the space then has no batch).
load: closed_loop

# A request is good when it keeps every bound; `attainment` of them must.
slo: {{ttft: 2 s, tpot: 40 ms, attainment: 0.95}}

objectives: [output_tok_per_s_per_gpu, tpot_mean]
# constraints: [ttft_p99 <= 4 s]        # on results
# screens: [tp >= 2]                    # your own cuts before simulating, counted apart from walls

# bound: the exact front but for the tolerance, with a certificate. Or exhaustive, optuna.
search: {{method: bound, seeds: 1, tolerance: 2%}}

# Prices simulate nothing; a list is a sensitivity axis of the report.
price:
  h100-sxm: [1.90 USD/h, 2.50 USD/h]
  h200-sxm: 3.20 USD/h
compare_by: gpu

# overrides: {{long: {{space: {{context: {{isl: 16Ki, osl: 1Ki}}}}}}}}
# scenarios: {{today: [], longer: [long]}}            # dse run --scenario longer
"""


def starter(name: str) -> dict[str, str]:
    """Return the text of each starter file by its path; `name` is the stem of both."""
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name):
        raise UserError(f"{name!r} is no name for a file", "use letters, digits, - and _")
    return {
        f"spaces/{name}.yaml": _SPACE.format(name=name),
        f"studies/{name}.yaml": _STUDY.format(name=name),
    }
