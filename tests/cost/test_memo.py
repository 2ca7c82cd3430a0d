"""What is shared between pools is the same value, and nothing else is taken for it."""

from dataclasses import replace

import numpy as np

from dse.cost.memo import Memo, shape_key
from dse.cost.step import compile_step
from dse.hardware.dtype import DType
from dse.model.ops import Gemm
from tests import worlds


def test_a_value_is_made_once_and_the_one_used_longest_ago_goes_first():
    memo, made = Memo(2), []
    records = [object() for _ in range(3)]

    def value(record):
        return memo.of((record,), (), lambda: made.append(record) or len(made))

    first, second = value(records[0]), value(records[1])
    assert (value(records[0]), value(records[1]), value(records[0])) == (first, second, first)
    value(records[2])
    assert value(records[0]) == first
    assert value(records[1]) != second
    assert len(made) == 4


def test_equal_ops_have_equal_keys_and_arrays_count_by_content():
    def gemm(m, n=64):
        return Gemm(m=m, n=n, k=32, weights=DType.FP8, activations=DType.FP8)

    grid = np.arange(1.0, 5.0)
    assert shape_key(gemm(grid)) == shape_key(gemm(grid.copy()))
    others = [gemm(grid + 1.0), gemm(grid[:, None]), gemm(grid, 65), gemm(1.0)]
    assert len({shape_key(each) for each in (gemm(grid), *others)}) == 5


def test_pools_that_differ_in_role_and_replicas_share_their_tables():
    found = worlds.deployment(worlds.tiny())
    pool = found.pools[0]
    cost = compile_step(found, pool)
    assert compile_step(found, replace(pool, n_replicas=3)) is cost
    other = replace(pool, engine=replace(pool.engine, max_num_seqs=7))
    assert compile_step(found, other).grid.seqs[-1] < cost.grid.seqs[-1]
    assert compile_step(found, pool, "roofline").kernels_id != cost.kernels_id
