from __future__ import annotations

import cvxpy
import numpy as np
import pytest
from geometry import cloud
from numpy.testing import assert_allclose

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor


def solved(rows, k, pairs="all", **options):
    points, selected = prepare_pairs(rows, pairs, rotate=True)
    search = PairSearch(points, selected)
    return search, solve_relaxation(search, LargestFloor(k), **options)


def conic_optimum(directions, k):
    """Return the optimum of the fantope programme by a conic solver."""
    d = directions.shape[1]
    matrix = cvxpy.Variable((d, d), symmetric=True)
    level = cvxpy.Variable()
    kept = cvxpy.sum(cvxpy.multiply(directions @ matrix, directions), axis=1)
    programme = cvxpy.Problem(
        cvxpy.Maximize(level),
        [kept >= level, matrix >> 0, np.eye(d) - matrix >> 0, cvxpy.trace(matrix) == k],
    )
    programme.solve(solver=cvxpy.CLARABEL)
    return 1.0 - level.value


@pytest.mark.parametrize(("seed", "r", "d", "k"), [(0, 9, 5, 2), (1, 12, 8, 3)])
def test_it_agrees_with_a_conic_solver(seed, r, d, k):
    search, result = solved(cloud(seed, r, d), k, tol=1e-6)
    codes = search.sample(10**6, np.random.default_rng(0))
    optimum = conic_optimum(search.directions(codes), k)
    assert_allclose(result.lower, optimum, rtol=1e-4)
    assert_allclose(result.relaxed, optimum, rtol=1e-4)


@pytest.mark.parametrize(("r", "d", "k"), [(30, 12, 4), (80, 60, 10), (20, 60, 5)])
def test_both_sides_are_what_they_claim(r, d, k):
    search, result = solved(cloud(2, r, d), k)
    assert result.lower <= result.relaxed <= result.lower * 1.001
    assert_allclose(result.weights.sum(), 1.0)
    assert result.weights.min() >= 0.0
    rows = search.directions(result.codes)
    energies = np.linalg.eigvalsh((rows.T * result.weights) @ rows)
    assert_allclose(1.0 - energies[-k:].sum(), result.lower, atol=1e-9)
    occupied = np.linalg.eigvalsh(result.factor @ result.factor.T)
    assert occupied.max() <= 1.0 + 1e-9
    assert_allclose(occupied.sum(), k)
    every = search.directions(search.sample(10**6, np.random.default_rng(0)))
    kept = ((every @ result.factor) ** 2).sum(axis=1)
    assert_allclose(1.0 - kept.min(), result.relaxed, atol=1e-9)


@pytest.mark.parametrize(("d", "k"), [(4, 1), (6, 2), (60, 7)])
def test_orthonormal_directions_are_lost_evenly(d, k):
    _, result = solved(np.eye(d), k, "directions", tol=1e-5)
    assert_allclose(result.lower, 1.0 - k / d, rtol=1e-4)


def test_three_lines_at_sixty_degrees_bound_one_half():
    angles = np.deg2rad([0.0, 60.0, 120.0])
    rows = np.column_stack([np.cos(angles), np.sin(angles)])
    _, result = solved(rows, 1, "directions", tol=1e-6)
    assert_allclose(result.lower, 0.5, rtol=1e-5)


def test_many_parallel_pairs_do_not_stall_it():
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3)
    _, result = solved(grid, 2)
    assert_allclose(result.lower, 1.0 / 3.0, rtol=2e-3)


def test_no_more_pairs_than_dimensions_lose_nothing():
    _, result = solved(cloud(3, 3, 6), 3, "directions")
    assert result.relaxed == 0.0


def test_a_warm_start_comes_to_the_same_optimum():
    search, cold = solved(cloud(4, 60, 50), 5)
    warm = solve_relaxation(search, LargestFloor(5, cold))
    assert_allclose(warm.lower, cold.lower, rtol=1e-3)
    assert warm.relaxed <= warm.lower * 1.001
    wider = solve_relaxation(search, LargestFloor(7, cold))
    assert wider.relaxed <= wider.lower * 1.001


def test_a_callback_stops_it_with_valid_bounds():
    _, result = solved(cloud(5, 40, 30), 5, callback=lambda *_: True)
    assert result.n_iter == 0
    assert 0.0 <= result.lower <= result.relaxed


@pytest.mark.parametrize("seed", range(3))
def test_isotropic_data_make_every_pair_tight_and_do_not_stall_it(seed):
    _, result = solved(np.random.RandomState(seed).normal(size=(150, 8)), 2)
    assert_allclose(result.lower, 0.75, rtol=2e-3)
    assert result.relaxed <= result.lower * 1.001


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("shape", "k"), [((40, 3), 1), ((60, 6), 3), ((50, 8), 5)])
def test_many_rows_coming_in_at_once_do_not_stall_it(shape, k, seed):
    # Nearly every pair is tight: P is a multiple of the identity or close to it.
    rows = cloud(seed, *shape)
    rows[rows < 0.6] = 0.0
    _, result = solved(np.unique(rows, axis=0), k, tol=1e-4)
    assert result.relaxed <= result.lower * (1 + 1.01e-4)


def test_a_bound_that_is_high_enough_ends_the_solve():
    search, closed = solved(cloud(0, 40, 12), 4, tol=1e-6)
    enough = 0.9 * closed.lower
    early = solve_relaxation(search, LargestFloor(4), tol=1e-6, enough=1.0 - enough)
    assert enough < early.lower <= closed.lower + 1e-9
    assert early.n_iter < closed.n_iter
