"""Bounds that a record keeps whatever it is made from: a file, a what-if, an axis or Python."""

from collections.abc import Hashable
from typing import cast

from dse.base.errors import UserError
from dse.base.keys import yaml_keys

__all__ = ["require_positive"]


def require_positive(record: object, *names: str) -> None:
    """Raise a UserError for the first of these attributes that is not above 0; None may stay."""
    for name in names:
        value = getattr(record, name)
        if value is not None and not value > 0:
            key = yaml_keys(cast("Hashable", type(record))).get(name, name)
            what = f"{key} of {getattr(record, 'name', type(record).__name__)}"
            raise UserError(f"{what} is {value:g}", "give more than 0")
