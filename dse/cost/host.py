"""Time of the host in a step: scheduling, input preparation, detokenisation; it adds."""

from dse.serving.engine import EngineHost


def host_seconds(host: EngineHost, n_requests: int, prefill_tokens: int) -> float:
    """Seconds the host spends on a step that schedules `n_requests` and `prefill_tokens` new prompt
    tokens.
    """
    return host.step_s + host.request_s * n_requests + host.prefill_token_s * prefill_tokens


def exposed_seconds(host: EngineHost, gpu_s: float, host_s: float) -> float:
    """What the host adds to a step whose GPU work takes `gpu_s`: all of it, or under asynchronous
    scheduling only what the GPU does not hide.
    """
    if host.overlapped:
        return host_s - gpu_s if host_s > gpu_s else 0.0
    return host_s
