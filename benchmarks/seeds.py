"""How far the medians of two seeds lie apart: `python -m benchmarks.seeds`.

Closed loops as InferenceX runs them: uniform 0.8 to 1.0 of the lengths, ten prompts for each
request in flight. A row is a loop: the mean difference of two of eight seeds and the range of all
eight, in percent of the median, for TTFT and TPOT, and the share of the KV pool that was full.
"""

from itertools import combinations
from statistics import fmean, median

from dse.catalog import Catalog
from dse.hardware import DType
from dse.serving.arrivals import ClosedLoop
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.lengths import Uniform
from dse.serving.workload import Workload
from dse.sim import compile_run, simulate
from dse.space.precision import precision_of

SEEDS = 8
DEPLOYED = (
    ("llama-3.1-8b", "h100-sxm", 1, DType.BF16),
    ("llama-3.3-70b", "h100-sxm", 8, DType.BF16),
    ("deepseek-r1", "h200-sxm", 8, DType.FP8_BLOCK),
)
LENGTHS = ((1024, 1024), (8192, 1024), (1024, 8192))
CONCURRENCY = (4, 16, 64, 256)


def deployed(model_name: str, gpu_name: str, tp: int, weights: DType) -> Deployment:
    """One replica on the default vLLM profile."""
    catalog = Catalog.load()
    model, gpu = catalog.model(model_name), catalog.gpu(gpu_name)
    engine, fabric = catalog.engine("vllm"), catalog.fabric(gpu.fabric)
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(tp=tp), engine=engine)
    precision = precision_of(model, gpu, weights=weights, kv=DType.BF16)
    return Deployment(model=model, precision=precision, pools=(pool,))


def loop(isl_tokens: int, osl_tokens: int, concurrency: int) -> Workload:
    """The closed loop of that size."""
    isl, osl = (
        Uniform(low_tokens=int(0.8 * top), high_tokens=top) for top in (isl_tokens, osl_tokens)
    )
    arrivals = ClosedLoop(concurrency=concurrency)
    return Workload(arrivals=arrivals, n_requests=10 * concurrency, isl=isl, osl=osl)


def apart(values: list[float]) -> tuple[float, float]:
    """Mean difference of two, and range of all, over the median."""
    middle = median(values)
    pairs = fmean(abs(a - b) for a, b in combinations(values, 2))
    return pairs / middle, (max(values) - min(values)) / middle


def main() -> None:
    """Print the table and how many loops keep two seeds within 2%."""
    print(f"{'':44s}  TTFT: two, all    TPOT: two, all   KV")
    kept = fits = n = 0
    for each in DEPLOYED:
        deployment = deployed(*each)
        spec = compile_run(deployment)
        for isl, osl in LENGTHS:
            for concurrency in CONCURRENCY:
                load = loop(isl, osl, concurrency)
                runs = [simulate(deployment, load, seed, spec=spec) for seed in range(SEEDS)]
                ttft = apart([run.ttft.p50 for run in runs])
                tpot = apart([run.tpot.p50 for run in runs])
                full = max(run.kv_peak_fraction for run in runs)
                n, fits = n + 1, fits + (full < 1.0)
                kept += full < 1.0 and ttft[0] < 0.02 and tpot[0] < 0.02
                name = f"{each[0]} TP{each[2]} {isl}/{osl} concurrency {concurrency}"
                shares = "  ".join(f"{share:7.2%}" for share in (*ttft, *tpot))
                print(f"{name:44s}{shares}  {full:4.0%}")
    print(f"two seeds within 2%: {kept} of {fits} loops that fit the KV pool, of {n} loops in all")


if __name__ == "__main__":
    main()
