"""Second moments of the directions of pairs, and the dual problem they pose.

For weights ``w`` on the simplex over pairs, ``M(w) = sum w_ij x_ij x_ij^T`` is the
weighted second moment of the unit directions ``x_ij``. With edge weights
``w_ij / |u_i - u_j|^2`` and ``L`` their graph Laplacian it equals ``U^T L U``, and
``|V^T x_ij|^2`` is a ratio of squared distances: no direction is ever formed. Proofs
form moments from exact differences of the data's rows (``weighted_moment``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, as_dense, distinct, is_sparse
from isoproj.numerics.spectral import EPS, Array, Indices, top_eigenpairs
from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map
from isoproj.pairs.blocks import (
    SquaredDistances,
    inverse_squares,
    is_close,
    squared_gaps,
)
from isoproj.pairs.directions import normalised
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths
from isoproj.pairs.rule import PairSet

# Returns the differences of pairs, each at any scale, in a fresh array.
Gaps = Callable[[Indices], Array]

# Relative error of a squared distance beyond which it is taken from a difference: for
# single pairs of a problem, and for a sum over all pairs.
_PAIR_ACCURACY = 1e-8
_SUM_ACCURACY = 1e-10
_BLOCK_ROWS = 512
_CHUNK = 4096
# Entries of differences that are in memory at once.
_ENTRIES = 2**19
# Pairs per point, and share of all pairs, from which a graph pays.
_PAIRS_PER_POINT = 32
_LARGEST_TABLE = 16
# A pair is far when this times its squared length exceeds the points' own squares.
_REACH = 100.0
# Squared lengths of the points for which no product over- or underflows.
_SAFE = (1e-200, 1e200)


class DualProblem(ABC):
    """The dual of the search for the least distortion, with one weight for each pair.

    ``coordinates`` holds the points in their span, ``n_components`` the target
    dimension.
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
        """Number of pairs of distinct points."""

    @abstractmethod
    def pairs(self, index: Indices) -> Indices:
        """Return the point numbers of the pairs at ``index``, shape (m, 2)."""

    @abstractmethod
    def retained(self, basis: Array) -> Array:
        """Return ``|V^T x|^2`` for every pair, shape (n_pairs,)."""

    def moment(self, weights: Array) -> Array:
        """Return ``M(w)`` for weights of shape (n_pairs,)."""
        index = np.flatnonzero((weights != 0.0) & ~np.isnan(self.inverse_squares))
        close = index[self.is_close[index]]
        far = index[~self.is_close[index]]
        conductances = weights[far] * self.inverse_squares[far]
        moment = graph_moment(self.coordinates, self.pairs(far), conductances)
        if close.size:
            # A Laplacian would take the difference of two huge, nearly equal terms.
            conductances = weights[close] * self.inverse_squares[close]
            moment += _edge_moment(self.coordinates, self.pairs(close), conductances)
        return moment

    def dual(self, weights: Array) -> tuple[float, Array]:
        """Return the dual value ``g(w)`` and the top eigenvectors of ``M(w)``.

        The value is one minus the sum of the ``n_components`` largest eigenvalues. The
        shares that the eigenvectors keep of each pair, negated, are a supergradient.
        """
        values, basis = top_eigenpairs(self.moment(weights), self.n_components)
        return 1.0 - float(values.sum()), basis

    def _shares(self, squares: Array) -> Array:
        """Return squared lengths as shares of the pairs' own, in place."""
        squares *= self.inverse_squares
        # A gap that rounding swallowed counts as kept whole, so that it is never the
        # worst pair of a solver. The exact scan judges it from the data.
        squares[np.isnan(self.inverse_squares)] = 1.0
        return squares


def pose(points: Points, pairs: PairSet, n_components: int) -> DualProblem:
    """Return the dual problem over the pairs that count."""
    if pairs.listed is None:
        return AllPairsDual(points, n_components)
    return ListedPairsDual(points.coordinates, pairs.listed, n_components)


class ListedPairsDual(DualProblem):
    """The dual problem over an explicit list of pairs."""

    def __init__(self, coordinates: Array, listed: Indices, n_components: int) -> None:
        super().__init__(coordinates, n_components)
        self.listed = listed
        squares = squared_gaps(coordinates, listed)
        self.inverse_squares = inverse_squares(squares)
        errors = SquaredDistances.of(coordinates).errors(listed)
        self.is_close = is_close(squares, errors, _PAIR_ACCURACY)

    @property
    def n_pairs(self) -> int:
        """Number of pairs listed."""
        return int(self.listed.shape[0])

    def pairs(self, index: Indices) -> Indices:
        """Return the listed pairs at ``index``."""
        return self.listed[index]

    def retained(self, basis: Array) -> Array:
        """Return the share of squared length that each pair keeps."""
        return self._shares(squared_gaps(self.coordinates @ basis, self.listed))


