"""The store: results by identity and the answers made of them, in one DuckDB file."""

from dse.store.schema import KEYS
from dse.store.store import Store

__all__ = ["KEYS", "Store"]
