"""How many survivors of a space this machine's memory holds, and what to narrow beyond that."""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dse.base.errors import StudyError
from dse.space import Space, axis_sizes
from dse.study.study import Study
from dse.study.vast import MANY, needs_rows

__all__ = ["Room", "axes_of", "free_bytes", "most_survivors", "narrower", "sifting"]

# Where it comes from: docs/limits.md.
SURVIVOR_BYTES = 2000.0
# Of free memory, the share that survivors may take: results, report and others need the rest.
SHARE = 0.8
# Once so many candidates are judged, as a share of the most survivors, what all of the space leaves
# is estimated: a run that cannot end says so early. It is believed from `SURELY` times the most on.
EARLY = 0.125
SURELY = 2.0
MOST_AXES = 6


def free_bytes() -> float:
    """Bytes that this process may still take: of the machine, of its control group and of its own
    limit on address space, whichever is least.
    """
    found = [_machine_bytes()]
    with suppress(OSError, ValueError):
        group = Path("/sys/fs/cgroup")
        used = float((group / "memory.current").read_text())
        found.append(float((group / "memory.max").read_text()) - used)
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY:
        found.append(float(limit) - _mapped_bytes())
    return max(0.0, min(found))


def most_survivors(n_bytes: float | None = None) -> int:
    """Survivors that `n_bytes` hold (default: what is free)."""
    return int(SHARE * (free_bytes() if n_bytes is None else n_bytes) / SURVIVOR_BYTES)


@dataclass(slots=True, kw_only=True)
class Room:
    """Counts survivors of `study` against the `most` that memory holds. `expected` estimates how
    many all of the space leaves, given how many are no concern.
    """

    study: Study
    most: int
    expected: Callable[[float], float]
    n_taken: int = 0
    _is_estimated: bool = False

    def take(self, n_new: int, n_candidates: int) -> None:
        """Count `n_new` survivors, found when `n_candidates` were seen; `StudyError` where they no
        longer fit, or where it is plain that all of them will not.
        """
        self.n_taken += n_new
        if self.n_taken > self.most:
            raise self._full(f"{self.n_taken:,} of the first {n_candidates:,} candidates")
        if self._is_estimated or n_candidates <= EARLY * self.most:
            return
        self._is_estimated = True
        expected = self.expected(SURELY * self.most)
        if expected > SURELY * self.most:
            raise self._full(f"about {expected:,.0f} points, by a sample,")

    def _full(self, survivors: str) -> StudyError:
        return StudyError(
            f"{self.study.path}: space: {survivors} survive walls and screens, and this machine's "
            f"free memory holds {self.most:,} at {SURVIVOR_BYTES:,.0f} bytes each; nothing was "
            "simulated",
            narrower(axes_of(self.study.space)) + sifting(self.study),
        )


def sifting(study: Study) -> str:
    """What makes a run take the likely best of a space beyond rows; empty where it is small."""
    change = needs_rows(study)
    if change is None:
        return ""
    return f"; or {change}, and of more than {MANY:,} candidates the likely best are searched"


def axes_of(space: Space) -> dict[str, int]:
    """The most values that an axis has in any branch, by name."""
    found: dict[str, int] = {}
    for branch in space.branches:
        for axis, count in axis_sizes(branch).items():
            found[axis] = max(count, found.get(axis, 0))
    return found


def narrower(axes: Mapping[str, int]) -> str:
    """What makes a space smaller, the axes of the most values first."""
    ranked = sorted(axes.items(), key=lambda each: -each[1])
    named = [f"{axis} ({count} values)" for axis, count in ranked[:MOST_AXES] if count > 1]
    return (
        f"narrow {_listed(named)}, cut with `screens:` or `where:`, give `split:` in place of auto,"
        " or ask in parts, as with --set space.gpu=…"
    )


def _listed(named: Iterable[str]) -> str:
    return ", ".join(named) or "its axes"


def _machine_bytes() -> float:
    with suppress(OSError, IndexError, ValueError):
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        free = next(line for line in lines if line.startswith("MemAvailable"))
        return 1024.0 * float(free.split()[1])
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _mapped_bytes() -> float:
    with suppress(OSError, IndexError, ValueError):
        pages = float(Path("/proc/self/statm").read_text("ascii").split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0.0