class AllPairsDual(DualProblem):
    """The dual problem over every pair; its memory grows with the number of pairs."""

    def __init__(self, points: Points, n_components: int) -> None:
        super().__init__(points.coordinates, n_components)
        pairs = np.column_stack(np.triu_indices(points.n_points, 1))
        if points.n_copies:
            pairs = pairs[points.are_distinct(pairs)]
        self.flat = pairs @ np.array([points.n_points, 1])
        distances = SquaredDistances.of(self.coordinates)
        squares = self._squares(distances)
        self.is_close = is_close(squares, distances.errors(pairs), _PAIR_ACCURACY)
        self.close = np.flatnonzero(self.is_close)
        squares[self.close] = squared_gaps(self.coordinates, pairs[self.close])
        self.inverse_squares = inverse_squares(squares)

    @property
    def n_pairs(self) -> int:
        """Number of pairs of distinct points."""
        return int(self.flat.size)

    def pairs(self, index: Indices) -> Indices:
        """Return the point numbers of the pairs at ``index``."""
        return np.column_stack(np.divmod(self.flat[index], self.coordinates.shape[0]))

    def _squares(self, distances: SquaredDistances) -> Array:
        """Return all squared distances from one product; close ones are inaccurate."""
        squares = distances.table().ravel()[self.flat]
        return np.asarray(np.maximum(squares, 0.0, out=squares))

    def retained(self, basis: Array) -> Array:
        """Return the share of squared length that each pair keeps."""
        projected = self.coordinates @ basis
        squares = self._squares(SquaredDistances.of(projected))
        if self.close.size:
            squares[self.close] = squared_gaps(projected, self.pairs(self.close))
        return self._shares(squares)


def graph_moment(coordinates: Array, pairs: Indices, conductances: Array) -> Array:
    """Return ``sum c_ij (u_i - u_j)(u_i - u_j)^T = U^T L U``, given nonnegative ``c``.

    ``L`` is the Laplacian of the graph whose edges are ``pairs``, of shape (m, 2), with
    the weights ``conductances``, of shape (m,).
    """
    seen = np.zeros(coordinates.shape[0], dtype=bool)
    seen[pairs] = True
    nodes = np.flatnonzero(seen)
    if pairs.shape[0] < nodes.size:
        # With fewer edges than points a sum over edges is cheaper.
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
    """Return the same sum as ``graph_moment``, edge by edge."""
    total = np.zeros((coordinates.shape[1],) * 2)
    for start in range(0, pairs.shape[0], _CHUNK):
        chunk = pairs[start : start + _CHUNK]
        gaps = coordinates[chunk[:, 0]] - coordinates[chunk[:, 1]]
        total += (gaps * conductances[start : start + _CHUNK, None]).T @ gaps
    return total


def summed_moment(
    coordinates: Array,
    first_copy: Indices,
    listed: Indices | None = None,
    gaps_of: Gaps | None = None,
) -> Array:
    """Return the sum of ``x x^T`` over listed pairs, or over all pairs (None).

    ``gaps_of`` returns the differences of close or listed pairs. None takes them from
    ``coordinates``, whose rounding decides the direction of nearly identical points.
    """

    def own_gaps(chunk: Indices) -> Array:
        return np.asarray(coordinates[chunk[:, 0]] - coordinates[chunk[:, 1]])

    gaps_of = gaps_of or own_gaps
    total = np.zeros((coordinates.shape[1],) * 2)
    if listed is not None:
        return _add_directions(total, listed, gaps_of)
    n = coordinates.shape[0]
    with one_blas_thread():
        distances = SquaredDistances.of(coordinates)

        def visit(start: int) -> tuple[Array, Indices]:
            return _laplacian_part(coordinates, distances, start)

        for part, close in threaded_map(visit, range(0, n, _BLOCK_ROWS), n_threads()):
            total += part
            lead = first_copy[close]
            _add_directions(total, close[lead[:, 0] != lead[:, 1]], gaps_of)
    return total


def _laplacian_part(
    coordinates: Array, distances: SquaredDistances, start: int
) -> tuple[Array, Indices]:
    """Return what some rows of the Laplacian add to ``U^T L U``, and the close pairs.

    Edges weigh one over the squared distance. Those of close pairs would cancel and are
    left out.
    """
    n = coordinates.shape[0]
    rows, columns = slice(start, min(start + _BLOCK_ROWS, n)), slice(0, n)
    squares = distances.block(distances.left(rows), columns)
    close = distances.close_entries(
        squares, squares.min(axis=1), rows, columns, _SUM_ACCURACY
    )
    squares[close[:, 0], close[:, 1]] = np.inf
    weights = np.reciprocal(squares, out=squares)
    pulled = weights.sum(axis=1)[:, None] * coordinates[rows]
    pulled -= weights @ coordinates
    close[:, 0] += start
    return coordinates[rows].T @ pulled, close[close[:, 0] < close[:, 1]]


def _add_directions(total: Array, pairs: Indices, gaps_of: Gaps) -> Array:
    """Add ``x x^T`` of every pair to ``total``, from the differences themselves."""
    for start in range(0, pairs.shape[0], _CHUNK):
        unit = normalised(gaps_of(pairs[start : start + _CHUNK]))
        total += unit.T @ unit
    return total


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
    squares = SquaredDistances.of(centred).table()[i, j]
    far = np.asarray(squares * _REACH > sizes)
    if not far.any():
        return None
    conductances = shares[far] / squares[far]
    # Rounding of conductances only changes the weights, and any weights prove a bound.
    # Forming the product errs by at most (2n + 16) eps times twice the sum of
    # conductances times sizes; scaling to the right trace at most doubles that.
    error = 4.0 * (2 * n + 16) * EPS * float(conductances @ sizes[far])
    if not error <= allowed:
        return None
    moment = graph_moment(centred, pairs[far], conductances)
    return moment * (float(shares[far].sum()) / float(moment.trace())), far


def _has_repeats(pairs: Indices, n_points: int) -> bool:
    """Return whether a pair occurs twice, in either order."""
    codes = np.sort(pairs, axis=1) @ np.array([n_points, 1])
    return bool(distinct(codes).size < pairs.shape[0])
