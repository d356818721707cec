from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair
from numpy.testing import assert_allclose

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.relaxation.lifted import Lift, _Smoothed
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor
from isoproj.solvers.settings import LiftSettings


def rounds(rows, k, count):
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    basis = np.eye(search.points.n_dims, k)
    codes = search.sample(500, np.random.default_rng(0))
    lift = Lift.begin(search, basis, codes, LiftSettings())
    found = []
    for _ in range(count):
        found += lift.round(1.0)
    return search, lift, found


def test_the_gradient_is_that_of_the_smoothed_loss():
    secants = Secants(cloud(0, 10, 6), every_pair(10))
    prior = np.full(45, 1.0 / 45)
    smoothed = _Smoothed(secants, 2, 0.05, prior)
    free = np.random.default_rng(1).standard_normal((6, 4))
    gradient = smoothed(free)[1]
    for at in [(0, 0), (3, 2), (5, 3)]:
        step = np.zeros(free.shape)
        step[at] = 1e-5
        slope = (smoothed(free + step)[0] - smoothed(free - step)[0]) / 2e-5
        assert_allclose(gradient[at], slope, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize(("r", "d", "k"), [(30, 12, 4), (60, 50, 5), (80, 6, 2)])
def test_every_round_brackets_the_optimum(r, d, k):
    search, _, found = rounds(cloud(2, r, d), k, 6)
    optimum = solve_relaxation(search, LargestFloor(k), tol=1e-5)
    assert all(each.lower <= optimum.relaxed + 1e-6 for each in found)
    assert all(each.relaxed >= optimum.lower - 1e-6 for each in found)
    assert max(each.lower for each in found) >= 0.98 * optimum.lower


@pytest.mark.parametrize("k", [1, 3])
def test_bounds_are_those_of_their_weights_and_factors(k):
    search, lift, found = rounds(cloud(3, 40, 9), k, 3)
    for each in found:
        assert_allclose(each.weights.sum(), 1.0)
        rows = search.directions(each.codes)
        energies = np.linalg.eigvalsh((rows.T * each.weights) @ rows)
        assert_allclose(1.0 - energies[-k:].sum(), each.lower, atol=1e-9)
        occupied = np.linalg.eigvalsh(each.factor.T @ each.factor)
        assert occupied.max() <= 1.0 + 1e-5
        assert_allclose(occupied.sum(), k, rtol=1e-4)
    assert lift.factor.shape[1] > k


def test_isotropic_data_are_bounded_though_every_pair_is_tight():
    rows = np.random.RandomState(0).normal(size=(150, 8))
    _, lift, found = rounds(rows, 2, 8)
    assert max(each.lower for each in found) >= 0.98 * 0.75
    assert lift.perplexity > 30
