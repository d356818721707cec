"""Nearest neighbours before and after a linear map, by exact search over all rows.

**What counts.** The true neighbours of a query are the ``k`` rows nearest to it. A map
finds the ``k`` rows whose images are nearest to the image of the query. Recall is the
share of rows found that are true neighbours, as a mean over all queries.

**Ties.** Of rows that are equally near, the one with the smaller number comes first. A
row that was found counts as a true neighbour if it is as near as the last true one, so
that a tie costs nothing. All this holds for the numbers of rows and map as they are,
without rounding.

**How.** One product in float32 for every block of queries and rows bounds each distance
from both sides. Rows that may be among the nearest are measured again in float64, from
the rows themselves, and those that float64 cannot tell apart in whole numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, is_whole, require
from isoproj.numerics.progress import Walk, tell
from isoproj.numerics.shown import Table, Tabular
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map
from isoproj.pairs.nearness import (
    Metric,
    Nearness,
    candidates,
    check_metric,
    scaled,
)
from isoproj.pairs.rows import first_copies, squared_lengths
from isoproj.pairs.settling import Settler

# Queries of a block.
_QUERIES = 512
# Pairs that are measured in float64 at a time.
_SETTLED = 2048
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Neighbors(Tabular):
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

    @property
    def rows(self) -> list[list[str]]:
        """What was found, in words: a name and a value in each row."""
        whose = "rows" if self.is_own else "queries"
        rows = [
            ["neighbours of", f"{self.n_queries:,} {whose}, {self.metric}, exact"],
            *([f"recall at {k}", f"{value:.4f}"] for k, value in self.recall.items()),
            ["nearest changed", f"{self.nearest_changed:.4f} of the {whose}"],
        ]
        if self.distortions.size:
            i, j = self.distorted[0]
            one = "point" if self.is_own else "query"
            told = f"{self.distortions[0]:.4f} ({one} {i} and point {j})"
            rows.append(["worst neighbour loses", told])
        return rows

    def _table(self) -> Table:
        return [], self.rows


def check_neighbors(
    ks: int | Iterable[int], metric: str, n_rows: int, *, is_own: bool
) -> list[int]:
    """Return the numbers of neighbours, ascending; else raise ValueError."""
    check_metric(metric)
    asked: list[Any] = list(ks) if isinstance(ks, Iterable) else [ks]
    most = n_rows - 1 if is_own else n_rows
    what = f"hold whole numbers from 1 to {most}, the rows that may be neighbours"
    for k in asked:
        fits = is_whole(k) and 1 <= k <= most
        require(fits, "recall", k, what, "Ask for fewer.")
    what = "name a number of neighbours"
    require(bool(asked), "recall", ks, what, "Try recall=(1, 10).")
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
    before, after = (
        Nearness.of(rows, queries, metric, linear=linear, storage=storage)
        for linear in (None, components)
    )
    n_queries, n_rows = int(before.fast_queries.shape[0]), int(rows.shape[0])
    search = _Search(before, after, components, tuple(ks), n_worst)
    parts = walked(search.visit, n_queries, n_rows, "neighbours")
    hits, pairs, losses = zip(*parts, strict=True)
    n_hits = {k: np.concatenate([part[k] for part in hits]) for k in hits[0]}
    distorted, distortions = np.concatenate(pairs), np.concatenate(losses)
    worst = np.lexsort((distorted[:, 1], distorted[:, 0], -distortions))[:n_worst]
    return Neighbors(
        metric=metric,
        n_queries=n_queries,
        recall={k: float(n_hits[k].sum()) / (k * n_queries) for k in ks},
        hits={k: n_hits[k] for k in ks},
        nearest_changed=1.0 - float(n_hits[1].sum()) / n_queries,
        distorted=distorted[worst],
        distortions=distortions[worst],
        is_own=queries is None,
    )


def walked(
    visit: Callable[[slice], Result], n_queries: int, n_rows: int, name: str = ""
) -> list[Result]:
    """Return what is found for every block of queries; tell how far the walk is."""
    blocks = [
        slice(start, min(start + _QUERIES, n_queries))
        for start in range(0, n_queries, _QUERIES)
    ]
    found = []
    tell(Walk(0, n_queries * n_rows, name))
    with one_blas_thread():
        for block, result in zip(
            blocks, threaded_map(visit, blocks, n_threads()), strict=True
        ):
            found.append(result)
            tell(Walk(block.stop * n_rows, n_queries * n_rows, name))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Ordered:
    """Rows for every query of a block, nearest first.

    ``codes`` tell query and row, ``place`` counts the rows of a query. ``n_nearer`` has
    the number of rows that are nearer; it may be off where that decides nothing.
    """

    rows: Indices
    codes: Indices
    place: Indices
    n_nearer: Indices


class _Search:
    """The search for nearest rows, one block of queries after another."""

    def __init__(
        self,
        before: Nearness,
        after: Nearness,
        components: Array,
        ks: tuple[int, ...],
        n_worst: int,
    ) -> None:
        self.before, self.after, self.components = before, after, components
        self.ks, self.n_worst = ks, n_worst
        self.first_copy = first_copies(before.rows)
        self.settlers = [
            Settler(side.rows, side.queries, side.metric, side.linear)
            for side in (before, after)
        ]

    def visit(
        self, queries: slice
    ) -> tuple[dict[int, NDArray[np.int64]], Indices, Array]:
        """Return hits and distorted neighbours of one block of queries."""
        most = self.ks[-1]
        true, found = (self._ordered(s, queries) for s in (self.before, self.after))
        # A row counts as one of the k nearest if fewer than k are nearer.
        order = np.argsort(true.codes)
        at = np.searchsorted(true.codes[order], found.codes[found.place < most])
        at = order[np.minimum(at, order.size - 1)]
        is_known = true.codes[at] == found.codes[found.place < most]
        nearer = np.where(is_known, true.n_nearer[at], most).reshape(-1, most)
        hits = {k: (nearer[:, :k] < k).sum(axis=1) for k in {1, *self.ks}}
        numbers = np.repeat(np.arange(queries.start, queries.stop), most)
        return hits, *self._distorted(numbers, true.rows[true.place < most])

    def _distorted(self, queries: Indices, rows: Indices) -> tuple[Indices, Array]:
        """Return the neighbours that lose most of their squared distance."""
        before, losses = self.before, np.full(queries.size, -np.inf)
        asked = before.rows if before.queries is None else before.queries
        for start in range(0, queries.size, _SETTLED):
            chunk = slice(start, start + _SETTLED)
            left = scaled(asked[queries[chunk]], before.exponent)
            gaps = left - scaled(before.rows[rows[chunk]], before.exponent)
            lengths = squared_lengths(gaps)
            kept = squared_lengths(np.asarray(gaps @ self.components.T))
            apart = lengths > 0.0
            losses[chunk][apart] = 1.0 - kept[apart] / lengths[apart]
        worst = np.argsort(-losses, kind="stable")[: self.n_worst]
        worst = worst[losses[worst] > -np.inf]
        return np.column_stack([queries[worst], rows[worst]]), losses[worst]

    def _ordered(self, side: Nearness, queries: slice) -> _Ordered:
        """Return the rows that may be nearest to some queries, nearest first.

        Rows that float32 leaves open are measured in float64, and those that this
        leaves open in whole numbers.
        """
        query, row, near = candidates(side, queries, self.ks[-1])
        margins, start = side.margins(queries)[query], queries.start
        # A value that says nothing is NaN.
        low = np.nan_to_num(near - margins, nan=-np.inf)
        high = np.nan_to_num(near + margins, nan=np.inf)
        place = np.arange(row.size)
        place -= np.searchsorted(np.sort(query), np.sort(query))
        order, group, is_open = self._grouped(query, low, high, place)
        query, row, at = query[order], row[order], np.flatnonzero(is_open)
        values, margins = side.exact(query[at] + start, row[at])
        order, group, is_open = self._grouped(
            group[at], values - margins, values + margins, place[at]
        )
        row[at], margins = row[at][order], margins[order]
        n_nearer = place.copy()
        numbers = np.unique(group[is_open])
        for first, stop in zip(
            np.searchsorted(group, numbers),
            np.searchsorted(group, numbers, "right"),
            strict=True,
        ):
            these, rows = at[first:stop], row[at[first:stop]]
            keys = [0] * rows.size
            if margins[first:stop].any():
                keys = self._keys(side, query[these[0]] + start, rows)
            settled = sorted(range(rows.size), key=lambda i: (keys[i], rows[i]))
            row[these], keys = rows[settled], [keys[i] for i in settled]
            nearer = {key: i for i, key in reversed(list(enumerate(keys)))}
            n_nearer[these] = place[these[0]] + np.array([nearer[key] for key in keys])
        codes = query * np.int64(side.n_rows) + row
        return _Ordered(row, codes, place, n_nearer)

    def _grouped(
        self, group: Indices, low: Array, high: Array, place: Indices
    ) -> tuple[Indices, Indices, NDArray[np.bool_]]:
        """Return an order of intervals, and in it groups of those that meet.

        Intervals of different groups do not meet. A group is open, as the last array
        says, if one of the numbers of neighbours falls within it.
        """
        order = np.lexsort((low, group))
        group, low, high = group[order], low[order], high[order]
        rank = np.empty(order.size, dtype=np.int64)
        ascending = np.argsort(high, kind="stable")
        rank[ascending] = np.arange(order.size)
        reach = np.maximum.accumulate(group * order.size + rank) % max(1, order.size)
        is_first = np.append(True, group[1:] != group[:-1])[: order.size]
        is_first[1:] |= low[1:] > high[ascending[reach[:-1]]]
        parts = np.cumsum(is_first)
        is_cut = ~is_first & np.isin(place, [1, *self.ks])
        return order, parts, np.isin(parts, parts[is_cut])

    def _keys(self, side: Nearness, query: int, rows: Indices) -> list[Any]:
        """Return comparable numbers of rows, without rounding; the same for copies."""
        copies, at = np.unique(self.first_copy[rows], return_inverse=True)
        if copies.size == 1:
            return [0] * rows.size
        keys = self.settlers[side is self.after].keys(query, copies)
        return [keys[i] for i in at]
