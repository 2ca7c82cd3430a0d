"""Pools: the same work on chunks of points, in this process or on Ray, with equal results.

A pool is called with a `Work` and chunks, and yields one frame a chunk (or a part of one) in no
particular order. Whatever a point does, it comes back as a row: a point that raises as `error`, one
that twice kills the worker it is alone on as `crashed`. Losing a node is held against no point.
"""

import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

import polars as pl

from dse.base.errors import DseError, UserError
from dse.run.chunk import halves

IN_FLIGHT_PER_WORKER = 2
LONELY_DEATHS = 2
NODE_LOSS_NOTICED_S = 30.0
ANSWER_S = 10.0
RAY_PAYS_FROM_S = 20.0
_OBJECT_STORE_BYTES = 256 * 2**20
# One point is one thread: workers that each start a thread a core would fight over them.
_WORKER_ENV = {"POLARS_MAX_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1"}


class Work(Protocol):
    """What a worker does with a chunk; it is pickled and sent to each node once."""

    def __call__(self, points: pl.DataFrame) -> pl.DataFrame:
        """The rows of a chunk's results."""
        ...

    def failed(self, points: pl.DataFrame, status: str, error: str) -> pl.DataFrame:
        """The rows that say that `points` failed: `status` is `error` or `crashed`."""
        ...


Pool = Callable[[Work, Iterable[pl.DataFrame]], Iterator[pl.DataFrame]]


