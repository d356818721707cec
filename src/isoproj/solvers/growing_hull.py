"""Hulls that grow pair by pair, and the search for the pairs farthest outside.

Every part tells how many multiplications would take as long, so that a search can count
its work instead of seconds.
"""

from __future__ import annotations

import numpy as np
from scipy.spatial import ConvexHull, QhullError, cKDTree

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import n_threads, threaded_list
from isoproj.proof.hull import Facets, hull_facets

# Multiplications that take as long as a facet of a hull, times squared dimension.
_FACET = 350.0
# Products that stay in the cache.
_CACHED = 2**18


class GrowingHull:
    """The hull of pairs and their negatives in a subspace, batch after batch.

    In many dimensions Qhull goes on from the hull it has, which saves most of its time.
    """

    def __init__(self, rows: Indices, projected: Array) -> None:
        self.rows = rows
        self._projected = projected
        self._n_facets, self._n_before = 0, 0
        self._numbers, self._hull = self._begun()

    @property
    def _grows(self) -> bool:
        """Whether Qhull goes on from the hull it has."""
        # In fewer dimensions a hull is made anew as fast.
        return bool(self._projected.shape[1] >= 5)

    def _begun(self) -> tuple[Indices, ConvexHull | None]:
        """Return the numbers of Qhull's points, and its hull unless that is flat."""
        numbers = _both_signs(np.arange(self.rows.size))
        if not self._grows or self.rows.size < self._projected.shape[1]:
            return numbers, None
        points = np.vstack([self._projected, -self._projected])
        try:
            return numbers, ConvexHull(points, incremental=True)
        except QhullError:
            return numbers, None

    def join(self, rows: Indices, projected: Array) -> None:
        """Add pairs of the pool, given by row and projection."""
        numbers = _both_signs(self.rows.size + np.arange(rows.size))
        self.rows = np.append(self.rows, rows)
        self._projected = np.vstack([self._projected, projected])
        if self._hull is None:
            return
        self._numbers = np.append(self._numbers, numbers)
        try:
            self._hull.add_points(np.vstack([projected, -projected]))
        except QhullError:
            self._numbers, self._hull = self._begun()

    def facets(self) -> Facets | None:
        """Return the facets; None if the hull is flat."""
        found = self._grown() if self._grows else hull_facets(self._projected)
        count = 0 if found is None else found.offsets.size
        self._n_before, self._n_facets = self._n_facets, count
        return found

    def _grown(self) -> Facets | None:
        """Return the facets of the hull that Qhull keeps."""
        if self._hull is None:
            return None
        numbers = self._numbers[self._hull.simplices]
        corners = np.where(numbers >= 0, numbers, self.rows.size - 1 - numbers)
        equations = self._hull.equations
        return Facets(corners, equations[:, :-1], -equations[:, -1])

    def work(self) -> float:
        """Return multiplications that take as long as the last batch."""
        new = float(self._n_facets)
        if self._grows:
            # A later batch costs a quarter of the facets that stay again.
            new = max(0.0, new - self._n_before) + 0.25 * new
        return float(_FACET * new * self._projected.shape[1] ** 2 + 1e6)


class Scan:
    """Looks at every point for the farthest along a normal."""

    def __call__(self, points: Array, normals: Array) -> tuple[Indices, Array]:
        """Return for each normal the point with the largest product, and the product.

        Points stand for their negatives too. Single precision finds the point of each
        chunk, and double precision chooses among these.
        """
        count = normals.shape[0]
        step = max(1, _CACHED // count)
        singles, along = points.astype(np.float32), normals.astype(np.float32)

        def visit(start: int) -> Indices:
            reached = along @ singles[start : start + step].T
            np.abs(reached, out=reached)
            return np.asarray(start + reached.argmax(axis=1))

        starts = range(0, points.shape[0], step)
        tops = np.array(threaded_list(visit, starts, n_threads()))
        heights = np.abs(np.einsum("cnd,nd->cn", points[tops], normals))
        best, rows = heights.argmax(axis=0), np.arange(count)
        return tops[best, rows], heights[best, rows]

    def work(self, points: Array, n_normals: int) -> float:
        """Return the number of multiplications."""
        return float(points.size * n_normals)


class Tree:
    """Unit vectors, ready to be asked for the nearest to a line."""

    def __init__(self, directions: Array) -> None:
        self._directions, self._tree = directions, cKDTree(directions)

    def __call__(self, _: Array, normals: Array) -> tuple[Indices, Array]:
        """Return for each normal the direction of largest product, and the product."""
        ahead, behind = (self._tree.query(each) for each in (normals, -normals))
        tops = np.where(ahead[0] <= behind[0], ahead[1], behind[1])
        return tops, np.abs(np.einsum("nd,nd->n", self._directions[tops], normals))

    def work(self, _: Array, n_normals: int) -> float:
        """Return multiplications that take as long."""
        return 2e4 * n_normals


def nearest(facets: Facets, count: int) -> Indices:
    """Return the numbers of the nearest facets, one of each antipodal pair."""
    normals = facets.normals
    rows = np.arange(normals.shape[0])
    leads = normals[rows, np.abs(normals).argmax(axis=1)] > 0.0
    half = np.flatnonzero(leads)
    return half[np.argsort(facets.offsets[half], kind="stable")[:count]]


def _both_signs(numbers: Indices) -> Indices:
    """Return the numbers, and one below minus each for the negatives."""
    return np.append(numbers, -1 - numbers)
