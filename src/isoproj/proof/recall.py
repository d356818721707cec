"""Nearest neighbours before and after a linear map, by exact search over all rows.

**What counts.** The true neighbours of a query are the ``k`` rows nearest to it. A map
finds the ``k`` rows whose images are nearest to the image of the query. Recall is the
share of rows found that are true neighbours, as a mean over all queries.

**Ties.** Of rows that are equally near, the one with the smaller number comes first. A
row that was found counts as a true neighbour if it is as near as the last true one, so
that a tie costs nothing. Distances are compared in float64. Identical rows have
identical images.

**How.** One product in float32 for every block of queries and rows bounds each distance
from both sides. Rows that may be among the nearest are measured again in float64, from
the rows themselves. So the float32 product decides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, is_sparse, is_whole
from isoproj.numerics.progress import Walk, tell
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map
from isoproj.pairs.blocks import product_error
from isoproj.pairs.rows import (
    first_copies,
    largest_entry,
    largest_of_each,
    scale_each,
    squared_lengths,
)

__all__ = ["Metric", "Neighbors", "check_neighbors", "compare_neighbors"]

Metric: TypeAlias = Literal["euclidean", "cosine", "inner_product"]
METRICS: tuple[str, ...] = get_args(Metric)

# Queries and rows of a block; a block of float32 products is 16 MB.
_QUERIES = 512
_ROWS = 8192
# Pairs that are measured in float64 at a time.
_SETTLED = 2048


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Neighbors:
    """What a linear map does to nearest neighbours; exact.

    Parameters
    ----------
    metric : str
        How near is measured, before and after the map alike.
    n_queries : int
        Number of points whose neighbours were looked for.
    recall : dict of int to float
        For each ``k`` the mean share of the ``k`` nearest rows that are found among
        the ``k`` nearest images.
    hits : dict of int to ndarray of shape (n_queries,)
        For each ``k`` the number of true neighbours found, query by query.
    nearest_changed : float
        Share of queries whose nearest image does not belong to a nearest row.
    distorted : ndarray of shape (m, 2)
        Query and row number of the true neighbours that lose most, worst first.
    distortions : ndarray of shape (m,)
        Share of squared distance that these pairs lose.
    is_own : bool
        Whether the queries are the rows themselves. A row is then not its own
        neighbour; another row identical to it is.
    """

    metric: Metric
    n_queries: int
    recall: dict[int, float]
    hits: dict[int, NDArray[np.int64]]
    nearest_changed: float
    distorted: Indices
    distortions: Array
    is_own: bool

    def worst_queries(self, k: int, count: int = 5) -> Indices:
        """Return the queries with the fewest hits at ``k``, worst first.

        Parameters
        ----------
        k : int
            One of the numbers of neighbours that were asked for.
        count : int
            Largest number of queries to return.

        Returns
        -------
        ndarray
            Numbers of queries that miss at least one neighbour.
        """
        order = np.argsort(self.hits[k], kind="stable")[:count]
        return np.asarray(order[self.hits[k][order] < k])

    def __str__(self) -> str:
        whose = "rows" if self.is_own else "queries"
        lines = [
            f"neighbours of      {self.n_queries:,} {whose}, {self.metric}, exact",
            *(f"recall at {k:<9}{value:.4f}" for k, value in self.recall.items()),
            f"nearest changed    {self.nearest_changed:.4f} of the {whose}",
        ]
        if self.distortions.size:
            i, j = self.distorted[0]
            one = "point" if self.is_own else "query"
            lines.append(
                f"worst neighbour    {self.distortions[0]:.4f}  ({one} {i} and point "
                f"{j})"
            )
        return "\n".join(lines)


def check_neighbors(
    ks: int | Iterable[int], metric: str, n_rows: int, *, is_own: bool
) -> list[int]:
    """Return the numbers of neighbours, ascending; else raise ValueError."""
    if metric not in METRICS:
        msg = f"metric must be one of {', '.join(METRICS)}; got {metric!r}. Choose one."
        raise ValueError(msg)
    asked: list[Any] = list(ks) if isinstance(ks, Iterable) else [ks]
    most = n_rows - 1 if is_own else n_rows
    for k in asked:
        if not is_whole(k) or not 1 <= k <= most:
            msg = (
                f"recall must hold whole numbers from 1 to {most}, the rows that may be"
                f" neighbours; got {k!r}. Ask for fewer."
            )
            raise ValueError(msg)
    if not asked:
        msg = "recall must name a number of neighbours; got none. Try recall=(1, 10)."
        raise ValueError(msg)
    return sorted({int(k) for k in asked})


def compare_neighbors(
    rows: Rows,
    components: Array,
    ks: Sequence[int],
    *,
    metric: Metric = "euclidean",
    queries: Rows | None = None,
    n_worst: int = 10,
    storage: Storage | None = None,
) -> Neighbors:
    """Find the nearest rows of every query before and after a linear map.

    ``rows`` and ``queries`` are finite; ``queries`` None means the rows themselves.
    ``ks`` and ``metric`` have been checked.
    """
    storage = storage or Storage()
    before, after = _sides(rows, queries, components, metric, storage)
    asked = rows if queries is None else queries
    n_queries, n_rows = int(asked.shape[0]), int(rows.shape[0])
    search = _Search(
        before,
        after,
        components,
        tuple(ks),
        is_own=queries is None,
        n_worst=n_worst,
    )
    found: list[_Part] = []
    tell(Walk(0, n_queries * n_rows))
    with one_blas_thread():
        starts = range(0, n_queries, _QUERIES)
        for part in threaded_map(search.visit, starts, n_threads()):
            found.append(part)
            done = min(n_queries, len(found) * _QUERIES)
            tell(Walk(done * n_rows, n_queries * n_rows))
    return _joined(found, search, metric, n_queries)


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What was found for one block of queries."""

    hits: dict[int, NDArray[np.int64]]
    distorted: Indices
    distortions: Array


