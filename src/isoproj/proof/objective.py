"""The share of variance, or of mean squared length, that a projection keeps.

Both are ``<C, P>`` for a matrix ``C`` of trace 1: the covariance of the rows, or the
mean of ``x x^T`` over the unit directions of all pairs. For multipliers ``w >= 0`` on
pairs and any projection ``P`` under which no pair loses more than ``cap``, ::

    <C, P> <= <C + M(w), P> - (1 - cap) sum(w) <= topk(C + M(w)) - (1 - cap) sum(w),

so the right-hand side bounds the share that such projections keep. This module computes
it from the data alone and adds an allowance for rounding.
"""

from __future__ import annotations

import enum
import math

import numpy as np

from isoproj.numerics.arrays import Rows, as_dense, check_choice, is_sparse
from isoproj.numerics.spectral import EPS, Array, Indices, Map, top_eigenvalue_sum
from isoproj.numerics.storage import row_slices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.moments import Gaps, summed_moment, weighted_moment
from isoproj.pairs.points import Points
from isoproj.pairs.rows import times
from isoproj.pairs.rule import PairSet

# Most entries of sparse rows; centring makes them dense.
_LARGEST_DENSE = 4e8


class Objective(enum.StrEnum):
    """The quantity that a projection keeps as much of as possible."""

    VARIANCE = "variance"
    DISTORTION = "distortion"

    @classmethod
    def _missing_(cls, value: object) -> None:
        check_choice("objective", value, ("variance", "distortion"))

    @property
    def phrase(self) -> str:
        """The quantity in words, for sentences such as "It keeps 90% of ..."."""
        is_variance = self is Objective.VARIANCE
        return "the variance" if is_variance else "squared length on average"


def centred_rows(
    points: Points,
    pairs: PairSet,
    objective: Objective,
    *,
    largest_dense: float = _LARGEST_DENSE,
) -> Array:
    """Return the data minus its mean, scaled by a power of two, in float64.

    The origin has no part in the variance. In pairs it may have one, so it is then the
    last row, moved with the data.
    """
    n_rows = points.n_points - pairs.rule.has_origin
    rows: Rows = points.rows
    rows = rows[:n_rows] if objective is Objective.VARIANCE else rows
    if is_sparse(rows) and float(rows.shape[0]) * rows.shape[1] > largest_dense:
        msg = (
            f"sparse X must have at most {largest_dense:.0e} entries, zeros counted, "
            f"to be centred; got {rows.shape[0]} x {rows.shape[1]}. Reduce the number "
            "of features first, for example with TruncatedSVD."
        )
        raise ValueError(msg)
    dense: Array = points.storage.empty(rows.shape)
    for chunk in row_slices(dense):
        dense[chunk] = as_dense(rows[chunk])
    largest = max(float(dense.max()), -float(dense.min()))
    # Scaling by a power of two is exact and does not change shares.
    np.ldexp(dense, -math.frexp(largest)[1], out=dense)
    # Far from the origin the mean is rounded, so the rest is centred again.
    for _ in range(2):
        dense -= dense[:n_rows].mean(axis=0)
    return dense


@single_blas_thread
def objective_matrix(
    coordinates: Array,
    objective: Objective,
    pairs: PairSet,
    first_copy: Indices,
    gaps_of: Gaps | None = None,
) -> Array:
    """Return the matrix ``C`` of the objective, of trace 1, from centred points.

    ``first_copy`` holds for every point the smallest index of an identical point.
    ``gaps_of`` returns the differences of pairs, each at any scale, in a new array.
    Without it they come from ``coordinates``, whose rounding then decides the direction
    of nearly identical points.
    """
    if objective is Objective.VARIANCE:
        matrix = coordinates.T @ coordinates
    else:
        matrix = summed_moment(coordinates, first_copy, pairs.listed, gaps_of)
    matrix = 0.5 * (matrix + matrix.T)
    return np.asarray(matrix / _checked_total(float(np.trace(matrix))))


def _checked_total(total: float) -> float:
    """Return the whole of the objective; raise ValueError if there is nothing."""
    if not total > 0.0:
        msg = (
            "X must hold at least two distinct points; got one. Pass rows that differ."
        )
        raise ValueError(msg)
    return total


@single_blas_thread
def share_kept(
    points: Points,
    pairs: PairSet,
    objective: Objective,
    components: Map,
) -> float:
    """Return the share of the objective that orthonormal components keep."""
    exact = components.astype(np.float64)
    rows = centred_rows(points, pairs, objective)
    if objective is Objective.VARIANCE:
        images = times(rows, exact.T, points.storage)
        whole = _checked_total(float(np.vdot(rows, rows)))
        return min(1.0, float(np.vdot(images, images)) / whole)
    matrix = _feature_matrix(rows, points, pairs, objective)
    return min(1.0, float(np.vdot(exact, exact @ matrix)))


def _feature_matrix(
    rows: Array, points: Points, pairs: PairSet, objective: Objective
) -> Array:
    """Return the matrix of the objective in the coordinates of the data."""
    return objective_matrix(
        rows,
        objective,
        pairs,
        points.first_copy,
        lambda chunk: as_dense(points.differences(chunk)),
    )


@single_blas_thread
def kept_bound(
    points: Points,
    pairs: PairSet,
    objective: Objective,
    k: int,
    cap: float,
    capped_pairs: Indices,
    multipliers: Array,
) -> float:
    """Return a share that no projection to ``k`` dimensions under the cap exceeds.

    It is the smaller of the bounds with and without multipliers, at most 1.
    """
    rows = centred_rows(points, pairs, objective)
    n_features = rows.shape[1]
    if k >= n_features:
        return 1.0
    matrix = _feature_matrix(rows, points, pairs, objective)
    bounds = [_bound(matrix, k, 0.0, rows.shape[0], objective)]
    if multipliers.size:
        mass = math.fsum(multipliers)
        matrix += weighted_moment(points, capped_pairs, multipliers)
        count = rows.shape[0] + multipliers.size
        energy = _bound(matrix, k, mass, count, objective)
        bounds.append(energy - (1.0 - cap) * mass)
    return min(1.0, *bounds)


def _bound(
    matrix: Array, k: int, mass: float, count: int, objective: Objective
) -> float:
    """Return the top-k sum of a matrix of trace ``1 + mass`` plus a rounding allowance.

    ``count`` terms were summed up in the matrix.
    """
    allowance = k * EPS * (count + 9 * matrix.shape[0] + 64) * (1.0 + mass)
    if objective is Objective.DISTORTION:
        # Allowance for the rounding of distances in a mean over pairs.
        allowance += 1e-10
    return float(top_eigenvalue_sum(matrix, k) + allowance)
