"""Work of a run from below: what is not known must not be claimed."""

import numpy as np

from dse.search.envelope import Hull
from dse.search.work import _Box


def test_a_plane_beyond_the_tables_claims_nothing():
    # Attention beside its KV term may be negative, so zero would be more than is known: it once
    # voided the certificate of a study with prompts of 64Ki tokens.
    tokens = Hull.below(np.array([1.0, 10.0]), np.array([1.0, 10.0]))
    rows = Hull.below(np.array([0.0, 4.0]), np.array([0.0, 0.0]))
    box = _Box(rate=-1.0, decode=8.0, prompt=100.0, q=1, chunks=2.0, most=8.0)
    assert box.tangent(tokens, rows, 1.0) == -np.inf
    inside = _Box(rate=-1.0, decode=8.0, prompt=10.0, q=1, chunks=2.0, most=8.0)
    assert np.isfinite(inside.tangent(tokens, rows, 1.0))
