"""Moment matrices of unit directions, from exact differences of the data's rows."""

from __future__ import annotations

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.moments import graph_moment
from isoproj.pairs.points import Points, squared_lengths

__all__ = ["far_moment", "weighted_directions", "weighted_moment"]

# Entries of differences that are in memory at once.
_ENTRIES = 2**19
_EPS = float(np.finfo(np.float64).eps)
# Pairs per point, and share of all pairs, from which a graph pays.
_PAIRS_PER_POINT = 32
_LARGEST_TABLE = 16
# A pair is far when this times its squared length exceeds the points' own squares.
_REACH = 100.0
# Squared lengths of the points for which no product over- or underflows.
_SAFE = (1e-200, 1e200)


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


def far_moment(
    rows: Rows, pairs: Indices, shares: Array, allowed: float
) -> tuple[Array, NDArray[np.bool_]] | None:
    """Return the moment of all far pairs as ``Y^T L Y``, and which pairs are far.

    ``Y`` are the centred rows and ``L`` is the Laplacian of the graph of far pairs, so
    the cost does not grow with the number of pairs times the features. The result is
    off by at most ``allowed`` in norm, or None where that cannot be promised or a
    direction per pair costs less.
    """
    n, m = int(rows.shape[0]), int(shares.size)
    if is_sparse(rows) or m < _PAIRS_PER_POINT * n or n * n > _LARGEST_TABLE * m:
        return None
    centred = np.asarray(rows, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        centred = centred - centred.mean(axis=0)
        norms = squared_lengths(centred)
    if not _SAFE[0] < norms.max() < _SAFE[1] or _has_repeats(pairs, n):
        return None
    i, j = pairs.T
    sizes = norms[i] + norms[j]
    squares = sizes - 2.0 * (centred @ centred.T)[i, j]
    far = np.asarray(squares * _REACH > sizes)
    if not far.any():
        return None
    conductances = shares[far] / squares[far]
    # Rounding of conductances only changes the weights, and any weights prove a bound.
    # Forming the product errs by at most (2n + 16) eps times twice the sum of
    # conductances times sizes; scaling to the right trace at most doubles that.
    error = 4.0 * (2 * n + 16) * _EPS * float(conductances @ sizes[far])
    if not error <= allowed:
        return None
    moment = graph_moment(centred, pairs[far], conductances)
    return moment * (float(shares[far].sum()) / float(moment.trace())), far


def _has_repeats(pairs: Indices, n_points: int) -> bool:
    """Return whether a pair occurs twice, in either order."""
    ordered = np.sort(pairs, axis=1)
    return bool(np.unique(ordered @ [n_points, 1]).size < pairs.shape[0])
