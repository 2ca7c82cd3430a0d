"""The KV pools of the reference: numbered blocks with prefix reuse, or plain units of memory."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from dse.serving.request import Request


class KVPool(Protocol):
    """What a rank asks of its KV memory. Units are blocks, or bytes where blocks differ in size."""

    n_units: int

    @property
    def used_units(self) -> int:
        """Units that running requests hold; cached blocks that nobody holds are free."""
        ...

    def cached_tokens(self, request: Request) -> int:
        """Leading tokens of a waiting request in the cache; at least one is left to compute."""
        ...

    def can_admit(self, request: Request, tokens: int) -> bool:
        """Whether `tokens` tokens of a waiting request would fit now."""
        ...

    def share(self, request: Request) -> None:
        """Give a request the blocks of its prefix that are cached."""
        ...

    def grow(self, request: Request, tokens: int) -> bool:
        """Give a request room for `tokens` tokens in all; False and no change if there is none."""
        ...

    def publish(self, request: Request) -> None:
        """Let others share the full blocks that the request has computed and that have a key."""
        ...

    def release(self, request: Request) -> None:
        """Take back all that a request holds."""
        ...


class BlockPool:
    """Equal blocks found by the hash of their content (vLLM's automatic prefix caching).

    `free` is in order of eviction: least recently used first, the tail of a request before its
    head. A free block keeps its content until it is given to another request. Blocks from `n_fresh`
    on were never used, and go first.
    """

    def __init__(self, n_blocks: int, block_tokens: int) -> None:
        self.n_units = n_blocks
        self.block_tokens = block_tokens
        self.free: OrderedDict[int, None] = OrderedDict()
        self.n_fresh = 0
        self.block_of: dict[int, int] = {}
        self.key_of: dict[int, int] = {}
        self.n_holders: dict[int, int] = {}

    @property
    def used_units(self) -> int:
        return self.n_units - self._n_free

    @property
    def _n_free(self) -> int:
        return self.n_units - self.n_fresh + len(self.free)

    def _hits(self, request: Request) -> list[int]:
        found = []
        for key in request.keys[: (request.known_tokens - 1) // self.block_tokens]:
            block = self.block_of.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def cached_tokens(self, request: Request) -> int:
        return len(self._hits(request)) * self.block_tokens

    def can_admit(self, request: Request, tokens: int) -> bool:
        hits = self._hits(request)
        asked = -(-tokens // self.block_tokens) - len(hits)
        return asked <= self._n_free - sum(block in self.free for block in hits)

    def share(self, request: Request) -> None:
        for block in self._hits(request):
            self._hold(block)
            request.blocks.append(block)
        request.held_keys = len(request.blocks)

    def grow(self, request: Request, tokens: int) -> bool:
        missing = -(-tokens // self.block_tokens) - len(request.blocks)
        if missing > self._n_free:
            return False
        for _ in range(missing):
            block = self._evict()
            self.n_holders[block] = 1
            request.blocks.append(block)
        return True

    def publish(self, request: Request) -> None:
        full = min(len(request.keys), request.computed_tokens // self.block_tokens)
        for i in range(request.held_keys, full):
            key, mine = request.keys[i], request.blocks[i]
            known = self.block_of.get(key)
            if known is None:
                self.block_of[key], self.key_of[mine] = mine, key
            else:
                # Someone else computed the same meanwhile: keep theirs, give ours back.
                self._hold(known)
                request.blocks[i] = known
                self._drop(mine)
        request.held_keys = max(request.held_keys, full)

    def release(self, request: Request) -> None:
        for block in reversed(request.blocks):
            self._drop(block)
        request.blocks.clear()
        request.held_keys = 0

    def _evict(self) -> int:
        if self.n_fresh < self.n_units:
            self.n_fresh += 1
            return self.n_fresh - 1
        block, _ = self.free.popitem(last=False)
        key = self.key_of.pop(block, None)
        if key is not None:
            del self.block_of[key]
        return block

    def _hold(self, block: int) -> None:
        self.free.pop(block, None)
        self.n_holders[block] += 1

    def _drop(self, block: int) -> None:
        self.n_holders[block] -= 1
        if self.n_holders[block] == 0:
            self.free[block] = None


class UnitPool:
    """Memory by amount, without prefix reuse: `units_of(tokens)` is what a request holds. Hybrid
    models (windows, recurrent state) store blocks of different sizes, so they are counted in
    bytes.
    """

    def __init__(self, n_units: int, units_of: Callable[[int], int]) -> None:
        self.n_units = n_units
        self.units_of = units_of
        self.used_units = 0

    def cached_tokens(self, request: Request) -> int:
        return 0

    def can_admit(self, request: Request, tokens: int) -> bool:
        return self.units_of(tokens) <= self.n_units - self.used_units

    def share(self, request: Request) -> None:
        return

    def grow(self, request: Request, tokens: int) -> bool:
        missing = max(0, self.units_of(tokens) - request.held_units)
        if missing > self.n_units - self.used_units:
            return False
        request.held_units += missing
        self.used_units += missing
        return True

    def publish(self, request: Request) -> None:
        return

    def release(self, request: Request) -> None:
        self.used_units -= request.held_units
        request.held_units = 0
