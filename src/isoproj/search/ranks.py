"""How far down a search by reduced vectors must go for the true neighbours; exact.

**What counts.** A query *needs* the rows at most as far as its ``k``-th nearest. The
rank of a needed row is the number of rows whose reduced vectors are at most as far as
its own. So of rows that tie, before or after the reduction, those that hurt come first,
whichever way a search breaks ties. Values within the rounding of float64 are a tie.
Identical rows are counted once with their number. If the last place is left to copies
of one row, any of them will do.

**How.** Products in float32 find rows that may be needed, and count those that are
clearly nearer than a needed one. Everything that they cannot tell is measured in
float64. A row whose image is next to nothing has no direction: for cosines it counts as
nearer than any other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.nearness import Nearness, candidates, without_own
from isoproj.proof.recall import walked

# Rows of a block.
_ROWS = 8192
# Entries of a block that are compared with all ranks at a time.
_COMPARED = 2**17


@dataclass(frozen=True, slots=True, eq=False)
class Needed:
    """The rows that every query needs, those of query ``i`` from ``starts[i]`` on.

    ``counts`` has how many copies each distinct row stands for. Of those of the last
    row that query ``i`` needs, ``spare[i]`` are not needed.
    """

    k: int
    starts: Indices
    rows: Indices
    spare: NDArray[np.int64]
    is_last: NDArray[np.bool_]
    counts: NDArray[np.int64]


def needed_rows(side: Nearness, k: int, counts: NDArray[np.int64]) -> Needed:
    """Return the rows that every query needs for its ``k`` nearest.

    Where the queries are the rows themselves, a row is not its own neighbour, but its
    copies are.
    """
    n_queries, is_own = int(side.fast_queries.shape[0]), side.queries is None

    def visit(queries: slice) -> tuple[Indices, Indices, Indices, NDArray[np.bool_]]:
        query, row, _ = candidates(side, queries, k, counts)
        values, tolerances = side.exact(query + queries.start, row)
        order = np.lexsort((values, query))
        query, row = query[order], row[order]
        low, high = (values - tolerances)[order], (values + tolerances)[order]
        weights = counts[row] - (is_own & (row == query + queries.start))
        edges = np.searchsorted(query, np.arange(queries.stop - queries.start + 1))
        total = np.concatenate([[0], np.cumsum(weights)])
        last = np.searchsorted(total, total[edges[:-1]] + k) - 1
        is_needed = low <= high[last][query]
        is_last = is_needed & (high >= low[last][query])
        # Copies of one row are alike; rows that only seem to tie are all needed.
        n_last = np.bincount(query[is_last], minlength=last.size)
        spare = np.where(n_last == 1, total[last + 1] - total[edges[:-1]] - k, 0)
        sizes = np.bincount(query[is_needed], minlength=last.size)
        return sizes, row[is_needed], spare, is_last[is_needed]

    parts = walked(visit, n_queries, side.n_rows)
    sizes, rows, spare, is_last = (
        np.concatenate(part) for part in zip(*parts, strict=True)
    )
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return Needed(k, starts, rows, spare, is_last, counts)


def ranks_of(side: Nearness, needed: Needed) -> NDArray[np.int64]:
    """Return the ranks of needed rows, ascending, of shape (n_queries, k).

    Where ties make a query need more than ``k`` rows, these are the largest ranks.
    """
    count = _Count(side, needed)
    return np.concatenate(walked(count.visit, needed.spare.size, side.n_rows))


class _Count:
    """Counts the rows that are at most as far as a needed one, after the reduction."""

    def __init__(self, side: Nearness, needed: Needed) -> None:
        self.side, self.needed = side, needed
        self.has_copies = bool((needed.counts > 1).any())
        self.is_own = side.queries is None

    def visit(self, queries: slice) -> NDArray[np.int64]:
        """Return the ranks of one block of queries."""
        limits, spare = self._limits(queries)
        bars = limits - self.side.constants(queries)[:, None]
        wide = 2.0 * self.side.margins(queries)
        ranks = np.zeros(bars.shape, dtype=np.int64)
        for first in range(0, self.side.n_rows, _ROWS):
            rows = slice(first, min(first + _ROWS, self.side.n_rows))
            values = self.side.values(queries, rows)
            if self.is_own:
                without_own(values, queries, rows, self.needed.counts)
            highest = (bars.max(axis=1) + wide).astype(values.dtype)
            highest = np.nextafter(highest, np.inf, dtype=values.dtype)
            entries = np.flatnonzero(~(values > highest[:, None]))
            for start in range(0, entries.size, _COMPARED):
                at, row = np.divmod(entries[start : start + _COMPARED], values.shape[1])
                near = values[at, row].astype(np.float64)
                kept = near != np.inf
                at, row, near = at[kept], row[kept] + first, near[kept]
                if at.size == 0:
                    continue
                gaps = near[:, None] - bars[at]
                is_below = ~(gaps > 0.0)
                is_unclear = np.abs(gaps) <= wide[at, None]
                query, some = at + queries.start, np.flatnonzero(is_unclear.any(axis=1))
                if self.side.error > 0.0 and some.size:
                    least = np.subtract(*self.side.exact(query[some], row[some]))
                    settled = least[:, None] <= limits[at[some]]
                    is_below[some] = np.where(is_unclear[some], settled, is_below[some])
                counted: NDArray[Any] = is_below
                if self.has_copies:
                    weights = self.needed.counts[row] - (self.is_own & (row == query))
                    counted = is_below * weights[:, None]
                starts = np.flatnonzero(np.diff(at, prepend=-1))
                sums = np.add.reduceat(counted, starts, axis=0, dtype=np.int64)
                ranks[at[starts]] += sums
        return np.sort(ranks - spare, axis=1)

    def _limits(self, queries: slice) -> tuple[Array, NDArray[np.int64]]:
        """Return the values up to which rows count for needed ones, shape (n, k).

        The second array has the numbers of copies that are not needed.
        """
        needed, k = self.needed, self.needed.k
        edges = needed.starts[queries.start : queries.stop + 1]
        own = slice(edges[0], edges[-1])
        query = np.repeat(np.arange(queries.start, queries.stop), np.diff(edges))
        row, is_last = needed.rows[own], needed.is_last[own]
        values, tolerances = self.side.exact(query, row)
        limits = values + tolerances
        spare = np.where(is_last, needed.spare[query], 0)
        n_copies = needed.counts[row] - (self.is_own & (row == query)) - spare
        # A row stands for its copies; of more than k places the last k count.
        repeated = np.repeat(np.arange(row.size), np.minimum(n_copies, k))
        order = repeated[np.lexsort((-limits[repeated], query[repeated]))]
        start = np.searchsorted(query[order], np.arange(queries.start, queries.stop))
        chosen = order[start[:, None] + np.arange(k)]
        return limits[chosen], spare[chosen]
