"""The saturation model beside the simulator, on random legal deployments under random closed loops.

Both price steps by the same kernel tables, so what differs is queueing, scheduling and preemption:
the closed form against every step.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

import numpy as np

from dse.base.errors import DseError
from dse.catalog.catalog import Catalog
from dse.cost.memory import rank_memory
from dse.hardware.dtype import DType
from dse.model.model import Model
from dse.model.precision import Precision
from dse.saturation.curve import curve_of, stack
from dse.saturation.demand import load_of
from dse.saturation.model import throughput
from dse.serving.arrivals import ClosedLoop
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.serving.lengths import Constant, Lengths, Lognormal, Uniform
from dse.serving.workload import Workload
from dse.sim.simulate import simulate

MODELS: Final[Mapping[str, tuple[str, ...]]] = {
    "dense": (
        "llama-3.1-8b", "llama-3.1-70b", "qwen3-32b", "qwen2.5-7b", "mistral-small-24b", "opt-2.7b",
    ),
    "moe": ("qwen3-30b-a3b", "qwen3-235b-a22b", "mixtral-8x7b", "gpt-oss-120b"),
    "mla": ("deepseek-v3", "deepseek-v2-lite"),
}  # fmt: skip
GPUS: Final = ("h100-sxm", "h200-sxm", "b200-sxm", "a100-sxm")
ENGINES: Final = ("vllm@0.19", "vllm@0.9", "sglang@0.5", "trtllm@1.0")
REQUESTS_PER_PLACE: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One random deployment under one closed loop; `family` is dense, moe or mla."""

    family: str
    deployment: Deployment
    workload: Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Output tokens/s and mean TPOT of both, one entry a case."""

    cases: tuple[Case, ...]
    simulated_tok_per_s: tuple[float, ...]
    predicted_tok_per_s: tuple[float, ...]
    simulated_tpot_s: tuple[float, ...]
    predicted_tpot_s: tuple[float, ...]

    def rank_correlation(self) -> float:
        """Spearman's rank correlation of throughput."""
        from scipy.stats import spearmanr

        return float(spearmanr(self.simulated_tok_per_s, self.predicted_tok_per_s).statistic)

    def median_difference(self, family: str | None = None) -> float:
        """Median of |predicted ÷ simulated − 1| of throughput."""
        return float(np.median(self.differences(family)))

    def differences(self, family: str | None = None) -> list[float]:
        """|predicted ÷ simulated − 1| of throughput of each case (of one family)."""
        pairs = zip(self.cases, self.predicted_tok_per_s, self.simulated_tok_per_s, strict=True)
        return [abs(p / s - 1.0) for case, p, s in pairs if family in (None, case.family)]


def agreement(
    n: int, seed: int = 0, catalog: Catalog | None = None, most_requests: int = 2000
) -> Agreement:
    """Compare `n` random cases; the same seed gives the same ones."""
    found: list[tuple[Case, float, float, float, float]] = []
    for case in random_cases(catalog or Catalog.load(), Random(seed), most_requests):
        engine = case.deployment.pools[0].engine
        try:
            simulated = simulate(case.deployment, case.workload, seed=0)
        except DseError:
            continue  # a request that the pool refuses: both serve nothing
        load = load_of(case.workload, prefix_caching=engine.prefix_caching)
        steady = throughput(stack([curve_of(case.deployment)]), 0, load)
        rates = simulated.output_tok_per_s, float(steady.output_tok_per_s)
        found.append((case, *rates, simulated.tpot.mean, float(steady.tpot_s)))
        if len(found) == n:
            break
    cases, *columns = zip(*found, strict=True)
    return Agreement(
        cases=cases,
        simulated_tok_per_s=columns[0],
        predicted_tok_per_s=columns[1],
        simulated_tpot_s=columns[2],
        predicted_tpot_s=columns[3],
    )


def random_cases(catalog: Catalog, random: Random, most_requests: int) -> Iterator[Case]:
    """Legal deployments with room for at least four requests, without end."""
    while True:
        family = random.choice(tuple(MODELS))
        model = catalog.model(random.choice(MODELS[family]))
        deployment = _deployment(catalog, model, random)
        workload = _workload(random, most_requests)
        if deployment is None or workload.isl is None or workload.osl is None:
            continue
        longest = workload.isl.at(0.999) + workload.osl.at(0.999)
        memory = rank_memory(deployment, deployment.pools[0])
        if longest <= model.max_context_tokens and memory.b_max(longest) >= 4:
            yield Case(family=family, deployment=deployment, workload=workload)


def _deployment(catalog: Catalog, model: Model, random: Random) -> Deployment | None:
    gpu = catalog.gpu(random.choice(GPUS))
    engine = catalog.engine(random.choice(ENGINES))
    engine = replace(
        engine,
        max_num_batched_tokens=random.choice((1024, 2048, 8192)),
        max_num_seqs=random.choice((64, 256, 1024)),
        prefix_caching=False,
    )
    weights = model.checkpoint if gpu.supports(model.checkpoint) else DType.BF16
    precision = Precision(
        weights=weights,
        activations=DType.FP8 if weights.compute == "fp8" else DType.BF16,
        exceptions=model.exceptions,
        quantised=model.quantised,
    )
    layout = _layout(model, random)
    fabric = catalog.fabric(gpu.fabric)
    if check(model, precision, layout, engine, gpu, fabric=fabric, suggest=False):
        return None
    pool = Pool(gpu=gpu, fabric=fabric, layout=layout, engine=engine)
    return Deployment(model=model, precision=precision, pools=(pool,))


def _layout(model: Model, random: Random) -> Layout:
    tp = random.choice((1, 2, 4, 8))
    if not model.is_moe:
        return Layout(tp=tp)
    ranks = random.choice((1, 2, 4, 8))
    return random.choice((Layout(tp=tp), Layout(tp=ranks, ep=ranks), Layout(dp=ranks, ep=ranks)))


def _workload(random: Random, most_requests: int) -> Workload:
    concurrency = round(2 ** random.uniform(0, 9))
    return Workload(
        arrivals=ClosedLoop(concurrency=concurrency),
        n_requests=min(max(concurrency * REQUESTS_PER_PLACE, 20), most_requests),
        isl=_lengths(random, 2 ** random.uniform(6, 13)),
        osl=_lengths(random, 2 ** random.uniform(5, 10)),
    )


def _lengths(random: Random, mean: float) -> Lengths:
    tokens = round(mean)
    kind = random.choice(("constant", "uniform", "lognormal"))
    if kind == "constant":
        return Constant(n_tokens=tokens)
    if kind == "uniform":
        return Uniform(low_tokens=round(0.8 * tokens), high_tokens=tokens)
    return Lognormal(mean_tokens=tokens, cv=0.5, max_tokens=4 * tokens)
