"""Squared distances between points, block by block: the one kernel of this folder.

A block holds the squared distances of some points (its rows) to others (its columns).
It comes from one matrix product: the row ``[-2 a, |a|^2, 1]`` times the column
``[b, 1, |b|^2]`` is ``|a - b|^2``, so no second pass over the block adds the norms.

**Error bound.** Let ``u`` be the unit roundoff of the block, ``v`` that of the given
rows, ``w`` their width, and ``N = |a|^2 + |b|^2``. The norms are computed with an error
of ``(w + 2) v N`` and stored with an error of ``u N``. Rounding the coordinates changes
``2 a.b`` by ``2 u N``. A sum of ``w + 2`` products, in any order, is off by
``(w + 2) u`` times the sum of their absolute values, which is at most ``2 N``.
Together, with room for terms of second order, an entry is off by at most
``product_error(w) N``. Errors of the given coordinates themselves (``blur``, ``haze``)
add a constant.

**Close entries.** A product cancels where points are close compared with their norms.
A caller states the relative ``accuracy`` that it needs. An entry is *close* if its
error bound is at least ``accuracy`` times the entry. Every other entry has a smaller
relative error than stated. Close pairs are measured from the difference of their rows.

**Entries that are not pairs.** A pair is counted once, with the smaller number as row,
and identical points have no direction. Blocks hold infinity at all other entries, so
that a minimum passes over them.

**Gaps that rounding swallows.** Centring or rotating may round the gap of two distinct
points to nothing. Such a pair has no direction in these coordinates, and its inverse
squared distance is NaN, as for an entry that is not a pair. NaN passes no comparison,
so that no search names the pair, and sums leave it out. The exact scans judge the pair
from the data itself.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import for_each_chunk, n_threads, threaded_map
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths

Real = NDArray[Any]
Mask = NDArray[np.bool_]

# Rows that a thread prepares at a time, and rows of them that stay in its cache, or
# entries where rows are short.
_TASK_ROWS = 768
_CACHED_ROWS = 64
_CACHED_ENTRIES = 2**14
# Entries below which starting threads costs more than they save.
_FEW_ENTRIES = 2**17
# Entries of an array of differences.
_GAP_ENTRIES = 2**20
# Relative error of a squared distance beyond which a pair is measured by its
# difference. In float32 a smaller one would single out too many clustered pairs.
_ACCURACY = {np.dtype(np.float32): 0.1, np.dtype(np.float64): 1e-3}
# Most entries of a stripe.
_STRIPE_ENTRIES = 2**24
Answer = TypeVar("Answer")


def product_error(width: int, dtype: type[np.floating[Any]] | np.dtype[Any]) -> float:
    """Return the largest error of an entry, relative to the two squared norms.

    The norms come from float64 rows. The module's docstring has the derivation.
    """
    own = float(np.finfo(dtype).eps) / 2.0
    given = float(np.finfo(np.float64).eps) / 2.0
    return 2.05 * (width + 12) * own + 1.05 * (width + 2) * given


def is_close(squares: Real, errors: Real | float, accuracy: float) -> Mask:
    """Return which squared distances may have a larger relative error."""
    return np.asarray(squares <= errors / accuracy)


def squared_gaps(rows: Real, pairs: Indices) -> Array:
    """Return the squared distance of each pair, from the difference of its rows."""
    squares = np.empty(pairs.shape[0])
    step = max(1, _GAP_ENTRIES // max(1, rows.shape[1]))

    def fill(chunk: slice) -> None:
        gaps = rows[pairs[chunk, 0]]
        gaps -= rows[pairs[chunk, 1]]
        squares[chunk] = squared_lengths(gaps)

    for_each_chunk(fill, pairs.shape[0], step)
    return squares


def inverse_squares(squares: Array) -> Array:
    """Return one over each squared distance, NaN where rounding swallowed the gap."""
    nothing = np.full_like(squares, np.nan)
    return np.divide(1.0, squares, out=nothing, where=squares > 0.0)


class Workspace:
    """Memory that each thread reuses from block to block.

    Fresh megabytes for every block would cost as much as looking at them.
    """

    def __init__(self) -> None:
        self._local = threading.local()

    def __reduce__(self) -> tuple[Any, ...]:
        # Memory of a thread stays in its process.
        return Workspace, ()

    def arrays(self, count: int, shape: tuple[int, int], dtype: np.dtype[Any]) -> Real:
        """Return ``count`` arrays of any values; the next call reuses their memory."""
        size = count * shape[0] * shape[1]
        memory: Real | None = getattr(self._local, dtype.name, None)
        if memory is None or memory.size < size:
            memory = np.empty(size, dtype)
            setattr(self._local, dtype.name, memory)
        return memory[:size].reshape(count, *shape)


@dataclass(slots=True, eq=False)
class SquaredDistances:
    """Points ready for products that give blocks of squared distances.

    ``right`` holds ``[b, 1, |b|^2]`` for every point; an entry is off by at most
    ``error * (|a|^2 + |b|^2) + offset``.
    """

    right: Real
    error: float
    offset: float

    @staticmethod
    def of(
        rows: Real,
        dtype: type[np.floating[Any]] | np.dtype[Any] = np.float64,
        *,
        blur: float = 0.0,
        haze: float = 0.0,
        storage: Storage | None = None,
        columns: Indices | None = None,
    ) -> SquaredDistances:
        """Prepare rows for blocks of one precision.

        Rows are float64 where the error bound must hold. ``blur`` is the error of a
        squared distance of the given rows, and ``haze`` that of a row, as a length.
        ``storage=None`` means memory, and ``columns=None`` all columns.
        """
        n_points, n_columns = rows.shape
        width = n_columns if columns is None else columns.size
        # A slice costs no copy.
        chosen = slice(None) if width == n_columns else columns
        right = (storage or Storage()).empty((n_points, width + 2), dtype)
        cached = max(_CACHED_ROWS, _CACHED_ENTRIES // (width + 2))

        def fill(chunk: slice) -> None:
            for first in range(chunk.start, chunk.stop, cached):
                some = slice(first, min(first + cached, chunk.stop))
                block = rows[some][:, chosen]
                right[some, :width] = block
                right[some, width] = 1.0
                right[some, width + 1] = squared_lengths(block)

        threads = 1 if right.size <= _FEW_ENTRIES else 0
        for_each_chunk(fill, n_points, _TASK_ROWS, threads)
        error = product_error(width, dtype)
        # Squares next to the smallest number of a precision lose digits.
        faint = 8.0 * (width + 12) * float(np.finfo(dtype).tiny)
        # Haze moves a squared distance by 4 haze (|a| + |b|) + 4 haze^2; the mean
        # inequality splits the first term between ``error`` and ``offset``.
        offset = blur + faint + (8.0 / error + 4.0) * haze**2
        return SquaredDistances(right, error, offset)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Precision of the blocks."""
        return self.right.dtype

    @property
    def norms(self) -> Real:
        """Squared norm of every point."""
        return np.asarray(self.right[:, -1])

    def left(self, rows: slice) -> Real:
        """Return ``[-2 a, |a|^2, 1]`` for some points: the left factor of a block."""
        taken = self.right[rows] * self.dtype.type(-2.0)
        taken[:, -2] = self.norms[rows]
        taken[:, -1] = 1.0
        return np.asarray(taken)

    def block(self, left: Real, columns: slice, out: Real | None = None) -> Real:
        """Return squared distances of the rows of ``left`` to some points."""
        return np.asarray(np.matmul(left, self.right[columns].T, out=out))

    def table(self, out: Real | None = None) -> Real:
        """Return squared distances of all points to each other.

        The product is symmetric, so that BLAS does half the multiplications. Norms are
        added after the product instead of inside it; the error bound is the same.
        """
        rows = self.right[:, :-2]
        squares = np.matmul(rows, rows.T, out=out)
        squares *= self.dtype.type(-2.0)
        squares += self.norms[:, None]
        squares += self.norms
        return np.asarray(squares)

    def errors(self, pairs: Indices) -> Array:
        """Return the error bound of each pair's entry."""
        norms = self.norms[pairs].sum(axis=1, dtype=np.float64)
        return np.asarray(self.error * norms + self.offset)

    def block_errors(self, rows: slice, columns: slice) -> Real:
        """Return the error bound of every entry of a block."""
        norms = self.norms[rows][:, None] + self.norms[columns]
        return np.asarray(self.error * norms + self.offset)

    def row_errors(self, rows: slice, columns: slice) -> Real:
        """Return, for every row of a block, the largest error bound of its entries."""
        largest = self.norms[columns].max()
        return np.asarray(self.error * (self.norms[rows] + largest) + self.offset)

    def close_entries(
        self, squares: Real, least: Real, rows: slice, columns: slice, accuracy: float
    ) -> Indices:
        """Return the close entries of a block; ``least`` is the minimum of each row."""
        errors = self.row_errors(rows, columns)
        suspects = np.flatnonzero(is_close(least, errors, accuracy))
        near, far = self.norms[rows][suspects], self.norms[columns]
        exact = self.error * (near[:, None] + far) + self.offset
        entries = np.argwhere(is_close(squares[suspects], exact, accuracy))
        entries[:, 0] = suspects[entries[:, 0]]
        return entries


