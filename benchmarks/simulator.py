"""How fast the simulator is: steps per second on one core, and the job of a study's point.

Run `python benchmarks/simulator.py`. Times are CPU seconds of this process, the best of five runs
after compilation. The peers' figures are theirs, on their machines: Vidur 3 to 10 thousand steps a
second, inference-lab (Rust) 145 thousand at batch 64.
"""

import argparse
import resource
import time
from collections.abc import Callable
from functools import partial

from dse.hardware import GPU, Fabric, Link
from dse.model.attention.gqa import GQA
from dse.model.ffn.dense import Dense
from dse.model.model import LayerGroup, Model
from dse.model.precision import Precision
from dse.serving.arrivals import ClosedLoop, Poisson
from dse.serving.deployment import Deployment, Pool
from dse.serving.engine import Engine, EngineHost, EngineMemory, EngineRules
from dse.serving.layout import Layout
from dse.serving.lengths import Lognormal, Uniform
from dse.serving.workload import Workload
from dse.sim import Requests, RunSpec, compile_run, realised_requests, simulate
from dse.sim.fast import run_fast
from dse.sim.reference import run_reference

PEER_STEPS_PER_S = 145e3
TARGET_STEPS_PER_S = 2e6
TARGET_POISSON_S = 0.1
SOURCE = "round numbers near an H100 SXM and Llama-3-70B"


def deployment(kv_pool_bytes: float | None = None) -> Deployment:
    """A 70B model on eight GPUs, TP 8, with a vLLM-like engine."""
    link = Link(n_gpus=8, bytes_per_s=450e9, latency_s=8e-6, latency_floor_s=3e-6)
    out = Link(n_gpus=1024, bytes_per_s=50e9, latency_s=2e-5, latency_floor_s=1e-5)
    gpu = GPU(
        name="bench", vendor="none", architecture="none", hbm_bytes=85e9,
        hbm_datasheet_bytes=80e9, hbm_bytes_per_s=3.35e12,
        peak_flop_per_s={"bf16": 989e12, "fp8": 1979e12, "fp32": 60e12}, sfu_op_per_s=3.7e12,
        l2_bytes=50e6, sm_count=132, boost_hz=1.75e9, tdp_watts=700.0, idle_watts=90.0,
        fabric="bench", source=SOURCE,
    )  # fmt: skip
    engine = Engine(
        name="bench", version="0",
        memory=EngineMemory(
            pool_rule="of_total", context_bytes=1e9, graph_bytes=1e9, multi_gpu_bytes=1e9,
            activation_bytes_per_token_width=8.0,
        ),
        host=EngineHost(step_s=1e-3, request_s=1e-5, prefill_token_s=0.0, arrival_s=2e-3),
        rules=EngineRules(), source=SOURCE, max_num_batched_tokens=8192, max_num_seqs=256,
        block_tokens=16, hbm_fraction=0.9,
    )  # fmt: skip
    layers = LayerGroup(
        repeat=80, attention=GQA(n_heads=64, n_kv_heads=8, d_head=128), ffn=Dense(d_ff=28672)
    )
    model = Model(
        name="70b", d_model=8192, vocab_size=128256, layers=(layers,), tied_embeddings=False,
        max_context_tokens=131072, source=SOURCE,
    )  # fmt: skip
    fabric = Fabric(name="bench", kind="switch", scale_up=link, scale_out=out, source=SOURCE)
    pool = Pool(gpu=gpu, fabric=fabric, layout=Layout(tp=8), engine=engine)
    return Deployment(
        model=model, precision=Precision(), pools=(pool,), kv_pool_bytes=kv_pool_bytes
    )


