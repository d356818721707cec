"""The relaxation: what its rounds claim is so, and they close its gap."""

import cvxpy
import numpy as np
import pytest
from geometry import THREE_LINES, cloud, every_pair, seeds
from hypothesis import given, settings
from numpy.testing import assert_allclose

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.objective import Objective, objective_matrix
from isoproj.solvers.api import Clock
from isoproj.solvers.fantope import (
    Fantope,
    Goal,
    _Smoothed,
    leading,
    nearest_in_fantope,
    nearest_occupations,
    solve_relaxation,
)
from isoproj.solvers.settings import Settings

ALL = 10**6


def searched(rows, pairs="all"):
    return PairSearch(*prepare_pairs(rows, pairs, rotate=True))


def every_direction(search):
    return search.directions(search.sample(ALL, np.random.default_rng(0)))


def begun(rows, k, count=500, **figures):
    search = searched(rows)
    codes = search.sample(count, np.random.default_rng(0))
    basis = np.eye(search.n_dims, k)
    return Fantope.begin(search, codes, basis, Settings(**figures), 1e-2)


def steep(seed, n_points, n_dims, rank):
    """Return points of low rank, and a little noise in all dimensions."""
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((n_points, rank)) @ rng.standard_normal((rank, n_dims))
    return signal + 0.05 * rng.standard_normal((n_points, n_dims))


def conic_optimum(directions, k, objective=None, cap=None):
    """Return the optimum of the programme by a conic solver."""
    d = directions.shape[1]
    matrix = cvxpy.Variable((d, d), symmetric=True)
    kept = cvxpy.sum(cvxpy.multiply(directions @ matrix, directions), axis=1)
    fantope = [matrix >> 0, np.eye(d) - matrix >> 0, cvxpy.trace(matrix) == k]
    if objective is None:
        level = cvxpy.Variable()
        programme = cvxpy.Problem(cvxpy.Maximize(level), [kept >= level, *fantope])
        return 1.0 - programme.solve(solver=cvxpy.CLARABEL)
    most = cvxpy.Maximize(cvxpy.trace(objective @ matrix))
    programme = cvxpy.Problem(most, [kept >= 1.0 - cap, *fantope])
    loose = dict.fromkeys(("tol_gap_abs", "tol_gap_rel", "tol_feas"), 1e-6)
    return programme.solve(solver=cvxpy.CLARABEL, **loose)


def assert_in_fantope(factor, k):
    occupied = np.linalg.eigvalsh(factor.T @ factor)
    assert occupied.max() <= 1.0 + 1e-9
    assert_allclose(occupied.sum(), k, rtol=1e-9)


@given(seeds)
def test_no_occupations_are_nearer(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(2, 9))
    k = int(rng.integers(1, d + 1))
    values = rng.normal(0.4, 10.0 ** rng.uniform(-3, 2), d)
    nearest = nearest_occupations(values, k)
    assert_allclose(nearest.sum(), k)
    assert nearest.min() >= 0.0
    assert nearest.max() <= 1.0
    assert_allclose(nearest_occupations(nearest, k), nearest, atol=1e-12)
    others = np.array([rng.permutation(d) < k for _ in range(50)])
    # The angle at a projection is never acute; corners stand for all of the set.
    angles = (others - nearest) @ (values - nearest)
    assert (angles <= 1e-9 * max(1.0, np.abs(values).max())).all()


def test_the_nearest_matrix_of_the_fantope_keeps_eigenvectors():
    half = cloud(0, 6, 6)
    matrix = half + half.T
    factor = nearest_in_fantope(matrix, 3)
    assert_in_fantope(factor, 3)
    found, rng = factor @ factor.T, np.random.default_rng(1)
    for _ in range(50):
        basis = np.linalg.qr(rng.standard_normal((6, 3)))[0]
        assert np.vdot(basis @ basis.T - found, matrix - found) <= 1e-9


@pytest.mark.parametrize("has_goal", [False, True])
def test_minus_the_moment_is_the_gradient(has_goal):
    rows = Secants(cloud(0, 10, 6), every_pair(10)).explicit()
    prior = np.random.default_rng(2).dirichlet(np.ones(45))
    objective = np.diag(np.arange(6.0)) / 15.0 if has_goal else None
    goal = (objective, 0.6, 0.3, 2.0) if has_goal else ()
    smoothed = _Smoothed(rows, 2, 0.05, prior, *goal)
    matrix, move = np.eye(6) / 3.0, cloud(1, 6, 6)
    move += move.T
    ahead, behind = (smoothed.at(matrix + size * move).value for size in (1e-5, -1e-5))
    slope = -np.vdot(smoothed.at(matrix).moment, move)
    assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-6)
    factor = np.linalg.cholesky(matrix)
    assert smoothed.at(matrix, factor).value == pytest.approx(smoothed.at(matrix).value)


