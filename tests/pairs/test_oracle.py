from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair, random_basis
from numpy.testing import assert_allclose, assert_array_equal

from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.settings import PairSettings


def retained_by_hand(rows, factor, pairs):
    gaps = rows[pairs[:, 0]] - rows[pairs[:, 1]]
    return ((gaps @ factor) ** 2).sum(axis=1) / (gaps**2).sum(axis=1)


def named(pairs):
    return {tuple(pair) for pair in np.asarray(pairs).tolist()}


def searched(rows, pairs="all", **options):
    points, selected = prepare_pairs(rows, pairs, rotate=True)
    return PairSearch(points, selected, **options)


SMALL_BLOCKS = PairSettings(block_rows=16)
FLOAT32 = PairSettings(block_rows=16, few_pairs=0)

# Settings, and the accuracy of the shares they give.
precision = pytest.mark.parametrize(
    ("settings", "atol"),
    [(SMALL_BLOCKS, 1e-9), (FLOAT32, 1e-4)],
    ids=["float64", "float32"],
)


@pytest.mark.parametrize("memory_limit", [2e9, 0.0])
@precision
def test_the_weakest_pairs_are_those_of_brute_force(settings, atol, memory_limit):
    rows = cloud(0, 60, 8)
    search = searched(rows, memory_limit=memory_limit, settings=settings)
    factor = cloud(1, search.points.n_dims, 3)
    pairs = every_pair(60)
    exact = retained_by_hand(search.coordinates, factor, pairs)
    level = float(np.sort(exact)[40])
    found = search.weakest(factor, level)
    # Rounding decides only about pairs as close to the level as it is wide.
    names = named(search.decode(found.codes))
    assert named(pairs[exact < level - atol]) <= names
    assert names <= named(pairs[exact < level + atol])
    assert (np.diff(found.retained) >= 0).all()
    measured = retained_by_hand(search.coordinates, factor, search.decode(found.codes))
    assert_allclose(found.retained, measured, atol=atol)


@pytest.mark.parametrize("most", [10, 20_000])
@pytest.mark.parametrize("memory_limit", [2e9, 0.0])
def test_no_pair_up_to_the_level_of_a_search_is_left_out(memory_limit, most):
    rows = cloud(0, 60, 8)
    search = searched(rows, memory_limit=memory_limit, settings=SMALL_BLOCKS)
    factor = cloud(1, search.points.n_dims, 3)
    pairs = every_pair(60)
    exact = retained_by_hand(search.coordinates, factor, pairs)
    asked = float(np.sort(exact)[40])
    found = search.weakest(factor, asked, most=most)
    assert found.level <= asked
    weak = named(pairs[exact < found.level - 1e-9])
    assert weak <= named(search.decode(found.codes))
    if most > 40 and not search.is_slow:
        assert found.level == asked


@precision
def test_the_weakest_pair_comes_even_if_none_is_weak_enough(settings, atol):
    search = searched(cloud(2, 40, 5), settings=settings)
    factor = cloud(3, 5, 2)
    found = search.weakest(factor, -1.0)
    pairs = np.column_stack(np.triu_indices(40, 1))
    exact = retained_by_hand(search.coordinates, factor, pairs)
    assert_allclose(found.retained[0], exact.min(), atol=atol)


@pytest.mark.parametrize("settings", [SMALL_BLOCKS, FLOAT32])
def test_close_and_identical_points_are_told_apart(settings):
    rows = cloud(4, 30, 6)
    rows[1] = rows[0]
    rows[3] = rows[2] + 1e-7 * cloud(5, 1, 6)[0]
    search = searched(rows, settings=settings)
    gap = search.coordinates[2] - search.coordinates[3]
    normal = np.linalg.qr(np.column_stack([gap, cloud(6, 6, 2)]))[0][:, 1:]
    found = search.weakest(normal, 1e-6)
    assert search.decode(found.codes[:1]).tolist() == [[2, 3]]
    codes = search.weakest(normal, 10.0).codes
    assert codes.size == 30 * 29 // 2 - 1
    assert 1 not in codes


def test_listed_pairs_are_searched_alone():
    listed = np.array([[0, 5], [2, 7], [1, 3]])
    search = searched(cloud(7, 9, 4), listed)
    found = search.weakest(random_basis(8, 4, 2), 10.0)
    assert named(search.decode(found.codes)) == named(listed)


def test_lowest_gives_about_as_many_as_asked():
    search = searched(cloud(9, 80, 6))
    found = search.lowest(np.eye(6, 2), 100)
    assert 50 <= found.codes.size <= 100
    pairs = every_pair(80)
    exact = retained_by_hand(search.coordinates, np.eye(6, 2), pairs)
    first = np.argsort(exact, kind="stable")[: found.codes.size]
    assert_array_equal(search.decode(found.codes), pairs[first])


def test_codes_and_pairs_name_the_same_directions():
    search = searched(cloud(13, 20, 4))
    pairs = every_pair(20)[::3]
    codes = search.encode(pairs)
    assert_array_equal(search.decode(codes), pairs)
    assert_array_equal(search.directions(codes), search.directions(pairs))
    gaps = search.coordinates[pairs[:, 0]] - search.coordinates[pairs[:, 1]]
    lengths = np.linalg.norm(gaps, axis=1, keepdims=True)
    assert_allclose(search.directions(pairs), gaps / lengths)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("memory_limit", [2e9, 0.0])
