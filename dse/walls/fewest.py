"""The fewest GPUs on which a model serves so many requests of one context."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dse.cost.account import decode_floor, prompt_floor_s, tokens_computed
from dse.cost.memory import RankMemory, rank_memory
from dse.serving.deployment import Deployment, Pool
from dse.serving.layout import Layout
from dse.serving.legality import Illegal, check, check_context, check_speculative
from dse.serving.slo import SLO

MOST_GPUS = 512
SHOWN = 8
GIB = 2.0**30


@dataclass(frozen=True, slots=True, kw_only=True)
class _Trial:
    """One legal layout on some replicas, and how far it is from holding the load."""

    layout: Layout
    n_replicas: int
    memory: RankMemory
    b_max: int
    problem: str

    @property
    def n_gpus(self) -> int:
        return self.layout.n_gpus * self.n_replicas

    def row(self) -> dict[str, Any]:
        return {
            "n_gpus": self.n_gpus,
            "n_replicas": self.n_replicas,
            "layout": self.layout.label(),
            "degrees": {
                name: getattr(self.layout, name) for name in ("tp", "dp", "ep", "pp", "cp")
            },
            "weight_bytes_per_gpu": self.memory.weight_bytes,
            "kv_pool_bytes_per_gpu": self.memory.kv_pool_bytes,
            "b_max": self.b_max * self.n_replicas,
            "problem": self.problem,
        }


def fewest_gpus(
    deployment: Deployment, *, context_tokens: int, concurrency: int, slo: SLO | None = None
) -> dict[str, Any]:
    """The smallest cluster of the deployment's GPU, engine and fabric that has a legal layout with
    room for `concurrency` requests of `context_tokens`, and whose floors keep the SLO.

    Clusters beyond one scale-up domain are whole domains. `n_gpus` is null where none up to
    `MOST_GPUS` does; `near_misses` are the best layouts of the sizes just below.
    """
    misses: list[_Trial] = []
    never = (
        *check_speculative(deployment.model, deployment.speculative),
        *check_context(deployment.model, context_tokens),
    )
    if never:
        return _answer(None, (), misses) | {"illegal_reasons": [str(each) for each in never]}
    for size in _sizes(deployment):
        fitting: list[_Trial] = []
        best: _Trial | None = None
        for trial in _trials(deployment, size, context_tokens, concurrency, slo):
            if not trial.problem:
                fitting.append(trial)
            elif best is None or trial.memory.kv_pool_bytes > best.memory.kv_pool_bytes:
                best = trial
        if fitting:
            ranked = sorted(fitting, key=lambda each: (-each.b_max * each.n_replicas, each.n_gpus))
            return _answer(size, ranked, misses)
        if best is not None:
            misses.append(best)
    reasons = [] if misses else [str(illegal) for illegal in _why_never(deployment)]
    return _answer(None, (), misses) | {"illegal_reasons": reasons}


def _why_never(deployment: Deployment) -> tuple[Illegal, ...]:
    """What one GPU alone breaks: no layout mends it where none was legal."""
    pool = deployment.pools[-1]
    return check(deployment.model, deployment.precision, Layout(), pool.engine, pool.gpu)


def _answer(
    size: int | None, ranked: tuple[_Trial, ...] | list[_Trial], misses: list[_Trial]
) -> dict[str, Any]:
    rows = [trial.row() for trial in ranked]
    return {
        "min_gpus": size,
        "n_gpus": size,
        "best": rows[0] if rows else None,
        "layouts": rows[:SHOWN],
        "near_misses": [trial.row() for trial in misses[-SHOWN:]],
        "illegal_reasons": [],
    }


def _sizes(deployment: Deployment) -> Iterator[int]:
    domain = deployment.pools[-1].fabric.scale_up.n_gpus
    yield from range(1, min(domain, MOST_GPUS) + 1)
    yield from range(2 * domain, MOST_GPUS + 1, domain)


def _trials(
    deployment: Deployment, size: int, context_tokens: int, concurrency: int, slo: SLO | None
) -> Iterator[_Trial]:
    pool = deployment.pools[-1]
    for replica in (each for each in range(1, size + 1) if size % each == 0):
        for layout in _layouts(replica, deployment.model.is_moe):
            broken = check(
                deployment.model,
                deployment.precision,
                layout,
                pool.engine,
                pool.gpu,
                fabric=pool.fabric,
                suggest=False,
            )
            if broken:
                continue
            placed = replace(pool, layout=layout, n_replicas=size // replica, role="both")
            trial = replace(deployment, pools=(placed,))
            yield _tried(trial, placed, context_tokens, concurrency, slo)


def _layouts(replica: int, is_moe: bool) -> Iterator[Layout]:
    for tp in (each for each in range(1, replica + 1) if replica % each == 0):
        for dp in (each for each in range(1, replica // tp + 1) if replica // tp % each == 0):
            pp = replica // tp // dp
            if dp > 1 and not is_moe:
                continue
            yield Layout(tp=tp, dp=dp, pp=pp)
            if is_moe and tp * dp > 1:
                yield Layout(tp=tp, dp=dp, pp=pp, ep=tp * dp)


def _tried(
    deployment: Deployment, pool: Pool, context_tokens: int, concurrency: int, slo: SLO | None
) -> _Trial:
    memory = rank_memory(deployment, pool)
    b_max = memory.b_max(context_tokens)
    problem = ""
    if b_max * pool.n_replicas < concurrency:
        need = memory.request_bytes(context_tokens) * -(
            -concurrency // (pool.n_replicas * memory.dp)
        )
        lack = (need - memory.kv_pool_bytes) / GIB
        problem = f"KV pool lacks {lack:.2f} GiB per GPU for {concurrency} requests"
    else:
        problem = _too_slow(deployment, pool, context_tokens, concurrency, slo)
    return _Trial(
        layout=pool.layout,
        n_replicas=pool.n_replicas,
        memory=memory,
        b_max=b_max,
        problem=problem,
    )


def _too_slow(
    deployment: Deployment, pool: Pool, context_tokens: int, concurrency: int, slo: SLO | None
) -> str:
    if slo is not None and slo.tpot_s is not None:
        per_replica = -(-concurrency // pool.n_replicas)
        floor = decode_floor(deployment, pool, per_replica, context_tokens)
        tpot_s = float(floor.t_opt_s) / tokens_computed(deployment)
        if tpot_s > slo.tpot_s:
            return f"TPOT floor {tpot_s * 1e3:.1f} ms exceeds {slo.tpot_s * 1e3:.1f} ms"
    if slo is not None and slo.ttft_s is not None:
        ttft_s = prompt_floor_s(deployment, pool, context_tokens)
        if ttft_s > slo.ttft_s:
            return f"TTFT floor {ttft_s:.2f} s exceeds {slo.ttft_s:.2f} s"
    return ""