def loaded(batch: int, n_requests: int) -> tuple[RunSpec, Requests]:
    """A closed loop whose KV just about fits: log-normal answers, a shared prompt, caching on."""
    workload = Workload(
        arrivals=ClosedLoop(concurrency=batch),
        n_requests=n_requests,
        isl=Uniform(low_tokens=600, high_tokens=1400),
        osl=Lognormal(mean_tokens=1024, cv=1.0, max_tokens=8192),
        shared_prefix_tokens=512,
        n_prefixes=4,
    )
    # Mean live context: prompt and, as long answers live longer, more than half of the mean answer.
    tokens = batch * (1000 + 1024) * 0.97
    per_token = 80 * 2 * 128 * 2.0
    spec = compile_run(deployment(kv_pool_bytes=tokens * per_token), "roofline")
    return spec, realised_requests(workload, 0)


def best_of(times: int, job: Callable[[], object]) -> float:
    """Least CPU seconds of `job`."""
    found = []
    for _ in range(times):
        start = time.process_time()
        job()
        found.append(time.process_time() - start)
    return min(found)


def steps_table(per_batch: int) -> None:
    """Steps and request-steps per second of both paths."""
    print(
        "| batch | requests | steps | preempted | KV peak | reference steps/s | fast steps/s "
        "| request-steps/s | x reference | x 145 k | target |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for batch in (16, 64, 256):
        spec, requests = loaded(batch, per_batch * batch)
        few = loaded(batch, 2 * batch)[1]
        outcome = run_fast(spec, requests)
        total = outcome.totals[0]
        fast = total.n_steps / best_of(5, partial(run_fast, spec, requests))
        slow_steps = run_fast(spec, few).totals[0].n_steps
        slow = slow_steps / best_of(1, partial(run_reference, spec, few))
        met = "met" if batch != 64 or fast >= TARGET_STEPS_PER_S else "missed"
        print(
            f"| {batch} | {len(requests)} | {total.n_steps} | {int(outcome.n_preemptions.sum())} "
            f"| {total.kv_peak / spec.pools[0].kv.n_units:.2f} | {slow:,.0f} | {fast:,.0f} "
            f"| {fast * total.seqs_s / total.busy_s:,.0f} | {fast / slow:,.0f} "
            f"| {fast / PEER_STEPS_PER_S:.1f} | {met} |"
        )


def poisson_row() -> None:
    """4,000 requests at random times, one call of `simulate`, tables and metrics included."""
    workload = Workload(
        arrivals=Poisson(req_per_s=8.0),
        n_requests=4000,
        isl=Lognormal(mean_tokens=1024, cv=1.0, max_tokens=16384),
        osl=Lognormal(mean_tokens=256, cv=1.0, max_tokens=4096),
    )
    job = deployment()
    metrics = simulate(job, workload, 0, tier="roofline", path="fast")
    seconds = best_of(3, lambda: simulate(job, workload, 0, tier="roofline", path="fast"))
    met = "met" if seconds < TARGET_POISSON_S else "missed"
    print(
        f"\n4,000 Poisson requests, 70B TP8: {seconds:.3f} CPU s, {metrics.n_steps} steps, "
        f"{metrics.output_tok_per_s:,.0f} tok/s (target < {TARGET_POISSON_S} s: {met})"
    )


def memory_row() -> None:
    """Peak memory of runs with ten times the tokens."""
    print("\n| mean OSL | steps | peak RSS (MB) |\n|---|---|---|")
    for mean in (100, 1000, 10000):
        workload = Workload(
            arrivals=ClosedLoop(concurrency=64),
            n_requests=640,
            isl=Uniform(low_tokens=600, high_tokens=1400),
            osl=Lognormal(mean_tokens=mean, cv=1.0, max_tokens=8 * mean),
        )
        metrics = simulate(deployment(), workload, 0, tier="roofline", path="fast")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"| {mean} | {metrics.n_steps} | {peak:.0f} |")


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--per-batch", type=int, default=20, help="requests per seat")
    steps_table(parser.parse_args().per_batch)
    poisson_row()
    memory_row()


if __name__ == "__main__":
    main()
