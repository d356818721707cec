"""Close pairs are all pairs closer than a radius, whatever had to be read."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from geometry import cloud
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA

from isoproj import NearIsometricProjection, close_pairs


def brute(X, radius):
    return np.column_stack(np.triu_indices(len(X), 1))[pdist(X) < radius]


@pytest.mark.parametrize("scale", [1.0, 1e-150, 1e150])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pairs_are_those_of_brute_force_in_any_units(scale, dtype):
    if dtype is np.float32 and scale != 1.0:
        scale = scale**0.1
    X = (cloud(0, 700, 12)).astype(dtype) * dtype(scale)
    X[5] = X[600]
    for share in (0.001, 0.1, 0.9):
        radius = float(np.quantile(pdist(X.astype(float) / scale), share)) * scale
        units = X.astype(float) / scale
        for linear in (np.eye(5, 12), 3.0 * np.eye(4, 12), 1e60 * np.eye(5, 12)):
            found = close_pairs(X, linear, radius)
            assert np.array_equal(found.pairs, brute(units, radius / scale))
            assert [5, 600] in found.pairs.tolist()


def test_a_certificate_saves_reading_and_changes_no_pair():
    X = cloud(1, 300, 8)
    model = NearIsometricProjection(6, solver="dual_ascent", max_iter=20).fit(X)
    radius = float(np.quantile(pdist(X), 0.5))
    proved, bare = (close_pairs(X, m, radius) for m in (model, model.components_))
    assert np.array_equal(proved.pairs, brute(X, radius))
    assert np.array_equal(bare.pairs, proved.pairs)
    assert proved.n_read < bare.n_read < proved.n_pairs
    # The certificate is about other rows: it decides nothing.
    other = close_pairs(X[:200], model, radius)
    assert np.array_equal(other.pairs, brute(X[:200], radius))


def test_grid_points_at_the_radius_itself_are_not_closer():
    X = np.stack(np.meshgrid(*[np.arange(5.0)] * 3), axis=-1).reshape(-1, 3) / 4.0
    assert np.array_equal(close_pairs(X, np.eye(2, 3), 0.25).pairs, brute(X, 0.25))
    assert close_pairs(X, np.eye(2, 3), 0.25).pairs.shape == (0, 2)


@pytest.mark.parametrize("radius", [1e-300, 1e300])
def test_a_radius_far_from_all_distances_finds_copies_or_everything(radius):
    X = np.concatenate([cloud(4, 20, 3), cloud(4, 20, 3)[:1]])
    found = close_pairs(X, np.eye(2, 3), radius)
    assert len(found.pairs) == (1 if radius < 1.0 else found.n_pairs)


def test_sparse_rows_have_the_same_close_pairs():
    X = cloud(2, 90, 7)
    dense = close_pairs(X, np.eye(3, 7), 2.0)
    sparse = close_pairs(scipy.sparse.csr_array(X), np.eye(3, 7), 2.0)
    assert dense.pairs.size
    assert np.array_equal(dense.pairs, sparse.pairs)


def test_few_pairs_of_texts_are_read_in_full():
    folder = Path(os.environ.get("ISOPROJ_DATA", "../shared/data"))
    if not (folder / "text_embeddings_384d.npz").exists():
        pytest.skip("needs text_embeddings_384d.npz")
    X = np.load(folder / "text_embeddings_384d.npz")["embeddings"][:3000]
    X = X.astype(np.float64)
    all_distances = pdist(X)
    radius = float(np.partition(all_distances, 10_000)[10_000])
    found = close_pairs(X, PCA(128, random_state=0).fit(X), radius)
    assert np.array_equal(found.pairs, brute(X, radius))
    assert found.n_read <= 0.05 * found.n_pairs


@pytest.mark.parametrize("radius", [0.0, -1.0, np.nan, np.inf, "1", True])
def test_a_radius_that_is_no_distance_is_one_line(radius):
    with pytest.raises(ValueError, match="radius must be"):
        close_pairs(cloud(3, 40, 5), np.eye(5), radius)
