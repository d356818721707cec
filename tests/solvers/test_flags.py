"""One basis for several numbers of dimensions: every prefix near its own best."""

from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, random_basis

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Clock, Journal, Problem, Status
from isoproj.solvers.nested import _between, _mean_flag, solve_nested

KS = (8, 10)


def problem(limit=None, **options):
    search = PairSearch(*prepare_pairs(cloud(7, 20, 12), rotate=True))
    journal = Journal(Clock(limit))
    return Problem(search=search, k=None, journal=journal, n_restarts=0, **options)


def lost(posed, basis, k):
    prefix = np.ascontiguousarray(basis[:, :k])
    return 1.0 - float(posed.search.weakest(prefix, 0.0).retained[0])


def worst_odds(posed, found, basis):
    """Return the largest excess of a prefix over a projection of its own, in odds."""
    excess = []
    for k in KS:
        alone = found.separate[k].distortion
        excess.append((lost(posed, basis, k) - alone) / (alone * (1.0 - alone)))
    return max(excess)


@pytest.fixture(scope="module")
def solved():
    posed = problem()
    return posed, solve_nested(posed, KS)


def test_a_result_is_better_than_where_it_started(solved):
    posed, found = solved
    start = _mean_flag([found.separate[k].basis for k in KS])
    assert worst_odds(posed, found, found.basis) < worst_odds(posed, found, start)
    gram = found.basis.T @ found.basis
    np.testing.assert_allclose(gram, np.eye(10), atol=1e-9)
    assert not found.whole.status.advice


def test_no_prefix_loses_less_than_the_bound_of_its_own(solved):
    posed, found = solved
    for k in KS:
        assert found.separate[k].lower <= found.separate[k].distortion
        assert found.separate[k].lower <= lost(posed, found.basis, k) + 1e-9
        assert lost(posed, found.basis, k) <= 1.2 * found.separate[k].distortion


def test_a_prefix_that_weighs_more_is_better(solved):
    posed, even = solved
    for at, k in enumerate(KS):
        weights = [0.02, 0.02]
        weights[at] = 1.0
        tilted = solve_nested(posed, KS, weights)
        ours, theirs = lost(posed, tilted.basis, k), lost(posed, even.basis, k)
        assert ours <= theirs + 1e-6


def test_under_caps_more_of_the_objective_is_kept_and_no_cap_is_broken(solved):
    _, even = solved
    coordinates = problem().search.coordinates
    matrix = np.cov(coordinates.T)
    matrix /= np.trace(matrix)
    posed = problem(objective=matrix, slack=0.2)
    found = solve_nested(posed, KS)

    def kept(basis):
        return sum(np.vdot(basis[:, :k], matrix @ basis[:, :k]) for k in KS)

    assert kept(found.basis) > kept(even.basis)
    for k in KS:
        assert lost(posed, found.basis, k) <= found.separate[k].cap + 1e-9


def test_all_dimensions_continue_a_basis():
    found = solve_nested(problem(), (3, 12))
    np.testing.assert_allclose(found.basis.T @ found.basis, np.eye(12), atol=1e-9)
    assert found.separate[12].distortion == 0.0


def test_a_limit_is_shared_and_told():
    found = solve_nested(problem(limit=1e-3), KS)
    assert found.whole.status is Status.TIME_LIMIT
    assert sorted(found.separate) == [8, 10]
    assert found.basis.shape == (12, 10)


def test_the_mean_of_nested_bases_is_their_flag():
    basis = random_basis(6, 9, 6)
    found = _mean_flag([basis[:, :2], basis[:, :4], basis])
    for k in (2, 4, 6):
        projector = basis[:, :k] @ basis[:, :k].T
        np.testing.assert_allclose(found[:, :k] @ found[:, :k].T, projector, atol=1e-9)


def test_the_way_between_two_flags_ends_at_each():
    inside, outside = random_basis(1, 9, 6), random_basis(2, 9, 6)
    for share, end in ((0.0, inside), (1.0, outside)):
        found = _between((2, 6), inside, outside, share)
        for k in (2, 6):
            projector = end[:, :k] @ end[:, :k].T
            ours = found[:, :k] @ found[:, :k].T
            np.testing.assert_allclose(ours, projector, atol=1e-9)


def test_the_way_between_two_bases_of_one_flag_does_not_leave_it():
    inside = random_basis(1, 9, 6)
    turned = inside.copy()
    turned[:, :2] = inside[:, :2] @ random_basis(3, 2, 2)
    turned[:, 2:] = inside[:, 2:] @ random_basis(4, 4, 4)
    found = _between((2, 6), inside, turned, 0.5)
    np.testing.assert_allclose(found, inside, atol=1e-9)