@precision
def test_extremes_are_those_of_brute_force(settings, atol, memory_limit, listed):
    pairs = every_pair(60)[::5] if listed else every_pair(60)
    rows = cloud(14, 60, 8)
    asked = pairs if listed else "all"
    search = searched(rows, asked, memory_limit=memory_limit, settings=settings)
    factor = cloud(15, 8, 3)
    exact = retained_by_hand(search.coordinates, factor, pairs)
    ends = search.extremes(factor, n_low=7, n_high=4)
    order = np.argsort(exact)
    # Candidates may come from float32; what is said of them is measured in float64.
    assert_array_equal(ends.low_pairs, pairs[order[:7]])
    assert_allclose(ends.low, exact[order[:7]], rtol=1e-12)
    assert_array_equal(ends.high_pairs, pairs[order[:-5:-1]])
    assert_allclose(ends.high, exact[order[:-5:-1]], rtol=1e-12)
    assert search.extremes(factor, n_low=2).high.size == 0


def test_close_pairs_are_among_the_extremes():
    rows = cloud(16, 30, 6)
    rows[3] = rows[2] + 1e-7 * cloud(17, 1, 6)[0]
    for memory_limit in (2e9, 0.0):
        search = searched(rows, memory_limit=memory_limit, settings=FLOAT32)
        gap = search.coordinates[2] - search.coordinates[3]
        normal = np.linalg.qr(np.column_stack([gap, cloud(6, 6, 2)]))[0]
        low = search.extremes(normal[:, 1:], n_low=1)
        high = search.extremes(1.01 * normal[:, :1], n_low=0, n_high=1)
        assert low.low_pairs.tolist() == high.high_pairs.tolist() == [[2, 3]]


def test_labels_split_the_extremes_by_class():
    points, pairs = prepare_pairs(cloud(18, 40, 5), rotate=True)
    labels = np.arange(40) % 4
    search = PairSearch(points, pairs, labels=labels)
    ends = search.extremes(cloud(19, 5, 2), n_low=1000, n_high=1000)
    low, high = labels[ends.low_pairs], labels[ends.high_pairs]
    assert (low[:, 0] != low[:, 1]).all()
    assert (high[:, 0] == high[:, 1]).all()
    assert len(low) + len(high) == pairs.n_pairs


@pytest.mark.parametrize("listed", [False, True])
def test_the_uniform_moment_is_the_mean_over_directions(listed):
    rows = cloud(20, 30, 5)
    rows[9] = rows[4]
    rows[11] = rows[10] + 1e-9 * cloud(21, 1, 5)[0]
    search = searched(rows, every_pair(30)[::3] if listed else "all")
    pairs = every_pair(30)[::3] if listed else every_pair(30)
    pairs = pairs[search.points.are_distinct(pairs)]
    directions = search.directions(pairs)
    expected = directions.T @ directions / len(pairs)
    assert_allclose(search.uniform_moment(), expected, atol=1e-9)


@pytest.mark.parametrize("n_pairs", [3, 200])
@pytest.mark.parametrize("few_entries", [0, 2**13])
def test_secants_act_as_their_explicit_matrix(n_pairs, few_entries, monkeypatch):
    monkeypatch.setattr("isoproj.pairs.directions._FEW_ENTRIES", few_entries)
    rows = cloud(10, 25, 7)
    pairs = np.column_stack(np.triu_indices(25, 1))[:n_pairs]
    secants = Secants(rows, pairs)
    explicit = secants.explicit()
    assert_allclose(np.linalg.norm(explicit, axis=1), 1.0)
    basis, weights = cloud(11, 7, 3), cloud(12, n_pairs, 3)
    assert_allclose(secants.images(basis), explicit @ basis, atol=1e-12)
    assert_allclose(secants.pull(weights), explicit.T @ weights, atol=1e-12)
    some = np.array([2, 0])
    assert_allclose(secants.take(some).explicit(), explicit[some])
    single = secants.astype(np.float32)
    assert single.images(basis.astype(np.float32)).dtype == np.float32


# By points where pairs are many for them, else by directions, some at a time.
@pytest.mark.parametrize(("n_points", "n_pairs"), [(40, 700), (4000, 5000)])
def test_a_moment_is_the_weighted_sum_over_directions(n_points, n_pairs):
    search = searched(cloud(6, n_points, 5))
    rng = np.random.default_rng(0)
    codes = search.sample(n_pairs, rng)
    weights = rng.uniform(size=codes.size)
    rows = search.directions(codes)
    moment = search.moment(codes, weights)
    assert_allclose(moment, (rows.T * weights) @ rows, rtol=1e-9, atol=1e-9)
    assert_allclose(search.moment(search.decode(codes), weights), moment)


def test_a_sample_is_never_empty():
    search = PairSearch(*prepare_pairs(np.eye(3), rotate=True))
    sizes = [search.sample(1, np.random.default_rng(seed)).size for seed in range(50)]
    assert min(sizes) >= 1


@precision
def test_a_long_list_of_pairs_is_searched_in_blocks_as_by_differences(settings, atol):
    listed = every_pair(60)[np.random.default_rng(3).permutation(1770)[:900]]
    inside = searched(cloud(0, 60, 8), listed, settings=settings)
    single = searched(cloud(0, 60, 8), listed, settings=settings, memory_limit=0.0)
    assert inside.n_pairs == single.n_pairs == 900
    factor = cloud(1, inside.points.n_dims, 3)
    found, expected = (s.weakest(factor, 0.0, most=1) for s in (inside, single))
    assert_array_equal(found.codes, expected.codes)
    assert_allclose(found.retained, expected.retained, atol=atol)
    assert np.isin(inside.lowest(factor, 900).codes, inside.encode(listed)).all()