@dataclass(slots=True, eq=False)
class Block:
    """Squared distances of pairs, those of close pairs left out.

    ``squares`` is infinite at close entries and where there is no pair; ``absent`` says
    where, or is None. ``least`` holds the smallest entry of each row, and ``close`` the
    close pairs as point numbers.
    """

    rows: slice
    columns: slice
    squares: Real
    least: Real
    absent: Mask | None
    close: Indices

    def numbered(self, entries: Indices) -> Indices:
        """Return entries of the block as point numbers."""
        return np.asarray(entries + np.array([self.rows.start, self.columns.start]))

    def inverted(self) -> Real:
        """Return inverse squared distances, NaN where absent, in place of the block."""
        np.reciprocal(self.squares, out=self.squares)
        if self.absent is not None:
            self.squares[self.absent] = np.nan
        return self.squares


class PairBlocks:
    """Blocks of pairs of distinct points.

    Entries that are not close have a relative error of at most ``accuracy``. ``listed``
    holds the pairs that count, in order, smaller number first; None means all.
    """

    def __init__(
        self, first_copy: Indices, accuracy: float, listed: Indices | None = None
    ) -> None:
        counts = np.bincount(first_copy, minlength=first_copy.size)
        self.first_copy = first_copy
        self.accuracy = accuracy
        self._is_repeated = counts[first_copy] > 1
        self._listed = listed
        if listed is not None:
            numbers = np.arange(first_copy.size + 1)
            self._starts = np.searchsorted(listed[:, 0], numbers)

    def absent(self, rows: slice, columns: slice) -> Mask | None:
        """Return which entries are no pairs that count; None if all are."""
        if self._listed is not None:
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            others = np.ones(shape, dtype=bool)
            some = self._listed[self._starts[rows.start] : self._starts[rows.stop]]
            i, j = some.T - np.array([[rows.start], [columns.start]])
            inside = (j >= 0) & (j < shape[1])
            others[i[inside], j[inside]] = False
            return others
        absent: Mask | None = None
        if columns.start < rows.stop:
            i = np.arange(rows.start, rows.stop)
            absent = np.arange(columns.start, columns.stop) <= i[:, None]
        if self._is_repeated[rows].any() and self._is_repeated[columns].any():
            same = self.first_copy[rows][:, None] == self.first_copy[columns]
            absent = same if absent is None else absent | same
        return absent

    def measure(
        self,
        distances: SquaredDistances,
        left: Real,
        rows: slice,
        columns: slice,
        out: Real | None = None,
    ) -> Block:
        """Return a block of pairs; ``left`` is the left factor of its rows."""
        squares = distances.block(left, columns, out)
        return self.marked(distances, squares, rows, columns)

    def marked(
        self, distances: SquaredDistances, squares: Real, rows: slice, columns: slice
    ) -> Block:
        """Return squared distances as a block of pairs, marked in place."""
        absent = self.absent(rows, columns)
        if absent is not None:
            squares[absent] = np.inf
        least = squares.min(axis=1)
        close = distances.close_entries(squares, least, rows, columns, self.accuracy)
        if close.shape[0]:
            if absent is None:
                absent = np.zeros(squares.shape, dtype=bool)
            absent[close[:, 0], close[:, 1]] = True
            squares[close[:, 0], close[:, 1]] = np.inf
            least = squares.min(axis=1)
        close += np.array([rows.start, columns.start])
        return Block(rows, columns, squares, least, absent, close)


