"""Descent on subspaces and flags: it goes down, and it stops when told."""

import numpy as np
import pytest
from geometry import cloud, every_pair, random_basis, seeds
from hypothesis import given, settings

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Clock
from isoproj.solvers.grassmann import descend, minimise
from isoproj.solvers.grassmann import random_basis as best_random
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Merit, OnAllPairs, OnRows

SECANTS = Secants(cloud(13, 30, 10), every_pair(30))
MERITS = {
    "subspace": Merit.worst(4),
    "flag": Merit((2, 4), np.array([1.1, 1.5]), np.ones(2)),
}


def value(merit, basis, temperature, secants=SECANTS):
    return OnRows(secants, merit, temperature).at(basis).value


@pytest.mark.parametrize("name", MERITS)
@pytest.mark.parametrize("temperature", [0.1, 0.01, 1e-3, 1e-6])
def test_descent_lowers_the_smoothed_maximum(name, temperature):
    merit, start = MERITS[name], random_basis(14, 10, 4)
    moved, work = descend(SECANTS, start, temperature, merit, Settings())
    assert value(merit, moved, temperature) < value(merit, start, temperature)
    assert moved.dtype == np.float64
    np.testing.assert_allclose(moved.T @ moved, np.eye(4), atol=1e-12)
    assert work > 0.0


@given(seeds)
@settings(max_examples=10)
def test_descent_never_ends_above_its_start(seed):
    secants = Secants(cloud(seed, 9, 5), every_pair(9))
    merit, temperature = Merit.worst(2), 10.0 ** -(1 + seed % 5)
    basis = random_basis(seed, 5, 2)
    for _ in range(3):
        moved, _ = descend(secants, basis, temperature, merit, Settings())
        before = value(merit, basis, temperature, secants)
        assert value(merit, moved, temperature, secants) <= before + 1e-6
        basis = moved


def test_a_pair_at_right_angles_to_the_start_is_not_lost_for_good():
    # Its loss is the largest and has no gradient: a saddle point.
    rows = np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]])
    secants = Secants(rows, np.array([[0, 1], [0, 2]]))
    merit = Merit.worst(2)
    moved, _ = descend(secants, np.eye(3, 2), 0.05, merit, Settings())
    assert value(merit, moved, 1e-3, secants) < 0.01


def test_rows_out_of_reach_at_first_are_not_forgotten():
    # Two sets of directions: under the start the first loses all, the second nothing.
    rows = np.vstack([np.zeros(6), np.eye(6)])
    secants = Secants(rows, np.array([[0, i] for i in range(1, 7)]))
    moved, _ = descend(secants, np.eye(6)[:, :3], 1e-3, Merit.worst(3), Settings())
    assert value(Merit.worst(3), moved, 1e-3, secants) <= 0.52


def test_no_step_is_made_once_the_clock_is_over():
    start = random_basis(14, 10, 3)
    ends = [
        descend(SECANTS, start, 0.05, Merit.worst(3), Settings(), Clock(limit))[0]
        for limit in (0.0, 1e9)
    ]
    # A start is shaken a little, so that it is no saddle point.
    np.testing.assert_allclose(ends[0], start, atol=0.01)
    assert np.abs(ends[1] - start).max() > 0.05


def test_descent_on_all_pairs_stays_orthonormal_and_a_whole_space_stays():
    search = PairSearch(*prepare_pairs(cloud(0, 40, 6), rotate=True))
    objective = OnAllPairs(search.smoothed, Merit.worst(3), 0.05, search.n_pairs)
    start = random_basis(1, 6, 3).astype(objective.dtype)
    moved, n_steps = minimise(objective, start, steps=40, least=1e-4)
    assert n_steps > 0
    assert objective.at(moved).value < objective.at(start).value - 0.01
    np.testing.assert_allclose(moved.T @ moved, np.eye(3), atol=1e-5)
    whole = np.eye(6, dtype=objective.dtype)
    assert minimise(objective, whole, steps=40, least=1e-4)[0] is whole


@pytest.mark.parametrize("seed", range(8))
def test_descent_in_single_precision_does_not_gain_by_a_longer_basis(seed):
    # At a gradient that is all rounding, a longer basis seems to lose less.
    rows = np.random.default_rng(seed).uniform(size=(40, 3))
    rows = np.unique(np.where(rows < 0.6, 0.0, rows), axis=0)
    secants = Secants(rows, every_pair(len(rows))).astype(np.float32)
    basis = random_basis(seed, 3, 2).astype(np.float32)
    for temperature in (0.1, 1e-2, 1e-3, 1e-4, 2e-5):
        objective = OnRows(secants, Merit.worst(2), temperature)
        basis, n_steps = minimise(objective, basis, steps=300, least=-1.0)
        assert n_steps < 200
        assert np.abs(basis.T @ basis - np.eye(2)).max() < 5e-7


def test_a_random_start_is_no_worse_than_most_and_the_same_from_the_same_seed():
    shape, merit = (10, 3), Merit.worst(3)
    starts = [
        best_random(SECANTS, merit, shape, np.random.default_rng(5)) for _ in range(2)
    ]
    assert (starts[0] == starts[1]).all()
    np.testing.assert_allclose(starts[0].T @ starts[0], np.eye(3), atol=1e-12)
    others = [value(merit, random_basis(s, *shape), 1e-3) for s in range(30)]
    assert value(merit, starts[0], 1e-3) <= np.quantile(others, 0.25)
