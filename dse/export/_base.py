"""The contract of an exporter: a pool of a deployment to engine flags, and flags back to facts."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from dse.base.errors import IllegalError
from dse.hardware import DType
from dse.model import Model
from dse.serving.deployment import Deployment, Pool, Role
from dse.serving.layout import Layout

__all__ = [
    "Exporter",
    "Flags",
    "Given",
    "Launch",
    "checkpoint",
    "head_address",
    "integer",
    "is_quantised_online",
    "nodes_of",
    "refuse",
    "urls",
]

Flags = Mapping[str, str | None]
"""Flag to value in the order in which they are written; None for a flag without a value."""

TRAY_GPUS = 4
NODE_GPUS = 8
_REPOSITORY = re.compile(r"huggingface\.co/([\w.-]+/[\w.-]+\w)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """One process to start: `copies` of it for equal replicas, on `node` of `n_nodes`.

    `files` are written beside the command, name to content; `prefix` stands before the flags and
    `env` before it. `own` is what each of several processes has for itself.
    """

    role: Role
    prefix: tuple[str, ...]
    flags: Flags
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    node: int = 0
    n_nodes: int = 1
    copies: int = 1
    own: str = "GPUs and a --port of its own"

    @property
    def argv(self) -> tuple[str, ...]:
        """The command and its flags."""
        parts = [*self.prefix]
        for flag, value in self.flags.items():
            parts += [flag] if value is None else [flag, value]
        return tuple(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What the flags of one pool say: layout, KV format, engine settings, longest context.

    A setting that an engine has no flag for is None.
    """

    layout: Layout
    kv: DType
    max_num_batched_tokens: int
    max_num_seqs: int
    hbm_fraction: float
    block_tokens: int
    prefix_caching: bool
    chunked_prefill: bool
    context_tokens: int
    exchange: str | None = None
    hybrid_kv: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Exporter(ABC):
    """How one engine is launched. `engine` names its catalog profiles, `cites` where its flags are
    documented, `limit` says what its limit of running requests counts, and where that is said.
    """

    engine: ClassVar[str]
    cites: ClassVar[str]
    limit: ClassVar[str]
    quantises: ClassVar[bool] = True
    """Whether the engine can make FP8 weights itself while it loads a 16-bit checkpoint."""

    @abstractmethod
    def launches(self, deployment: Deployment, pool: Pool, context_tokens: int) -> Iterator[Launch]:
        """The processes of one replica of `pool`, a node each; `IllegalError` for what the engine's
        flags cannot say.
        """

    @abstractmethod
    def read(self, launch: Launch) -> Given:
        """What the flags of a pool's first process say."""

    def router(self, deployment: Deployment) -> tuple[str, ...] | None:
        """The process that joins prefill and decode, where they are apart."""
        return None

    def warnings(self, deployment: Deployment) -> Iterator[str]:
        """What the flags leave to the reader."""
        for weights in dict.fromkeys([deployment.precision.weights]):
            model = deployment.model
            online = self.quantises and is_quantised_online(deployment)
            if weights != model.checkpoint and not online:
                yield (
                    f"{model.name} stores {model.checkpoint.value}: put a {weights.value} "
                    f"checkpoint of it, made or downloaded, at {checkpoint(model, weights)}"
                )
        if not _REPOSITORY.search(deployment.model.source):
            yield f"the catalog knows no repository of {deployment.model.name}: give its path"


def urls(deployment: Deployment, role: Role) -> tuple[str, ...]:
    """A variable for the URL of each server of a role: `$PREFILL_URL`, or one a replica."""
    name = f"${role.upper()}_URL"
    n_servers = next(pool.n_replicas for pool in deployment.pools if pool.role == role)
    return (name,) if n_servers == 1 else tuple(f"{name}_{i + 1}" for i in range(n_servers))


def head_address(pool: Pool) -> str:
    """The variable for the first node of a replica that spans several; each role has its own."""
    return "$HEAD_ADDRESS" if pool.role == "both" else f"${pool.role.upper()}_HEAD_ADDRESS"


def nodes_of(pool: Pool) -> tuple[int, int]:
    """Nodes of one replica, and GPUs of a node.

    Assumes nodes of 8 GPUs, trays of 4 in a domain of more than 16, or the whole of a smaller
    domain.
    """
    domain = pool.fabric.scale_up.n_gpus
    per_node = TRAY_GPUS if domain > 2 * NODE_GPUS else min(domain, NODE_GPUS)
    return -(-pool.layout.n_gpus // per_node), per_node


def checkpoint(model: Model, weights: DType) -> str:
    """The model's repository, or the local path of a checkpoint in another format."""
    found = _REPOSITORY.search(model.source)
    if weights != model.checkpoint or found is None:
        suffix = "" if weights == model.checkpoint else f"-{weights.value}"
        return f"./checkpoints/{model.name.lower()}{suffix}"
    return found[1]


def is_quantised_online(deployment: Deployment) -> bool:
    """Whether the engine makes the weights' format itself while it loads a 16-bit checkpoint."""
    sixteen = deployment.model.checkpoint in {DType.BF16, DType.FP16}
    return sixteen and deployment.precision.weights is DType.FP8


def refuse(what: str, remedy: str) -> IllegalError:
    """The error of a deployment that an engine's flags cannot say."""
    return IllegalError(what, remedy)


def integer(flags: Flags, name: str, default: int = 1) -> int:
    """A flag's value as an integer; `default` where it is absent."""
    value = flags.get(name)
    return default if value is None else int(value)
