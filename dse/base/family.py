"""Family: the parts that one package declares, one module each.

A part is a frozen dataclass that derives from the family's base and names itself by
`kind: Literal["gqa"] = "gqa"`; each module is called like a kind that it declares. There is no
list to edit: a module dropped into the package is a member, and one that breaks the rule fails at
import, naming its file.
"""

from __future__ import annotations

import dataclasses
import pkgutil
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from types import ModuleType
from typing import Any, Generic, TypeVar, get_args, get_type_hints

from dse.base.errors import DseError, UserError, did_you_mean

__all__ = ["Family"]

P = TypeVar("P")


class Family(Mapping[str, type[P]], Generic[P]):
    """The members of a package, by kind, in alphabetical order.

    `ATTENTIONS = Family(__name__, Attention)` stands in the package's `__init__`; then
    `Annotated[Attention, ATTENTIONS]` is a field that reads `{kind: gqa, …}` as its member, or a
    bare `gqa` as that member with every default. A small family may be one module: the call then
    stands below its parts.
    """

    def __init__(self, package: str, base: type[P]) -> None:
        self.package = package
        self.base = base
        members: dict[str, type[P]] = {}
        for module, part in _members(package, base):
            kind = str(_kind(part))
            if kind in members:
                other = members[kind].__module__
                raise DseError(f"{module.__file__}: kind {kind!r} is already declared in {other}")
            members[kind] = part
        self._members = dict(sorted(members.items()))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of all members, in alphabetical order."""
        return tuple(self._members)

    def __getitem__(self, kind: str) -> type[P]:
        """Return the member of this kind; a `KeyError` suggests the nearest."""
        try:
            return self._members[kind]
        except KeyError:
            raise KeyError(
                f"no kind {kind!r} in {self.package}{did_you_mean(kind, self)}"
            ) from None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the kinds."""
        return iter(self._members)

    def __len__(self) -> int:
        """Return the number of kinds."""
        return len(self._members)

    def __contains__(self, kind: object) -> bool:
        """Say whether a member has this kind."""
        return kind in self._members

    def __repr__(self) -> str:
        """Name the package and its kinds."""
        return f"Family({self.package}: {', '.join(self._members)})"

    # As metadata of an annotation a family must be hashable: it is itself and no other.
    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Say whether `other` is this family."""
        return self is other

    def __get_pydantic_core_schema__(self, _source: object, handler: Any) -> Any:
        """Read a field as the tagged union of all members."""
        from pydantic_core import core_schema

        union = core_schema.tagged_union_schema(
            {kind: handler.generate_schema(part) for kind, part in self.items()},
            discriminator="kind",
        )
        either = core_schema.union_schema([core_schema.literal_schema(list(self)), union])
        return core_schema.no_info_before_validator_function(
            self._expanded, union, json_schema_input_schema=either
        )

    def _expanded(self, value: object) -> object:
        if isinstance(value, dict) and "kind" not in value:
            raise UserError(f"needs a `kind`; one of {', '.join(self)}")
        return {"kind": value} if isinstance(value, str) else value


def _members(package: str, base: type[P]) -> Iterator[tuple[ModuleType, type[P]]]:
    """Yield each part with the module that declares it."""
    home = sys.modules[package]
    if not hasattr(home, "__path__"):
        yield from ((home, part) for part in _parts(home, base))
        return
    for info in sorted(pkgutil.iter_modules(home.__path__)):
        if info.name.startswith("_"):
            continue
        module = import_module(f"{package}.{info.name}")
        parts = _parts(module, base)
        if info.name not in map(_kind, parts):
            raise DseError(
                f"{module.__file__}: declares no {base.__name__} of kind {info.name!r}",
                f"give a dataclass that derives {base.__name__} kind: Literal[{info.name!r}]",
            )
        yield from ((module, part) for part in parts)


def _parts(module: ModuleType, base: type[P]) -> list[type[P]]:
    """Return the public classes that a module itself declares below `base`, each proved a part."""
    parts = [
        part
        for name, part in vars(module).items()
        if isinstance(part, type) and issubclass(part, base) and part is not base
        if part.__module__ == module.__name__ and not name.startswith("_")
    ]
    for part in parts:
        kind = _kind(part)
        parameters = getattr(part, "__dataclass_params__", None)
        if kind is None or parameters is None or not parameters.frozen:
            raise DseError(
                f"{module.__file__}: {part.__name__} is no part: it must be a frozen dataclass "
                'with a field such as kind: Literal["name"] = "name"'
            )
    return parts


def _kind(part: type) -> str | None:
    """Return the default of the field `kind`, if it is the one value that its Literal allows."""
    if not dataclasses.is_dataclass(part):
        return None
    default = next(
        (field.default for field in dataclasses.fields(part) if field.name == "kind"), None
    )
    allowed = get_args(get_type_hints(part).get("kind"))
    return default if isinstance(default, str) and allowed == (default,) else None
