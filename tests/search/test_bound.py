"""The certificate holds: at tolerance 0 the front is that of exhaustive search, else within it."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.search import METHODS, Bound, Question
from dse.search.dominance import beaten_by, costs, gap
from dse.search.gather import optimistic
from dse.search.guessed import spread
from tests.search.worlds import THREE, TWO, World

bound, exhaustive = METHODS["bound"], METHODS["exhaustive"]
worlds = st.builds(
    World,
    n=st.integers(0, 300),
    seed=st.integers(0, 10_000),
    looseness=st.sampled_from([(0.5, 0.03), (0.5,), (0.0,), (1.0, 0.2, 0.02)]),
    replicates=st.sampled_from([1, 3]),
)
objectives = st.sampled_from([TWO, THREE])


def points(frame):
    return sorted(frame["point"].to_list())


@settings(max_examples=25)
@given(worlds, objectives, st.sampled_from([4, 64]))
def test_tolerance_zero_is_the_exhaustive_front(world, objectives, round_size):
    question = world.question(objectives, tolerance=0.0, round_size=round_size)
    found, all_of_them = (
        search(world.survivors, world.evaluate, question) for search in (bound, exhaustive)
    )
    assert points(found.front) == points(all_of_them.front)
    assert found.certificate.valid
    assert found.n_simulated + found.n_dropped_by_bound == world.n


@settings(max_examples=25)
@given(worlds, objectives, st.sampled_from([0.02, 0.2]))
def test_every_true_member_is_within_the_tolerance_of_a_reported_one(world, objectives, tolerance):
    question = world.question(objectives, tolerance=tolerance)
    found = bound(world.survivors, world.evaluate, question)
    truth = exhaustive(world.survivors, world.evaluate, question)
    reported = costs(found.front, objectives)
    assert (beaten_by(reported, costs(truth.front, objectives), tolerance + 1e-12) >= 0).all()


@settings(max_examples=10)
@given(worlds, st.sampled_from([0.0, 0.02]))
def test_every_proof_holds_when_checked_again(world, tolerance):
    question = world.question(tolerance=tolerance)
    found = bound(world.survivors, world.evaluate, question)
    assert points(pl.concat([found.proofs.select("point"), found.frame.select("point")])) == points(
        world.survivors
    )
    by_rung = {each.rung: each.of(world.survivors) for each in question.bounds}
    simulated = found.frame.filter("feasible")
    for row in found.proofs.iter_rows(named=True):
        limit = by_rung[row["rung"]].filter(pl.col("point") == row["point"])
        winner = simulated.filter(pl.col("point") == row["dominated_by"])
        # Rungs tighten: the vector that was beaten is the tighter of all rungs so far.
        limits = [costs(by_rung[r].filter(pl.col("point") == row["point"]), TWO) for r in by_rung]
        assert limit.height == winner.height == 1
        assert beaten_by(costs(winner, TWO), np.max(limits, axis=0), tolerance + 1e-12)[0] == 0


@settings(max_examples=10)
@given(worlds, st.randoms())
def test_the_order_of_survivors_changes_no_front(world, random):
    question = world.question(tolerance=0.0)
    shuffled = world.survivors[random.sample(range(world.n), world.n)]
    one, other = (bound(each, world.evaluate, question) for each in (world.survivors, shuffled))
    assert points(one.front) == points(other.front)


def test_few_are_simulated_where_bounds_are_tight():
    world = World(n=3000, looseness=(0.5, 0.02))
    exact = bound(world.survivors, world.evaluate, world.question(tolerance=0.0))
    near = bound(world.survivors, world.evaluate, world.question(tolerance=0.02))
    assert near.n_simulated < exact.n_simulated < 0.1 * world.n
    assert exact.certificate.tightness["tpot_mean_s"][0] == pytest.approx(0.01, abs=0.01)


@settings(max_examples=5)
@given(st.integers(0, 1000), st.sampled_from([0.0, 0.05, 10.0]), st.booleans())
def test_guesses_decide_the_order_and_nothing_else(seed, wrong_by, hides):
    """However wrong they are, and whatever they take for infeasible."""
    world = World(n=2100, seed=seed)
    draw = np.random.default_rng(seed)
    factors = pl.Series(np.exp(wrong_by * draw.normal(size=world.n)))
    guessed = world.true.with_columns(pl.col("tpot_mean_s") * factors).with_columns(
        strain=pl.Series(2.0 * draw.random(world.n)) if hides else pl.lit(0.0)
    )

    def guess(points):
        return points.select("point").join(guessed, on="point", maintain_order="left")

    asked = world.question(tolerance=0.0)
    first, *others = asked.bounds
    asked = replace(asked, bounds=(replace(first, guess=guess), *others))
    found, truth = (
        search(world.survivors, world.evaluate, asked) for search in (bound, exhaustive)
    )
    assert points(found.front) == points(truth.front)
    assert found.n_simulated + found.n_dropped_by_bound == world.n


def test_good_guesses_simulate_the_front_first():
    world = World(n=2500)
    asked = world.question(tolerance=0.0)
    first, *others = asked.bounds
    true = world.bound(0.0)

    def guess(points):
        return true(points).with_columns(strain=pl.lit(0.5))

    told = replace(asked, bounds=(replace(first, guess=guess), *others))
    truth = exhaustive(world.survivors, world.evaluate, asked).front
    world.calls.clear()
    bound(world.survivors, world.evaluate, told)
    n_rounds = -(-truth.height // asked.round_size)
    early = {point for call in world.calls[: n_rounds + 1] for point in call}
    assert set(points(truth)) <= early


@pytest.mark.parametrize("budget", [1, 40, 100_000])
def test_a_budget_ends_the_search_and_the_certificate_says_what_is_left(budget):
    world = World(n=3000, looseness=(0.5, 0.05))
    whole = bound(world.survivors, world.evaluate, world.question(tolerance=0.0))
    found = bound(world.survivors, world.evaluate, world.question(tolerance=0.0, budget=budget))
    certificate = found.certificate
    assert found.n_simulated == min(budget, whole.n_simulated)
    assert certificate.n_left == world.n - found.n_simulated - found.n_dropped_by_bound
    if budget < whole.n_simulated:
        assert certificate.n_left > 0
        assert certificate.gap > 0.0
        assert certificate.statement.startswith("the search ended before the front was proved")
        assert f"{certificate.n_left:,} undecided" in certificate.statement
    else:
        assert (certificate.n_left, certificate.gap) == (0, 0.0)
        assert certificate.statement.startswith("the front is exact")
        assert points(found.front) == points(whole.front)


def test_a_budget_takes_of_a_round_what_drops_most():
    """A row that covers two others comes before an earlier one that covers none."""
    vectors = np.array([[0.0, 9.0], [9.0, 0.0], [5.0, 5.0], [5.001, 5.001], [5.002, 5.002]])
    asked = World(n=5).question(tolerance=0.0)
    assert spread(vectors, vectors, asked).tolist() == [2, 0, 1]


def test_without_a_feasible_point_no_limit_of_the_others_is_named():
    world = World(n=300, looseness=(0.5, 0.05))
    asked = world.question(tolerance=0.0, feasible=pl.lit(value=False), budget=3)
    statement = bound(world.survivors, world.evaluate, asked).certificate.statement
    assert statement.endswith("297 undecided, any of which may belong on it")


def test_without_bounds_every_survivor_is_simulated():
    world = World(n=50, looseness=())
    found = bound(world.survivors, world.evaluate, world.question(tolerance=0.02))
    assert found.n_simulated == 50


def test_a_planted_violation_voids_the_certificate():
    honest = World(n=200)
    victim = bound(honest.survivors, honest.evaluate, honest.question()).front["point"][0]
    world = World(n=200, planted=victim, looseness=(0.03,))
    found = exhaustive(world.survivors, world.evaluate, world.question())
    assert not found.certificate.valid
    assert [each.point for each in found.certificate.violations] == [victim]
    assert found.certificate.statement.startswith("VOID: 1 results beat their own bound")
    assert found.certificate.record()["valid"] is False


def test_what_fails_is_counted_and_on_no_front():
    whole = World(n=100)
    victim = exhaustive(whole.survivors, whole.evaluate, whole.question()).front["point"][0]
    world = World(n=100, broken=frozenset({victim}))
    found = bound(world.survivors, world.evaluate, world.question(tolerance=0.0))
    assert found.n_failed == 1
    assert victim not in found.front["point"]
    assert "1 failed" in found.certificate.statement
    row = found.frame.filter(pl.col("point") == victim).row(0, named=True)
    assert (row["status"], row["error"], row["tpot_mean_s"], row["feasible"]) == (
        "error",
        "no",
        None,
        False,
    )


def test_only_feasible_points_prove_anything():
    world = World(n=300)
    limits = {"feasible": pl.col("tpot_mean_s") <= 0.012, "hopeless": pl.col("tpot_mean_s") > 0.012}
    question = world.question(tolerance=0.0, **limits)
    found, truth = (
        search(world.survivors, world.evaluate, question) for search in (bound, exhaustive)
    )
    assert points(found.front) == points(truth.front)
    assert (found.front["tpot_mean_s"] <= 0.012).all()
    assert found.proofs["dominated_by"].null_count() > 0


def test_an_unknown_value_beats_nobody():
    """A point without a price, say: it is simulated and stands on no front."""
    world = World(120, seed=3, broken=frozenset())
    exact = METHODS["exhaustive"](world.survivors, world.evaluate, world.question()).front
    priceless = exact["point"][exact.height // 2]
    unknown = pl.col("point") == priceless

    def hide(rows):
        rate = pl.col("output_tok_per_s_per_gpu")
        return rows.with_columns(pl.when(~unknown).then(rate))

    bounds = tuple(
        Bound(rung=each.rung, of=lambda points, of=each.of: hide(of(points)))
        for each in world.bounds()
    )
    asked = replace(world.question(), bounds=bounds, tolerance=0.0)
    evaluate = lambda points: hide(world.evaluate(points))  # noqa: E731
    every = METHODS["exhaustive"](world.survivors, evaluate, asked)
    found = METHODS["bound"](world.survivors, evaluate, asked)
    assert priceless in found.frame["point"]
    assert set(found.front["point"]) == set(every.front["point"])
    assert found.n_simulated < world.survivors.height


def test_nothing_feasible_is_an_empty_front():
    world = World(n=30)
    question = world.question(feasible=pl.col("tpot_mean_s") < 0)
    assert bound(world.survivors, world.evaluate, question).front.is_empty()


def test_replicates_are_averaged_and_overlaps_are_ties():
    world = World(n=100, replicates=3, looseness=(0.5, 0.03))
    found = exhaustive(world.survivors, world.evaluate, world.question())
    row = found.frame.row(0, named=True)
    true = world.true.filter(pl.col("point") == row["point"])["tpot_mean_s"].item()
    assert row["tpot_mean_s"] == pytest.approx(true * 1.01)
    assert (row["tpot_mean_s_low"], row["tpot_mean_s_high"]) == pytest.approx((true, true * 1.02))
    assert row["n_replicates"] == 3


def test_rounds_are_told_and_close_on_no_gap():
    world, told = World(n=400), []
    found = bound(
        world.survivors,
        world.evaluate,
        world.question(tolerance=0.0, on_round=told.append, round_size=8),
    )
    assert tuple(told) == found.certificate.rounds
    assert told[-1].n_left == 0
    assert told[-1].gap == 0.0
    assert all(len(call) <= 8 for call in world.calls)
    volumes = found.history["hypervolume"].to_list()
    assert volumes == sorted(volumes)


def test_tolerance_is_relative_and_ties_survive_at_zero():
    one = np.array([[0.0, 0.0]])
    assert beaten_by(one, np.log([[1.0, 1.0], [0.99, 1.5], [0.97, 1.5]]), 0.0).tolist() == [
        -1,
        -1,
        -1,
    ]
    assert beaten_by(one, np.log([[1.0, 1.0], [0.99, 1.5], [0.97, 1.5]]), 0.02).tolist() == [
        0,
        0,
        -1,
    ]
    assert gap(one, np.log([[0.5, 1.0]])) == pytest.approx(1.0)
    # A bound that lies a rounding beyond its result is that of an equal one.
    assert beaten_by(one, np.log([[1.0 + 1e-12, 1.0]]), 0.0).tolist() == [-1]
    assert beaten_by(one, np.log([[1.0 + 1e-6, 1.0]]), 0.0).tolist() == [0]


def test_a_mean_over_replicates_is_unknown_where_one_of_them_is():
    """The one that is not bounded may be the best: of 10 and 30 no more than 10 is known."""
    limits = pl.DataFrame(
        {
            "point": pl.Series([5, 5, 6, 6], dtype=pl.UInt64),
            "replicate": pl.Series([0, 1, 0, 1], dtype=pl.Int32),
            "output_tok_per_s_per_gpu": [10.0, None, 10.0, 30.0],
            "tpot_mean_s": [0.1, 0.2, 0.1, 0.2],
        }
    )
    known = Bound(rung="engine", of=lambda points: limits)
    survivors = limits.select("point").unique(maintain_order=True)
    hopeless = pl.col("output_tok_per_s_per_gpu") < 15.0
    asked = Question(objectives=TWO, bounds=(known,), hopeless=hopeless)
    found = optimistic(known, survivors, asked)
    assert found["output_tok_per_s_per_gpu"].to_list() == [None, 20.0]
    assert found["tpot_mean_s"].to_list() == pytest.approx([0.15, 0.15])
    assert found["hopeless"].to_list() == [False, False]
