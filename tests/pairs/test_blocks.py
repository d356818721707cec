from __future__ import annotations

import pickle

import numpy as np
import pytest
from geometry import cloud, every_pair, random_basis, seeds
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from isoproj import audit
from isoproj.exceptions import NoPairsError
from isoproj.pairs.blocks import (
    PairBlocks,
    SquaredDistances,
    Workspace,
    inverse_squares,
    product_error,
    squared_gaps,
)
from isoproj.pairs.directions import Secants
from isoproj.pairs.moments import pose, summed_moment
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs

PRECISIONS = [np.float32, np.float64]
N = 40


def one_scale(rng, width):
    return rng.normal(size=(N, width))


def near_copies(rng, width):
    """Pairs at every distance from that of the norms down to below rounding."""
    rows = np.repeat(rng.normal(size=(N // 2, width)), 2, axis=0)
    gaps = 10.0 ** rng.uniform(-17, 0, size=(N // 2, 1))
    rows[1::2] += gaps * rng.normal(size=(N // 2, width))
    return rows


def many_sizes(rng, width):
    return rng.normal(size=(N, width)) * 10.0 ** rng.uniform(-15, 0, size=(N, 1))


def one_sign(rng, width):
    """All terms of a product have one sign and large entries, so errors add up."""
    return 1.0 - rng.uniform(0, 1e-3, size=(N, width))


def faint(rng, width):
    """Squares are next to the smallest number of float32."""
    rows = 1e-20 * rng.normal(size=(N, width))
    rows[0] = 1.0
    return rows


SCALES = [one_scale, near_copies, many_sizes, one_sign, faint]
scales = st.sampled_from(SCALES)
precisions = st.sampled_from(PRECISIONS)
widths = st.sampled_from([1, 2, 7, 64, 300])


def exact_table(rows):
    """Return squared distances from differences in extended precision."""
    wide = np.asarray(rows, dtype=np.longdouble)
    return np.square(wide[:, None] - wide[None]).sum(axis=2)


def whole_block(distances):
    every = slice(0, distances.right.shape[0])
    return distances.block(distances.left(every), every)


def error_bounds(distances):
    """Return the bound of every entry."""
    n = distances.right.shape[0]
    pairs = np.argwhere(np.ones((n, n), dtype=bool))
    return distances.errors(pairs).reshape(n, n)


@given(seeds, scales, widths, precisions)
def test_the_error_bound_covers_the_error_of_every_entry(seed, make, width, dtype):
    rows = make(np.random.default_rng(seed), width)
    distances = SquaredDistances.of(rows, dtype)
    exact, bounds = exact_table(rows), error_bounds(distances)
    assert (np.abs(whole_block(distances) - exact) <= bounds).all()
    assert (np.abs(distances.table() - exact) <= bounds).all()


@given(seeds, precisions, st.floats(1e-9, 1e-3), st.floats(0.0, 1e-3))
def test_the_error_bound_covers_errors_of_the_given_rows(seed, dtype, haze, blur):
    rng = np.random.default_rng(seed)
    rows = near_copies(rng, 6)
    moves = rng.normal(size=rows.shape)
    moves *= haze / np.linalg.norm(moves, axis=1, keepdims=True)
    distances = SquaredDistances.of(rows + moves, dtype, haze=haze, blur=blur)
    off = np.abs(whole_block(distances) - exact_table(rows))
    assert (off + blur <= error_bounds(distances)).all()


@given(seeds, scales, widths, precisions, st.sampled_from([1e-6, 1e-3, 1 / 16, 0.25]))
def test_entries_that_are_not_close_have_the_stated_accuracy(
    seed, make, width, dtype, accuracy
):
    rows = make(np.random.default_rng(seed), width)
    distances, every = SquaredDistances.of(rows, dtype), slice(0, N)
    blocks = PairBlocks(np.arange(N), accuracy)
    block = blocks.measure(distances, distances.left(every), every, every)
    exact = exact_table(rows)
    i, j = np.nonzero(np.isfinite(block.squares))
    off = np.abs(block.squares[i, j] - exact[i, j])
    # The bound is relative to the computed entry.
    assert (off <= accuracy * block.squares[i, j]).all()
    assert (off <= accuracy / (1 - accuracy) * exact[i, j]).all()


@given(seeds, scales, precisions)
def test_every_pair_is_either_close_or_in_its_block(seed, make, dtype):
    rows = make(np.random.default_rng(seed), 5)
    copies = np.arange(N)
    copies[7] = 3
    rows[7] = rows[3]
    distances = SquaredDistances.of(rows, dtype)
    blocks = PairBlocks(copies, 1 / 16)
    found = []
    for a in range(0, N, 16):
        for b in range(0, N, 12):
            own, others = slice(a, min(a + 16, N)), slice(b, min(b + 12, N))
            block = blocks.measure(distances, distances.left(own), own, others)
            found.append(block.close)
            found.append(block.numbered(np.argwhere(np.isfinite(block.squares))))
            assert_array_equal(block.least, block.squares.min(axis=1))
            is_absent = np.zeros(block.squares.shape, dtype=bool)
            is_absent |= False if block.absent is None else block.absent
            assert_array_equal(is_absent, np.isinf(block.squares))
    found = np.concatenate(found)
    expected = [pair for pair in every_pair(N).tolist() if pair != [3, 7]]
    assert sorted(found.tolist()) == expected


@pytest.mark.parametrize("dtype", PRECISIONS)
def test_blocks_hold_the_distances_of_direct_differences(dtype):
    rows = cloud(0, N, 9)
    distances, every = SquaredDistances.of(rows, dtype), slice(0, N)
    blocks = PairBlocks(np.arange(N), 1e-3)
    block = blocks.measure(distances, distances.left(every), every, every)
    i, j = every_pair(N).T
    direct = squared_gaps(rows, every_pair(N))
    assert_allclose(block.squares[i, j], direct, rtol=1e-3)
    assert_allclose(direct, exact_table(rows)[i, j].astype(float), rtol=1e-14)
    inverse = block.inverted()
    assert_allclose(inverse[i, j] * direct, 1.0, rtol=1e-3)
    assert np.isnan(inverse[np.tril_indices(N)]).all()


def test_some_columns_can_be_chosen():
    rows, columns = cloud(1, N, 6), np.array([1, 4])
    chosen = whole_block(SquaredDistances.of(rows, columns=columns))
    assert_array_equal(chosen, whole_block(SquaredDistances.of(rows[:, columns])))


def test_the_error_grows_with_the_width_and_shrinks_with_the_precision():
    assert product_error(10, np.float64) < product_error(10, np.float32)
    assert product_error(10, np.float32) < product_error(11, np.float32)


def test_a_thread_gets_the_same_memory_again():
    workspace = Workspace()
    first = workspace.arrays(2, (3, 4), np.dtype(np.float32))
    again = workspace.arrays(1, (2, 5), np.dtype(np.float32))
    assert first.shape == (2, 3, 4)
    assert np.shares_memory(first, again)
    copied = pickle.loads(pickle.dumps(workspace))
    elsewhere = copied.arrays(1, (2, 5), np.dtype(np.float32))
    assert not np.shares_memory(first, elsewhere)


# Gaps that rounding swallows -----------------------------------------------------


@pytest.fixture
def swallowed():
    """Points 0 and 1 differ, but the far point 2 makes centring round the gap away."""
    rows = np.vstack([[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1e20, 0, 0]], cloud(2, 9, 3)])
    rows[3:] *= 1e19
    points, pairs = prepare_pairs(rows, rotate=True)
    assert squared_gaps(points.coordinates, np.array([[0, 1]])) == [0.0]
    assert points.are_distinct(np.array([[0, 1]])).all()
    return rows, points, pairs


def test_the_inverse_square_of_a_swallowed_gap_is_not_a_number():
    assert_array_equal(inverse_squares(np.array([4.0, 0.0])), [0.25, np.nan])


def test_no_search_names_a_swallowed_gap(swallowed):
    _, points, pairs = swallowed
    factor, n_found = random_basis(3, points.n_dims, 1), pairs.n_pairs - 1
    for memory_limit in (2e9, 0.0):
        search = PairSearch(points, pairs, memory_limit=memory_limit)
        codes = search.weakest(factor, 10.0).codes
        assert codes.size == n_found
        assert 1 not in codes
        assert 1 not in search.sample(1000, np.random.default_rng(0))
        ends = search.extremes(factor, n_low=1000, n_high=1000)
        for found in (ends.low_pairs, ends.high_pairs):
            assert len(found) == n_found
            assert [0, 1] not in found.tolist()


def test_sums_over_pairs_leave_a_swallowed_gap_out(swallowed):
    _, points, pairs = swallowed
    rest = every_pair(points.n_points)[1:]
    moment = summed_moment(points.coordinates, points.first_copy)
    without = summed_moment(points.coordinates, points.first_copy, rest)
    assert_allclose(moment, without, atol=1e-9)
    problem = pose(points, pairs, 1)
    assert_allclose(problem.moment(np.ones(problem.n_pairs)), without, atol=1e-7)
    assert problem.retained(np.eye(points.n_dims, 1))[0] == 1.0
    direction = Secants(points.coordinates, np.array([[0, 1]])).explicit()
    assert_array_equal(direction, np.zeros((1, points.n_dims)))


def test_the_exact_scan_judges_a_swallowed_gap_from_the_data(swallowed):
    rows = swallowed[0]
    result = audit(rows, [[1.0, 0.0, 0.0]])
    assert result.distortion == 1.0
    assert result.worst_pairs[0].tolist() == [0, 1]


def test_a_list_of_swallowed_gaps_alone_is_refused(swallowed):
    points, pairs = prepare_pairs(swallowed[0], [[0, 1]], rotate=True)
    search = PairSearch(points, pairs)
    with pytest.raises(NoPairsError, match="rounding swallows all 1 gaps"):
        search.weakest(np.eye(points.n_dims, 1), 1.0)
