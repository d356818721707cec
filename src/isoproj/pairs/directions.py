"""Unit directions of pairs: as rows, or applied without being formed."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, compacted
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import n_threads, threaded_list
from isoproj.pairs.blocks import squared_gaps
from isoproj.pairs.rows import shared_images, shared_parts, squared_lengths

Real = NDArray[Any]
# Entries of the directions up to which a product with them is the cheapest way.
_FEW_ENTRIES = 2**13


class Secants:
    """The matrix ``E`` of unit directions of pairs, as a product with the points.

    A working set has more pairs than points, so that ``E V = B (U V)`` with a sparse
    incidence matrix ``B`` costs a fraction of a product with ``E`` itself. ``further``
    has more rows of any length, which follow those of the pairs.
    """

    def __init__(
        self, coordinates: Array, pairs: Indices, further: Array | None = None
    ) -> None:
        inverse = _inverse_lengths(coordinates, pairs)
        self._set(coordinates, pairs, inverse, further)

    def _set(
        self,
        coordinates: Real,
        pairs: Indices,
        inverse: Real,
        further: Real | None,
    ) -> None:
        self.coordinates = coordinates
        self.pairs = pairs
        self.inverse = inverse
        self.further = further
        seen = np.zeros(coordinates.shape[0], dtype=bool)
        seen[pairs] = True
        n_seen = int(seen.sum())
        self._rows: Real
        m = pairs.shape[0]
        self._images_of: list[Rows] = []
        self._pulls_of: list[Rows] = []
        if m < n_seen or m * coordinates.shape[1] <= _FEW_ENTRIES:
            self._rows = self.explicit()
            return
        label = np.cumsum(seen) - 1
        self._rows = coordinates if n_seen == seen.size else coordinates[seen]
        incidence = scipy.sparse.csr_array(
            (
                np.column_stack([inverse, -inverse]).ravel(),
                label[pairs].ravel(),
                np.arange(0, 2 * m + 1, 2),
            ),
            shape=(m, n_seen),
        )
        self._images_of = self._parted(incidence)
        self._pulls_of = self._parted(incidence.T.tocsr())

    def _parted(self, matrix: Rows) -> list[Rows]:
        """Return the rows of a matrix in as many parts as threads are to share them."""
        count, n_rows = len(shared_parts(self._rows)), matrix.shape[0]
        ends = [n_rows * part // count for part in range(count + 1)]
        return [matrix[a:b] for a, b in itertools.pairwise(ends)]

    def __len__(self) -> int:
        return int(self.pairs.shape[0])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.coordinates.dtype

    @property
    def n_entries(self) -> int:
        """Number of entries of the rows that a product multiplies."""
        return int(self._rows.size)

    def explicit(self, index: Indices | None = None) -> Real:
        """Return the directions at ``index`` (all by default) as rows."""
        pairs = self.pairs if index is None else self.pairs[index]
        inverse = self.inverse if index is None else self.inverse[index]
        gaps = self.coordinates[pairs[:, 0]] - self.coordinates[pairs[:, 1]]
        gaps *= inverse[:, None]
        return np.asarray(gaps)

    def images(self, basis: Real) -> Real:
        """Return ``x^T V`` for every direction, shape (m + q, k)."""
        mapped = shared_images(self._rows, basis)
        images = [mapped]
        if self._images_of:
            images = threaded_list(
                lambda part: part @ mapped, self._images_of, n_threads()
            )
        if self.further is not None:
            images.append(self.further @ basis)
        return images[0] if len(images) == 1 else np.concatenate(images)

    def pull(self, coefficients: Real) -> Real:
        """Return ``sum_l x_l c_l``, shape (n_dims, k), for rows ``c_l``."""
        of_pairs = coefficients[: len(self)]
        parts = shared_parts(self._rows)

        def pulled(number: int) -> Real:
            part = parts[number]
            mine = of_pairs[part]
            if self._pulls_of:
                mine = self._pulls_of[number] @ of_pairs
            return np.asarray(self._rows[part].T @ mine)

        found = threaded_list(pulled, range(len(parts)), n_threads())
        if self.further is not None:
            found.append(self.further.T @ coefficients[len(self) :])
        return np.asarray(sum(found[1:], start=found[0]))

    def take(self, index: Indices) -> Secants:
        """Return the pairs at ``index`` and all further rows."""
        return self._derived(
            self.coordinates, self.pairs[index], self.inverse[index], self.further
        )

    def joined(self, index: Indices, pairs: Indices) -> Secants:
        """Return the pairs at ``index``, then new pairs, then all further rows."""
        fresh = _inverse_lengths(self.coordinates, pairs)
        return self._derived(
            self.coordinates,
            np.concatenate([self.pairs[index], pairs]),
            np.concatenate([self.inverse[index], fresh]),
            self.further,
        )

    def astype(self, dtype: type[np.floating[Any]]) -> Secants:
        """Return the same directions in another precision."""
        if self.dtype == dtype:
            return self
        further = None if self.further is None else self.further.astype(dtype)
        # Pairs may join few of many points; the others need no copy.
        seen, labels = compacted(self.pairs, len(self.coordinates))
        return self._derived(
            self.coordinates[seen].astype(dtype),
            labels,
            self.inverse.astype(dtype),
            further,
        )

    @staticmethod
    def _derived(
        coordinates: Real, pairs: Indices, inverse: Real, further: Real | None
    ) -> Secants:
        fresh = Secants.__new__(Secants)
        fresh._set(coordinates, pairs, inverse, further)
        return fresh


def normalised(gaps: Real) -> Real:
    """Return the rows scaled to length 1, in place; a row of zeros stays as it is."""
    lengths = np.sqrt(squared_lengths(gaps))
    gaps /= np.where(lengths > 0.0, lengths, 1.0)[:, None]
    return gaps


def quadratic_values(directions: Array, matrix: Array) -> Array:
    """Return ``x^T P x`` for every row ``x`` of ``directions``."""
    return np.asarray(np.einsum("ij,ij->i", directions @ matrix, directions))


def _inverse_lengths(coordinates: Array, pairs: Indices) -> Array:
    """Return ``1 / |u_i - u_j|`` for each pair, 0 where rounding swallowed the gap."""
    squares = squared_gaps(coordinates, pairs)
    return np.asarray(1.0 / np.sqrt(np.where(squares > 0.0, squares, np.inf)))
