"""The minimax problem on pairs of points: values, moments and gradients.

For weights ``w`` on the simplex over pairs, ``M(w) = sum w_ij x_ij x_ij^T`` is the
weighted second moment of the unit directions ``x_ij``. With edge weights
``w_ij / |u_i - u_j|^2`` and ``L`` their graph Laplacian it equals ``U^T L U``, and
``|V^T x_ij|^2`` is a ratio of squared distances: no direction is ever formed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Array, Indices, top_eigenpairs
from isoproj.pairs.points import Points, squared_lengths
from isoproj.pairs.rule import PairSet

__all__ = ["Problem", "graph_moment", "pose"]

# Squared distances below this share of the norms are taken from differences.
_CLOSE = 1e-6
_CHUNK = 4096


class Problem(ABC):
    """The question which projection keeps the worst pair longest.

    Parameters
    ----------
    coordinates : ndarray of shape (n_points, n_dims)
        Points in their span.
    n_components : int
        Target dimension, at most ``n_dims``.
    """

    inverse_squares: Array
    is_close: NDArray[np.bool_]

    def __init__(self, coordinates: Array, n_components: int) -> None:
        self.coordinates = coordinates
        self.n_components = n_components

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(n_points={self.coordinates.shape[0]}, "
            f"n_dims={self.coordinates.shape[1]}, n_pairs={self.n_pairs}, "
            f"n_components={self.n_components})"
        )

    @property
    @abstractmethod
    def n_pairs(self) -> int:
        """Number of pairs with a direction."""

    @abstractmethod
    def pairs(self, index: Indices) -> Indices:
        """Return the point numbers of the pairs at ``index``, shape (m, 2)."""

    @abstractmethod
    def retained(self, basis: Array) -> Array:
        """Return ``|V^T x|^2`` for every pair, shape (n_pairs,)."""

    def moment(self, weights: Array) -> Array:
        """Return ``M(w)`` for weights of shape (n_pairs,)."""
        index = np.flatnonzero(weights)
        close = index[self.is_close[index]]
        far = index[~self.is_close[index]]
        conductances = weights[far] * self.inverse_squares[far]
        moment = graph_moment(self.coordinates, self.pairs(far), conductances)
        if close.size:
            # A Laplacian would take the difference of two huge, nearly equal terms.
            conductances = weights[close] * self.inverse_squares[close]
            moment += _edge_moment(self.coordinates, self.pairs(close), conductances)
        return moment

    def _shares(self, squares: Array) -> Array:
        """Return squared lengths as shares of the pairs' own, in place."""
        squares *= self.inverse_squares
        # A gap that rotation rounded to nothing keeps all of it: it must not seem
        # the worst. The final scan judges it on the data itself.
        squares[self.inverse_squares == 0.0] = 1.0
        return squares

    def dual(self, weights: Array) -> tuple[float, Array]:
        """Return the dual value ``g(w)`` and the top eigenvectors of ``M(w)``.

        Parameters
        ----------
        weights : ndarray of shape (n_pairs,)
            Point of the simplex.

        Returns
        -------
        value : float
            One minus the sum of the ``n_components`` largest eigenvalues.
        basis : ndarray of shape (n_dims, n_components)
            Eigenvectors; minus their retained lengths are a supergradient.
        """
        values, basis = top_eigenpairs(self.moment(weights), self.n_components)
        return 1.0 - float(values.sum()), basis


def pose(points: Points, pairs: PairSet, n_components: int) -> Problem:
    """Return the problem over the pairs that count.

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    pairs : PairSet
        The pairs.
    n_components : int
        Target dimension, between 1 and ``points.n_dims``.

    Returns
    -------
    Problem
        With one weight per pair.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.moments import pose
    >>> points, pairs = prepare_pairs(np.eye(3), rotate=True)
    >>> pose(points, pairs, 1)
    AllPairsProblem(n_points=3, n_dims=2, n_pairs=3, n_components=1)
    """
    if pairs.listed is None:
        return AllPairsProblem(points, n_components)
    return ListedPairsProblem(points.coordinates, pairs.listed, n_components)


def _squared_gaps(rows: Array, pairs: Indices) -> Array:
    """Return the squared distance of each pair from the difference itself."""
    squares = np.empty(pairs.shape[0])
    for start in range(0, pairs.shape[0], _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        gaps = rows[chunk[:, 0]] - rows[chunk[:, 1]]
        squares[start : start + _CHUNK] = np.einsum("ij,ij->i", gaps, gaps)
    return squares


def _is_close(
    coordinates: Array, i: Indices, j: Indices, squares: Array
) -> NDArray[np.bool_]:
    """Return which squared distances are small compared with the norms."""
    norms = squared_lengths(coordinates)
    return np.asarray(squares <= _CLOSE * (norms[i] + norms[j]))


def _inverse(squares: Array) -> Array:
    # 0 marks a gap of nearly identical points that rotation rounded to nothing.
    return np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0.0)