def test_projected_gradients_end_at_a_minimum():
    rows = Secants(cloud(4, 12, 5), every_pair(12)).explicit()
    smoothed = _Smoothed(rows, 2, 0.05, np.full(66, 1.0 / 66))
    start = 0.4 * np.eye(5)
    found, _, is_near, _ = smoothed.minimised(start, 1.0, 500, 1e-9, Clock(None))
    assert is_near
    assert_in_fantope(np.linalg.cholesky(found.matrix + 1e-15 * np.eye(5)), 2)
    # No matrix of the fantope has more of the moment: the gradient points outside.
    most = np.linalg.eigvalsh(found.moment)[-2:].sum()
    assert np.vdot(found.moment, found.matrix) == pytest.approx(most, rel=1e-3)


@pytest.mark.parametrize(("r", "d", "k"), [(9, 5, 2), (12, 8, 3), (20, 6, 1)])
def test_every_round_brackets_the_optimum_of_a_conic_solver(r, d, k):
    state = begun(cloud(r, r, d), k)
    optimum = conic_optimum(every_direction(state.search), k)
    for _ in range(8):
        found = state.round(1.0)
        assert found.lower <= optimum + 1e-6
        assert found.relaxed >= optimum - 1e-6
    assert state.best.lower >= 0.97 * optimum


@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("slack", [0.02, 0.2])
@pytest.mark.parametrize(("r", "d", "k"), [(20, 8, 3), (14, 20, 5)])
def test_under_a_cap_every_round_brackets_the_most_that_is_kept(
    r, d, k, slack, objective
):
    rows = cloud(0, r, d) * np.geomspace(4.0, 1.0, d)
    search = searched(rows)
    coordinates = search.points.coordinates - search.points.coordinates.mean(axis=0)
    first_copy = search.points.first_copy
    kind = Objective(objective)
    matrix = objective_matrix(coordinates, kind, search.pairs, first_copy)
    anchor, _ = solve_relaxation(search, k, tol=1e-4)
    cap = (1.0 + slack) * anchor.relaxed
    optimum = conic_optimum(every_direction(search), k, matrix, cap)
    goal = Goal(matrix, cap, anchor.factor, anchor.value)
    state = Fantope.begin_capped(search, goal, k, anchor, Settings(), 1e-2)
    for _ in range(12):
        found = state.round(cap)
        assert found.upper >= optimum - 1e-6
        assert found.value <= optimum + 1e-5
        assert found.weights.min() >= 0.0
        chosen = search.directions(found.codes)
        energies = np.linalg.eigvalsh(matrix + (chosen.T * found.weights) @ chosen)
        dual = energies[-k:].sum() - (1.0 - cap) * found.weights.sum()
        assert found.upper == pytest.approx(dual, abs=1e-9)
    assert state.best.upper <= 1.02 * optimum
    assert state.best.value >= 0.9 * optimum
    assert_in_fantope(state.best.factor, k)


@pytest.mark.parametrize("k", [1, 3])
def test_bounds_are_those_of_their_weights_and_factors(k):
    state = begun(cloud(3, 40, 9), k)
    every = every_direction(state.search)
    for _ in range(3):
        found = state.round(1.0)
        assert_allclose(found.weights.sum(), 1.0)
        assert found.weights.min() >= 0.0
        rows = state.search.directions(found.codes)
        energies = np.linalg.eigvalsh((rows.T * found.weights) @ rows)
        assert_allclose(1.0 - energies[-k:].sum(), found.lower, atol=1e-9)
        assert_in_fantope(found.factor, k)
        kept = np.square(every @ found.factor).sum(axis=1)
        assert_allclose(1.0 - kept.min(), found.relaxed, atol=1e-9)


KNOWN = {
    "four axes": (np.eye(4), "directions", 1, 0.75),
    "sixty axes": (np.eye(60), "directions", 7, 1.0 - 7.0 / 60.0),
    "three lines at sixty degrees": (THREE_LINES, "directions", 1, 0.5),
    "a grid of parallel pairs": (
        np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3),
        "all",
        2,
        1.0 / 3.0,
    ),
    "as many directions as dimensions": (cloud(3, 3, 6), "directions", 3, 0.0),
    "one pair": (np.eye(4), np.array([[0, 1]]), 2, 0.0),
}


