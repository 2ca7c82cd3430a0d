"""Guesses learn where they miss, and spend what is left of a budget on whoever may be lucky."""

import numpy as np
import pytest

from dse.pareto import OBJECTIVES
from dse.search.guessed import Guessed
from dse.search.question import Question

OBJECTIVE = (OBJECTIVES["output_tok_per_s_per_gpu"](), OBJECTIVES["tpot_mean"]())


def question(budget=None):
    return Question(objectives=OBJECTIVE, budget=budget, tolerance=0.02)


def guessed(costs, strain):
    found = Guessed.none(question())
    found.places, found.costs = np.arange(len(costs)), np.array(costs)
    found.strain = np.array(strain)
    return found


def chosen(found, undecided, members, budget=None):
    return found.next(np.array(undecided), np.array(members).reshape(-1, 2), question(budget))


def test_what_no_other_guess_beats_comes_first():
    found = guessed([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [-1.0, -1.0]], [0.5, 0.5, 0.5, 2.0])
    assert chosen(found, [0, 1, 2, 3], []).tolist() == [0, 1]


def test_a_miss_tells_of_those_alike_more_than_of_others():
    found = guessed([[0.0, 0.0], [0.01, 0.0], [3.0, -3.0]], [0.5, 0.5, 0.5])
    found.learn(np.array([0]), np.array([[0.4, 0.0]]), np.array([True]))
    found.learn(np.array([2]), np.array([[3.0, -3.0]]), np.array([True]))
    mean, deviation = found._misses()
    assert mean[1, 0] == pytest.approx(0.4, rel=0.25)
    assert mean[2, 0] == pytest.approx(0.0, abs=0.1)
    far = guessed([[9.0, 9.0]], [0.5])
    far.missed, far.there = found.missed, found.there
    assert far._misses()[1][0, 0] > deviation[1, 0]


def test_a_budget_goes_to_the_lucky_before_the_strained():
    costs = [[0.0, 0.0], [0.5, 0.5], [0.1, 0.0], [-0.5, -0.5]]
    members = [[0.0, 0.1]]

    def learnt():
        found = guessed(costs, [0.5, 0.5, 0.5, 3.0])
        results = np.array([[0.0, 0.1], [0.5, 0.8]])
        found.learn(np.array([0, 1]), results, np.array([True, True]))
        return found

    assert not len(chosen(learnt(), [2, 3], members))
    assert chosen(learnt(), [2, 3], members, budget=8).tolist() == [0]
    assert chosen(learnt(), [3], members, budget=8).tolist() == [0]
