"""What a projection keeps on the whole: of the variance, or of squared lengths.

Both are ``<C, P>`` for a matrix ``C`` of trace 1: the covariance of the rows, or the
mean of ``x x^T`` over the unit directions of all pairs. For multipliers ``w >= 0`` on
pairs and any projection ``P`` under which no pair loses more than ``cap``, ::

    <C, P> <= <C + M(w), P> - (1 - cap) sum(w) <= topk(C + M(w)) - (1 - cap) sum(w),

so the right-hand side bounds what such projections can keep. It is recomputed here from
the data, with rounding accounted for, outwards; nothing here knows a solver.
"""

from __future__ import annotations

import enum
import math

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import Array, Indices, top_eigenvalue_sum
from isoproj.numerics.storage import row_slices
from isoproj.numerics.threads import (
    single_blas_thread,
)
from isoproj.pairs.moments import Gaps, summed_moment
from isoproj.pairs.points import Points, squared_lengths, times
from isoproj.pairs.rule import PairSet

__all__ = ["Objective", "kept_bound", "objective_matrix", "share_kept"]

_EPS = float(np.finfo(np.float64).eps)
_CHUNK = 4096
# What rounding of distances can do to a mean over pairs.
_PAIR_ALLOWANCE = 1e-10
# Sparse rows are centred, and then they are dense.
_LARGEST_DENSE = 4e8


class Objective(enum.StrEnum):
    """What is to be kept."""

    VARIANCE = "variance"
    DISTORTION = "distortion"


def centred_rows(points: Points, n_rows: int) -> Array:
    """Return the data minus its mean, in float64.

    Parameters
    ----------
    points : Points
        The geometry.
    n_rows : int
        Rows of the data, the origin not counted.

    Returns
    -------
    ndarray of shape (n_rows, n_features)
        A fresh array.

    Raises
    ------
    ValueError
        If the rows are sparse and too many to be made dense.
    """
    rows: Rows = points.rows[:n_rows]
    if is_sparse(rows) and float(rows.shape[0]) * rows.shape[1] > _LARGEST_DENSE:
        msg = (
            f"sparse X must have at most {_LARGEST_DENSE:.0e} entries, zeros counted, "
            f"to be centred; got {rows.shape[0]} x {rows.shape[1]}. Reduce the number "
            "of features first, for example with TruncatedSVD."
        )
        raise ValueError(msg)
    dense: Array = points.storage.empty(rows.shape)
    for chunk in row_slices(dense):
        dense[chunk] = as_dense(rows[chunk])
    largest = max(float(dense.max()), -float(dense.min()))
    # Powers of two are exact, and shares do not depend on them.
    np.ldexp(dense, -math.frexp(largest)[1], out=dense)
    # Far from the origin the mean itself is rounded; that of what is left is not.
    for _ in range(2):
        dense -= dense.mean(axis=0)
    return dense


@single_blas_thread
def objective_matrix(
    coordinates: Array,
    objective: Objective,
    pairs: PairSet,
    first_copy: Indices,
    gaps_of: Gaps | None = None,
) -> Array:
    """Return ``C``, symmetric, positive semidefinite, of trace 1.

    Parameters
    ----------
    coordinates : ndarray of shape (n_points, n_dims)
        Centred points, one a row.
    objective : Objective
        Which matrix.
    pairs : PairSet
        The pairs that count; of use for ``Objective.DISTORTION`` alone.
    first_copy : ndarray of shape (n_points,)
        For every point the smallest index of a point identical to it.
    gaps_of : callable or None
        Returns the differences of pairs, each at any scale, in a fresh array. None
        takes them from ``coordinates``, whose rounding decides the direction of nearly
        identical points.

    Returns
    -------
    ndarray of shape (n_dims, n_dims)
        In the given coordinates.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.objective import Objective, objective_matrix
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> rows = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> points, pairs = prepare_pairs(rows, rotate=False)
    >>> matrix = objective_matrix(
    ...     points.coordinates, Objective.VARIANCE, pairs, points.first_copy
    ... )
    >>> matrix.round(3).tolist()
    [[0.9, 0.0], [0.0, 0.1]]
    """
    if objective is Objective.VARIANCE:
        matrix = coordinates.T @ coordinates
    else:
        matrix = summed_moment(coordinates, first_copy, pairs.listed, gaps_of)
    matrix = 0.5 * (matrix + matrix.T)
    trace = float(np.trace(matrix))
    if not trace > 0.0:
        msg = (
            "X must hold at least two distinct points; got one. Pass rows that differ."
        )
        raise ValueError(msg)
    return np.asarray(matrix / trace)


