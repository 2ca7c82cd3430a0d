"""The command line: a small module a command; each parses, calls, prints, and holds no logic."""

import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

from dse.base.errors import DseError, StudyError, UserError, did_you_mean
from dse.cli._app import COMMANDS, build
from dse.cli._output import Interrupted, fail

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run one command and exit with its code."""
    tokens = list(sys.argv[1:] if argv is None else argv)
    sys.exit(_code(tokens))


def _code(tokens: list[str]) -> int:
    from cyclopts import CycloptsError

    as_json = "--json" in tokens
    if tokens and not tokens[0].startswith("-") and tokens[0] not in COMMANDS:
        message = f"no command '{tokens[0]}'{did_you_mean(tokens[0], COMMANDS)}"
        return fail(UserError(message, remedy="see `dse --help`"), as_json=as_json)
    try:
        result = build()(tokens, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        message = str(error).strip() or type(error).__name__
        return fail(UserError(message, remedy="see `dse --help`"), as_json=as_json)
    except DseError as error:
        return fail(error, as_json=as_json)
    except KeyboardInterrupt:
        return fail(Interrupted("interrupted", "nothing was left half-written"), as_json=as_json)
    except MemoryError:
        text, remedy = "memory ran out", "narrow the space: `dse check` says how large it is"
        return fail(StudyError(text, remedy), as_json=as_json)
    except BrokenPipeError:
        # The reader (`| head`) has gone: point stdout elsewhere so that the exit is silent.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("DSE_DEBUG"):
            traceback.print_exc()
        text = f"internal error: {type(error).__name__}: {error}"
        remedy = "a defect of dse: run again with DSE_DEBUG=1 and report the trace"
        return fail(DseError(text, remedy=remedy), as_json=as_json)
    return result if isinstance(result, int) else 0
