"""Settings from the command line: `--set key=value`, any number of times."""

from collections.abc import Iterable

from dse.base.errors import UserError


def settings_of(items: Iterable[str]) -> dict[str, str]:
    """Return `a.b=c` settings as a mapping; one without `=` is the user's error."""
    found: dict[str, str] = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise UserError(f"--set {item!r} is no setting", "write key=value: search.method=bound")
        found[name] = value
    return found