@pytest.mark.parametrize("name", KNOWN)
def test_known_optima_are_found(name):
    rows, pairs, k, optimum = KNOWN[name]
    best, _ = solve_relaxation(searched(rows, pairs), k, tol=1e-3)
    assert best.lower <= optimum + 1e-9
    assert best.lower == pytest.approx(optimum, rel=2e-3, abs=1e-6)
    assert best.relaxed == pytest.approx(optimum, rel=2e-3, abs=1e-6)


HARD = {
    "more points than dimensions": (cloud(2, 30, 12), 4),
    "more dimensions than points": (cloud(2, 20, 60), 5),
    "isotropic": (np.random.RandomState(0).normal(size=(150, 8)), 2),
    "falling": (cloud(3, 80, 20) * np.geomspace(3.0, 1.0, 20), 5),
    "steep": (steep(1, 60, 60, 4), 4),
    "steep, more dimensions": (steep(1, 60, 60, 4), 8),
    "mixed scales": (cloud(0, 100, 12) * np.geomspace(1e3, 1e-1, 12), 8),
    "sparse": (np.unique(cloud(0, 60, 6) * (cloud(0, 60, 6) > 0.6), axis=0), 3),
}


@pytest.mark.parametrize("name", HARD)
def test_a_fine_tol_is_reached(name):
    rows, k = HARD[name]
    best, _ = solve_relaxation(searched(rows), k, tol=1e-3)
    assert 0.0 < best.lower <= best.relaxed <= best.lower * (1.0 + 2e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_of_mixed_scales_are_bounded_from_the_first_round_on(seed):
    # Directions that are filled evenly lose hundreds of times what a basis loses.
    state = begun(cloud(seed, 100, 12) * np.geomspace(1e3, 1e-1, 12), 8, ALL)
    worst = 1.0 - float(state.search.weakest(np.eye(12, 8), 0.0).retained[0])
    found = state.round(worst)
    assert found.relaxed <= worst
    assert found.lower >= 0.01 * worst


def test_a_round_without_time_is_a_valid_bound_and_makes_no_step():
    state = begun(cloud(0, 60, 8), 3)
    before = state.factor @ state.factor.T
    hurried = state.round(0.5, Clock(0.0))
    assert_allclose(state.factor @ state.factor.T, before, atol=1e-9)
    assert 0.0 <= hurried.lower <= hurried.relaxed
    patient = begun(cloud(0, 60, 8), 3).round(0.5, Clock(1e9))
    assert hurried.lower < patient.lower <= hurried.relaxed


def test_a_matrix_in_a_narrow_subspace_is_bounded_though_less_closely():
    wide, _ = solve_relaxation(searched(cloud(5, 60, 40)), 3, tol=1e-3)
    state = begun(cloud(5, 60, 40), 3, spare_columns=4)
    for _ in range(8):
        found = state.round(1.0)
        assert state.space.shape[1] <= 7
        gram = state.space.T @ state.space
        assert_allclose(gram, np.eye(len(gram)), atol=1e-9)
        assert found.lower <= wide.relaxed + 1e-6
        assert found.relaxed >= wide.lower - 1e-6


def test_pairs_without_weight_leave_and_none_weighs_nothing():
    state = begun(cloud(3, 80, 20) * np.geomspace(3.0, 1.0, 20), 5)
    before = state.codes.size
    for _ in range(6):
        state.round(0.7)
        assert state.weights.min() > 0.0
        assert state.weights.sum() == pytest.approx(1.0)
        assert np.unique(state.codes).size == state.codes.size
    assert state.codes.size < before


@given(seeds)
@settings(max_examples=20)
def test_the_leading_directions_of_a_matrix_are_a_basis(seed):
    rng = np.random.default_rng(seed)
    d, s = rng.integers(3, 9, 2)
    k = int(rng.integers(1, d + 1))
    factor = rng.standard_normal((d, min(d, s)))
    basis = leading(factor, k)
    assert_allclose(basis.T @ basis, np.eye(k), atol=1e-9)
    most = np.sort(np.square(np.linalg.svd(factor)[1]))[::-1][:k].sum()
    assert np.square(factor.T @ basis).sum() == pytest.approx(most)
