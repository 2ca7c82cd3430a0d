"""Facts about the world, one thing a YAML file, and the catalog that finds them by name."""

from dse.catalog.add import add_gpu, add_model, save
from dse.catalog.catalog import KINDS, Catalog
from dse.catalog.listing import list_, show
from dse.catalog.prices import PriceList, Quote
from dse.catalog.write import to_yaml

__all__ = [
    "KINDS",
    "Catalog",
    "PriceList",
    "Quote",
    "add_gpu",
    "add_model",
    "list_",
    "save",
    "show",
    "to_yaml",
]
