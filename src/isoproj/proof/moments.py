"""Moment matrices of unit directions, from exact differences of the data's rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.points import Points, squared_lengths

__all__ = ["weighted_directions", "weighted_moment"]

# Entries of differences that are in memory at once.
_ENTRIES = 2**19


def weighted_directions(points: Points, pairs: Indices, weights: Array) -> Rows:
    """Return ``sqrt(w) x`` for every pair, in rows; ``x`` is its unit direction."""
    gaps = points.differences(pairs)
    factors = np.sqrt(weights / squared_lengths(gaps))
    if is_sparse(gaps):
        return scipy.sparse.diags_array(factors) @ gaps
    return gaps * factors[:, None]


def weighted_moment(points: Points, pairs: Indices, weights: Array) -> Array:
    """Return the sum of ``w x x^T`` over pairs, of shape (n_features, n_features)."""
    n_features = int(points.rows.shape[1])
    moment = np.zeros((n_features, n_features))
    step = max(16, _ENTRIES // max(1, n_features))
    for start in range(0, weights.size, step):
        chunk = slice(start, start + step)
        roots = weighted_directions(points, pairs[chunk], weights[chunk])
        moment += as_dense(roots.T @ roots)
    return moment
