"""Maps that scale all lengths alike: their pairs tie, and bounds tell that they do.

Let ``h`` be centred points, and ``L`` the map in their coordinates over a number. With
``M = L^T L`` and ``s = M h - h`` the square that a pair keeps differs from that number
squared by the share ``q = (h_i - h_j).(s_i - s_j) / |h_i - h_j|^2``. So ``|q|`` is at
most ``(|s_i| + |s_j|)`` over the distance. If all eigenvalues of ``M`` are within
``e`` of 0 or 1, ``|q|`` is also at most ``e`` plus the square of that, and at most
``e`` if none is near 0. For the identity, or a projection that keeps the span of the
points, this is rounding. Then no pair is worse than another, and none must be measured
alone.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.arrays import is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import row_slices
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths

__all__ = ["NEARLY_EVEN", "EvenMap", "unevenness"]

# A map with a smaller unevenness leaves float32 nothing to tell pairs apart by.
NEARLY_EVEN = 1e-4
# Points that are looked at first.
_FEW = 64
# Relative difference from a multiple of an isometry that is rounding.
_ROUNDING = 1e-12
# The bound is used for pairs whose squared distance is this share of their squared
# norms, and of the largest norm: for closer pairs the rounding of the points counts.
_OWN_SHARE = 1.0 / 8.0
_LARGEST_SHARE = 1e-4


@dataclass(frozen=True, slots=True, eq=False)
class EvenMap:
    """How far a map is from a multiple of an isometry, point by point.

    ``scale`` is the square that it keeps, ``error`` the number ``e`` above, and
    ``is_whole`` whether no eigenvalue is near 0. ``deviations`` are the lengths
    ``|s|``, and ``norms`` the squared norms of points.
    """

    scale: float
    error: float
    is_whole: bool
    deviations: Array
    norms: Array

    @staticmethod
    def of(points: Points, components: Array) -> EvenMap | None:
        """Return the bounds, or None if the map scales lengths differently."""
        if unevenness(points, components) > _ROUNDING:
            return None
        linear = points.frame.coordinates_of(components.T)
        scale = _scale(points.coordinates[:_FEW], linear)
        linear = linear / math.sqrt(scale)
        n_dims, k = linear.shape
        gram = linear.T @ linear if k < n_dims else linear @ linear.T
        error = float(np.abs(np.linalg.eigvalsh(gram) - 1.0).max())
        n_points = points.n_points
        deviations, norms = np.empty(n_points), np.empty(n_points)
        for chunk in row_slices(points.coordinates):
            rows = points.coordinates[chunk]
            deviations[chunk] = _deviations(rows, linear)
            norms[chunk] = squared_lengths(rows)
        return EvenMap(scale, error, k >= n_dims, deviations, norms)

    def ceilings(self, pairs: Indices, squares: Array, sign: float) -> Array:
        """Return the most that pairs can lose (``sign=1``) or gain (``-1``).

        ``squares`` are their squared distances. There is no bound for close pairs.
        """
        i, j = pairs.T
        own = self.norms[i] + self.norms[j]
        least = np.maximum(_OWN_SHARE * own, _LARGEST_SHARE * self.norms.max())
        is_far = squares >= least
        spread = np.full(squares.size, np.inf)
        bend = self.deviations[i] + self.deviations[j]
        np.divide(bend, np.sqrt(squares), out=spread, where=is_far)
        finer = np.where(
            is_far, self.error + (0.0 if self.is_whole else spread**2), np.inf
        )
        spread = np.minimum(spread, finer)
        return np.asarray(sign * (1.0 - self.scale) + self.scale * spread)


def unevenness(points: Points, components: Array) -> float:
    """Return how differently a map scales a few points; infinite if that is unknown."""
    # Span coordinates of sparse rows lack what a Gram matrix cannot see.
    if is_sparse(points.rows):
        return math.inf
    linear = points.frame.coordinates_of(components.T)
    rows = points.coordinates[:_FEW]
    lengths = np.sqrt(squared_lengths(rows))
    is_some = lengths > 0.0
    if not is_some.any():
        return math.inf
    scale = _scale(rows, linear)
    if not scale > 0.0:
        return math.inf
    deviations = _deviations(rows, linear / math.sqrt(scale))
    return float((deviations[is_some] / lengths[is_some]).max())


def _scale(rows: Array, linear: Array) -> float:
    """Return the share of squared length that rows keep together."""
    whole = float(squared_lengths(rows).sum())
    return float(squared_lengths(rows @ linear).sum()) / whole if whole else 0.0


def _deviations(rows: Array, linear: Array) -> Array:
    """Return ``|L^T L h - h|`` for every row ``h``."""
    gaps = (rows @ linear) @ linear.T
    gaps -= rows
    return np.asarray(np.sqrt(squared_lengths(gaps)))
