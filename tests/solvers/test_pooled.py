"""A solve on a pool: what is told at once, and what a start may be."""

import math

import numpy as np
import pytest

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Problem
from isoproj.solvers.minimax import minimax

K = 3


@pytest.fixture(scope="module")
def search():
    rows = np.random.default_rng(0).standard_normal((130, 8))
    search = PairSearch(*prepare_pairs(rows, rotate=True), memory_limit=0)
    assert search.is_slow
    return search


def measured(search, basis):
    return 1.0 - float(search.weakest(basis, 0.0).retained[0])


def test_both_sides_are_finite_and_in_order_in_every_round(search):
    result = minimax(Problem(search=search, k=K))
    assert len(result.history) > 2
    for step in result.history:
        assert math.isfinite(step.distortion)
        assert 0.0 <= step.lower_bound <= step.distortion
    found = {step.phase: step.distortion for step in result.history}
    assert found["search"] < found["first projection"]
    # Polishing has little left to do.
    assert found["search"] <= 1.01 * result.distortion


def test_a_long_start_seems_no_better_than_it_is(search):
    start = 5.0 * np.linalg.qr(np.random.default_rng(1).standard_normal((8, K)))[0]
    result = minimax(Problem(search=search, k=K, start=start))
    np.testing.assert_allclose(result.basis.T @ result.basis, np.eye(K), atol=1e-9)
    assert result.distortion == pytest.approx(measured(search, result.basis), abs=1e-9)
    assert result.history[0].distortion == pytest.approx(measured(search, start / 5.0))


def test_the_first_basis_costs_one_search_of_all_pairs(search):
    before = search.n_searches
    counts = []

    class Stop(KeyboardInterrupt):
        pass

    def first(*_args):
        counts.append(search.n_searches - before)
        raise Stop

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("isoproj.solvers.pooled.generate", first)
        minimax(Problem(search=search, k=K))
    assert counts == [1]


def test_a_slow_search_ends_about_where_a_fast_one_does(search):
    fast = PairSearch(search.points, search.pairs)
    assert not fast.is_slow
    slow, quick = (minimax(Problem(search=each, k=K)) for each in (search, fast))
    assert slow.distortion <= 1.02 * quick.distortion
    assert slow.lower >= 0.98 * quick.lower
    assert slow.distortion == pytest.approx(measured(search, slow.basis), abs=1e-9)
