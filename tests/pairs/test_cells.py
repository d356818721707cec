from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair
from numpy.testing import assert_allclose

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs


def searched(rows, **options):
    return PairSearch(*prepare_pairs(rows, rotate=True), **options)


def spectrum(n_points, n_dims):
    return cloud(0, n_points, n_dims) * np.arange(1, n_dims + 1) ** -0.5


@pytest.mark.parametrize("is_even", [True, False], ids=["projection", "relaxed"])
def test_nearly_all_of_the_weakest_pairs_are_found_by_cells(is_even):
    search = searched(spectrum(1500, 40), memory_limit=0.0)
    factor = np.eye(search.points.n_dims, 6)
    factor *= 1.0 if is_even else np.linspace(1.0, 0.5, 6)
    exact = search.weakest(factor, 1.0, most=200)
    search.recent = search.recent[:0]
    found = search.near(factor, np.inf, 200)
    assert found.codes[0] == exact.codes[0]
    assert np.isin(exact.codes, found.codes).mean() > 0.9


def test_pairs_found_by_cells_have_their_own_shares_and_no_level():
    search = searched(spectrum(300, 20), memory_limit=0.0)
    factor = np.eye(search.points.n_dims, 4)
    found = search.near(factor, np.inf, 50)
    gaps = search.directions(found.codes) @ factor
    assert_allclose(found.retained, (gaps**2).sum(axis=1), atol=1e-12)
    assert found.codes.size == np.unique(found.codes).size == 50
    assert found.level == -np.inf
    assert search.n_searches == 0


def test_cells_name_no_pair_of_identical_points():
    rows = np.repeat(spectrum(40, 8), 3, axis=0)
    search = searched(rows, memory_limit=0.0)
    found = search.near(np.eye(8, 2), np.inf, 500)
    assert search.points.are_distinct(search.decode(found.codes)).all()


def test_pairs_known_from_earlier_searches_are_looked_at_again():
    search = searched(spectrum(300, 20), memory_limit=0.0)
    last = np.eye(20)[:, -3:]
    search.recent = search.encode(every_pair(300))
    exact = searched(spectrum(300, 20)).weakest(last, 1.0, most=30)
    assert np.isin(exact.codes, search.near(last, np.inf, 30).codes).all()


def test_where_distances_are_kept_the_search_by_cells_is_that_of_all_pairs():
    search = searched(spectrum(100, 20))
    factor = np.eye(20, 4)
    found, exact = search.near(factor, np.inf, 30), search.weakest(factor, 1.0, most=30)
    assert found.codes.tolist() == exact.codes.tolist()
    assert found.level == exact.level
