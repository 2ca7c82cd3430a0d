"""Whatever stands in a config, importing it gives a model or an error that names the file."""

from collections.abc import Iterator
from typing import Any

import pytest

from dse.base.errors import UserError
from dse.model import Model
from dse.model.hf import model_from
from tests.model.configs import HYBRID, LATENT, PLAIN
from tests.model.test_hf_families import ERNIE, GEMMA3_4B, GRANITE_HYBRID
from tests.model.test_hf_linear import COMPRESSED, DELTA, KIMI, SPARSE

PRUNED = {
    **PLAIN,
    "model_type": "nemotron-nas",
    "block_configs": [
        {"attention": {"n_heads_in_group": 4}, "ffn": {"ffn_mult": 2.0}},
        {"attention": {"no_op": True}, "ffn": {"no_op": True}},
    ]
    * 2,
}
QUANTISED = {
    **LATENT,
    "quantization_config": {
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}}},
        "ignore": ["re:.*self_attn.*"],
        "quant_method": "compressed-tensors",
    },
}
CONFIGS = {
    "plain": PLAIN,
    "latent": LATENT,
    "pattern": {**HYBRID, "hybrid_override_pattern": "M*-M"},
    "delta": DELTA,
    "kimi": KIMI,
    "compressed": COMPRESSED,
    "sparse": {**PLAIN, "sparse_attention_config": SPARSE},
    "pruned": PRUNED,
    "quantised": QUANTISED,
    "ernie": ERNIE,
    "gemma": GEMMA3_4B,
    "granite": GRANITE_HYBRID,
}
POISON: tuple[Any, ...] = (None, -1, 1.5, "x", [None], {"a": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every path into nested mappings, and the first item of every list."""
    if isinstance(value, dict):
        for key, part in value.items():
            yield (*path, key)
            yield from places(part, (*path, key))
    elif isinstance(value, list) and value:
        yield from places(value[0], (*path, 0))


def changed(value: Any, path: tuple[Any, ...], poison: Any, *, remove: bool = False) -> Any:
    """A copy with another value at `path`, or without it."""
    head, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    if rest:
        copy[head] = changed(copy[head], tuple(rest), poison, remove=remove)
    elif remove:
        del copy[head]
    else:
        copy[head] = poison
    return copy


def complaint(config: dict[str, Any]) -> str:
    """What the importer says, or nothing where it makes a model."""
    try:
        found = model_from(config, name="fuzz", place="fuzz.json")
    except UserError as error:
        return str(error)
    return "" if isinstance(found, Model) else "no model"


def is_handled(config: dict[str, Any]) -> bool:
    said = complaint(config)
    return not said or said.startswith("fuzz.json: ")


@pytest.mark.parametrize("name", CONFIGS)
def test_a_missing_key_is_no_crash(name: str) -> None:
    for path in places(CONFIGS[name]):
        assert is_handled(changed(CONFIGS[name], path, None, remove=True)), path


@pytest.mark.parametrize("name", CONFIGS)
def test_a_wrong_value_is_no_crash(name: str) -> None:
    for path in places(CONFIGS[name]):
        for poison in POISON:
            assert is_handled(changed(CONFIGS[name], path, poison)), (path, poison)
