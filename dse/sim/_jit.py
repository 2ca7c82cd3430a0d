"""The compiler of the fast path. Imported by a run, not at start-up: numba takes 0.3 s to load."""

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from dse.sim._cache import folder

F = TypeVar("F", bound=Callable[..., Any])

vars(numba.config)["CACHE_DIR"] = str(folder())

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
