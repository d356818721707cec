"""Objectives of the descent: gradients by differences, and both forms agree."""

import math

import numpy as np
import pytest

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.smoothed import SmoothedWorst
from isoproj.solvers.descent.grassmann import Stage, cooled
from isoproj.solvers.descent.merit import Capped, Worst
from isoproj.solvers.descent.objectives import OnAllPairs, OnRows, horizontal
from isoproj.solvers.descent.working_set import WorkingSet

N_POINTS, N_DIMS, K = 40, 6, 3


@pytest.fixture(scope="module")
def search():
    rows = np.random.default_rng(0).standard_normal((N_POINTS, N_DIMS))
    return PairSearch(*prepare_pairs(rows, rotate=True))


@pytest.fixture(scope="module")
def further():
    return np.random.default_rng(2).standard_normal((4, N_DIMS))


def basis():
    return np.linalg.qr(np.random.default_rng(1).standard_normal((N_DIMS, K)))[0]


def both(search, merit, further=None, temperature=0.05):
    pairs = np.column_stack(np.triu_indices(N_POINTS, 1))
    secants = Secants(search.coordinates, pairs, further)
    return (
        OnRows(secants, merit, temperature),
        OnAllPairs(search.smoothed, merit, temperature, further),
    )


@pytest.mark.parametrize("cap", [math.inf, 0.5, 0.99])
def test_some_rows_and_all_pairs_are_the_same_function(search, further, cap):
    if math.isinf(cap):
        rows, pairs = both(search, Worst())
    else:
        rows, pairs = both(search, Capped(cap, 0.1, len(further)), further)
    one, other = rows.at(basis()), pairs.at(basis())
    assert other.value == pytest.approx(one.value, abs=1e-4)
    np.testing.assert_allclose(other.gradient, one.gradient, atol=1e-3)


@pytest.mark.parametrize("number", [0, 1])
def test_the_slope_is_the_derivative_along_the_curve(search, number):
    objective = both(search, Worst())[number]
    state = objective.at(basis())
    noise = np.random.default_rng(3).standard_normal((N_DIMS, K))
    step = horizontal(basis(), noise)
    ray = objective.along(state, step)
    assert ray.at(0.0)[1] == pytest.approx(np.vdot(state.gradient, step), rel=1e-3)
    for time in (0.1, 0.3):
        _, slope = ray.at(time)
        change = ray.at(time + 0.01)[0] - ray.at(time - 0.01)[0]
        assert slope == pytest.approx(change / 0.02, rel=0.02, abs=1e-3)


def test_a_stage_on_all_pairs_lowers_the_objective_and_stays_orthonormal(search):
    objective = both(search, Worst())[1]
    moved = cooled(objective, basis(), Stage(0.05, 40, 0.01))
    assert objective.at(moved).value < objective.at(basis()).value
    np.testing.assert_allclose(moved.T @ moved, np.eye(K), atol=1e-12)


def test_a_whole_space_has_nothing_to_descend_on(search):
    objective = both(search, Worst())[1]
    whole = np.eye(N_DIMS)
    assert cooled(objective, whole, Stage(0.05, 40, 0.01)) is whole


@pytest.mark.parametrize("cap", [math.inf, 0.5])
def test_a_sample_and_pairs_known_besides_are_the_same_as_their_union(
    search, further, cap
):
    chosen = np.arange(25)
    inside = np.column_stack(np.triu_indices(chosen.size, 1))
    others = np.array([[3, 30], [12, 39], [28, 33]])
    merit = Worst() if math.isinf(cap) else Capped(cap, 0.1, len(further))
    extra = None if math.isinf(cap) else further
    sampled = OnAllPairs(
        SmoothedWorst(search.points, search.pairs, chosen),
        merit,
        0.05,
        extra,
        Secants(search.coordinates, others),
    )
    union = Secants(search.coordinates, np.vstack([inside, others]), extra)
    one, other = OnRows(union, merit, 0.05).at(basis()), sampled.at(basis())
    assert other.value == pytest.approx(one.value, abs=1e-4)
    np.testing.assert_allclose(other.gradient, one.gradient, atol=1e-3)


def test_a_working_set_without_its_objective_holds_the_pairs_alone(search, further):
    codes = search.encode(np.array([[0, 1], [2, 7], [5, 30]]))
    known = WorkingSet(search, codes, further)
    alone = known.pairs_alone(np.float32)
    assert len(known.secants) == len(alone) == 3
    assert alone.further is None
    np.testing.assert_allclose(
        alone.images(basis().astype(np.float32)),
        known.secants.images(basis())[:3],
        atol=1e-6,
    )
