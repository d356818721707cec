"""What local search minimises: gradients by differences, and both forms agree."""

import numpy as np
import pytest
from geometry import cloud, every_pair, random_basis, seeds
from hypothesis import given

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.smoothed import (
    Curve,
    Merit,
    OnAllPairs,
    OnRows,
    losses,
    soft_maximum,
    tangent,
)

N_POINTS, N_DIMS, K = 40, 6, 3
FLAG = Merit((2, 5), np.array([1.25, 2.0]), np.array([1.0, 0.8]))
MERITS = {
    "worst": Merit.worst(K),
    "capped": Merit.capped(K, 0.5, 0.1),
    "hardly capped": Merit.capped(K, 0.95, 0.1),
    "flag": FLAG,
    "capped flag": Merit(FLAG.ks, FLAG.slopes, FLAG.offsets, np.array([0.3, 0.2])),
}


def search():
    return PairSearch(*prepare_pairs(cloud(0, N_POINTS, N_DIMS), rotate=True))


SEARCH = search()
FURTHER = cloud(2, 4, N_DIMS)


def on_rows(name, temperature=0.05):
    merit = MERITS[name]
    further = None if merit.prices is None else FURTHER
    secants = Secants(SEARCH.coordinates, every_pair(N_POINTS), further)
    return OnRows(secants, merit, temperature)


def on_all(name, temperature=0.05):
    merit = MERITS[name]
    further = None if merit.prices is None else FURTHER
    return OnAllPairs(SEARCH.smoothed, merit, temperature, SEARCH.n_pairs, further)


def at_random(merit):
    """Return a basis and a direction in which it may move."""
    basis = random_basis(1, N_DIMS, merit.ks[-1])
    return basis, tangent(basis, cloud(3, *basis.shape))


def test_the_soft_maximum_is_above_the_maximum_and_its_weights_are_its_gradient():
    values, temperature = np.random.default_rng(0).uniform(0.2, 0.9, 9), 0.05
    value, weights = soft_maximum(values, temperature)
    assert values.max() <= value <= values.max() + temperature * np.log(9)
    for at in range(9):
        step = 1e-6 * np.eye(9)[at]
        rise = [soft_maximum(values + sign * step, 0.05)[0] for sign in (1, -1)]
        assert weights[at] == pytest.approx((rise[0] - rise[1]) / 2e-6, abs=1e-6)


@pytest.mark.parametrize("name", MERITS)
def test_the_gradient_on_rows_is_the_slope_of_the_merit(name):
    objective = on_rows(name)
    basis, step = at_random(objective.merit)
    curve = Curve(basis, step, is_flag=objective.merit.is_flag)
    ahead, behind = (objective.at(curve.at(time)).value for time in (1e-6, -1e-6))
    slope = np.vdot(objective.at(basis).gradient, step)
    assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-5)


@pytest.mark.parametrize("name", ["worst", "capped", "hardly capped"])
@pytest.mark.parametrize("temperature", [0.05, 0.005])
def test_rows_of_every_pair_and_all_pairs_at_once_are_the_same_function(
    name, temperature
):
    basis, _ = at_random(MERITS[name])
    rows, pairs = (each(name, temperature).at(basis) for each in (on_rows, on_all))
    assert pairs.value == pytest.approx(rows.value, abs=1e-4)
    np.testing.assert_allclose(pairs.gradient, rows.gradient, atol=1e-3)


@pytest.mark.parametrize("name", MERITS)
def test_values_and_slopes_along_a_step_are_those_of_the_bases_on_its_way(name):
    objective = on_rows(name)
    basis, step = at_random(objective.merit)
    state = objective.at(basis)
    ray = objective.along(state, step)
    assert ray.at(0.0) == pytest.approx((state.value, np.vdot(state.gradient, step)))
    for time in (0.1, 0.3, 1.0):
        value, slope = ray.at(time)
        there = ray.arrive(time)
        again = objective.at(there.basis)
        assert value == pytest.approx(again.value, abs=1e-12)
        np.testing.assert_allclose(there.gradient, again.gradient, atol=1e-12)
        if not objective.merit.is_flag:
            ahead, behind = (ray.at(time + h)[0] for h in (1e-6, -1e-6))
            assert slope == pytest.approx((ahead - behind) / 2e-6, rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("name", ["worst", "capped"])
def test_the_slope_on_all_pairs_is_the_derivative_along_the_curve(name):
    objective = on_all(name)
    basis, step = at_random(objective.merit)
    ray = objective.along(objective.at(basis), step)
    for time in (0.1, 0.3):
        change = ray.at(time + 0.01)[0] - ray.at(time - 0.01)[0]
        assert ray.at(time)[1] == pytest.approx(change / 0.02, rel=0.02, abs=1e-3)


def test_a_curve_leaves_its_basis_along_the_step_and_stays_orthonormal():
    for name in ("worst", "flag"):
        basis, step = at_random(MERITS[name])
        curve = Curve(basis, step, is_flag=MERITS[name].is_flag)
        for k in MERITS[name].ks:
            # A subspace moves along a step; a flag moves all its prefixes along it.
            moved, ours = curve.at(1e-6)[:, :k], (basis + 1e-6 * step)[:, :k]
            outside = ours - moved @ (moved.T @ ours)
            assert np.abs(outside).max() <= 1e-11
        for time in (0.3, 1.7, curve.end(10.0)):
            moved = curve.at(time)
            np.testing.assert_allclose(moved.T @ moved, np.eye(len(moved.T)), atol=1e-9)


@given(seeds)
def test_the_merit_of_a_flag_knows_its_prefixes_only(seed):
    basis = random_basis(seed, N_DIMS, 5)
    turned = basis.copy()
    turned[:, :2] = basis[:, :2] @ random_basis(seed + 1, 2, 2)
    turned[:, 2:] = basis[:, 2:] @ random_basis(seed + 2, 3, 3)
    objective = on_rows("capped flag")
    assert objective.at(turned).value == pytest.approx(objective.at(basis).value)


def test_what_prefixes_keep_is_what_their_columns_keep():
    basis, secants = random_basis(4, N_DIMS, 5), on_rows("flag").secants
    retained = FLAG.retained(secants.images(basis))
    for at, k in enumerate(FLAG.ks):
        alone = losses(secants.images(basis[:, :k]))
        np.testing.assert_allclose(1.0 - retained[:, at], alone, atol=1e-12)


def test_a_penalty_counts_what_is_above_the_cap_alone():
    merit = Merit.capped(1, cap=0.5, price=0.25)
    for lost, expected in (([0.1, 0.3, 0.8], 0.2), ([0.1, 0.7, 0.8], 0.4)):
        # Two pairs and a row of the objective.
        value, _ = merit.smoothed(np.array(lost)[:, None], 2, 1e-4)
        assert value == pytest.approx(expected, abs=1e-3)
