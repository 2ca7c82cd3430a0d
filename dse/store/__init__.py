"""The store: results by identity and the answers made of them, in one DuckDB file."""

from dse.store.store import KEYS, Store

__all__ = ["KEYS", "Store"]
