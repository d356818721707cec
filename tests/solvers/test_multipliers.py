from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair
from numpy.testing import assert_allclose

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Clock
from isoproj.solvers.relaxation.matrices import nearest_occupations
from isoproj.solvers.relaxation.multipliers import Multipliers, _Smoothed
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, MostKept
from isoproj.solvers.settings import MultiplierSettings


def axes(search, k):
    """Return the principal axes: coordinates are sorted by them."""
    return np.eye(search.n_dims, k)


def rounds(rows, k, count):
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    codes = search.sample(500, np.random.default_rng(0))
    state = Multipliers.begin(search, codes, axes(search, k), MultiplierSettings())
    return search, state, [state.round(1.0) for _ in range(count)]


def random_matrix(seed, width):
    half = np.random.default_rng(seed).standard_normal((width, width))
    return half + half.T


def test_minus_the_moment_is_the_gradient_of_the_smoothed_loss():
    secants = Secants(cloud(0, 10, 6), every_pair(10))
    smoothed = _Smoothed(secants.explicit(), 2, 0.05, np.full(45, 1.0 / 45))
    matrix, move = np.eye(6) / 3.0, random_matrix(1, 6)
    ahead, behind = (smoothed.at(matrix + size * move).value for size in (1e-5, -1e-5))
    slope = -np.vdot(smoothed.at(matrix).moment, move)
    assert_allclose(slope, (ahead - behind) / 2e-5, rtol=1e-6)


@pytest.mark.parametrize("k", [1, 3, 6])
def test_no_occupations_are_nearer(k):
    rng = np.random.default_rng(k)
    values = rng.normal(0.4, 0.8, 7)
    nearest = nearest_occupations(values, k)
    assert_allclose(nearest.sum(), k)
    assert nearest.min() >= 0.0
    assert nearest.max() <= 1.0
    others = rng.dirichlet(np.ones(7), 500) * k
    others = others[others.max(axis=1) <= 1.0]
    # The angle at a projection is never acute.
    assert ((others - nearest) @ (values - nearest) <= 1e-9).all()


def test_occupations_are_their_own_nearest():
    values = np.array([1.0, 1.0, 0.25, 0.75, 0.0])
    assert_allclose(nearest_occupations(values, 3), values)
    assert_allclose(nearest_occupations(values + 0.3, 3), values, atol=1e-12)


def test_projected_gradients_end_at_a_minimum():
    secants = Secants(cloud(4, 12, 5), every_pair(12))
    smoothed = _Smoothed(secants.explicit(), 2, 0.05, np.full(66, 1.0 / 66))
    settings = MultiplierSettings(steps=500, tolerance=1e-9)
    found, _, is_near = smoothed.minimise(0.4 * np.eye(5), 1.0, settings)
    assert is_near
    occupied = np.linalg.eigvalsh(found.matrix)
    assert_allclose(occupied.sum(), 2.0)
    assert occupied.min() >= -1e-12
    assert occupied.max() <= 1.0 + 1e-12
    # No matrix of the fantope has more of the moment: the gradient points outside.
    most = np.linalg.eigvalsh(found.moment)[-2:].sum()
    assert np.vdot(found.moment, found.matrix) == pytest.approx(most, rel=1e-3)


def begun(rows, k, settings):
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    codes = search.sample(search.n_pairs, np.random.default_rng(0))
    return Multipliers.begin(search, codes, axes(search, k), settings)


def low_rank(seed, n_points, n_dims, rank):
    rng = np.random.default_rng(seed)
    signal = rng.standard_normal((n_points, rank)) @ rng.standard_normal((rank, n_dims))
    return signal + 0.05 * rng.standard_normal((n_points, n_dims))


@pytest.mark.parametrize("k", [4, 8])
def test_a_steep_spectrum_is_bounded_as_well(k):
    # What pairs lose lies in directions far weaker than the k-th of the moment.
    state = begun(low_rank(1, 60, 60, 4), k, MultiplierSettings(spare_columns=30))
    found = [state.round(0.01) for _ in range(12)]
    relaxed = min(each.relaxed for each in found)
    lower = max(each.lower for each in found)
    assert 0.0 < lower <= relaxed <= 1.05 * lower


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_of_mixed_scales_are_bounded_from_the_first_round_on(seed):
    # Directions that are filled evenly lose hundreds of times what a basis loses.
    rows = cloud(seed, 100, 12) * np.geomspace(1e3, 1e-1, 12)
    state = begun(rows, 8, MultiplierSettings())
    worst = 1.0 - float(state.search.weakest(np.eye(12, 8), 0.0).retained[0])
    found = state.round(worst)
    assert found.relaxed <= worst
    assert found.lower >= 0.01 * worst


