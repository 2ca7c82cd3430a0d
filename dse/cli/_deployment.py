"""From flags to records: the deployment, the workload and the SLO that a command is asked about."""

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeVar, cast, get_type_hints

from dse.base.errors import IllegalError, SpaceError, UserError, did_you_mean
from dse.base.keys import yaml_keys
from dse.base.parse import parse_tree
from dse.base.source import build, read
from dse.base.units import UNITS, CountUnit, ShareUnit, counted, parse
from dse.catalog import Catalog
from dse.cli._flags import DeploymentFlags, SLOFlags, WorkloadFlags
from dse.hardware import DType
from dse.serving.arrivals import Arrivals, ClosedLoop, Poisson
from dse.serving.deployment import Deployment, Pool, Role
from dse.serving.engine import Engine
from dse.serving.layout import Layout
from dse.serving.legality import check, check_speculative
from dse.serving.lengths import Constant, Lengths, Uniform
from dse.serving.slo import SLO
from dse.serving.workload import Workload
from dse.space.facts import ROOTS, annotation_of, with_fact
from dse.space.options import dtype_of, routing_of, speculative_of
from dse.space.precision import precision_of

T = TypeVar("T")

DEFAULT_ENGINE: Final = "vllm"
DEGREES = ("tp", "dp", "ep", "pp", "cp", "moe_tp", "redundant_experts")
POOL_WORDS = (
    "gpus",
    "layout",
    "gpu",
    "fabric",
    "engine",
    "engine_args",
    "hbm_fraction",
    "overhead",
)
WORKLOAD_WORDS = {
    "isl": "isl",
    "osl": "osl",
    "concurrency": "concurrency",
    "req_per_s": "rate",
    "n_requests": "requests",
    "shared_prefix": "prefix_cached",
}
"""What `--set workload.NAME` names, and the flag that says the same."""
SWITCHES = {"on": "true", "off": "false"}


def deployment_of(flags: DeploymentFlags, catalog: Catalog | None = None) -> Deployment:
    """Resolve the flags; a UserError says what is missing or wrong, and what to write instead."""
    known = catalog or Catalog.load()
    given = merged(flags)
    model = known.model(_needed(given, "model"))
    settings = _once(flags.set_, "--set")
    _check_roots(settings)
    model = _with_settings(model, "model", settings)
    pools = tuple(_pool(known, given, settings, role) for role in _roles(given))
    _require_total(given, pools)
    decode = pools[-1]
    weights = DType(dtype_of(given["weights"])) if "weights" in given else model.checkpoint
    kv = DType(dtype_of(given.get("kv", "bf16")))
    stated = given.get("kv_pool")
    return Deployment(
        model=model,
        precision=precision_of(model, decode.gpu, weights=weights, kv=kv),
        pools=pools,
        routing=routing_of(given.get("routing", "uniform")),
        speculative=speculative_of(given.get("speculative", "none")),
        interconnect=pools[0].fabric.scale_out if len(pools) > 1 else None,
        kv_pool_bytes=None if stated is None else parse(stated, UNITS["B"]),
    )


def require_legal(deployment: Deployment, gpus: int | None = None) -> None:
    """IllegalError with every reason if no engine could start `deployment` on `gpus` GPUs."""
    broken = [*check_speculative(deployment.model, deployment.speculative)]
    broken += [
        illegal
        for pool in deployment.pools
        for illegal in check(
            deployment.model,
            deployment.precision,
            pool.layout,
            pool.engine,
            pool.gpu,
            fabric=pool.fabric,
            n_gpus=gpus if len(deployment.pools) == 1 else None,
        )
    ]
    if broken:
        nearest = dict.fromkeys(each for illegal in broken for each in illegal.nearest)
        raise IllegalError(
            "; ".join(illegal.reason for illegal in broken),
            f"legal: {' or '.join(nearest)}" if nearest else "",
        )