@dataclass(frozen=True, slots=True, eq=False)
class Stripe:
    """The shares that a map keeps of some rows' pairs.

    ``shares`` has shape (n_rows, n_points - start), NaN where there is no pair or a
    close one; the next stripe uses the memory again. ``close`` holds the close pairs
    of a stripe that was measured anew.
    """

    start: int
    shares: Real
    close: Indices

    def pairs(self, flat: Indices) -> Indices:
        """Return the point numbers of flat entries, shape (m, 2)."""
        i, j = np.divmod(flat, self.shares.shape[1])
        return np.column_stack([i + self.start, j + self.start])


class DistanceTable:
    """Inverse squared distances of all pairs, or of many listed, in stripes of rows.

    Kept in memory, they make the shares that a map keeps cost one product of the width
    of the map; otherwise stripes are measured anew. The table leaves out the close
    pairs of all kept stripes; ``close`` lists them in order.
    """

    def __init__(
        self,
        points: Points,
        dtype: np.dtype[Any],
        block_rows: int,
        listed: Indices | None = None,
    ) -> None:
        n = points.n_points
        step = max(1, min(block_rows, _STRIPE_ENTRIES // n))
        self.points = points
        self.dtype = dtype
        self.close: Indices = np.empty((0, 2), dtype=np.intp)
        self._rows = [slice(a, min(a + step, n)) for a in range(0, n, step)]
        self._blocks = PairBlocks(points.first_copy, _ACCURACY[dtype], listed)
        self._kept: list[Real] = []
        self._workspace = Workspace()

    @property
    def is_kept(self) -> bool:
        """Whether the table is in memory."""
        return bool(self._kept)

    def keep(self) -> None:
        """Measure all stripes, keep them in memory, and list the close pairs."""
        distances = self._distances()

        def visit(number: int) -> tuple[Real, Indices]:
            return self._measured(distances, self._rows[number])

        measured = list(self._mapped(visit))
        self._kept = [inverse for inverse, _ in measured]
        self.points.storage.count(self._kept)
        close = np.concatenate([near for _, near in measured])
        self.close = close[np.lexsort((close[:, 1], close[:, 0]))]

    def over_stripes(
        self, mapped: Array, look: Callable[[Stripe], Answer]
    ) -> Iterator[Answer]:
        """Yield ``look(stripe)`` for all stripes, given the points under a map."""
        storage = self.points.storage
        images = SquaredDistances.of(mapped, self.dtype, storage=storage)
        distances = None if self.is_kept else self._distances()

        def visit(number: int) -> Answer:
            rows = self._rows[number]
            if distances is None:
                inverse, close = self._kept[number], self.close[:0]
            else:
                inverse, close = self._measured(distances, rows)
            shares = self._workspace.arrays(1, inverse.shape, self.dtype)[0]
            self._squares(images, rows, shares)
            shares *= inverse
            return look(Stripe(rows.start, shares, close))

        return self._mapped(visit)

    def _distances(self) -> SquaredDistances:
        points = self.points
        return SquaredDistances.of(
            points.coordinates, self.dtype, storage=points.storage
        )

    def _measured(
        self, distances: SquaredDistances, rows: slice
    ) -> tuple[Real, Indices]:
        """Return inverse squared distances of a stripe, and its close pairs."""
        squares = self._squares(distances, rows)
        columns = slice(rows.start, self.points.n_points)
        block = self._blocks.marked(distances, squares, rows, columns)
        return block.inverted(), block.close

    def _squares(
        self, distances: SquaredDistances, rows: slice, out: Real | None = None
    ) -> Real:
        """Return the squared distances of a stripe."""
        if len(self._rows) == 1:
            return distances.table(out)
        columns = slice(rows.start, self.points.n_points)
        return distances.block(distances.left(rows), columns, out)

    def _mapped(self, function: Callable[[int], Answer]) -> Iterator[Answer]:
        """Yield ``function(number)`` for all stripes, computed by threads."""
        n_stripes = len(self._rows)
        return threaded_map(function, range(n_stripes), min(n_threads(), n_stripes))
