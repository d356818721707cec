from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, random_basis, seeds
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from isoproj.numerics.spectral import (
    canonical_signs,
    contraction,
    orthonormal,
    top_eigenpairs,
    top_eigenvalue_sum,
)


def random_moment(seed, d):
    factor = cloud(seed, d, d)
    return factor @ factor.T


@given(seeds, st.integers(1, 6))
def test_no_orthonormal_basis_retains_more_than_the_top_eigenvalues(seed, k):
    moment = random_moment(seed, 6)
    basis = random_basis(seed + 1, 6, k)
    retained = np.trace(basis.T @ moment @ basis)
    assert retained <= top_eigenvalue_sum(moment, k) * (1 + 1e-12)


@given(seeds, st.integers(1, 6))
def test_top_eigenvectors_retain_the_top_eigenvalue_sum(seed, k):
    moment = random_moment(seed, 6)
    values, basis = top_eigenpairs(moment, k)
    assert_allclose(values.sum(), top_eigenvalue_sum(moment, k))
    assert_allclose(np.trace(basis.T @ moment @ basis), values.sum())


@given(seeds)
def test_keeping_every_dimension_retains_the_trace(seed):
    moment = random_moment(seed, 5)
    assert_allclose(top_eigenvalue_sum(moment, k=5), np.trace(moment))


@given(seeds, st.integers(1, 5))
def test_eigenpairs_satisfy_their_equation_largest_first(seed, k):
    moment = random_moment(seed, 5)
    values, vectors = top_eigenpairs(moment, k)
    assert_allclose(moment @ vectors, vectors * values, atol=1e-9)
    assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-12)
    assert_array_equal(values, np.sort(values)[::-1])


def test_repeated_eigenvalues_count_with_multiplicity():
    assert top_eigenvalue_sum(np.diag([2.0, 2.0, 2.0, 1.0]), k=2) == 4.0


@pytest.mark.parametrize("k", [0, 4, -1])
@pytest.mark.parametrize("function", [top_eigenvalue_sum, top_eigenpairs])
def test_a_count_out_of_range_is_named_with_the_limit(function, k):
    with pytest.raises(ValueError, match=rf"n_features=3; got k={k}"):
        function(np.eye(3), k=k)


@given(seeds, st.integers(1, 4))
def test_orthonormalising_keeps_the_span(seed, k):
    columns = cloud(seed, 7, k)
    basis = orthonormal(columns)
    assert_allclose(basis.T @ basis, np.eye(k), atol=1e-13)
    assert_allclose(basis @ (basis.T @ columns), columns, atol=1e-12)


@given(seeds)
def test_orthonormalising_leaves_orthonormal_columns_alone(seed):
    basis = random_basis(seed, 6, 3)
    assert_allclose(orthonormal(basis), basis, atol=1e-13)


@given(seeds)
def test_canonical_signs_do_not_depend_on_the_signs_given(seed):
    rows = cloud(seed, 3, 5)
    flips = np.random.default_rng(seed).choice([-1.0, 1.0], size=(3, 1))
    assert_array_equal(canonical_signs(rows * flips), canonical_signs(rows))
    assert_array_equal(np.abs(canonical_signs(rows)), np.abs(rows))


@given(seeds, st.sampled_from([(1, 1), (1, 50), (5, 40), (20, 20), (3, 784)]))
def test_a_map_rounded_to_float32_stretches_nothing(seed, shape):
    k, d = shape
    rows = random_basis(seed, d, k).T
    rounded = contraction(rows, np.dtype(np.float32))
    assert rounded.dtype == np.float32
    assert_allclose(rounded, rows, atol=1e-6)
    assert np.linalg.svd(rounded.astype(np.float64), compute_uv=False)[0] <= 1.0


def test_a_map_in_float64_ships_as_it_is():
    rows = random_basis(0, 9, 4).T
    assert_array_equal(contraction(rows, np.dtype(np.float64)), rows)