def split(flags: DeploymentFlags, workload: WorkloadFlags) -> tuple[DeploymentFlags, WorkloadFlags]:
    """The flags with each `--set workload.NAME` laid on the workload's own flag of that name."""
    root = "workload."
    own = [text.removeprefix(root) for text in flags.set_ if text.startswith(root)]
    rest = tuple(text for text in flags.set_ if not text.startswith(root))
    changes: dict[str, Any] = {}
    for name, text in _once(own, "--set workload").items():
        flag = WORKLOAD_WORDS.get(name)
        if flag is None:
            hint = did_you_mean(name, WORKLOAD_WORDS)
            raise UserError(
                f"--set {root}{name}: no such setting{hint}", f"one of {', '.join(WORKLOAD_WORDS)}"
            )
        changes[flag] = _count(text) if flag in ("concurrency", "requests") else text
    return replace(flags, set_=rest), replace(workload, **changes)


def workload_of(flags: WorkloadFlags) -> Workload:
    """The workload of the flags; `--trace` is read by the command, which brings its own reader."""
    arrivals: Arrivals
    concurrency = flags.concurrency
    if flags.rate is not None and concurrency is not None:
        raise UserError(
            "--rate and --concurrency are both given", "choose an open or a closed loop"
        )
    if flags.rate is not None:
        text = flags.rate if "/" in flags.rate else f"{flags.rate} req/s"
        arrivals = Poisson(req_per_s=parse(text, UNITS["req/s"]))
    else:
        arrivals = ClosedLoop(concurrency=1 if concurrency is None else concurrency)
    isl = lengths_of(flags.isl, "--isl")
    n_requests = 1000 if flags.rate is not None else 10 * (concurrency or 1)
    if flags.requests is not None:
        n_requests = at_least_one(flags.requests, "--requests")
    return Workload(
        arrivals=arrivals,
        n_requests=n_requests,
        isl=isl,
        osl=lengths_of(flags.osl, "--osl"),
        shared_prefix_tokens=_prefix(flags.prefix_cached, isl),
    )


def slo_of(flags: SLOFlags) -> SLO:
    """The SLO of the flags; bounds that are not given stay open."""
    seconds = {
        "ttft_s": flags.slo_ttft,
        "tpot_s": flags.slo_tpot,
    }
    bounds = {
        name: None if text is None else parse(text, UNITS["s"]) for name, text in seconds.items()
    }
    share = flags.percentile / 100.0 if flags.percentile > 1 else flags.percentile
    if not 0 < share <= 1:
        raise UserError(f"--percentile {flags.percentile:g} is no share", "write 0.99 or 99")
    for name, bound in bounds.items():
        if bound == 0:
            raise UserError(
                f"--slo-{name.removesuffix('_s')} of 0 s", "nothing keeps it: give more"
            )
    return SLO(attainment=share, **bounds)


def at_least_one(count: int, flag: str) -> int:
    """`count`, or a UserError that names the flag."""
    if count < 1:
        raise UserError(f"{flag} is {count}", "give at least 1")
    return count


def lengths_of(text: str, flag: str) -> Lengths:
    """`4000` is constant, `uniform:819:1024` evenly spread over whole numbers, both included."""
    kind, _, rest = text.partition(":")
    if not rest:
        return Constant(n_tokens=_count(text))
    low, _, high = rest.partition(":")
    if kind != "uniform" or not high:
        raise UserError(f"{flag} {text!r} is no length", "write 4000 or uniform:819:1024")
    return Uniform(low_tokens=_count(low), high_tokens=_count(high))


def layout_of(text: str) -> Layout:
    """`tp=8,dp=2,ep=16` as a layout; missing degrees are 1, `moe_tp` follows from the identity."""
    parts = filter(None, text.replace(" ", "").split(","))
    degrees = _once(parts, "layout")
    for name in degrees:
        if name not in DEGREES:
            hint = did_you_mean(name, DEGREES)
            raise UserError(f"no degree {name!r} in {text!r}{hint}", "write tp=8,dp=2,ep=16")
    return Layout(**{name: _count(value) for name, value in degrees.items()})