class ListedPairsProblem(Problem):
    """The problem over an explicit list of pairs."""

    def __init__(self, coordinates: Array, listed: Indices, n_components: int) -> None:
        super().__init__(coordinates, n_components)
        self.listed = listed
        squares = _squared_gaps(coordinates, listed)
        self.inverse_squares = _inverse(squares)
        self.is_close = _is_close(coordinates, listed[:, 0], listed[:, 1], squares)

    @property
    def n_pairs(self) -> int:
        """Number of pairs listed."""
        return int(self.listed.shape[0])

    def pairs(self, index: Indices) -> Indices:
        """Return the listed pairs at ``index``."""
        return self.listed[index]

    def retained(self, basis: Array) -> Array:
        """Return the share of squared length each pair keeps."""
        squares = _squared_gaps(self.coordinates @ basis, self.listed)
        return self._shares(squares)


class AllPairsProblem(Problem):
    """The problem over every pair; one weight per pair, so for thousands of points."""

    def __init__(self, points: Points, n_components: int) -> None:
        super().__init__(points.coordinates, n_components)
        first = points.first_copy
        rows, columns = np.triu_indices(points.n_points, 1)
        if points.n_copies:
            distinct = first[rows] != first[columns]
            rows, columns = rows[distinct], columns[distinct]
        self.flat = rows * points.n_points + columns
        squares = self._squares(self.coordinates)
        self.is_close = _is_close(self.coordinates, rows, columns, squares)
        self.close = np.flatnonzero(self.is_close)
        squares[self.close] = self._close_squares(self.coordinates)
        self.inverse_squares = _inverse(squares)

    @property
    def n_pairs(self) -> int:
        """Number of pairs of distinct points."""
        return int(self.flat.size)

    def pairs(self, index: Indices) -> Indices:
        """Return the point numbers of the pairs at ``index``."""
        return np.column_stack(np.divmod(self.flat[index], self.coordinates.shape[0]))

    def _squares(self, rows: Array) -> Array:
        """Return all squared distances by one product; close pairs are inaccurate."""
        gram = rows @ rows.T
        norms = gram.diagonal().copy()
        gram *= -2.0
        gram += norms
        gram += norms[:, None]
        squares = gram.ravel()[self.flat]
        return np.asarray(np.maximum(squares, 0.0, out=squares))

    def _close_squares(self, rows: Array) -> Array:
        return _squared_gaps(rows, self.pairs(self.close))

    def retained(self, basis: Array) -> Array:
        """Return the share of squared length each pair keeps."""
        projected = self.coordinates @ basis
        squares = self._squares(projected)
        if self.close.size:
            squares[self.close] = self._close_squares(projected)
        return self._shares(squares)


def graph_moment(coordinates: Array, pairs: Indices, conductances: Array) -> Array:
    """Return ``U^T L U`` for the Laplacian ``L`` of a weighted graph on the points.

    Parameters
    ----------
    coordinates : ndarray of shape (n_points, n_dims)
        One point a row.
    pairs : ndarray of shape (m, 2)
        Edges.
    conductances : ndarray of shape (m,)
        Their weights, nonnegative.

    Returns
    -------
    ndarray of shape (n_dims, n_dims)
        ``sum c_ij (u_i - u_j)(u_i - u_j)^T``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.moments import graph_moment
    >>> points = np.array([[0.0, 0.0], [2.0, 0.0]])
    >>> graph_moment(points, np.array([[0, 1]]), np.array([0.25])).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    seen = np.zeros(coordinates.shape[0], dtype=bool)
    seen[pairs] = True
    nodes = np.flatnonzero(seen)
    if pairs.shape[0] < nodes.size:
        # A forest-like graph: fewer edges than points, so take the edges as they are.
        return _edge_moment(coordinates, pairs, conductances)
    label = np.cumsum(seen) - 1
    i, j = label[pairs[:, 0]], label[pairs[:, 1]]
    size = nodes.size
    rows = coordinates[nodes]
    degrees = np.bincount(i, conductances, size) + np.bincount(j, conductances, size)
    if pairs.shape[0] > size * size // 32:
        adjacency: Rows = np.zeros((size, size))
        adjacency[i, j] = conductances
        adjacency[j, i] = conductances
    else:
        upper = scipy.sparse.coo_array((conductances, (i, j)), shape=(size, size))
        adjacency = (upper + upper.T).tocsr()
    pulled = degrees[:, None] * rows - adjacency @ rows
    return np.asarray(rows.T @ pulled)


def _edge_moment(coordinates: Array, pairs: Indices, conductances: Array) -> Array:
    """Return the same sum edge by edge."""
    total = np.zeros((coordinates.shape[1],) * 2)
    for start in range(0, pairs.shape[0], _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        gaps = coordinates[chunk[:, 0]] - coordinates[chunk[:, 1]]
        total += (gaps * conductances[start : start + _CHUNK, None]).T @ gaps
    return total
