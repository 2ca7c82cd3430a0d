"""How commands speak: data on stdout, everything else on stderr."""

import json as json_module
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from dse.base.errors import DseError

if TYPE_CHECKING:
    from rich.console import Console

Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON document on stdout.")
]


def console(*, stderr: bool = False) -> "Console":
    """A rich console; colour and width follow the terminal."""
    from rich.console import Console

    return Console(stderr=stderr, highlight=False, soft_wrap=False)


def emit_json(document: Mapping[str, Any]) -> None:
    """Print `document` on stdout. Numbers that JSON lacks (NaN, infinities) become null."""
    print(json_module.dumps(_plain(document), indent=2, ensure_ascii=False))  # noqa: T201


class Interrupted(DseError):
    """The user pressed Ctrl-C; what was done is kept."""

    exit_code = 130


def body(error: DseError) -> dict[str, Any]:
    """What a document says of an error."""
    return {"code": error.exit_code, "message": error.message, "remedy": error.remedy}


def fail(error: DseError, *, as_json: bool) -> int:
    """Report `error` and return its exit code (2 input, 3 infeasible, 4 store, 130, 1 ours)."""
    faults = [asdict(fault) for fault in error.faults]
    if as_json:
        emit_json({"error": body(error), "faults": faults})
        return error.exit_code
    sys.stderr.write(f"dse: {error.message}\n")
    if error.remedy:
        sys.stderr.write(f"  remedy: {error.remedy}\n")
    return error.exit_code


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, str) or value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, Sequence | set | frozenset):
        return [_plain(item) for item in value]
    if hasattr(value, "item") and not hasattr(value, "__len__"):
        return _plain(value.item())
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    return str(value)
