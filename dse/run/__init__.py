"""How work is spread: identities, chunks, pools of workers, progress.

`dse.run(study)` is the Python interface's verb as well (`dse.pipeline.api.run`). A package cannot
share its name with a function, so this one can be called.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class _Verb(ModuleType):
    def __call__(self, *study: Any, **how: Any) -> Any:
        """Answer a study; see `dse.pipeline.api.run`."""
        return import_module("dse.pipeline.api").run(*study, **how)


sys.modules[__name__].__class__ = _Verb
