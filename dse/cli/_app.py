"""The command table. Commands are named by import path, so `dse --help` imports none of them."""

from cyclopts import App

from dse._version import __version__

COMMANDS = {
    "run": ("dse.cli.run:run", "Answer a study: enumerate, prune, simulate, report."),
    "check": ("dse.cli.check:check", "Read a study or space, list its faults, predict its cost."),
    "walls": ("dse.cli.walls:walls", "Memory, floors and wall order of one deployment."),
    "simulate": ("dse.cli.simulate:simulate", "Simulate one deployment under one load."),
    "explain": ("dse.cli.explain:explain", "Why a point was killed, or is not on the front."),
    "advise": ("dse.cli.advise:advise", "The batch cap of a deployment, and the KV it frees."),
    "triage": ("dse.cli.triage:triage", "A measured step against its floor interval."),
    "validate": ("dse.cli.validate:validate", "Predictions against measured rows."),
    "calibrate": ("dse.cli.calibrate:app", "Fit kernel or saturation constants to tables."),
    "catalog": ("dse.cli.catalog:app", "List, show or add models, GPUs, fabrics and engines."),
    "show": ("dse.cli.show:show", "The stored answer of a study."),
    "report": ("dse.cli.report:report", "Write a study's report again from its store."),
    "compare": ("dse.cli.compare:compare", "Two studies or runs side by side."),
    "query": ("dse.cli.query:query", "SQL on the store, read-only."),
    "export": ("dse.cli.export:export", "The launch command of a point for a serving engine."),
    "schema": ("dse.cli.schema:schema", "JSON Schema of spaces, studies and catalog files."),
    "init": ("dse.cli.init:init", "Write a starter study."),
    "skill": ("dse.cli.skill:skill", "The working discipline, as a guide to follow."),
}


def build() -> App:
    """The `dse` application with every command registered lazily."""
    app = App(
        name="dse",
        help="Design-space exploration for LLM serving: layouts, GPUs and engines from YAML to a "
        "Pareto report.",
        version=__version__,
        result_action="return_value",
        suppress_keyboard_interrupt=False,  # main says what was kept
    )
    for name, (path, text) in COMMANDS.items():
        app.command(path, name=name, help=text)
    return app
