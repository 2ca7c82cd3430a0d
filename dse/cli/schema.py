"""`dse schema`: the JSON Schema of what a user writes, or its reference as Markdown."""

import json as json_module
from typing import Literal

from dse.cli._output import Json, emit_json

Kind = Literal["space", "study", "gpu", "model", "fabric", "engine"]


def schema(kind: Kind = "study", /, *, markdown: bool = False, json: Json = False) -> int:
    """Print the JSON Schema of spaces, studies and catalog files, for editors and checkers.

    Parameters
    ----------
    kind
        What is described.
    markdown
        Print the reference page of all spaces and studies instead.
    """
    from dse.base.source import schema as schema_of
    from dse.study.reference import RECORDS, reference

    if markdown and json:
        emit_json({"reference": reference()})
    elif markdown:
        print(reference(), end="")  # noqa: T201
    else:
        print(json_module.dumps(schema_of(RECORDS[kind]), indent=2))  # noqa: T201
    return 0
