"""The saturation model as a predictor of measured rows."""

import numpy as np

from dse.evidence.case import Case
from dse.saturation.apart import throughput_apart
from dse.saturation.constants import SaturationFit, shipped_fit
from dse.saturation.curve import curve_of, stack
from dse.saturation.demand import load_of
from dse.saturation.model import Load, Steady, throughput
from dse.saturation.operating import at_rate
from dse.serving.deployment import Deployment
from dse.serving.workload import Workload


def by_saturation(
    case: Case, *, tier: str = "auto", fit: SaturationFit | None = None
) -> dict[str, float]:
    """Metrics of a case in SI, latencies as means whatever the row's statistic.

    Priced by `fit`, else by the fit that ships for the GPU and engine version, else by the kernel
    model (always the latter where `tier` names one).
    """
    assert case.deployment is not None
    assert case.workload is not None
    found = predict(case.deployment, case.workload, fit=fit, shipped=tier == "auto")
    prompt = float(np.asarray(load_of(case.workload, 1.0).isl_tokens))
    requests = float(found.req_per_s)
    output = float(found.output_tok_per_s)
    return {
        "ttft_s": float(found.ttft_s),
        "tpot_s": float(found.tpot_s),
        "e2e_s": float(found.e2e_s),
        "output_tok_per_s": output,
        "total_tok_per_s": output + requests * prompt,
    }


def predict(
    deployment: Deployment,
    workload: Workload,
    *,
    fit: SaturationFit | None = None,
    shipped: bool = True,
) -> Steady:
    """The state of `deployment` under `workload`, closed loop, job or rate, one pool or two."""
    pool = deployment.pool("decode")
    if fit is None and shipped:
        fit = shipped_fit(pool.gpu.name, pool.engine.label)
    curves = stack([curve_of(deployment, fit)])
    caching = pool.engine.prefix_caching
    rate = getattr(workload.arrivals, "req_per_s", None)
    load = load_of(workload, 1.0 if rate else None, prefix_caching=caching)
    if deployment.is_disaggregated:
        before = stack([curve_of(deployment, fit, phase="prefill")])
        return throughput_apart(before, curves, 0, load, _transfer_s(deployment, load))
    return at_rate(curves, 0, load, rate) if rate else throughput(curves, 0, load)


def _transfer_s(deployment: Deployment, load: Load) -> float:
    """Seconds that the KV of a prompt takes between the pools, over all ranks of a replica."""
    from dse.cost.memory import rank_memory

    link = deployment.interconnect
    if link is None:
        return 0.0
    memory = rank_memory(deployment, deployment.pool("prefill"))
    n_bytes = memory.request_bytes(float(np.asarray(load.isl_tokens)))
    return link.latency_s + n_bytes / link.bytes_per_s
