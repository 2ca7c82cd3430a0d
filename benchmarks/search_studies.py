"""Larger studies for `benchmarks/search.py`, of 1,400 to 2,800 survivors each.

Each asks what a user asks of one model on one node or a few: which GPU, engine, precision and
layout, at which load. Between them are dense and MoE models, prefill and decode together and apart,
two and three objectives, with and without an SLO. They were written down before any of them was
searched, sized only by what an exhaustive search takes (1 to 5 CPU minutes), and none was left out;
after the first run one GPU without a price was taken out of the second.
"""

FINE = "[1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256]"
LARGE = {
    "70B, GPUs and engines": f"""
question: Which GPU, engine and precision serve Llama-3.3-70B on one node?
space:
  model: llama-3.3-70b
  gpu: [h100-sxm, h200-sxm, b200-sxm]
  n_gpus: 8
  engine: [vllm@0.19, sglang@0.5]
  precision: {{weights: [bf16, fp8], kv: [bf16, fp8]}}
  context: {{isl: 2000, osl: 500}}
  batch: {FINE}
  layout: {{tp: [1, 2, 4, 8], pp: [1, 2]}}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
    "32B, cost under an SLO": f"""
question: The cheapest Qwen3-32B at 40 ms, and what more speed costs
space:
  model: qwen3-32b
  gpu: [h100-sxm, h200-sxm, b200-sxm]
  n_gpus: 8
  engine: [vllm@0.19, sglang@0.5]
  precision: {{weights: [bf16, fp8], kv: [bf16, fp8]}}
  context: {{isl: 1000, osl: 1000}}
  batch: {FINE}
  layout: {{tp: [1, 2, 4, 8]}}
slo: {{ttft: 2 s, tpot: 40 ms, attainment: 0.95}}
objectives: [usd_per_mtok_output, tok_per_s_per_user]
""",
    "8B, three objectives": f"""
question: Llama-3.1-8B between throughput, speed and first token
space:
  model: llama-3.1-8b
  gpu: [h100-sxm, h200-sxm, a100-sxm, l40s]
  n_gpus: 4
  engine: [vllm@0.19, sglang@0.5]
  precision: {{weights: [bf16, fp8], kv: [bf16, fp8]}}
  context: {{isl: 500, osl: 500}}
  batch: {FINE}
  layout: {{tp: [1, 2, 4]}}
objectives: [output_tok_per_s_per_gpu, tpot_mean, ttft_mean]
""",
    "V3, expert and data parallel": """
question: Which layout serves DeepSeek-V3 on 16 GPUs?
space:
  model: deepseek-v3
  gpu: [h200-sxm, b200-sxm]
  n_gpus: 16
  engine: sglang@0.5
  precision: {weights: fp8-block, kv: [bf16, fp8]}
  context: {isl: 4000, osl: 1000}
  batch: {powers_of: 2, from: 1, to: 256}
  layout: {tp: [1, 2, 4, 8, 16], dp: [1, 2, 4, 8, 16], pp: [1, 2], ep: auto}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
    "30B-A3B, response time": f"""
question: Qwen3-30B-A3B between throughput and the time to the whole answer
space:
  model: qwen3-30b-a3b
  gpu: [h100-sxm, h200-sxm]
  n_gpus: 4
  engine: [vllm@0.19, sglang@0.5]
  precision: {{weights: [bf16, fp8], kv: [bf16, fp8]}}
  context: {{isl: 1000, osl: 300}}
  batch: {FINE}
  layout: {{tp: [1, 2, 4], ep: auto}}
objectives: [output_tok_per_s_per_gpu, e2e_mean]
""",
    "32B, apart or together": """
question: Qwen3-32B, prefill and decode apart or together
space:
  model: qwen3-32b
  gpu: [h100-sxm, h200-sxm]
  n_gpus: [8, 16]
  engine: vllm@0.19
  precision: {weights: fp8, kv: [bf16, fp8]}
  context: {isl: 4000, osl: 500}
  batch: {powers_of: 2, from: 1, to: 128}
  any_of:
    together: {layout: {tp: [1, 2, 4, 8]}}
    apart:
      prefill: {layout: {tp: [1, 2, 4]}}
      decode: {layout: {tp: [1, 2, 4]}}
      split: auto
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
    "235B, apart or together under an SLO": """
question: Qwen3-235B-A22B under TTFT 2 s and TPOT 40 ms, prefill and decode apart or together
space:
  model: qwen3-235b-a22b
  gpu: h200-sxm
  n_gpus: 16
  engine: sglang@0.5
  precision: {weights: fp8, kv: fp8}
  context: {isl: 2000, osl: 500}
  batch: {powers_of: 2, from: 1, to: 256}
  any_of:
    together: {layout: {tp: [2, 4, 8], dp: [1, 2, 4], ep: auto}}
    apart:
      prefill: {layout: {tp: [2, 4, 8], ep: auto}}
      decode: {layout: {tp: [2, 4, 8], dp: [1, 2, 4], ep: auto}}
      split: auto
slo: {ttft: 2 s, tpot: 40 ms, attainment: 0.9}
objectives: [output_tok_per_s_per_gpu, tpot_mean]
""",
}