def test_a_round_without_time_is_a_valid_bound_and_makes_no_step():
    rows = cloud(0, 60, 8)
    state = begun(rows, 3, MultiplierSettings())
    before = state.factor @ state.factor.T
    hurried = state.round(0.5, Clock(0.0))
    assert_allclose(state.factor @ state.factor.T, before, atol=1e-9)
    assert 0.0 <= hurried.lower <= hurried.relaxed
    patient = begun(rows, 3, MultiplierSettings()).round(0.5, Clock(1e9))
    assert hurried.lower < patient.lower <= hurried.relaxed


def test_first_rounds_are_coarser_than_later_ones_and_none_under_a_cap():
    settings = MultiplierSettings(tolerance=1e-4, first_tolerance=1e-3, n_first=2)
    assert [settings.tolerance_at(n) for n in range(4)] == [1e-3, 1e-3, 1e-4, 1e-4]
    assert settings.capped().tolerance_at(0) == settings.capped_tolerance


@pytest.mark.parametrize(
    ("n_fresh", "other", "is_over"),
    [
        (
            4000,
            0.0,
            False,
        ),  # as many as may join, and the matrix loses more than a basis
        (3999, 0.0, True),
        (4000, 1.0, True),
    ],
)
def test_rounds_go_on_while_a_poor_matrix_overlooks_many_pairs(n_fresh, other, is_over):
    state = begun(cloud(0, 60, 8), 3, MultiplierSettings(batch=4000))
    state.round(0.5)
    state._n_fresh = n_fresh
    for bound in (0.3, 0.4, 0.4):
        state.saw(bound, other)
    assert state.is_over == is_over


def test_pairs_that_carry_no_weight_are_dropped_and_the_bound_is_as_good():
    rows = cloud(3, 80, 20) * np.geomspace(3.0, 1.0, 20)
    found, sizes = [], []
    for idle in (0.0, MultiplierSettings().idle_weight):
        state = begun(rows, 5, MultiplierSettings(idle_weight=idle))
        found.append(max(state.round(0.7).lower for _ in range(6)))
        sizes.append(state.codes.size)
    assert sizes[1] < 0.5 * sizes[0]
    assert found[1] >= 0.998 * found[0]


def test_weights_far_from_the_minimum_are_not_taken():
    rows = low_rank(1, 30, 40, 3)
    state = begun(rows, 6, MultiplierSettings(steps=1, smoothing=1e-4))
    before, heat = state.weights.copy(), state._heat
    state.round(0.01)
    assert_allclose(state.weights, before)
    assert state._heat > heat
    state = begun(rows, 6, MultiplierSettings(steps=500, smoothing=0.5))
    state.round(0.1)
    assert abs(state.weights - before).max() > 0.1 * before.max()
    assert state._heat == heat


def test_more_steps_never_end_higher():
    # Values may rise on the way.
    secants = Secants(cloud(1, 30, 12) * np.geomspace(9.0, 1.0, 12), every_pair(30))
    smoothed = _Smoothed(secants.explicit(), 3, 0.004, np.full(435, 1.0 / 435))
    values = [
        smoothed.minimise(0.25 * np.eye(12), 1.0, MultiplierSettings(steps=steps))[0]
        for steps in range(1, 40)
    ]
    assert (np.diff([state.value for state in values]) <= 0.0).all()


@pytest.mark.parametrize(
    ("paying", "accuracy", "is_over"),
    [(0.11, 1.0, True), (0.09, 1.0, False), (1.0, 0.05, True), (1.0, 0.03, False)],
)
def test_rounds_end_when_those_to_come_would_close_little_of_the_gap(
    paying, accuracy, is_over
):
    # Gains of 0.5 and 0.1 promise 0.02 + 0.004 + ... = 0.025 more.
    search = PairSearch(*prepare_pairs(cloud(2, 20, 6), rotate=True))
    codes = search.sample(50, np.random.default_rng(0))
    settings = MultiplierSettings(paying=paying, accuracy=accuracy)
    state = Multipliers.begin(search, codes, axes(search, 2), settings)
    for bound in (0.0, 0.5, 0.6):
        assert not state.is_over
        state.saw(bound, 0.85)
    assert state.is_over == is_over


def test_a_round_that_is_made_again_does_not_end_the_method():
    search = PairSearch(*prepare_pairs(cloud(2, 20, 6), rotate=True))
    codes = search.sample(50, np.random.default_rng(0))
    state = Multipliers.begin(search, codes, axes(search, 2), MultiplierSettings())
    state._heat = 4.0
    for _ in range(4):
        state.saw(0.5, 0.85)
    assert not state.is_over
    state._heat = 1.0
    state.saw(0.5, 0.85)
    assert state.is_over


