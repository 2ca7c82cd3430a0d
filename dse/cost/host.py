"""Time of the host in a step: scheduling, input preparation, detokenisation; it adds."""

from dse.cost.lower import Program
from dse.model.ops import Collective, ComputeOp, Gemm
from dse.serving.engine import EngineHost

# Kernels that an engine launches for one op of the account: experts are routed, sorted, quantised,
# multiplied twice and summed; MLA prefill scatters and gathers; a narrow GEMM quantises first.
_LAUNCHES = {
    "moe": 8,
    "mla_prefill": 4,
    "prefill_attention": 2,
    "indexer": 4,
    "linear_attention": 5,
}


def host_seconds(host: EngineHost, n_requests: int, prefill_tokens: int) -> float:
    """Seconds the host spends on a step that schedules `n_requests` and `prefill_tokens` new prompt
    tokens.
    """
    return host.step_s + host.request_s * n_requests + host.prefill_token_s * prefill_tokens


def exposed_seconds(
    host: EngineHost, gpu_s: float, host_s: float, launch_s: float = 0.0, gap: float = 0.0
) -> float:
    """What the host adds to a step whose kernels take `gpu_s`: all of its own time, or under
    asynchronous scheduling only what the GPU does not hide. In a step with prompts the GPU idles
    the share `gap` beside its kernels, and launching them takes `launch_s`, while they run.
    """
    idle_s = gap * gpu_s
    busy_s = gpu_s + idle_s
    if host.overlapped:
        return idle_s + max(0.0, host_s + launch_s - busy_s)
    return idle_s + host_s + max(0.0, launch_s - busy_s)


def kernels_of_prompt_step(program: Program) -> float:
    """Kernels that a step with a prompt launches, on the stage that has most."""
    return max(
        sum(
            counted.count * _launches(counted.op)
            for part in (
                program.token_ops(index, 1.0),
                program.group_ops(index, 1.0),
                program.prefill_ops(index, 1.0, 1.0, 1.0),
                program.collectives(index, 1.0, 1.0),
            )
            for counted in part
        )
        for index in range(len(program.stages))
    )


def _launches(op: ComputeOp | Collective) -> int:
    if isinstance(op, Gemm):
        return 1 if op.activations.compute == "bf16" else 2
    return 1 if isinstance(op, Collective) else _LAUNCHES.get(op.family, 1)
