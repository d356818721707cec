from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, random_basis
from hypothesis import given
from hypothesis import strategies as st

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Clock, Journal, Problem, Status
from isoproj.solvers.descent.flags import Flag, Stage, descend_flag, mean_flag
from isoproj.solvers.nested import solve_nested

PAIRS = np.column_stack(np.triu_indices(12, 1))


def secants(further=None):
    return Secants(cloud(0, 12, 7), PAIRS, further)


def flag(prices=None):
    return Flag(
        ks=(2, 5),
        targets=np.array([0.8, 0.4]),
        weights=np.array([1.0, 0.5]),
        prices=prices,
    )


def merit(of, rows, basis, temperature=0.05):
    return of.smoothed(rows.images(basis), len(rows), temperature)[0]


@pytest.mark.parametrize("prices", [None, np.array([0.3, 0.2])])
def test_the_gradient_is_the_slope_of_the_merit(prices):
    rows = secants(None if prices is None else cloud(1, 3, 7))
    of, basis = flag(prices), random_basis(2, 7, 5)
    images = rows.images(basis)
    _, rates = of.smoothed(images, len(rows), 0.05)
    gradient = of.gradient(rows, basis, images, rates)
    # Skew parts move the basis inside its span, the rest out of it.
    step = cloud(3, 7, 5)
    step -= basis @ (basis.T @ step + step.T @ basis) / 2.0
    slope = 0.0
    for sign in (1.0, -1.0):
        moved = np.linalg.qr(basis + sign * 1e-6 * step)[0]
        slope += sign * merit(of, rows, moved) / 2e-6
    assert np.vdot(gradient, step) == pytest.approx(slope, rel=1e-5)


@given(st.integers(0, 1000))
def test_the_merit_knows_prefixes_only(seed):
    basis = random_basis(seed, 7, 5)
    turned = basis.copy()
    turned[:, :2] = basis[:, :2] @ random_basis(seed + 1, 2, 2)
    turned[:, 2:] = basis[:, 2:] @ random_basis(seed + 2, 3, 3)
    assert merit(flag(), secants(), turned) == pytest.approx(
        merit(flag(), secants(), basis)
    )


def test_losses_of_prefixes_are_those_of_their_columns():
    basis, rows = random_basis(4, 7, 5), secants()
    directions = rows.explicit()
    retained = flag().retained(rows.images(basis))
    for at, k in enumerate((2, 5)):
        expected = np.square(directions @ basis[:, :k]).sum(axis=1)
        assert retained[:, at] == pytest.approx(expected)


@pytest.mark.parametrize("is_single", [True, False])
def test_descent_does_not_end_above_its_start(is_single):
    start, rows = random_basis(5, 7, 5), secants()
    stage = Stage(flag(), rows, 0.02, 50, 1e-3)
    moved = descend_flag(stage, start, is_single=is_single)
    assert moved.dtype == np.float64
    assert moved.T @ moved == pytest.approx(np.eye(5), abs=1e-12)
    assert merit(flag(), rows, moved, 0.02) < merit(flag(), rows, start, 0.02) - 0.01


def test_the_mean_of_nested_bases_is_their_flag():
    basis = random_basis(6, 9, 6)
    found = mean_flag([basis[:, :2], basis[:, :4], basis])
    for k in (2, 4, 6):
        projector = basis[:, :k] @ basis[:, :k].T
        assert found[:, :k] @ found[:, :k].T == pytest.approx(projector)


def problem(limit=None):
    search = PairSearch(*prepare_pairs(cloud(7, 20, 12), rotate=True))
    return Problem(search=search, k=None, journal=Journal(Clock(limit)))


def test_a_result_is_never_worse_than_where_it_started():
    posed, ks = problem(), (8, 10)
    found = solve_nested(posed, ks)
    start = mean_flag([found.separate[k].basis for k in ks])

    def excess(basis):
        worst = 0.0
        for k in ks:
            kept = posed.search.weakest(basis[:, :k].copy(), 0.0).retained[0]
            alone = found.separate[k].distortion
            worst = max(worst, (1.0 - kept - alone) / (alone * (1.0 - alone)))
        return worst

    assert excess(found.basis) < excess(start)
    assert found.whole.status is Status.CONVERGED


def test_a_limit_is_shared_and_told():
    found = solve_nested(problem(limit=1e-3), (8, 10))
    assert found.whole.status is Status.TIME_LIMIT
    assert sorted(found.separate) == [8, 10]
    assert found.basis.shape == (12, 10)
