"""The text of a launch script: processes as paragraphs, written and read."""

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, cast

from dse.base.errors import UserError
from dse.export._base import Flags, Launch
from dse.serving.deployment import Role

_MARK = "# dse export: "
_ROLE = "# role: "
_HEAD = re.compile(r"# role: (\w+) \([a-z ]+\), replicas: (\d+), node: (\d+) of (\d+)$")
_FILE = "# file: "
_VARIABLE = re.compile(r"\$([A-Z_]+[A-Z])(?:_(\d+))?")
_ASSIGNED = re.compile(r"([A-Z_]+)=(.*)")
_VARIABLES = {
    "HEAD_ADDRESS": "address of the first node of a replica",
    "PREFILL_HEAD_ADDRESS": "address of the first node of a prefill replica",
    "DECODE_HEAD_ADDRESS": "address of the first node of a decode replica",
    "PREFILL_URL": "URL of the prefill server",
    "DECODE_URL": "URL of the decode server",
    "DRAFT_MODEL": "repository or path of the draft model",
    "DISAGGREGATED_YAML": "file that lists the URLs of context_servers and generation_servers",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Export:
    """The processes of a deployment, and what the reader must know. `head` is what no flag says,
    `remarks` what the flags' values rest on.
    """

    engine: str
    head: Mapping[str, str]
    launches: tuple[Launch, ...]
    router: tuple[str, ...] | None
    warnings: tuple[str, ...]
    remarks: tuple[str, ...] = ()

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
        parts = [part for each in self.launches for part in (*each.argv, *each.files.values())]
        text = " ".join([*parts, *(self.router or ())])
        found = {}
        for name, number in _VARIABLE.findall(text):
            found[f"{name}_{number}".rstrip("_")] = f"{_VARIABLES[name]} {number}".rstrip()
        return found

    @property
    def command(self) -> str:
        """The script."""
        head = " ".join(f"{key}={value}" for key, value in self.head.items())
        blocks = [f"{_MARK}{head}"]
        if self.remarks:
            blocks.append("\n".join(f"# {text}" for text in self.remarks))
        blocks += map(_block, self.launches)
        if self.router is not None:
            prefix = tuple(takewhile(lambda part: not part.startswith("--"), self.router))
            blocks.append(f"# in front of prefill and decode\n{_joined(self.router, prefix)}")
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
        own = launch.own
        if launch.n_nodes > 1:
            own += ", and an address of its own first node"
        lines.append(f"# start {launch.copies} of these, each with {own}")
    for name, content in launch.files.items():
        # Only an open heredoc lets the shell fill in a variable.
        end = "END" if _VARIABLE.search(content) else "'END'"
        lines += [f"{_FILE}{name}", f"cat > {name} <<{end}", *content.splitlines(), "END"]
    env = " ".join(f"{name}={value}" for name, value in launch.env.items())
    command = _joined(launch.argv, launch.prefix)
    return "\n".join([*lines, f"{env} {command}" if env else command])


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
    if not _VARIABLE.search(part):
        return shlex.quote(part)
    return '"' + part.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
    env: dict[str, str] = {}
    while words and (found := _ASSIGNED.fullmatch(words[0])):
        env[found[1]] = found[2]
        words = words[1:]
    start = next((i for i, word in enumerate(words) if word.startswith("--")), len(words))
    return Launch(
        role=cast("Role", role),
        prefix=tuple(words[:start]),
        flags=_flags(words[start:]),
        env=env,
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
