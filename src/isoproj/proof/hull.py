"""The hull bound: a lower bound from a subspace of ``k + 1`` dimensions.

A projection to ``k`` dimensions drops a unit vector ``v`` of every subspace of
``k + 1`` dimensions, and a pair with direction ``x`` then loses at least ``(v.x)^2``.
So the least distortion is at least the minimum over ``v`` of the largest ``(v.x)^2``:
the squared inradius of the hull of the directions and their negatives, projected to the
subspace. Any subspace and any pairs prove a bound.

Qhull proposes the facets, and nothing it says is trusted. The facets are simplices
whose corners are the points. Each ridge lies in exactly two of them, and exactly one of
them meets a certain ray, so every ray from the origin meets one. A facet is as far away
as the smallest product of its corners with any unit vector at all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import ConvexHull, QhullError

from isoproj.numerics.arrays import as_dense
from isoproj.numerics.rounding import at_least
from isoproj.numerics.shown import Shown
from isoproj.numerics.spectral import EPS, Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.moments import weighted_directions
from isoproj.pairs.points import Points

# Hulls have too many facets beyond this many target dimensions.
MOST_DIMENSIONS = 5
# Most pairs of a hull in 2, 3, ... dimensions; each has about 100,000 facets.
_MOST_PAIRS = (20_000, 20_000, 6_000, 1_500, 400)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class HullProof(Shown):
    """The proof of a lower bound by a subspace and the hull of some directions in it.

    No projection to k dimensions has a smaller distortion than ``bound``.
    ``hull_axes``, of shape (k + 1, n_features), are orthonormal rows that span the
    subspace. The directions of ``hull_pairs``, projected to the subspace, span the
    hull.
    """

    bound: float
    hull_axes: Array
    hull_pairs: Indices

    def __str__(self) -> str:
        return (
            f"Within {len(self.hull_axes)} dimensions the hull of "
            f"{len(self.hull_pairs):,} directions proves a lower bound of "
            f"{at_least(self.bound, 6)}."
        )


@dataclass(frozen=True, slots=True, eq=False)
class Facets:
    """Simplices around the origin, as Qhull proposes them.

    ``corners``, of shape (n_facets, d), are numbers of points; with m points, number
    ``m + i`` is the negative of point i. ``normals`` are unit vectors that point away
    from the origin, and ``offsets`` the distances of the planes from it.
    """

    corners: Indices
    normals: Array
    offsets: Array


def most_pairs(k: int) -> int:
    """Return the largest number of pairs in a hull of ``k + 1`` dimensions."""
    return _MOST_PAIRS[k - 1]


def hull_facets(projected: Array) -> Facets | None:
    """Return the facets of the hull of points and their negatives; None if it is flat.

    ``projected`` has shape (m, d).
    """
    d = projected.shape[1]
    if projected.shape[0] < d:
        return None
    try:
        hull = ConvexHull(np.vstack([projected, -projected]))
    except QhullError:
        return None
    return Facets(
        np.asarray(hull.simplices, dtype=np.intp),
        hull.equations[:, :-1],
        -hull.equations[:, -1],
    )


@single_blas_thread
def hull_bound(points: Points, axes: Array, pairs: Indices) -> float:
    """Return the lower bound that axes, in rows, and pairs prove; 0 if they prove none.

    The pairs are of distinct points and count.
    """
    k, n_features = axes.shape[0] - 1, axes.shape[1]
    if not 1 <= k < n_features or k > MOST_DIMENSIONS:
        return 0.0
    if pairs.shape[0] > most_pairs(k) or not np.abs(axes).max() < 2.0:
        return 0.0
    gram = axes @ axes.T
    # Axes further than this from orthonormal are refused.
    if np.abs(gram - np.eye(k + 1)).max() > 1e-8:
        return 0.0
    # A vector of the subspace is at most this much longer than its coordinates.
    stretch = float(np.linalg.eigvalsh(gram)[-1]) + 8 * EPS * (k + 1 + n_features)
    directions = weighted_directions(points, pairs, np.ones(pairs.shape[0]))
    projected = as_dense(directions @ axes.T)
    facets = hull_facets(projected)
    if facets is None:
        return 0.0
    rounding = math.sqrt(k + 1) * EPS * (2 * n_features + 8)
    inradius = checked_inradius(projected, facets, rounding)
    return float(min(1.0, inradius**2 / stretch)) * (1.0 - 16 * EPS)


def checked_inradius(projected: Array, facets: Facets, rounding: float) -> float:
    """Return a lower bound on the inradius of the hull, or 0 if the facets prove none.

    Every coordinate vector of ``projected`` is off by at most ``rounding``.
    """
    d = projected.shape[1]
    rounding += EPS * (4 * d + 16)
    corners = np.vstack([projected, -projected])[facets.corners]
    lengths = np.linalg.norm(facets.normals, axis=1)
    if not facets.corners.size or not (lengths > 0.5).all():
        return 0.0
    normals = facets.normals / lengths[:, None]
    heights = np.einsum("fcd,fd->fc", corners, normals).min(axis=1) - rounding
    if not (heights > rounding).all():
        return 0.0
    is_once = _is_closed(facets.corners) and _meets_once(
        corners, normals, heights, rounding
    )
    return float(heights.min()) if is_once else 0.0


def _is_closed(corners: Indices) -> bool:
    """Return whether each ridge lies in exactly two facets."""
    d = corners.shape[1]
    ordered = np.sort(corners, axis=1)
    if (ordered[:, 1:] == ordered[:, :-1]).any():
        return False
    ridges = np.concatenate([np.delete(ordered, at, axis=1) for at in range(d)])
    ridges = ridges[np.lexsort(ridges.T)]
    if ridges.shape[0] % 2:
        return False
    same = (ridges[1:] == ridges[:-1]).all(axis=1)
    return bool(same[0::2].all() and not same[1::2].any())


def _meets_once(
    corners: NDArray[np.float64], normals: Array, heights: Array, rounding: float
) -> bool:
    """Return whether some ray meets the inside of one facet and no other facet.

    A facet is ruled out by a vector that has a positive product with all its corners
    and a negative product with the ray.
    """
    n_facets, d = heights.size, corners.shape[2]
    # The noise makes flat simplices invertible. What comes of it is checked.
    noise = 1e-12 * np.random.default_rng(0).standard_normal(corners.shape)
    try:
        separators = np.linalg.inv(corners + noise)
    except np.linalg.LinAlgError:
        return False
    separators /= np.linalg.norm(separators, axis=1, keepdims=True)
    products = np.einsum("fcd,fdj->fcj", corners, separators).min(axis=1)
    # Adding this much of the facet's normal makes all products positive.
    lift = np.maximum(0.0, 4.0 * rounding - products) / heights[:, None]
    volumes = np.abs(np.linalg.det(corners))
    # Facets that are tried as the one which a ray meets.
    for chosen in np.argsort(-volumes, kind="stable")[:8]:
        ray = corners[chosen].mean(axis=0)
        if np.linalg.svd(corners[chosen], compute_uv=False)[-1] < 1e6 * d * rounding:
            return False
        sides = (
            np.einsum("fdj,d->fj", separators, ray) + lift * (normals @ ray)[:, None]
        )
        is_out = (sides < -4.0 * rounding).any(axis=1)
        if is_out.sum() == n_facets - 1 and not is_out[chosen]:
            return True
    return False