def test_rounds_that_are_made_again_and_again_for_nothing_do():
    search = PairSearch(*prepare_pairs(cloud(2, 20, 6), rotate=True))
    codes = search.sample(50, np.random.default_rng(0))
    state = Multipliers.begin(search, codes, axes(search, 2), MultiplierSettings())
    state._heat = 4.0
    for bound in (0.4, 0.5, 0.5, 0.5, 0.5, 0.5):
        state.saw(bound, 0.85)
        assert not state.is_over
    state.saw(0.5, 0.85)
    assert state.is_over


@pytest.mark.parametrize(("r", "d", "k"), [(30, 12, 4), (60, 50, 5), (80, 6, 2)])
def test_every_round_brackets_the_optimum(r, d, k):
    search, _, found = rounds(cloud(2, r, d), k, 6)
    optimum = solve_relaxation(search, LargestFloor(k), tol=1e-5)
    assert all(each.lower <= optimum.relaxed + 1e-6 for each in found)
    assert all(each.relaxed >= optimum.lower - 1e-6 for each in found)
    assert max(each.lower for each in found) >= 0.98 * optimum.lower


@pytest.mark.parametrize("k", [1, 3])
def test_bounds_are_those_of_their_weights_and_factors(k):
    search, state, found = rounds(cloud(3, 40, 9), k, 3)
    for each in found:
        assert_allclose(each.weights.sum(), 1.0)
        rows = search.directions(each.codes)
        energies = np.linalg.eigvalsh((rows.T * each.weights) @ rows)
        assert_allclose(1.0 - energies[-k:].sum(), each.lower, atol=1e-9)
        occupied = np.linalg.eigvalsh(each.factor.T @ each.factor)
        assert occupied.max() <= 1.0 + 1e-5
        assert_allclose(occupied.sum(), k, rtol=1e-4)
    assert state.factor.shape[1] >= k


def test_isotropic_data_are_bounded_though_every_pair_is_tight():
    rows = np.random.RandomState(0).normal(size=(150, 8))
    _, state, found = rounds(rows, 2, 8)
    assert max(each.lower for each in found) >= 0.98 * 0.75
    assert state.perplexity > 30


def test_a_subspace_grows_to_what_matters():
    search = PairSearch(*prepare_pairs(cloud(5, 60, 40), rotate=True))
    codes = search.sample(500, np.random.default_rng(0))
    narrow = MultiplierSettings(spare_columns=4, spare_share=0.0)
    optimum = solve_relaxation(search, LargestFloor(3), tol=1e-4)
    state = Multipliers.begin(search, codes, axes(search, 3), narrow)
    for _ in range(8):
        found = state.round(1.0)
        assert state.space.shape[1] <= 7
        assert_allclose(
            state.space.T @ state.space, np.eye(state.space.shape[1]), atol=1e-9
        )
        assert found.lower <= optimum.relaxed + 1e-6
        assert found.relaxed >= optimum.lower - 1e-6


@pytest.mark.parametrize("first_price", [0.05, 2.0, 50.0])
@pytest.mark.parametrize(("r", "d", "k", "slack"), [(40, 8, 3, 0.1), (60, 30, 6, 0.3)])
def test_under_a_cap_every_round_brackets_the_most_that_is_kept(
    r, d, k, slack, first_price
):
    rows = cloud(6, r, d) * np.linspace(2.0, 0.3, d)
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    objective = np.cov(search.coordinates.T)
    objective /= np.trace(objective)
    anchor = solve_relaxation(search, LargestFloor(k), tol=1e-4)
    cap = (1.0 + slack) * anchor.relaxed
    programme = MostKept.of(search, k, objective, cap, anchor)
    optimum = solve_relaxation(search, programme, tol=1e-5)
    codes = search.sample(300, np.random.default_rng(0))
    settings = MultiplierSettings(first_price=first_price)
    state = Multipliers.begin_capped(search, programme, codes, settings)
    for _ in range(12):
        found = state.round(cap)
        assert found.upper >= optimum.value - 1e-6
        assert found.value <= optimum.upper + 1e-6
        rows = search.directions(found.codes)
        dual = objective + (rows.T * found.weights) @ rows
        top = np.linalg.eigvalsh(dual)[-k:].sum()
        assert found.upper == pytest.approx(top - (1.0 - cap) * found.weights.sum())
        assert (found.weights >= 0.0).all()
    # Where the first price is too low, it is raised until the cap binds.
    assert state.best.upper <= optimum.upper * 1.01
    assert state.best.value >= optimum.value * 0.9
