"""How near rows are to queries: fast for blocks, exact for pairs, under any metric.

**Fast.** One product in float32 gives the values of a block. ``margins`` bounds how far
a value of a query may be off. A value that says nothing is NaN, so a search keeps
what is *not above* a limit.

**Exact.** ``exact`` measures pairs in float64 from the rows themselves, because
``|a|^2 + |b|^2 - 2 <a, b>`` cancels for near rows. It returns with each value a
tolerance, by which rounding may have moved the value. Two values within their
tolerances are a tie as far as anyone can tell.

Under a linear map the same holds for the images of the rows. Images of differences are
measured, not differences of images, for the same reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from isoproj.numerics.arrays import Rows, check_points, is_sparse
from isoproj.numerics.spectral import EPS, Array, Indices
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import for_each_chunk, n_threads, threaded_map
from isoproj.pairs.blocks import product_error
from isoproj.pairs.rows import (
    largest_entry,
    largest_of_each,
    scale_each,
    squared_lengths,
)

Metric: TypeAlias = Literal["euclidean", "cosine", "inner_product"]
METRICS: tuple[str, ...] = get_args(Metric)

# Rows of a block; with 512 queries a block of float32 products is 16 MB.
_ROWS = 8192
# Pairs that are measured in float64 at a time.
_SETTLED = 2048
# Entries of rows that a thread prepares at a time.
_PREPARED = 2**17
_EPS32 = float(np.finfo(np.float32).eps)
# Entries of maps between 2^-20 and 2^20 are safe in float32.
_SAFE_EXPONENT = 20
_LARGEST_POWER = 1000
# Whole numbers below this are exact in float32 and float64, and so are their sums.
_WHOLE = {np.float32: 2.0**24, np.float64: 2.0**53}


def check_metric(metric: str, name: str = "metric") -> None:
    """Raise ValueError unless a metric is known."""
    if metric not in METRICS:
        msg = f"{name} must be one of {', '.join(METRICS)}; got {metric!r}. Choose one."
        raise ValueError(msg)


def check_queries(
    queries: ArrayLike | Rows | None,
    rows: Rows,
    storage: Storage,
    name: str = "queries",
) -> Rows | None:
    """Return finite queries of the width of the rows, or None; else ValueError."""
    if queries is None:
        return None
    asked = check_points(queries, storage, min_rows=1, name=name)
    if asked.shape[1] != rows.shape[1]:
        msg = (
            f"{name} must have the {rows.shape[1]} features of the rows; got "
            f"{asked.shape[1]}. Pass the same columns."
        )
        raise ValueError(msg)
    if is_sparse(asked) != is_sparse(rows):
        kinds = ("dense", "sparse") if is_sparse(rows) else ("sparse", "dense")
        msg = f"{name} must be {kinds[1]} as the rows; got {kinds[0]}. Convert them."
        raise ValueError(msg)
    return asked


@dataclass(frozen=True, slots=True, eq=False)
class Nearness:
    """Values that order rows by nearness to a query; a smaller value is nearer.

    ``fast`` and ``fast_queries`` are what products are made of: float32 rows of size
    about 1, or sparse rows. With Euclidean distances float32 rows have their squared
    length ``norms`` as last column. Rows are counted as in ``fast``; ``numbers`` has
    their numbers in ``rows``, and those of queries that are the rows themselves.
    """

    metric: Metric
    rows: Rows
    queries: Rows | None
    linear: Array | None
    numbers: Indices | None
    exponent: int
    fast: Rows
    fast_queries: Rows
    norms: Array
    error: float
    haze: float
    is_whole: bool

    @staticmethod
    def of(
        rows: Rows,
        queries: Rows | None,
        metric: Metric,
        *,
        linear: Array | None = None,
        numbers: Indices | None = None,
        storage: Storage | None = None,
    ) -> Nearness:
        """Prepare rows for searches; ``queries=None`` means the rows themselves.

        ``linear``, of shape (k, n_features), is a map whose images are compared, and
        ``numbers`` the rows among which neighbours are looked for; None means all.
        """
        others = [] if queries is None else [queries]
        # A factor changes no order; without it float32 could overflow.
        exponent = 0 if linear is None else math.frexp(float(np.abs(linear).max()))[1]
        if linear is not None and abs(exponent) > _SAFE_EXPONENT:
            linear = np.ldexp(linear, -exponent)
        exponent = _exponent(rows, *others)
        is_exact, is_whole = (
            linear is None and _are_whole(rows, *others, metric=metric, dtype=dtype)
            for dtype in (np.float32, np.float64)
        )
        centred = metric == "euclidean" and not is_sparse(rows) and not is_exact
        shift = mean_row(rows, exponent) if centred else 0.0
        prepare = _Preparation(metric, linear, exponent, shift, storage or Storage())
        fast, norms = prepare(rows, numbers)
        asked = fast if queries is None else prepare(queries, None)[0]
        error = 0.0 if is_exact else 1.1 * product_error(int(fast.shape[1]), np.float32)
        return Nearness(
            metric=metric,
            rows=rows,
            queries=queries,
            linear=linear,
            numbers=numbers,
            exponent=exponent,
            fast=fast,
            fast_queries=asked,
            norms=norms,
            error=error,
            haze=prepare.haze,
            is_whole=is_whole,
        )

    @property
    def n_rows(self) -> int:
        """Number of rows that are searched."""
        return int(self.fast.shape[0])

    @property
    def _has_norms(self) -> bool:
        return self.metric == "euclidean" and not is_sparse(self.fast)

    def values(self, queries: slice, rows: slice) -> NDArray[Any]:
        """Return how near every row of a block is to every query, but for a constant.

        The value with Euclidean distances is ``|row|^2 - 2 <query, row>``, with other
        metrics ``-<query, row>``.
        """
        left, right = self.fast_queries[queries], self.fast[rows]
        if is_sparse(left):
            values: NDArray[Any] = -(left @ right.T).toarray()
            is_squared = self.metric == "euclidean"
            return 2.0 * values + self.norms[rows] if is_squared else values
        if not self._has_norms:
            return np.asarray(-left @ right.T)
        left = -2.0 * left
        left[:, -1] = 1.0
        return np.asarray(left @ right.T)

    def constants(self, queries: slice) -> Array:
        """Return by how much ``exact`` is above the values of a query."""
        return self._squares(queries) * (self.metric == "euclidean")

    def _squares(self, queries: slice) -> Array:
        left = self.fast_queries[queries]
        squares = left[:, -1] if self._has_norms else squared_lengths(left)
        return np.nan_to_num(squares.astype(np.float64))

    def margins(self, queries: slice) -> Array:
        """Return by how much the values of a query may be off, at most."""
        if self.error == 0.0:
            return np.zeros(queries.stop - queries.start)
        own = self._squares(queries)
        longest = float(np.nan_to_num(self.norms).max(initial=0.0))
        # Lengths and images are rounded besides; the constant is for underflow.
        error = self.error * (own + longest) + 1e-35
        if self.metric == "cosine" and self.linear is not None:
            return np.asarray(error + 8.0 * _EPS32)
        moved = np.sqrt(own) + math.sqrt(longest)
        return np.asarray(error + 4.0 * self.haze * (moved + self.haze))

    def exact(self, queries: Indices, rows: Indices) -> tuple[Array, Array]:
        """Return the dissimilarity of pairs in float64, and their tolerances.

        Queries and rows are counted as in ``fast``.
        """
        found = np.empty((2, queries.size))
        for start in range(0, queries.size, _SETTLED):
            chunk = slice(start, start + _SETTLED)
            right = self._scaled_rows(rows[chunk])
            if self.queries is None:
                left = self._scaled_rows(queries[chunk])
            else:
                left = _sized(self.queries[queries[chunk]], self)
            found[:, chunk] = self._measured(left, right)
        if self.is_whole:
            found[1] = 0.0
        return found[0], found[1]

    def _scaled_rows(self, rows: Indices) -> Rows:
        numbers = rows if self.numbers is None else self.numbers[rows]
        return _sized(self.rows[numbers], self)

    def _measured(self, left: Rows, right: Rows) -> tuple[Array, Array]:
        if self.metric == "euclidean":
            gaps, moved = self._mapped(left - right)
            values = squared_lengths(gaps)
            own = 2.0 * (gaps.shape[1] + 4) * EPS
            return values, own * values + (
                2.0 * np.sqrt(values) + moved
            ) * moved + 1e-300
        left, left_moved = self._mapped(left)
        right, right_moved = self._mapped(right)
        own = (left.shape[1] + 12) * EPS
        lengths = _lengths(left), _lengths(right)
        if self.metric == "inner_product":
            tolerance = own * lengths[0] * lengths[1] + right_moved * lengths[0]
            tolerance += left_moved * (lengths[1] + right_moved)
            return -_inner(left, right), tolerance + 1e-300
        tolerance = own + _turned(left_moved, lengths[0])
        tolerance += _turned(right_moved, lengths[1])
        return -_inner(_unit(left), _unit(right)), tolerance

    def _mapped(self, some: Rows) -> tuple[Rows, Array | float]:
        """Return the images of rows, and by how much rounding may move them."""
        if self.linear is None:
            return some, 0.0
        moved = _haze(self.linear) * _lengths(some)
        return np.asarray(some @ self.linear.T), moved


def candidates(
    side: Nearness,
    queries: slice,
    k: int,
    counts: NDArray[np.int64] | None = None,
) -> tuple[Indices, Indices, Array]:
    """Return every query, from 0, and row that may be among its ``k`` nearest.

    The third array has their values. Queries that are rows are not their own
    candidates, unless they stand for several, by ``counts``.
    """
    margins = 2.0 * side.margins(queries)
    limits = np.full(margins.size, np.inf)
    query, row = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    near = np.empty(0)
    for first in range(0, side.n_rows, _ROWS):
        rows = slice(first, min(first + _ROWS, side.n_rows))
        values = side.values(queries, rows)
        if side.queries is None:
            without_own(values, queries, rows, counts)
        if first == 0 and k < values.shape[1]:
            limits = np.partition(values, k - 1, axis=1)[:, k - 1] + margins
            limits[np.isnan(limits)] = np.inf
        # In the precision of the block, so that it is not copied.
        bars = np.nextafter(limits.astype(values.dtype), np.inf, dtype=values.dtype)
        entries = np.flatnonzero(~(values > bars[:, None]))
        at, column = np.divmod(entries, values.shape[1])
        is_row = values[at, column] != np.inf
        at, column = at[is_row], column[is_row]
        query, row = np.append(query, at), np.append(row, column + first)
        near = np.append(near, values[at, column])
        if first == 0:
            continue
        limits = _limits(query, near, k, margins)
        kept = ~(near > limits[query])
        query, row, near = query[kept], row[kept], near[kept]
    return query, row, near


def _limits(query: Indices, near: Array, k: int, margins: Array) -> Array:
    """Return the value above which no row is among the ``k`` nearest of a query."""
    order = np.lexsort((near, query))
    edges = np.searchsorted(query[order], np.arange(margins.size + 1))
    limits = np.full(margins.size, np.inf)
    full = np.flatnonzero(np.diff(edges) >= k)
    limits[full] = near[order[edges[full] + k - 1]] + margins[full]
    limits[np.isnan(limits)] = np.inf
    return limits


def without_own(
    values: NDArray[Any],
    queries: slice,
    rows: slice,
    counts: NDArray[np.int64] | None = None,
) -> None:
    """Leave out every query that is the row itself: set its value to infinity.

    A row whose count is above 1 stands for others too, and stays.
    """
    own = np.arange(max(queries.start, rows.start), min(queries.stop, rows.stop))
    if counts is not None:
        own = own[counts[own] == 1]
    values[own - queries.start, own - rows.start] = np.inf


class _Preparation:
    """Makes rows ready for products, chunk by chunk on threads."""

    def __init__(
        self,
        metric: Metric,
        linear: Array | None,
        exponent: int,
        shift: Array | float,
        storage: Storage,
    ) -> None:
        self.metric, self.linear, self.exponent = metric, linear, exponent
        self.shift, self.storage = shift, storage
        # Largest distance by which rounding moves an image.
        self.haze = 0.0

    def __call__(self, rows: Rows, numbers: Indices | None) -> tuple[Rows, Array]:
        """Return the rows ``numbers`` for products, and their squared lengths."""
        if is_sparse(rows) and self.linear is None:
            some = _sized(rows if numbers is None else rows[numbers], self)
            some = _unit(some) if self.metric == "cosine" else some
            return some, squared_lengths(some)
        n_rows = int(rows.shape[0]) if numbers is None else numbers.size
        width = int(rows.shape[1] if self.linear is None else self.linear.shape[0])
        extra = 1 if self.metric == "euclidean" else 0
        fast = self.storage.empty((n_rows, width + extra), np.float32)
        norms = np.empty(n_rows)
        lengths = np.empty(n_rows)

        def fill(chunk: slice) -> None:
            some = _sized(rows[chunk if numbers is None else numbers[chunk]], self)
            some = some if is_sparse(some) else some - self.shift
            if self.linear is not None:
                lengths[chunk] = _lengths(some)
                some = np.asarray(some @ self.linear.T)
            if self.metric == "cosine":
                # An image next to nothing has no direction that could be trusted.
                faint = self._faint(some, lengths[chunk])
                some = _of_length_1(some) if self.linear is None else _unit(some)
                some[faint] = np.nan
            fast[chunk, :width] = some
            norms[chunk] = squared_lengths(some)
            if extra:
                fast[chunk, width] = norms[chunk]

        for_each_chunk(fill, n_rows, max(1, _PREPARED // max(1, int(rows.shape[1]))))
        if self.linear is not None:
            longest = float(lengths.max(initial=0.0))
            self.haze = max(self.haze, _haze(self.linear) * longest)
        return fast, norms

    def _faint(self, images: Array, lengths: Array) -> NDArray[np.bool_]:
        """Return which images rounding may have turned by more than float32 does."""
        if self.linear is None:
            return np.zeros(images.shape[0], dtype=bool)
        moved = 2.0 * _haze(self.linear) * lengths
        sizes = np.sqrt(squared_lengths(images))
        return np.asarray((sizes * _EPS32 < moved) & (lengths > 0.0))


def _haze(linear: Array) -> float:
    """Return how far rounding moves an image at most, relative to its row."""
    return float((linear.shape[1] + 4) * EPS * np.linalg.norm(linear))


def _turned(moved: Array | float, lengths: Array) -> Array:
    """Return by how much rows that were moved may have turned; infinite if wholly."""
    moved = np.broadcast_to(np.asarray(moved, dtype=np.float64), lengths.shape)
    turned = np.full(lengths.shape, np.inf)
    np.divide(4.0 * moved, lengths, out=turned, where=lengths > 2.0 * moved)
    return np.where(moved > 0.0, turned, 0.0)


def _are_whole(*parts: Rows, metric: Metric, dtype: type[Any]) -> bool:
    """Return whether products of the rows are exact in a precision."""
    if metric == "cosine" or any(is_sparse(rows) for rows in parts):
        return False
    size = max(largest_entry(rows) for rows in parts)
    if 4.0 * parts[0].shape[1] * size * size >= _WHOLE[dtype]:
        return False
    return all(
        # The first rows of other data say no at once.
        (some[:64] == np.rint(some[:64])).all() and (some == np.rint(some)).all()
        for some in parts
    )


def _exponent(*parts: Rows) -> int:
    """Return the power of two that makes the largest entry about 1."""
    largest = max(largest_entry(rows) for rows in parts)
    return max(-1000, min(1000, math.frexp(largest)[1]))


def mean_row(rows: Rows, exponent: int) -> Array:
    """Return the mean of scaled dense rows."""
    n_rows = int(rows.shape[0])
    step = max(1, _PREPARED // max(1, int(rows.shape[1])))
    sums = threaded_map(
        lambda at: scaled(rows[at : at + step], exponent).sum(axis=0),
        range(0, n_rows, step),
        n_threads(),
    )
    return np.asarray(sum(sums) / n_rows)


def scaled(rows: Rows, exponent: int) -> Rows:
    """Return a float64 copy of rows, divided by a power of two."""
    wide = rows.astype(np.float64)
    if exponent == 0:
        return wide
    return scale_each(np.full(wide.shape[0], math.ldexp(1.0, -exponent)), wide)


def _sized(rows: Rows, of: Nearness | _Preparation) -> Rows:
    """Return a float64 copy of rows of size about 1; for cosines every row alone."""
    return _even(rows) if of.metric == "cosine" else scaled(rows, of.exponent)


def _even(rows: Rows) -> Rows:
    """Return a float64 copy of rows, each divided by its power of two."""
    rows = rows.astype(np.float64)
    powers = -np.frexp(largest_of_each(rows))[1]
    # A power of two that is too large to be a number is applied in two halves.
    far = np.abs(powers).max(initial=0) > _LARGEST_POWER
    for power in (powers // 2, powers - powers // 2) if far else (powers,):
        rows = scale_each(np.ldexp(1.0, power), rows)
    return rows


def _lengths(rows: Rows) -> Array:
    """Return the lengths of rows, or more where squares vanish; 0 for zeros alone."""
    squares = squared_lengths(rows)
    faint = np.flatnonzero(squares < 1e-280)
    lengths = np.sqrt(squares)
    lengths[faint] = math.sqrt(rows.shape[1]) * largest_of_each(rows[faint])
    return lengths


def _inner(left: Rows, right: Rows) -> Array:
    """Return the inner product of every row with its counterpart."""
    if is_sparse(left):
        return np.asarray(left.multiply(right).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _unit(rows: Rows) -> Rows:
    """Return rows of length 1; rows of zeros stay zeros, with cosine 0 to any other."""
    # A power of two first, so that squares of small rows do not vanish.
    return _of_length_1(_even(rows))


def _of_length_1(rows: Rows) -> Rows:
    """Return rows of size about 1 divided by their lengths."""
    lengths = np.sqrt(squared_lengths(rows))
    return scale_each(1.0 / np.where(lengths > 0.0, lengths, 1.0), rows)