@single_blas_thread
def share_kept(
    points: Points,
    pairs: PairSet,
    objective: Objective,
    components: NDArray[np.float64] | NDArray[np.float32],
    *,
    n_rows: int,
) -> float:
    """Return the share of the objective that a projection keeps.

    Parameters
    ----------
    points : Points
        The geometry.
    pairs : PairSet
        The pairs that count.
    objective : Objective
        Which share.
    components : ndarray of shape (k, n_features)
        Orthonormal rows.
    n_rows : int
        Rows of the data, the origin not counted.

    Returns
    -------
    float
        Between 0 and 1.
    """
    exact = components.astype(np.float64)
    rows = centred_rows(points, n_rows)
    if objective is Objective.VARIANCE:
        images = times(rows, exact.T, points.storage)
        return min(1.0, float(np.vdot(images, images)) / float(np.vdot(rows, rows)))
    matrix = _feature_matrix(rows, points, pairs, objective)
    return min(1.0, float(np.vdot(exact, exact @ matrix)))


def _feature_matrix(
    rows: Array, points: Points, pairs: PairSet, objective: Objective
) -> Array:
    """Return the objective's matrix in the coordinates of the data."""
    if objective is Objective.DISTORTION and points.n_points > rows.shape[0]:
        # The origin is a point too, and moves with the others.
        n_rows = rows.shape[0]
        longer = points.storage.empty((n_rows + 1, rows.shape[1]))
        longer[:n_rows], longer[n_rows:] = rows, _origin(points, rows)
        rows = longer
    return objective_matrix(
        rows,
        objective,
        pairs,
        points.first_copy,
        lambda chunk: as_dense(points.differences(chunk)),
    )


def _origin(points: Points, rows: Array) -> Array:
    """Return the origin in the coordinates of centred rows."""
    first = np.array(as_dense(points.rows[:1]), dtype=np.float64)
    given = points.rows[: rows.shape[0]]
    largest = max(float(given.max()), -float(given.min()))
    return rows[:1] - np.ldexp(first, -math.frexp(largest)[1])


@single_blas_thread
def kept_bound(
    points: Points,
    pairs: PairSet,
    objective: Objective,
    k: int,
    cap: float,
    capped_pairs: Indices,
    multipliers: Array,
    *,
    n_rows: int,
) -> float:
    """Return a share that no projection to ``k`` dimensions under the cap exceeds.

    Parameters
    ----------
    points : Points
        The geometry; directions are taken from its rows.
    pairs : PairSet
        The pairs that count.
    objective : Objective
        Which share.
    k : int
        Number of dimensions.
    cap : float
        What no pair loses more than.
    capped_pairs : ndarray of shape (m, 2)
        Pairs of distinct points that carry multipliers.
    multipliers : ndarray of shape (m,)
        Nonnegative.
    n_rows : int
        Rows of the data, the origin not counted.

    Returns
    -------
    float
        At most 1. The bound without multipliers, if that is the better one.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.objective import Objective, kept_bound
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> rows = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    >>> points, pairs = prepare_pairs(rows, rotate=False)
    >>> none = np.empty((0, 2), dtype=int), np.empty(0)
    >>> kind = Objective.VARIANCE
    >>> round(kept_bound(points, pairs, kind, 1, 1.0, *none, n_rows=4), 9)
    0.9
    >>> upright = np.array([[2, 3]]), np.array([0.8])
    >>> round(kept_bound(points, pairs, kind, 1, 0.2, *upright, n_rows=4), 9)
    0.26
    """
    rows = centred_rows(points, n_rows)
    n_features = rows.shape[1]
    if k >= n_features:
        return 1.0
    matrix = _feature_matrix(rows, points, pairs, objective)
    bounds = [_bound(matrix, k, 0.0, rows.shape[0], objective)]
    if multipliers.size:
        mass = math.fsum(multipliers)
        for start in range(0, multipliers.size, _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gaps = as_dense(points.differences(capped_pairs[chunk]))
            gaps *= np.sqrt(multipliers[chunk] / squared_lengths(gaps))[:, None]
            matrix += gaps.T @ gaps
        count = rows.shape[0] + multipliers.size
        energy = _bound(matrix, k, mass, count, objective)
        bounds.append(energy - (1.0 - cap) * mass)
    return min(1.0, *bounds)


def _bound(
    matrix: Array, k: int, mass: float, count: int, objective: Objective
) -> float:
    """Return the top-k sum of a matrix of trace ``1 + mass``, rounded up."""
    allowance = k * _EPS * (count + 9 * matrix.shape[0] + 64) * (1.0 + mass)
    if objective is Objective.DISTORTION:
        allowance += _PAIR_ALLOWANCE
    return float(top_eigenvalue_sum(matrix, k) + allowance)
