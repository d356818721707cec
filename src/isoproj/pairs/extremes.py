"""Working sets of pairs: which ones a map shrinks or stretches most, in blocks.

Solvers that cannot hold every pair work on a few hundred and ask here which of all the
others they treat worst. Candidates only: the final word on any map is the exact scan's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.moments import pose
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet

__all__ = ["Extremes", "PairPool", "quadratic_values"]

# Up to this many pairs their lengths are kept; beyond, blocks are formed anew.
_LARGEST_KEPT = 5_000_000
_BLOCK_ENTRIES = 2_000_000
# Squared distances below this share of the norms are taken from differences.
_CLOSE = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class Extremes:
    """The pairs at both ends of what a linear map does to squared lengths.

    Parameters
    ----------
    low_pairs : ndarray of shape (m, 2)
        Pairs that keep the smallest share, smallest first.
    low : ndarray of shape (m,)
        The shares.
    high_pairs : ndarray of shape (p, 2)
        Pairs that keep the largest share, largest first.
    high : ndarray of shape (p,)
        The shares.
    """

    low_pairs: Indices
    low: Array
    high_pairs: Indices
    high: Array


class PairPool:
    """All pairs that count, never as directions, for solvers with a working set.

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    selection : PairSet
        The pairs.
    labels : ndarray of shape (n_points,) or None
        With labels, only pairs of different classes are looked for at the low end
        and only pairs of one class at the high end.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.extremes import PairPool
    >>> rows = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 1.0]])
    >>> points, pairs = prepare_pairs(rows, rotate=False)
    >>> pool = PairPool(points, pairs)
    >>> pool.extremes(np.array([[1.0], [0.0]]), n_low=1).low_pairs.tolist()
    [[0, 2]]
    """

    def __init__(
        self,
        points: Points,
        selection: PairSet,
        labels: NDArray[np.intp] | None = None,
    ) -> None:
        self.points = points
        self.selection = selection
        self.labels = labels
        kept = selection.listed is not None or selection.n_pairs <= _LARGEST_KEPT
        self._problem = pose(points, selection, 1) if kept else None
        self._norms = np.einsum(
            "ij,ij->i", self.points.coordinates, self.points.coordinates
        )

    @property
    def n_pairs(self) -> int:
        """Number of pairs that count."""
        return self.selection.n_pairs

    @property
    def n_dims(self) -> int:
        """Number of coordinates of a direction."""
        return self.points.n_dims

    def directions(self, pairs: Indices) -> Array:
        """Return the unit directions of a few pairs, one a row."""
        rows = self.points.coordinates
        gaps = rows[pairs[:, 0]] - rows[pairs[:, 1]]
        lengths = np.sqrt(np.einsum("ij,ij->i", gaps, gaps))
        return np.asarray(gaps / np.where(lengths > 0.0, lengths, 1.0)[:, None])

    def sample(self, count: int, generator: np.random.RandomState) -> Indices:
        """Return distinct pairs drawn at random, at most ``count``."""
        if self.selection.listed is not None:
            listed = self.selection.listed
            order = generator.permutation(listed.shape[0])[:count]
            return listed[np.sort(order)]
        n = self.points.n_points
        drawn = generator.randint(0, n, size=(2 * count + 16, 2))
        first = self.points.first_copy[drawn]
        drawn = np.sort(drawn[first[:, 0] != first[:, 1]], axis=1)
        return np.unique(drawn.astype(np.intp), axis=0)[:count]

    def extremes(self, factor: Array, *, n_low: int, n_high: int = 0) -> Extremes:
        """Return the pairs that ``factor`` shrinks and stretches most.

        Parameters
        ----------
        factor : ndarray of shape (n_dims, s)
            Any linear map in span coordinates.
        n_low, n_high : int
            How many pairs to return at each end.

        Returns
        -------
        Extremes
            Sorted, outermost first.
        """
        low, high = _Ends(n_low), _Ends(n_high)
        for pairs, shares in self._shares(factor):
            lows, highs = self._sides(pairs)
            low.add(pairs, shares, lows)
            if n_high:
                high.add(pairs, -shares, highs)
        return Extremes(low.pairs, low.values, high.pairs, -high.values)

    def uniform_moment(self) -> Array:
        """Return the mean of ``x x^T`` over all pairs."""
        if self._problem is not None:
            n = self._problem.n_pairs
            return self._problem.moment(np.full(n, 1.0 / n))
        rows = self.points.coordinates
        total = np.zeros((self.n_dims, self.n_dims))
        for i, squares in self._square_blocks():
            conductances = np.divide(
                1.0, squares, out=np.zeros_like(squares), where=np.isfinite(squares)
            )
            mine = rows[i]
            total += (mine * conductances.sum(axis=1)[:, None]).T @ mine
            total += (rows * conductances.sum(axis=0)[:, None]).T @ rows
            crossed = mine.T @ (conductances @ rows)
            total -= crossed + crossed.T
        return total / self.n_pairs

    def _sides(
        self, pairs: Indices
    ) -> tuple[NDArray[np.bool_] | None, NDArray[np.bool_] | None]:
        if self.labels is None:
            return None, None
        same = self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]]
        return ~same, same

    def _shares(self, factor: Array) -> Iterator[tuple[Indices, Array]]:
        """Yield pairs with the share of squared length each keeps."""
        if self._problem is not None:
            every = np.arange(self._problem.n_pairs)
            yield self._problem.pairs(every), self._problem.retained(factor)
            return
        image = self.points.coordinates @ factor
        norms = np.einsum("ij,ij->i", image, image)
        for rows, squares in self._square_blocks():
            kept = norms[rows, None] + norms[None, :] - 2.0 * image[rows] @ image.T
            i, j = np.nonzero(np.isfinite(squares))
            shares = np.maximum(kept[i, j], 0.0) / squares[i, j]
            yield np.column_stack([i + rows.start, j]), shares

    def _square_blocks(self) -> Iterator[tuple[slice, Array]]:
        """Yield rows and their squared distances, infinite where no pair counts."""
        points = self.points
        n = points.n_points
        step = max(1, _BLOCK_ENTRIES // n)
        for start in range(0, n, step):
            rows = slice(start, min(start + step, n))
            mine = points.coordinates[rows]
            scale = self._norms[rows, None] + self._norms[None, :]
            squares = scale - 2.0 * mine @ points.coordinates.T
            i, j = np.nonzero(squares <= _CLOSE * scale)
            gaps = mine[i] - points.coordinates[j]
            squares[i, j] = np.einsum("ij,ij->i", gaps, gaps)
            numbers = np.arange(rows.start, rows.stop)
            absent = numbers[:, None] >= np.arange(n)[None, :]
            absent |= points.first_copy[rows, None] == points.first_copy[None, :]
            squares[absent | (squares <= 0.0)] = np.inf
            yield rows, squares


class _Ends:
    """The smallest values seen so far with their pairs."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pairs: Indices = np.empty((0, 2), dtype=np.intp)
        self.values: Array = np.empty(0)

    def add(
        self, pairs: Indices, values: Array, allowed: NDArray[np.bool_] | None
    ) -> None:
        if allowed is not None:
            pairs, values = pairs[allowed], values[allowed]
        if values.size > self.size:
            inner = np.argpartition(values, self.size - 1)[: self.size]
            pairs, values = pairs[inner], values[inner]
        pairs = np.concatenate([self.pairs, pairs])
        values = np.concatenate([self.values, values])
        order = np.lexsort((pairs[:, 1], pairs[:, 0], values))[: self.size]
        self.pairs, self.values = pairs[order], values[order]


def quadratic_values(directions: Array, matrix: Array) -> Array:
    """Return ``x^T P x`` for every direction.

    Parameters
    ----------
    directions : ndarray of shape (m, n_dims)
        One direction a row.
    matrix : ndarray of shape (n_dims, n_dims)
        Symmetric.

    Returns
    -------
    ndarray of shape (m,)
        The quadratic forms.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.extremes import quadratic_values
    >>> quadratic_values(np.eye(2), np.diag([3.0, 1.0])).tolist()
    [3.0, 1.0]
    """
    return np.asarray(np.einsum("ij,ij->i", directions @ matrix, directions))