def _joined(
    parts: Sequence[_Part], search: _Search, metric: Metric, n_queries: int
) -> Neighbors:
    """Return the results of all blocks as one."""
    hits = {k: np.concatenate([part.hits[k] for part in parts]) for k in parts[0].hits}
    pairs = np.concatenate([part.distorted for part in parts])
    losses = np.concatenate([part.distortions for part in parts])
    worst = np.lexsort((pairs[:, 1], pairs[:, 0], -losses))[: search.n_worst]
    return Neighbors(
        metric=metric,
        n_queries=n_queries,
        recall={k: float(hits[k].sum()) / (k * n_queries) for k in search.ks},
        hits={k: hits[k] for k in search.ks},
        nearest_changed=1.0 - float(hits[1].sum()) / n_queries,
        distorted=pairs[worst],
        distortions=losses[worst],
        is_own=search.is_own,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Side:
    """Rows and queries before the map, or after it.

    ``fast`` and ``fast_queries`` are what products are made of: float32 rows of size
    about 1, or sparse rows. With Euclidean distances float32 rows have their squared
    length ``norms`` as last column.
    """

    metric: Metric
    rows: Rows
    queries: Rows
    fast: Rows
    fast_queries: Rows
    norms: Array
    exponent: int

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
        if self.metric != "euclidean":
            return np.asarray(-left @ right.T)
        left = -2.0 * left
        left[:, -1] = 1.0
        return np.asarray(left @ right.T)

    def margins(self, queries: slice) -> Array:
        """Return by how much the values of a query may be off, at most."""
        left = self.fast_queries[queries]
        is_longer = self.metric == "euclidean" and not is_sparse(left)
        own = squared_lengths(left[:, :-1] if is_longer else left)
        longest = float(self.norms.max(initial=0.0))
        # The bound is for squared distances, whose value is computed with one term
        # more; 1.1 is for norms in float32, the constant for underflow.
        bound = product_error(int(self.fast.shape[1]), np.float32)
        return 1.1 * bound * (own.astype(np.float64) + longest) + 1e-35

    def exact(self, queries: Indices, rows: Indices) -> Array:
        """Return the dissimilarity of pairs, from the rows themselves, in float64."""
        values = np.empty(queries.size)
        for start in range(0, queries.size, _SETTLED):
            chunk = slice(start, start + _SETTLED)
            left = _scaled(self.queries[queries[chunk]], self.exponent)
            right = _scaled(self.rows[rows[chunk]], self.exponent)
            if self.metric == "euclidean":
                values[chunk] = squared_lengths(left - right)
                continue
            if self.metric == "cosine":
                left, right = _unit(left), _unit(right)
            values[chunk] = -_inner(left, right)
        return values


def _scaled(rows: Rows, exponent: int) -> Rows:
    """Return a float64 copy of rows, divided by a power of two."""
    wide = rows.astype(np.float64)
    return scale_each(np.full(wide.shape[0], math.ldexp(1.0, -exponent)), wide)


def _inner(left: Rows, right: Rows) -> Array:
    """Return the inner product of every row with its counterpart."""
    if is_sparse(left):
        return np.asarray(left.multiply(right).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", left, right))


def _unit(rows: Rows) -> Rows:
    """Return rows of length 1; rows of zeros stay zeros, with cosine 0 to any other."""
    # A power of two first, so that squares of small rows do not vanish.
    sizes = np.ldexp(1.0, -np.clip(np.frexp(largest_of_each(rows))[1], -1022, 1022))
    rows = scale_each(sizes, rows)
    lengths = np.sqrt(squared_lengths(rows))
    return scale_each(1.0 / np.where(lengths > 0.0, lengths, 1.0), rows)


def _sides(
    rows: Rows,
    queries: Rows | None,
    components: Array,
    metric: Metric,
    storage: Storage,
) -> tuple[_Side, _Side]:
    """Return rows and queries before the map and after it, ready for the search."""
    exponent = _exponent(rows, queries)
    shift = _mean(rows, exponent) if metric == "euclidean" else 0.0
    images = _images(rows, components, exponent, shift, storage)
    # Products may round identical rows differently; images must tie where rows do.
    images[:] = images[first_copies(rows)]
    asked = None
    if queries is not None:
        asked = _images(queries, components, exponent, shift, storage)
    before = _side(rows, queries, metric, exponent, storage)
    # A map may shrink or stretch by any factor.
    return before, _side(images, asked, metric, _exponent(images, asked), storage)


def _exponent(rows: Rows, queries: Rows | None) -> int:
    """Return the power of two that makes the largest entry about 1."""
    largest = largest_entry(rows)
    if queries is not None:
        largest = max(largest, largest_entry(queries))
    return max(-1000, min(1000, math.frexp(largest)[1]))


def _mean(rows: Rows, exponent: int) -> Array | float:
    """Return the mean of scaled rows, or 0 for sparse ones, which are not centred."""
    if is_sparse(rows):
        return 0.0
    total = np.zeros(rows.shape[1])
    for chunk in row_slices(rows):
        total += _scaled(rows[chunk], exponent).sum(axis=0)
    return np.asarray(total / rows.shape[0])


def _images(
    rows: Rows,
    components: Array,
    exponent: int,
    shift: Array | float,
    storage: Storage,
) -> Array:
    """Return the images of scaled and shifted rows in float64."""
    images = storage.empty((int(rows.shape[0]), components.shape[0]))
    for chunk in row_slices(rows):
        some = _scaled(rows[chunk], exponent)
        images[chunk] = (some if is_sparse(some) else some - shift) @ components.T
    return images


def _side(
    rows: Rows, queries: Rows | None, metric: Metric, exponent: int, storage: Storage
) -> _Side:
    """Return rows and queries with the copies that products are made of."""
    shift = _mean(rows, exponent) if metric == "euclidean" else 0.0
    fast, norms = _fast(rows, metric, exponent, shift, storage)
    asked = fast
    if queries is not None:
        asked, _ = _fast(queries, metric, exponent, shift, storage)
    return _Side(
        metric=metric,
        rows=rows,
        queries=rows if queries is None else queries,
        fast=fast,
        fast_queries=asked,
        norms=norms,
        exponent=exponent,
    )


def _fast(
    rows: Rows,
    metric: Metric,
    exponent: int,
    shift: Array | float,
    storage: Storage,
) -> tuple[Rows, Array]:
    """Return rows for products, and their squared lengths."""
    if is_sparse(rows):
        scaled = _scaled(rows, exponent)
        scaled = _unit(scaled) if metric == "cosine" else scaled
        return scaled, squared_lengths(scaled)
    n_rows, width = (int(size) for size in rows.shape)
    extra = 1 if metric == "euclidean" else 0
    fast = storage.empty((n_rows, width + extra), np.float32)
    norms = np.empty(n_rows)
    for chunk in row_slices(rows):
        some = _scaled(rows[chunk], exponent) - shift
        some = _unit(some) if metric == "cosine" else some
        fast[chunk, :width] = some
        norms[chunk] = squared_lengths(some)
    if extra:
        fast[:, width] = norms
    return fast, norms


class _Search:
    """The search for nearest rows, one block of queries after another."""

    def __init__(
        self,
        before: _Side,
        after: _Side,
        components: Array,
        ks: tuple[int, ...],
        *,
        is_own: bool,
        n_worst: int,
    ) -> None:
        self.before, self.after, self.components = before, after, components
        self.ks, self.is_own, self.n_worst = ks, is_own, n_worst

    def visit(self, start: int) -> _Part:
        """Return hits and distorted neighbours of one block of queries."""
        stop = min(start + _QUERIES, int(self.before.queries.shape[0]))
        queries, most = slice(start, stop), self.ks[-1]
        true, nearness = self._nearest(self.before, queries, most)
        found, _ = self._nearest(self.after, queries, most)
        numbers = np.repeat(np.arange(start, stop), most)
        reached = self.before.exact(numbers, found.ravel()).reshape(found.shape)
        hits = {
            k: (reached[:, :k] <= nearness[:, k - 1 : k]).sum(axis=1)
            for k in {1, *self.ks}
        }
        return _Part(hits, *self._distorted(numbers, true.ravel()))

    def _distorted(self, queries: Indices, rows: Indices) -> tuple[Indices, Array]:
        """Return the neighbours that lose most of their squared distance."""
        before, losses = self.before, np.full(queries.size, -np.inf)
        for start in range(0, queries.size, _SETTLED):
            chunk = slice(start, start + _SETTLED)
            left = _scaled(before.queries[queries[chunk]], before.exponent)
            gaps = left - _scaled(before.rows[rows[chunk]], before.exponent)
            lengths = squared_lengths(gaps)
            kept = squared_lengths(np.asarray(gaps @ self.components.T))
            apart = lengths > 0.0
            losses[chunk][apart] = 1.0 - kept[apart] / lengths[apart]
        worst = np.argsort(-losses, kind="stable")[: self.n_worst]
        worst = worst[losses[worst] > -np.inf]
        return np.column_stack([queries[worst], rows[worst]]), losses[worst]

    def _nearest(self, side: _Side, queries: slice, k: int) -> tuple[Indices, Array]:
        """Return the ``k`` nearest rows of some queries and how near they are."""
        query, row = self._candidates(side, queries, k)
        values = side.exact(query + queries.start, row)
        order = np.lexsort((row, values, query))
        first = np.searchsorted(query[order], np.arange(queries.stop - queries.start))
        chosen = order[first[:, None] + np.arange(k)]
        return row[chosen], values[chosen]

    def _candidates(
        self, side: _Side, queries: slice, k: int
    ) -> tuple[Indices, Indices]:
        """Return every query, from 0, and row that may be among its ``k`` nearest."""
        n_rows, margins = int(side.rows.shape[0]), 2.0 * side.margins(queries)
        limits = np.full(margins.size, np.inf)
        query, row = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
        near = np.empty(0)
        for first in range(0, n_rows, _ROWS):
            rows = slice(first, min(first + _ROWS, n_rows))
            values = side.values(queries, rows)
            if self.is_own:
                _without_own(values, queries, rows)
            if first == 0 and k < values.shape[1]:
                limits = np.partition(values, k - 1, axis=1)[:, k - 1] + margins
            # In the precision of the block, so that it is not copied.
            bars = np.nextafter(limits.astype(values.dtype), np.inf, dtype=values.dtype)
            entries = np.flatnonzero(values <= bars[:, None])
            at, column = np.divmod(entries, values.shape[1])
            is_row = np.isfinite(values[at, column])
            at, column = at[is_row], column[is_row]
            query, row = np.append(query, at), np.append(row, column + first)
            near = np.append(near, values[at, column])
            limits = _limits(query, near, k, margins)
            kept = near <= limits[query]
            query, row, near = query[kept], row[kept], near[kept]
        return query, row


def _without_own(values: NDArray[Any], queries: slice, rows: slice) -> None:
    """Set the value of every query with itself to infinity."""
    own = np.arange(max(queries.start, rows.start), min(queries.stop, rows.stop))
    values[own - queries.start, own - rows.start] = np.inf


def _limits(query: Indices, near: Array, k: int, margins: Array) -> Array:
    """Return the value above which no row is among the ``k`` nearest of a query."""
    order = np.lexsort((near, query))
    edges = np.searchsorted(query[order], np.arange(margins.size + 1))
    limits = np.full(margins.size, np.inf)
    full = np.flatnonzero(np.diff(edges) >= k)
    limits[full] = near[order[edges[full] + k - 1]] + margins[full]
    return limits