def merged(flags: DeploymentFlags) -> dict[str, str]:
    """The flags as text by name, those of the `--deployment` file below them."""
    names = [f.name for f in fields(flags) if f.name not in {"deployment", "set_"}]
    found: dict[str, str] = {}
    if flags.deployment is not None:
        found = _file(flags.deployment, names)
    given = {name: getattr(flags, name) for name in names}
    return found | {name: str(value) for name, value in given.items() if value is not None}


def _file(path: Path, names: list[str]) -> dict[str, str]:
    """A deployment file: the flags as keys; mappings are written as `a=1,b=2`."""
    data = read(path, cast("type[dict[str, Any]]", dict[str, Any]))
    for key in data:
        if key not in names:
            raise UserError(f"{path}: no key {key!r}{did_you_mean(key, names)}")
    return {key: _text(value) for key, value in data.items() if value is not None}


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{key}={_text(item)}" for key, item in value.items())
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)


def _roles(given: Mapping[str, str]) -> tuple[Role, ...]:
    apart = [role for role in ("prefill", "decode") if role in given]
    if len(apart) == 1:
        raise UserError(f"--{apart[0]} is given alone", "give both --prefill and --decode")
    return ("prefill", "decode") if apart else ("both",)


def _require_total(given: Mapping[str, str], pools: tuple[Pool, ...]) -> None:
    """`--gpus` and `--layout` beside two pools must not say anything else than the pools do."""
    if len(pools) == 1:
        return
    if "layout" in given:
        raise UserError("--layout is given beside --prefill and --decode", "give each pool its own")
    total = sum(pool.n_gpus for pool in pools)
    if "gpus" in given and _count(given["gpus"]) != total:
        remedy = f"leave --gpus out, or write {total}"
        raise UserError(f"--gpus {given['gpus']} is not the {total} GPUs of both pools", remedy)


