"""What many pools share, made once: equal kernels of different layouts, equal pools of deployments.

Records are told apart by identity, as most hold mappings; a memo keeps those that it knows, so that
no key is used twice. It holds no more than `most` values, and drops first what was used longest
ago: a value that was dropped is made again, and is the same.
"""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Generic, TypeVar

import numpy as np

T = TypeVar("T")
Key = tuple[Hashable, ...]


@dataclass(slots=True)
class Memo(Generic[T]):
    """Values by the records and the plain facts that decide them."""

    most: int
    _known: "OrderedDict[Key, tuple[tuple[Any, ...], T]]" = field(default_factory=OrderedDict)

    def of(self, records: tuple[Any, ...], facts: Key, make: Callable[[], T]) -> T:
        """What `make` gives for these records and facts."""
        key = (*map(id, records), *facts)
        if key in self._known:
            self._known.move_to_end(key)
            return self._known[key][1]
        found = make()
        self._known[key] = (records, found)
        if len(self._known) > self.most:
            self._known.popitem(last=False)
        return found


_FIELDS: dict[type, Callable[[Any], tuple[Any, ...]]] = {}


def shape_key(op: Any) -> Key:
    """A key of an op: its type and its fields, arrays by their content."""
    kind = type(op)
    if kind not in _FIELDS:
        _FIELDS[kind] = attrgetter(*op.__slots__)
    return (kind, *map(_plain, _FIELDS[kind](op)))


def _plain(value: Any) -> Hashable:
    if isinstance(value, np.ndarray):
        return value.shape, value.tobytes()
    known: Hashable = value
    return known
