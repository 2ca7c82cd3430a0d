"""Facts about the world, one thing a YAML file, and the catalog that finds them by name."""

from dse.catalog.catalog import KINDS, Catalog
from dse.catalog.prices import PriceList, Quote

__all__ = ["KINDS", "Catalog", "PriceList", "Quote"]
