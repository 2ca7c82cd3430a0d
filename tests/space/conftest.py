from pathlib import Path

import pytest

from dse.base.parse import parse_tree, resolve_includes
from dse.catalog import Catalog
from dse.space import Space, load_space

DENSE = """
name: Tiny-Dense
d_model: 1024
vocab_size: 32000
tied_embeddings: false
max_context: 32Ki
layers:
  - repeat: 4
    attention: {kind: gqa, n_heads: 16, n_kv_heads: 8, d_head: 64}
    ffn: {kind: dense, d_ff: 4096}
source: made up for tests
"""

MOE = """
name: Tiny-MoE
d_model: 1024
vocab_size: 32000
tied_embeddings: false
max_context: 32Ki
layers:
  - repeat: 4
    attention: {kind: gqa, n_heads: 16, n_kv_heads: 8, d_head: 64}
    ffn: {kind: moe, n_experts: 8, top_k: 2, d_expert: 2048}
source: made up for tests
"""


@pytest.fixture(scope="session")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    """The shipped catalog with two models of round numbers beside it."""
    root = tmp_path_factory.mktemp("catalog")
    (root / "models").mkdir()
    (root / "models/tiny-dense.yaml").write_text(DENSE)
    (root / "models/tiny-moe.yaml").write_text(MOE)
    return Catalog.load(root)


@pytest.fixture(scope="session")
def spaced(catalog: Catalog):
    """Read a space from text, over a few lines that every space needs."""

    def read(text: str, *, base: str = BASE, name: str = "space.yaml") -> Space:
        lines = {line.partition(":")[0] for line in text.splitlines()}
        kept = [line for line in base.splitlines() if line.partition(":")[0] not in lines]
        tree = parse_tree(text.strip("\n") + "\n" + "\n".join(kept) + "\n", name)
        return load_space(resolve_includes(tree), catalog)

    return read


BASE = """
model: tiny-dense
gpu: h200-sxm
engine: vllm@0.19
n_gpus: 8
precision: {weights: bf16, kv: bf16}
context: {isl: 1000, osl: 100}
batch: [1, 8]
"""


@pytest.fixture
def write(tmp_path: Path):
    """Write a file into the test's own folder and return its path."""

    def written(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return written
