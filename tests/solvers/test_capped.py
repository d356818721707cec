from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from geometry import cloud
from numpy.testing import assert_allclose
from sklearn.datasets import make_blobs

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.objective import Objective, objective_matrix
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, MostKept

ALL = 10**6


def posed(rows, k, objective="variance", pairs="all"):
    points, selected = prepare_pairs(rows, pairs, rotate=True)
    search = PairSearch(points, selected)
    coordinates = points.coordinates - points.coordinates.mean(axis=0)
    matrix = objective_matrix(
        coordinates, Objective(objective), selected, points.first_copy
    )
    return search, matrix, solve_relaxation(search, LargestFloor(k), tol=1e-6)


def solve_capped(search, k, matrix, cap, anchor, **options):
    programme = MostKept.of(search, k, matrix, cap, anchor)
    return solve_relaxation(search, programme, **options)


def conic_optimum(directions, k, matrix, cap):
    """Return the most that the relaxation keeps, by a conic solver."""
    d = len(matrix)
    kept = cvxpy.Variable((d, d), symmetric=True)
    lengths = cvxpy.sum(cvxpy.multiply(directions @ kept, directions), axis=1)
    programme = cvxpy.Problem(
        cvxpy.Maximize(cvxpy.trace(matrix @ kept)),
        [lengths >= 1 - cap, kept >> 0, np.eye(d) - kept >> 0, cvxpy.trace(kept) == k],
    )
    loose = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-5)
    return programme.solve(solver=cvxpy.CLARABEL, **loose)


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize(("r", "d", "k"), [(20, 8, 3), (20, 30, 5)])
@pytest.mark.parametrize("slack", [1.02, 1.2])
def test_it_agrees_with_a_conic_solver(objective, r, d, k, slack):
    rows = cloud(0, r, d) * np.geomspace(4.0, 1.0, d)
    search, matrix, anchor = posed(rows, k, objective)
    cap = slack * anchor.relaxed
    result = solve_capped(search, k, matrix, cap, anchor, tol=1e-4)
    directions = search.directions(search.sample(ALL, np.random.default_rng(0)))
    optimum = conic_optimum(directions, k, matrix, cap)
    assert_allclose(result.upper, optimum, rtol=1e-3)
    assert_allclose(result.value, optimum, rtol=1e-3)


@pytest.mark.parametrize(("r", "d", "k"), [(30, 12, 4), (60, 70, 8)])
def test_both_sides_are_what_they_claim(r, d, k):
    search, matrix, anchor = posed(cloud(2, r, d) * np.geomspace(4.0, 1.0, d), k)
    cap = 1.05 * anchor.relaxed
    result = solve_capped(search, k, matrix, cap, anchor)
    assert result.value <= result.upper <= result.value * 1.002
    assert result.weights.min() > 0.0
    rows = search.directions(result.codes)
    energies = np.linalg.eigvalsh(matrix + (rows.T * result.weights) @ rows)
    dual = energies[-k:].sum() - (1.0 - cap) * result.weights.sum()
    assert_allclose(result.upper, dual, atol=1e-9)
    occupied = np.linalg.eigvalsh(result.factor @ result.factor.T)
    assert occupied.max() <= 1.0 + 1e-9
    assert_allclose(occupied.sum(), k)


def test_a_larger_cap_allows_more():
    search, matrix, anchor = posed(cloud(3, 20, 8) * np.geomspace(4.0, 1.0, 8), 3)
    bounds = [
        solve_capped(search, 3, matrix, factor * anchor.relaxed, anchor).upper
        for factor in (1.02, 1.1, 1.3, 2.0)
    ]
    assert (np.diff(bounds) > -1e-3).all()
    assert bounds[-1] - bounds[0] > 1e-2


def test_a_cap_that_binds_no_pair_of_the_relaxation_is_no_empty_system():
    centres = [[0.0] * 3, [1.0] * 3]
    rows, _ = make_blobs(30, centers=centres, cluster_std=0.1, random_state=0)
    search, matrix, anchor = posed(rows, 2)
    result = solve_capped(search, 2, matrix, 0.984, anchor)
    assert_allclose(result.upper, np.linalg.eigvalsh(matrix)[-2:].sum(), rtol=2e-3)


def test_a_callback_stops_it_with_valid_bounds():
    search, matrix, anchor = posed(cloud(5, 20, 9), 3)
    result = solve_capped(
        search, 3, matrix, 1.1 * anchor.relaxed, anchor, callback=lambda *_: True
    )
    assert result.n_iter == 0
    assert 0.0 <= result.value <= result.upper <= 1.0
