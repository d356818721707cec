from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from geometry import cloud, every_pair, random_basis, seeds
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.spatial.distance import pdist

from isoproj import audit
from isoproj.pairs.points import Points
from isoproj.pairs.rows import first_copies, squared_lengths
from isoproj.pairs.rule import prepare_pairs

SHAPES = [(5, 12), (12, 5), (7, 7), (2, 9), (40, 3)]
FORMS = [np.asarray, scipy.sparse.csr_array, scipy.sparse.csr_matrix]


def proportion(points, rows):
    """Return the ratio of squared distances inside to those of the data."""
    return pdist(points.coordinates, "sqeuclidean") / pdist(rows, "sqeuclidean")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rotate", [True, False])
def test_every_distance_survives_up_to_one_power_of_two(shape, form, rotate):
    rows = cloud(0, *shape)
    ratios = proportion(Points.prepare(form(rows), rotate=rotate), rows)
    assert_allclose(ratios, 2.0 ** np.round(np.log2(ratios[0])), rtol=1e-12)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_points_span_no_more_than_they_can(shape, form):
    points = Points.prepare(form(cloud(1, *shape)), rotate=True)
    assert points.n_dims == min(shape[0] - 1, shape[1])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("n_points", [9, 40])
def test_points_in_a_plane_have_two_coordinates(form, n_points):
    rows = cloud(2, n_points, 2) @ random_basis(3, 15, 2).T
    points = Points.prepare(form(rows), rotate=True)
    assert points.n_dims == 2
    assert proportion(points, rows).std() < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_lifted_bases_are_orthonormal_and_see_the_same_lengths(shape, form):
    rows = cloud(4, *shape)
    points = Points.prepare(form(rows), rotate=True)
    basis = random_basis(5, points.n_dims, 1)
    lifted = points.frame.lift(basis)
    assert lifted.shape == (shape[1], 1)
    assert_allclose(lifted.T @ lifted, np.eye(1), atol=1e-13)
    inside = pdist(points.coordinates @ basis) / pdist(points.coordinates)
    assert_allclose(pdist(rows @ lifted) / pdist(rows), inside, atol=1e-9)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("form", FORMS)
def test_a_basis_lifted_and_brought_back_is_itself(shape, form):
    points = Points.prepare(form(cloud(6, *shape)), rotate=True)
    basis = random_basis(7, points.n_dims, 1)
    back = points.frame.coordinates_of(points.frame.lift(basis))
    assert_allclose(back, basis, atol=1e-12)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("factor", [1e150, 1e-150, 1e300, 3.0])
def test_extreme_units_change_no_ratio_of_distances(form, factor):
    rows = cloud(8, 9, 6)
    pair_lengths = pdist(rows) / pdist(rows).max()
    points = Points.prepare(form(rows * factor), rotate=True)
    seen = pdist(points.coordinates)
    assert_allclose(seen / seen.max(), pair_lengths, rtol=1e-9)
    gaps = points.differences(every_pair(9))
    assert_allclose(np.log2(squared_lengths(gaps)), 0.0, atol=8.0)


@given(seeds, st.floats(-1e4, 1e4))
def test_a_translation_moves_no_distance(seed, offset):
    rows = cloud(seed, 8, 5)
    ratios = proportion(Points.prepare(rows + offset, rotate=True), rows)
    assert_allclose(ratios / ratios[0], 1.0, rtol=1e-8)


@pytest.mark.parametrize("form", FORMS)
def test_differences_come_from_the_data_itself(form):
    rows = cloud(9, 6, 4)
    rows[1] = rows[0]
    rows[1, 2] = np.nextafter(rows[0, 2], np.inf)
    gaps = Points.prepare(form(rows), rotate=True).differences(np.array([[0, 1]]))
    gaps = gaps.toarray() if scipy.sparse.issparse(gaps) else gaps
    assert_array_equal(gaps[0] != 0, [False, False, True, False])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_copies_are_found_whatever_the_sign_of_zero(form, dtype):
    rows = np.array([[0, 1], [2, 0], [-0.0, 1], [0, 1], [2, -0.0], [3, 3]], dtype)
    assert first_copies(form(rows)).tolist() == [0, 1, 0, 0, 1, 5]


def test_stored_zeros_of_sparse_rows_make_no_difference():
    stored = scipy.sparse.csr_array(
        (np.array([1.0, 0.0, -0.0, 1.0]), np.array([0, 1, 2, 0]), np.array([0, 3, 4])),
        shape=(2, 3),
    )
    assert first_copies(stored).tolist() == [0, 0]


def test_sparse_entries_stored_in_parts_or_out_of_order_are_summed():
    parts = scipy.sparse.csr_array(
        (
            np.array([1.0, 1.0, 2.0, 5.0, 2.0, 2.0, 5.0]),
            np.array([0, 0, 0, 1, 0, 0, 1]),
            np.array([0, 2, 3, 5, 7]),
        ),
        shape=(4, 2),
    )
    result = audit(parts, np.eye(2))
    assert (result.n_pairs, result.n_identical) == (4, 2)


@given(seeds)
def test_equal_numbers_mark_exactly_the_identical_rows(seed):
    rows = np.random.default_rng(seed).integers(0, 2, size=(20, 3)).astype(float)
    first = first_copies(rows)
    same = (rows[:, None] == rows[None]).all(axis=2)
    assert_array_equal(first[:, None] == first[None], same)
    assert_array_equal(first, same.argmax(axis=1))


def test_identical_pairs_are_counted_not_kept():
    rows = np.repeat(cloud(10, 3, 4), [1, 2, 4], axis=0)
    points, pairs = prepare_pairs(rows, rotate=True)
    assert points.n_copies == 4
    assert (pairs.n_pairs, pairs.n_identical) == (21 - 7, 7)


@pytest.mark.parametrize("form", FORMS)
def test_a_direction_is_a_pair_with_the_origin(form):
    rows = cloud(11, 5, 4)
    points, pairs = prepare_pairs(form(rows), "directions", rotate=True)
    assert_array_equal(pairs.listed, [[i, 5] for i in range(5)])
    gaps = points.differences(pairs.listed)
    gaps = gaps.toarray() if scipy.sparse.issparse(gaps) else gaps
    cosines = (gaps * rows).sum(1) / np.sqrt((gaps**2).sum(1) * (rows**2).sum(1))
    assert_allclose(cosines, 1.0)


def test_a_zero_row_is_no_direction():
    _, pairs = prepare_pairs(
        np.array([[0.0, 0], [1, 0], [0, 1]]), "directions", rotate=1
    )
    assert (pairs.listed.tolist(), pairs.n_identical) == ([[1, 3], [2, 3]], 1)


@pytest.mark.parametrize("form", FORMS)
def test_the_callers_data_are_never_written_to(form):
    rows = form(cloud(12, 6, 9) * 1e150)
    values = rows.data if scipy.sparse.issparse(rows) else rows
    before = np.array(values)
    Points.prepare(rows, rotate=True).differences(every_pair(6))
    assert_array_equal(np.array(values), before)