def in_process(work: Work, chunks: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
    """Work through the chunks here, one after the other."""
    waiting = deque(chunks)
    while waiting:
        chunk = waiting.popleft()
        try:
            yield work(chunk)
        except Exception as error:
            if chunk.height > 1:
                waiting.extendleft(reversed(halves(chunk)))
            else:
                yield work.failed(chunk, "error", _told(error))


@contextmanager
def open_pool(
    workers: str | int = "auto", *, address: str | None = None, predicted_s: float = 0.0
) -> Iterator[Pool]:
    """The pool that `--workers` and `--ray` ask for, for the length of the block.

    `auto` is this process below `RAY_PAYS_FROM_S` predicted CPU seconds, else local Ray on all
    cores; 0 this process; N local Ray with N workers. `address` (`auto`, `host:port`) is a cluster.
    """
    n_workers = _worker_count(workers)
    if address is None and n_workers is None and predicted_s >= RAY_PAYS_FROM_S:
        n_workers = os.cpu_count() or 1
    if address is None and not n_workers:
        yield in_process
        return
    with on_ray(address, n_workers) as pool:
        yield pool


@contextmanager
def on_ray(address: str | None = None, n_workers: int | None = None) -> Iterator[Pool]:
    """A pool on the Ray cluster at `address`, or on a local one of `n_workers` that ends with the
    block. Raises `UserError` where no cluster answers.

    Ray's own messages go to stderr: stdout belongs to the command.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    with redirect_stdout(sys.stderr):
        import ray

        _start(ray, address, n_workers)
        try:
            yield _RayPool(ray)
        finally:
            ray.shutdown()


def _worker_count(workers: str | int) -> int | None:
    if workers == "auto":
        return None
    try:
        count = int(workers)
    except ValueError:
        count = -1
    if count < 0:
        raise UserError(
            f"--workers {workers}: not a number of workers", "auto, 0, or N of 1 and up"
        )
    return count


def _start(ray: Any, address: str | None, n_workers: int | None) -> None:
    _require_answer(address)
    common = {
        "log_to_driver": False,
        "logging_level": "error",
        "runtime_env": {"env_vars": _WORKER_ENV},
    }
    # The token that guards the cluster is written with the process's umask.
    umask = os.umask(0o077)
    try:
        if address is None:
            local = {"num_cpus": n_workers, "include_dashboard": False}
            ray.init(address="local", object_store_memory=_OBJECT_STORE_BYTES, **local, **common)
        else:
            ray.init(address=address, **common)
    except (ConnectionError, ValueError) as error:
        raise UserError(
            f"--ray {address}: no cluster answers: {_told(error)}",
            "give host:port of a running head, the same token on both (RAY_AUTH_MODE=token), or "
            "use --workers N",
        ) from error
    finally:
        os.umask(umask)


def _require_answer(address: str | None) -> None:
    """Refuse a `host:port` that nobody listens at; Ray itself would try for minutes."""
    host, _, port = (address or "").rpartition("//")[2].rpartition(":")
    if not host or not port.isdigit():
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S).close()
    except (OSError, OverflowError) as error:
        raise UserError(
            f"--ray {address}: nobody answers there: {error}",
            "give host:port of a running head (`ray start --head`), or use --workers N",
        ) from error


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A chunk on its way. `deaths` counts workers that died while it was alone on them."""

    points: pl.DataFrame
    nodes: frozenset[str] = frozenset()
    deaths: int = 0


class _RayPool:
    """Stateless tasks, a bounded number in flight; the work is put in the object store once."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(max_retries=0)(_run_chunk)
        self._work: tuple[Work, tuple[str, list[Any]]] | None = None

    def _shared(self, work: Work) -> tuple[str, list[Any]]:
        """A name for the work and, boxed so that a task does not fetch it unasked, where it is."""
        if self._work is None or self._work[0] is not work:
            self._work = (work, (uuid4().hex, [self._ray.put(work)]))
        return self._work[1]

    def __call__(self, work: Work, chunks: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        shared = self._shared(work)
        fresh = (_Attempt(chunk) for chunk in chunks)
        again: deque[_Attempt] = deque()
        flying: dict[Any, _Attempt] = {}
        try:
            while self._take_off(shared, flying, again, fresh):
                landed, _ = self._ray.wait(list(flying), num_returns=1, timeout=5.0)
                for ref in landed:
                    attempt = flying.pop(ref)
                    try:
                        yield pl.DataFrame(self._ray.get(ref))
                    except self._ray.exceptions.RayError as error:
                        retries, failed = self._after(work, attempt, error)
                        again.extend(retries)
                        yield from failed
        finally:
            for ref in flying:
                self._ray.cancel(ref, force=True)

    def _take_off(
        self,
        shared: Any,
        flying: dict[Any, _Attempt],
        again: deque[_Attempt],
        fresh: Iterator[_Attempt],
    ) -> bool:
        """Fill the free places; False when nothing is left to wait for."""
        places = IN_FLIGHT_PER_WORKER * int(self._ray.cluster_resources().get("CPU", 1))
        nodes = self._nodes()
        while len(flying) < max(places, 1):
            attempt = again.popleft() if again else next(fresh, None)
            if attempt is None:
                break
            ref = self._task.remote(shared, attempt.points.to_arrow())
            flying[ref] = _Attempt(attempt.points, attempt.nodes or nodes, attempt.deaths)
        return bool(flying)

    def _after(
        self, work: Work, attempt: _Attempt, error: Exception
    ) -> tuple[list[_Attempt], list[pl.DataFrame]]:
        """What to run again and what to give up, after a chunk failed with `error`."""
        points, errors = attempt.points, self._ray.exceptions
        _refuse_defects(error)
        if points.height > 1:
            return [_Attempt(half) for half in halves(points)], []
        if isinstance(error, errors.RayTaskError):
            return [], [work.failed(points, "error", _told(error))]
        if not isinstance(error, errors.WorkerCrashedError):
            return [_Attempt(points)], []
        deaths = attempt.deaths + 1
        if deaths < LONELY_DEATHS:
            return [_Attempt(points, attempt.nodes, deaths)], []
        if self._lost_a_node_of(attempt.nodes):
            return [_Attempt(points)], []
        return [], [work.failed(points, "crashed", f"{deaths} workers died computing it alone")]

    def _nodes(self) -> frozenset[str]:
        return frozenset(node["NodeID"] for node in self._ray.nodes() if node["Alive"])

    def _lost_a_node_of(self, before: frozenset[str]) -> bool:
        """Whether a node went since; a cluster takes a while to notice one that was cut off."""
        deadline = time.monotonic() + (NODE_LOSS_NOTICED_S if len(before) > 1 else 0.0)
        while before <= self._nodes():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.5)
        return True


# A worker process unpickles the work once, whatever the number of its chunks.
_FETCHED: dict[str, Work] = {}


def _run_chunk(shared: tuple[str, list[Any]], points: Any) -> Any:
    import ray

    name, (where,) = shared
    if name not in _FETCHED:
        _FETCHED.clear()
        _FETCHED[name] = ray.get(where)
    return _FETCHED[name](pl.DataFrame(points)).to_arrow()


def _refuse_defects(error: Exception) -> None:
    cause = getattr(error, "cause", None)
    if isinstance(cause, ImportError) or type(error).__name__ == "RuntimeEnvSetupError":
        raise DseError(
            f"the workers cannot run dse: {_told(error)}",
            "install the same version of dse on every node of the cluster",
        ) from error


def _told(error: Exception) -> str:
    """The class and first line of an error, with the cause that a worker met."""
    cause = getattr(error, "cause", None) or error
    lines = str(cause).strip().splitlines()
    return f"{type(cause).__name__}: {lines[0] if lines else ''}".rstrip(": ")
