"""Order rows by nearness in whole numbers, where float64 cannot tell them apart.

Floats are whole numbers times a power of two. So images, inner products and squared
distances are computed without rounding, and cosines are compared as fractions.
"""

from __future__ import annotations

import functools
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, as_dense, is_sparse
from isoproj.numerics.spectral import Array, Indices

# Python's whole numbers, as long as it takes.
Whole: TypeAlias = NDArray[Any]

# Digits of a float64, and numbers that are kept for rows that are asked for again.
_DIGITS = 53
_KEPT = 2**20
# Exponents of rows are looked at so many entries at a time.
_ENTRIES = 2**20


class Settler:
    """The exact nearness of rows to queries, under a linear map or none.

    ``queries=None`` means the rows themselves.
    """

    def __init__(
        self, rows: Rows, queries: Rows | None, metric: str, linear: Array | None
    ) -> None:
        self.rows, self.metric = rows, metric
        self.queries = rows if queries is None else queries
        self.linear = None if linear is None else _whole(linear, _grid(linear))
        width = int(rows.shape[1] if linear is None else linear.shape[0])
        kept = functools.lru_cache(max(64, _KEPT // max(1, width)))
        self._row = kept(lambda at: self._image(self.rows, at))

    @functools.cached_property
    def _unit(self) -> int:
        """The power of two that all entries are multiples of."""
        return min(_grid(self.rows), _grid(self.queries))

    def _image(self, rows: Rows, at: int) -> Whole:
        """Return the image of one row in whole numbers."""
        row = as_dense(rows[[at]])[0]
        if self.linear is None:
            return _whole(row, self._unit)
        used = np.flatnonzero(row)
        image: Whole = self.linear[:, used] @ _whole(row[used], self._unit)
        return image

    def keys(self, query: int, rows: Indices) -> list[Any]:
        """Return comparable numbers of rows; a smaller number is nearer."""
        asked = self._image(self.queries, query)
        if self.metric == "euclidean":
            gaps = (self._row(at) - asked for at in rows.tolist())
            return [(gap * gap).sum() for gap in gaps]
        if not asked.any():
            return [0] * rows.size
        found = [self._row(at) for at in rows.tolist()]
        products = [-(image * asked).sum() for image in found]
        if self.metric == "inner_product":
            return products
        # The square keeps the order of a product and its length apart from the sign.
        return [
            Fraction(product * abs(product), (image * image).sum()) if product else 0
            for product, image in zip(products, found, strict=True)
        ]


def _grid(values: Rows) -> int:
    """Return the largest power of two that all numbers are surely multiples of."""
    entries = values.data if is_sparse(values) else values
    step = max(1, _ENTRIES // max(1, int(np.prod(entries.shape[1:]))))
    lowest = 0
    for start in range(0, entries.shape[0], step):
        some = entries[start : start + step]
        exponents = np.frexp(some)[1][some != 0]
        lowest = min(lowest, int(exponents.min(initial=0)) - _DIGITS)
    return lowest


def _whole(values: NDArray[Any], unit: int) -> Whole:
    """Return floats as whole numbers, in units of a power of two that divides them."""
    shares, exponents = np.frexp(np.asarray(values, dtype=np.float64))
    digits = np.ldexp(shares, _DIGITS).astype(np.int64).astype(object)
    shifts = np.maximum(exponents.astype(np.int64) - _DIGITS - unit, 0)
    whole: Whole = digits << shifts.astype(object)
    return whole
