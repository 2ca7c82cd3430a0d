"""The text of a launch script: processes as paragraphs, written and read."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from dse.base.errors import UserError
from dse.export._base import Flags, Launch
from dse.serving.deployment import Role

_MARK = "# dse export: "
_ROLE = "# role: "
_HEAD = re.compile(r"# role: (\w+) \([a-z ]+\), replicas: (\d+), node: (\d+) of (\d+)$")
_FILE = "# file: "
_VARIABLES = {
    "HEAD_ADDRESS": "address of the first node",
    "PREFILL_URL": "URL of the prefill server",
    "DECODE_URL": "URL of the decode server",
    "DRAFT_MODEL": "repository or path of the draft model",
    "DISAGGREGATED_YAML": "file that lists the URLs of context_servers and generation_servers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The processes of a deployment, and what the reader must know. `head` is what no flag says."""

    engine: str
    head: Mapping[str, str]
    launches: tuple[Launch, ...]
    router: tuple[str, ...] | None
    warnings: tuple[str, ...]

    @property
    def flags(self) -> dict[str, Any]:
        """Flag to value of the first process, or of each role's where they are apart; True for a
        flag without a value.
        """
        first = {str(each.role): _plain(each.flags) for each in reversed(self.launches)}
        return first.get("both") or dict(sorted(first.items(), reverse=True))

    @property
    def env(self) -> dict[str, str]:
        """What the reader must set: variables that the commands name."""
        text = " ".join(part for each in self.launches for part in each.argv)
        text += " ".join(self.router or ())
        return {name: why for name, why in _VARIABLES.items() if f"${name}" in text}

    @property
    def command(self) -> str:
        """The script."""
        head = " ".join(f"{key}={value}" for key, value in self.head.items())
        blocks = [f"{_MARK}{head}", *(_block(each) for each in self.launches)]
        if self.router is not None:
            blocks.append(f"# in front of prefill and decode\n{_joined(self.router)}")
        return "\n\n".join(blocks) + "\n"


def read_script(script: str) -> tuple[dict[str, str], tuple[Launch, ...]]:
    """The head and the processes of a script; a `UserError` for any other text."""
    if not script.startswith(_MARK):
        raise UserError("this is no script of `dse export`", f"its first line starts {_MARK!r}")
    first, *blocks = script.split("\n\n")
    head = dict(part.split("=", 1) for part in first.removeprefix(_MARK).split())
    return head, tuple(_launch(block) for block in blocks if block.startswith(_ROLE))


def _plain(flags: Flags) -> dict[str, Any]:
    return {flag: True if value is None else value for flag, value in flags.items()}


def _block(launch: Launch) -> str:
    """One process as a paragraph: who it is, its files, its command."""
    does = "prefill and decode" if launch.role == "both" else f"{launch.role} alone"
    head = f"{_ROLE}{launch.role} ({does}), replicas: {launch.copies}"
    head += f", node: {launch.node + 1} of {launch.n_nodes}"
    lines = [head]
    if launch.copies > 1:
        lines.append(f"# start {launch.copies} of these, each on GPUs and a port of its own")
    for name, content in launch.files.items():
        lines += [f"{_FILE}{name}", f"cat > {name} <<'END'", *content.splitlines(), "END"]
    return "\n".join([*lines, _joined(launch.argv, launch.prefix)])


def _joined(argv: tuple[str, ...], prefix: tuple[str, ...] = ()) -> str:
    """A command, a flag a line; `$NAME` stays open to the shell."""
    lines = [" ".join(map(_quoted, argv[: len(prefix) or len(argv)]))]
    for part in argv[len(prefix) or len(argv) :]:
        if part.startswith("--"):
            lines.append(f"  {part}")
        else:
            lines[-1] += f" {_quoted(part)}"
    return " \\\n".join(lines)


def _quoted(part: str) -> str:
    return f'"{part}"' if part.startswith("$") else shlex.quote(part)


def _launch(block: str) -> Launch:
    """Read a paragraph of a script."""
    lines = block.splitlines()
    head = _HEAD.match(lines[0])
    if head is None:
        raise UserError(f"{lines[0]!r} is no head of a process", "export the script again")
    role, copies, node, n_nodes = head.groups()
    files: dict[str, str] = {}
    at = 2 if lines[1].startswith("# start ") else 1
    while at < len(lines) and lines[at].startswith(_FILE):
        stop = lines.index("END", at)
        files[lines[at].removeprefix(_FILE)] = "\n".join(lines[at + 2 : stop])
        at = stop + 1
    words = shlex.split("\n".join(lines[at:]).replace("\\\n", " "))
    start = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    return Launch(
        role=cast("Role", role),
        prefix=tuple(words[:start]),
        flags=_flags(words[start:]),
        files=files,
        node=int(node) - 1,
        n_nodes=int(n_nodes),
        copies=int(copies),
    )


def _flags(words: list[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    last = ""
    for word in words:
        if word.startswith("--"):
            last = word
            found[last] = None
        elif last:
            found[last] = word
        else:
            raise UserError(f"{word!r} is no flag", "flags start with --")
    return found
