"""GPUs and nodes for a load, against sums by hand: the node's size is the fabric's."""

from typing import Any

import pytest

from dse.catalog import Catalog
from dse.report.fleet import gpus_for, housed


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return Catalog.load()


def row(gpu: str, tp: int, n_replicas: int) -> dict[str, Any]:
    return {"gpu": gpu, "tp": tp, "n_replicas": n_replicas, "n_gpus": tp * n_replicas}


def test_gpus_are_whole_replicas() -> None:
    two = {"goodput_req_per_s_per_gpu": 0.5, "n_gpus": 8, "n_replicas": 4, "tp": 2}
    assert gpus_for(two, 10.0) == 20  # a replica of two gives 1 req/s
    assert gpus_for(two, 10.1) == 22
    apart = {"goodput_req_per_s_per_gpu": 0.5, "n_gpus": 8, "prefill_tp": 4}
    assert gpus_for(apart, 10.0) == 24  # prefill and decode come together
    assert gpus_for({**two, "goodput_req_per_s_per_gpu": 0.0}, 10.0) is None


@pytest.mark.parametrize(
    ("deployed", "n_gpus", "text"),
    [
        (row("h100-sxm", 4, 2), 20, "3 nodes of 8"),  # 5 replicas of 4, two a node
        (row("h100-sxm", 3, 1), 12, "2 nodes of 8"),  # 4 replicas of 3, two a node
        (row("h100-sxm", 8, 1), 8, "1 node of 8"),
        (row("h100-sxm", 16, 1), 16, "2 nodes of 8"),
        (row("gh200-96gb", 4, 1), 8, "2 nodes of 4"),
        (row("gb200", 8, 1), 80, "2 scale-up domains of 72"),  # nine replicas of 8 in a domain
        ({**row("h100-sxm", 1, 1), "fabric": "nvl72"}, 73, "2 scale-up domains of 72"),
        (row("no-such-gpu", 1, 1), 8, ""),
    ],
)
def test_nodes_are_those_of_the_hardware(
    catalog: Catalog, deployed: dict[str, Any], n_gpus: int, text: str
) -> None:
    assert housed(deployed, n_gpus, catalog) == text


def test_pools_apart_stand_in_their_own_nodes(catalog: Catalog) -> None:
    apart = {
        "gpu": "h100-sxm → gb200",
        "n_gpus": 40,
        "prefill_gpu": "h100-sxm",
        "prefill_tp": 4,
        "prefill_n_replicas": 2,
        "decode_gpu": "gb200",
        "decode_tp": 1,
        "decode_dp": 32,
        "decode_n_replicas": 1,
    }
    assert housed(apart, 80, catalog) == "2 nodes of 8 and 1 scale-up domain of 72"
