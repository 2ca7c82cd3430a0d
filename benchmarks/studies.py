"""Whole studies, from YAML to report: CPU seconds, peak memory and what the search had to simulate.

    python benchmarks/studies.py [v3 | wide]

`v3` is the job "DeepSeek-V3 on 32 H200, 4,000 tokens in and 1,000 out, the best layouts under TTFT
2 s and TPOT 40 ms", prefill and decode together and apart, with a budget of 20 points: its
certificate, which is printed, says what that leaves open. `wide` is the same model on four GPU
types by three engines, seven contexts and clusters of 8 to 512 GPUs: 2.9e8 candidates, of which the
likely best are searched with a budget of 8 points a context, on all cores (CPU seconds are then
those of the driver). Each runs as a user would run it, in a process of its own, without stored
results; code is compiled beforehand.
"""

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

KIB = 1024

V3 = """
question: Which layout serves DeepSeek-V3 on 32 H200 under TTFT 2 s and TPOT 40 ms?
space:
  model: deepseek-v3
  gpu: h200-sxm
  n_gpus: 32
  engine: sglang@0.5
  precision: {weights: fp8_block, kv: bf16}
  context: {isl: 4000, osl: 1000}
  batch: {powers_of: 2, from: 1, to: 1024}
  any_of:
    together:
      layout: {tp: {powers_of: 2, to: 32}, dp: {powers_of: 2, to: 32}, pp: [1, 2, 4], ep: auto}
    apart:
      prefill:
        layout: {tp: {powers_of: 2, to: 16}, dp: {powers_of: 2, to: 16}, pp: [1, 2], ep: auto}
      decode: {layout: {tp: {powers_of: 2, to: 16}, dp: {powers_of: 2, to: 16}, ep: auto}}
      split: auto
workload: {lengths: {uniform: [0.8, 1.0]}, requests: 10 x concurrency}
load: closed_loop
slo: {ttft: 2 s, tpot: 40 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
search: {method: bound, seeds: 1, tolerance: 2%, budget: 20}
price: {h200-sxm: {usd_per_hour: 2.60 USD/h, source: "assumed for the benchmark"}}
"""

WIDE = """
question: Which GPU, engine and layout serve DeepSeek-V3 best, from 8 to 512 GPUs?
space:
  model: deepseek-v3
  gpu: [h100-sxm, h200-sxm, b200-sxm, h20-96gb]
  n_gpus: {powers_of: 2, from: 8, to: 512}
  engine: [sglang@0.5, vllm@0.19, trtllm@1.1]
  precision: {weights: fp8_block, kv: bf16}
  context:
    - {isl: 500, osl: 500}
    - {isl: 1000, osl: 1000}
    - {isl: 4000, osl: 1000}
    - {isl: 8000, osl: 1000}
    - {isl: 1000, osl: 4000}
    - {isl: 16000, osl: 500}
    - {isl: 32000, osl: 500}
  batch: {powers_of: 2, from: 1, to: 1024}
  any_of:
    together:
      layout: {tp: {powers_of: 2, to: 32}, dp: {powers_of: 2, to: 64}, pp: [1, 2, 4], ep: auto}
    apart:
      prefill:
        layout: {tp: {powers_of: 2, to: 16}, dp: {powers_of: 2, to: 16}, pp: [1, 2], ep: auto}
      decode: {layout: {tp: {powers_of: 2, to: 16}, dp: {powers_of: 2, to: 64}, ep: auto}}
      split: auto
workload: {lengths: {uniform: [0.8, 1.0]}, requests: 10 x concurrency}
load: closed_loop
compare_by: context
slo: {ttft: 2 s, tpot: 40 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
search: {method: bound, seeds: 1, tolerance: 2%, budget: 8}
"""
STUDIES = {"v3": V3, "wide": WIDE}
WORKERS = {"v3": "0", "wide": "auto"}


def measured(name, folder):
    """Run one study by the command line and print what it took."""
    path = folder / f"{name}.yaml"
    path.write_text(STUDIES[name].lstrip())
    command = [sys.executable, "-m", "dse", "run", path, "--quiet"]
    command += ["--workers", WORKERS[name]]
    command += ["--store", folder / f"{name}.duckdb", "--out", folder / name]
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(done.stdout)
    if done.returncode:
        print(done.stderr)
    peak = after.ru_maxrss * KIB / 1e9
    took = f"CPU {cpu_s:.1f} s, wall {time.perf_counter() - began:.1f} s"
    print(f"{name}: {took}, peak memory {peak:.2f} GB, exit {done.returncode}", flush=True)


def main():
    """Measure the studies asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("study", nargs="*", choices=[*STUDIES, []], help="default: v3")
    with tempfile.TemporaryDirectory() as folder:
        for name in parser.parse_args().study or ["v3"]:
            measured(name, Path(folder))


if __name__ == "__main__":
    main()
