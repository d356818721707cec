"""The squared distances of all pairs, kept in memory and compared map by map.

Squared distances never change while a solver runs. Their inverses are kept in stripes
of rows, so that the shares which a map keeps cost one product of the width of the map.
Where they do not fit the memory, stripes are measured anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import n_threads, threaded_map
from isoproj.pairs.blocks import PairBlocks, Real, SquaredDistances, Workspace
from isoproj.pairs.points import Points

__all__ = ["DistanceTable", "Stripe"]

# Relative error of a squared distance beyond which a pair is measured by its
# difference. In float32 a smaller one would single out too many clustered pairs.
_ACCURACY = {np.dtype(np.float32): 0.1, np.dtype(np.float64): 1e-3}
# Most entries of a stripe.
_STRIPE_ENTRIES = 2**24

Answer = TypeVar("Answer")


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
    """Inverse squared distances of all pairs, in stripes of rows.

    The table leaves out the close pairs of all kept stripes; ``close`` lists
    them in order.
    """

    def __init__(self, points: Points, dtype: np.dtype[Any], block_rows: int) -> None:
        n = points.n_points
        step = max(1, min(block_rows, _STRIPE_ENTRIES // n))
        self.points = points
        self.dtype = dtype
        self.close: Indices = np.empty((0, 2), dtype=np.intp)
        self._rows = [slice(a, min(a + step, n)) for a in range(0, n, step)]
        self._blocks = PairBlocks(points.first_copy, _ACCURACY[dtype])
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