def _pool(
    catalog: Catalog, given: Mapping[str, str], settings: Mapping[str, str], role: Role
) -> Pool:
    own = dict(given)
    if role != "both":
        own = {key: value for key, value in own.items() if key not in {"gpus", "layout"}}
        own |= _of_one_pool(given[role], f"--{role}")
    gpu = _with_settings(catalog.gpu(_needed(own, "gpu")), "gpu", settings)
    fabric = _with_settings(catalog.fabric(own.get("fabric", gpu.fabric)), "fabric", settings)
    layout = layout_of(own.get("layout", ""))
    total = at_least_one(_count(own["gpus"]), "gpus") if "gpus" in own else layout.n_gpus
    if role != "both" and layout.n_gpus and total % layout.n_gpus:
        raise UserError(
            f"--{role}: {counted(total, 'GPU')} % {layout.n_gpus} GPUs of a replica = "
            f"{total % layout.n_gpus}",
            "give a multiple, or another layout",
        )
    return Pool(
        gpu=gpu,
        fabric=fabric,
        layout=layout,
        engine=_engine(catalog, own, settings),
        role=role,
        n_replicas=max(1, total // layout.n_gpus) if layout.n_gpus else 1,
    )


def _of_one_pool(text: str, flag: str) -> dict[str, str]:
    """The words of `--prefill` or `--decode`; what both pools share is no word of one."""
    found = _once(text.split(), flag)
    for name in found:
        if name not in POOL_WORDS:
            hint = did_you_mean(name, POOL_WORDS)
            raise UserError(f"{flag}: no word {name!r}{hint}", f"one of {', '.join(POOL_WORDS)}")
    return found


def _engine(catalog: Catalog, own: Mapping[str, str], settings: Mapping[str, str]) -> Engine:
    engine = _with_settings(catalog.engine(own.get("engine", DEFAULT_ENGINE)), "engine", settings)
    arguments = filter(None, own.get("engine_args", "").split(","))
    for name, value in _once(arguments, "--engine-args").items():
        engine = _assigned(engine, "engine", _engine_path(name), value)
    if "overhead" in own:
        stated = parse(own["overhead"], UNITS["B"])
        engine = replace(engine, memory=replace(engine.memory, overhead_bytes=stated))
    if "hbm_fraction" in own:
        text = own["hbm_fraction"]
        share = ShareUnit(1.0).read(text if text.endswith("%") else _float(text))
        engine = replace(engine, hbm_fraction=share)
    return engine


def _engine_path(name: str) -> str:
    """`hybrid_kv` is found in whichever part of the profile has it."""
    if "." in name:
        return name
    hints = get_type_hints(Engine)
    parts = {"": Engine} | {key: hints[key] for key in ("memory", "host", "rules")}
    known = {
        key: f"{part}.{key}".lstrip(".")
        for part, record in parts.items()
        for pair in yaml_keys(record).items()
        for key in pair
    }
    if name not in known:
        raise UserError(f"no engine setting {name!r}{did_you_mean(name, known)}")
    return known[name]


def _check_roots(settings: Mapping[str, str]) -> None:
    for path in settings:
        if path.partition(".")[0] not in ROOTS:
            if path.startswith("workload."):
                raise UserError(
                    f"--set {path}: this command serves no workload",
                    "give it to `dse simulate`, `dse advise` or `dse explain`",
                )
            hint = did_you_mean(path, ROOTS)
            raise SpaceError(f"--set {path}: starts with none of {', '.join(ROOTS)}{hint}")


def _with_settings(record: T, root: str, settings: Mapping[str, str]) -> T:
    for path, text in settings.items():
        first, _, rest = path.partition(".")
        if first == root:
            record = _assigned(record, root, rest, text)
            floor = f"{rest}_floor"
            if rest.endswith(".latency") and f"{root}.{floor}" not in settings:
                record = _assigned(record, root, floor, text)
    return record


def _assigned(record: T, root: str, path: str, text: str) -> T:
    """`record` with the fact at `path` (YAML keys or field names) read from `text`."""
    names = _field_names()
    keys = tuple(names.get(key, key) for key in path.split("."))
    annotation = annotation_of(".".join([root, *keys]))
    tree = parse_tree(SWITCHES.get(text, text), f"--set {root}.{path}")
    return with_fact(record, keys, build(tree, annotation))


def _field_names() -> dict[str, str]:
    """YAML key of every field of the records that facts may name."""
    found: dict[str, str] = {}
    todo: list[Any] = list(ROOTS.values())
    while todo:
        record = todo.pop()
        found |= {name: key for name, key in yaml_keys(record).items() if name != key}
        hints = get_type_hints(record).values()
        todo += [hint for hint in hints if isinstance(hint, type) and is_dataclass(hint)]
    return found


def _once(settings: Iterable[str], flag: str) -> dict[str, str]:
    """`name=value` texts by name; a name that stands twice is an error, as one would be lost."""
    found: dict[str, str] = {}
    for name, value in (_pairs(text, flag) for text in settings):
        if name in found:
            raise UserError(f"{flag} gives {name} twice: {found[name]} and {value}", "keep one")
        found[name] = value
    return found


def _pairs(text: str, flag: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UserError(f"{flag} {text!r} is no setting", "write name=value")
    return name.strip(), value.strip()


def _needed(given: Mapping[str, str], name: Literal["model", "gpu"]) -> str:
    if name not in given:
        raise UserError(f"--{name} is missing", f"name one of `dse catalog list {name}`")
    return given[name]


def _prefix(text: str, isl: Lengths) -> int:
    if text.endswith("%"):
        return round(ShareUnit(1.0).read(text) * isl.at(0.0))
    shared, longest = _count(text), isl.at(1.0 - 1e-12)
    if shared > longest:
        raise UserError(
            f"--prefix-cached {shared} is longer than a prompt of {longest}", "give --isl the sum"
        )
    return shared


def _count(text: str) -> int:
    return CountUnit().read(text)


def _float(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UserError(f"{text!r} is not a number") from None
