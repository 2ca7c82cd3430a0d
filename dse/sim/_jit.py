"""The compiler of the fast path. Imported by a run, not at start-up: numba takes 0.3 s to load."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, cast

import numba

from dse.sim._cache import folder

F = TypeVar("F", bound=Callable[..., Any])

vars(numba.config)["CACHE_DIR"] = str(folder())


def _leave_blas() -> None:
    """Load what any compiled code needs, but not SciPy's linear algebra: numba imports that to see
    whether it is there, which is a third of the time to load. Whoever multiplies matrices with
    numba still has it looked for.
    """
    linear: Any = import_module("numba.np.linalg")
    looks = linear.ensure_blas
    linear.ensure_blas = lambda: None
    try:
        vars(import_module("numba.np.arraymath"))["ensure_blas"] = looks
    finally:
        linear.ensure_blas = looks


_leave_blas()

# Divisors are never zero, nothing is allocated, and only `entry` is called from Python: leaving out
# checks, reference counts and wrappers makes compilation several times faster.
_njit: Any = numba.njit
_LEAN = {"cache": True, "error_model": "numpy", "_nrt": False}


def jit(function: F) -> F:
    """Compile `function`, which compiled functions call, and keep the code between processes."""
    compiled = _njit(**_LEAN, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return cast("F", compiled)


def inline(function: F) -> F:
    """The same, and put its code where it is called: what every step does for every request."""
    lean = _njit(**_LEAN, no_cpython_wrapper=True, no_cfunc_wrapper=True, forceinline=True)
    return cast("F", lean(function))


def entry(function: F) -> F:
    """Compile `function`, which Python calls."""
    return cast("F", _njit(**_LEAN)(function))
