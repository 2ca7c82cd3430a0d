"""Speed of the walls: every point judged by itself, and a space of 1e9 points pruned exactly.

    python benchmarks/walls.py [--points 1e9] [--threads 2]

Structures are DeepSeek-V3 and two smaller models on variations of three GPUs in every legal layout;
numeric axes are contexts and requests in flight. Prints rates, time, memory, and whether pruning
and brute force agree on a sample.
"""

import argparse
import itertools
import random
import resource
import time
from dataclasses import replace

import numpy as np

from dse.catalog import Catalog
from dse.hardware.dtype import DType
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.legality import check
from dse.serving.slo import SLO
from dse.space.precision import precision_of
from dse.walls.block import SURVIVOR, Load, brute_force, matrix_of, prune, walls_of
from dse.walls.facts import FactsCache, facts_of

MODELS = ("deepseek-v3", "qwen3-235b-a22b", "llama-3.1-70b")
GPUS = ("h200-sxm", "h100-sxm", "b200-sxm")
DEGREES = (1, 2, 4, 8, 16, 32)
SAMPLE = 200


def structures(wanted, catalog):
    """Legal deployments: models × GPUs with varied memory and bandwidth × layouts × KV formats."""
    engine = catalog.engine("sglang")
    found = []
    factors = [1.0 + 0.05 * step for step in range(-10, 11)]
    legal = {}
    for hbm, bandwidth in itertools.product(factors, factors):
        for name, card in itertools.product(MODELS, GPUS):
            model, base = catalog.model(name), catalog.gpu(card)
            gpu = replace(
                base,
                hbm_bytes=base.hbm_bytes * hbm,
                hbm_bytes_per_s=base.hbm_bytes_per_s * bandwidth,
            )
            fabric = catalog.fabric(base.fabric)
            if (name, card) not in legal:
                legal[name, card] = list(legal_layouts(model, base, engine, fabric))
            for precision, layout in legal[name, card]:
                pool = Pool(gpu=gpu, fabric=fabric, layout=layout, engine=engine)
                found.append(Deployment(model=model, precision=precision, pools=(pool,)))
                if len(found) == wanted:
                    return found
    return found


def legal_layouts(model, gpu, engine, fabric):
    """Formats and layouts of up to 64 GPUs that the engine can start."""
    for kv in (DType.BF16, DType.FP8):
        precision = precision_of(model, gpu, weights=model.checkpoint, kv=kv)
        for tp, dp, pp in itertools.product(DEGREES, DEGREES, (1, 2, 4)):
            for ep in {1, tp * dp} if model.is_moe else {1}:
                layout = Layout(tp=tp, dp=dp, pp=pp, ep=ep)
                if (dp > 1 and not model.is_moe) or layout.n_gpus > 64:
                    continue
                if not check(model, precision, layout, engine, gpu, fabric=fabric, suggest=False):
                    yield precision, layout


def load_of(n_points, n_structures):
    """Contexts and batches that make so many points."""
    per_structure = max(1, round(n_points / n_structures))
    n_contexts = min(100, max(1, round(per_structure**0.5)))
    n_batches = max(1, per_structure // n_contexts)
    lengths = [round(2 ** (7 + 9 * i / n_contexts)) for i in range(n_contexts)]
    batches = np.unique(np.round(2 ** np.linspace(0, 12, 4 * n_batches)).astype(int))
    chosen = batches[np.linspace(0, len(batches) - 1, n_batches).astype(int)]
    return Load(
        isl_tokens=lengths,
        osl_tokens=[max(2, n // 4) for n in lengths],
        batch=sorted({int(n) for n in chosen}),
        slo=SLO(tpot_s=0.04, ttft_s=2.0),
    )


def main():
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=float, default=1e9)
    parser.add_argument("--structures", type=int, default=50_000)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--brute", type=float, default=1e8, help="points to judge one by one")
    args = parser.parse_args()
    catalog = Catalog.load()
    deployments = structures(args.structures, catalog)
    load = load_of(args.points, len(deployments))

    start, cpu = time.perf_counter(), time.process_time()
    cache = FactsCache()
    matrix, places = matrix_of([facts_of(each, cache) for each in deployments])
    facts_s = time.perf_counter() - start
    start = time.perf_counter()
    found = prune(matrix, places, load, threads=args.threads)
    prune_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
    per_structure = load.shape[0] * load.shape[1]
    print(f"{len(deployments):,} structures x {load.shape[0]} contexts x {load.shape[1]} batches")
    took = f"facts {facts_s:.2f} s + walls {prune_s:.2f} s, CPU {cpu_s:.2f} s"
    print(f"pruned exactly   {found.n_points:.3g} points: {took}")
    print(f"                 {found.n_survivors:,} survive; killed {found.killed}")

    rows = max(1, round(args.brute / per_structure))
    start, cpu, n_points = time.perf_counter(), time.process_time(), 0
    for _, codes in brute_force(matrix[:rows], places, load, threads=args.threads):
        n_points += codes.size
    brute_s, brute_cpu_s = time.perf_counter() - start, time.process_time() - cpu
    rate, cpu_rate = n_points / brute_s, n_points / brute_cpu_s
    print(f"one by one       {n_points:.3g} points: {brute_s:.2f} s, {rate:.3g} points/s")
    print(f"                 {cpu_rate:.3g} points per CPU second")

    sample = sorted(random.Random(0).sample(range(len(matrix)), min(SAMPLE, len(matrix))))
    expected = np.concatenate([codes for _, codes in brute_force(matrix[sample], places, load)])
    survive = expected == SURVIVOR
    same = np.array_equal(survive, np.arange(load.shape[1]) < found.cuts[sample][:, :, None])
    print(f"agree            {same} on {survive.size:.3g} points ({survive.mean():.1%} survive)")
    print(f"walls            {', '.join(wall.kind for wall in walls_of(load))}")
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"peak memory      {rss:.2f} GiB")


if __name__ == "__main__":
    main()
