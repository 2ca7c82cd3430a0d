"""The compiled shuffle of many requests."""

from typing import Any

from dse.sim._jit import entry


@entry
def shuffle(found: Any, raw: Any) -> int:
    """Shuffle `found` by 32-bit words as `Random.shuffle` takes them; the number taken, or −1 where
    there are too few.
    """
    taken, width = 0, 0
    while len(found) >> width:
        width += 1
    for i in range(len(found) - 1, 0, -1):
        if not (i + 1) >> (width - 1):
            width -= 1
        j = i + 1
        while j > i:
            if taken == len(raw):
                return -1
            j = raw[taken] >> (32 - width)
            taken += 1
        found[i], found[j] = found[j], found[i]
    return taken
