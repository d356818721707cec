"""Points ready for geometry: centred, in their own span, with copies known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.duplicates import first_copies
from isoproj.pairs.rows import (
    largest_entry,
    largest_of_each,
    power_of_two,
    scale_each,
    scale_in_place,
    squared_lengths,
    times,
    with_zero_row,
)
from isoproj.pairs.span import Frame, centred, span_of_dense, span_of_sparse

__all__ = ["Frame", "Points", "squared_lengths", "times"]

_CHUNK = 4096
_SMALL_CHUNK = 1024
# Rows whose entries may be above 2^1000 can have differences that are not numbers.
_LARGE_EXPONENT = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """A finite set of points, prepared once for scans, solvers and certificates.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_points, n_features)
        The data as given; exact differences are always taken from here.
    coordinates : ndarray of shape (n_points, n_dims)
        Centred, scaled by a power of two, rotated into the span when asked.
    frame : Frame
        Translates between span coordinates and features.
    first_copy : ndarray of shape (n_points,)
        For every point the smallest index of a point identical to it.
    blur : float
        Error of a squared distance of ``coordinates`` besides rounding relative to
        the two rows; 0 for dense data.
    raw_square : float
        Largest squared length of a sparse row before centring, in the scale of
        ``coordinates``; 0 for dense data.
    storage : Storage
        Where further arrays of this size go.
    """

    rows: Rows
    coordinates: Array
    frame: Frame
    first_copy: Indices
    blur: float
    raw_square: float
    storage: Storage
    _exponent: int = field(repr=False)
    _scale: int = field(repr=False)

    @staticmethod
    @single_blas_thread
    def prepare(
        rows: Rows,
        *,
        rotate: bool,
        with_origin: bool = False,
        storage: Storage | None = None,
    ) -> Points:
        """Centre validated rows and, if asked, rotate them into their span.

        A rotation changes to an orthonormal basis of the span, widest spread first;
        sparse rows are always rotated. ``with_origin`` adds the origin as last point.
        """
        storage = storage or Storage()
        if with_origin:
            rows = with_zero_row(rows, storage)
        exponent = power_of_two(rows)
        if is_sparse(rows):
            coordinates, frame, blur = span_of_sparse(rows, exponent, storage)
        else:
            prepare = span_of_dense if rotate else centred
            (coordinates, frame), blur = prepare(rows, exponent, storage), 0.0
        # Scaling by a power of two is exact. Entries near 1 keep float32 copies away
        # from over- and underflow.
        spread = largest_entry(coordinates)
        size = math.frexp(spread)[1] if spread > 0.0 else 0
        scale_in_place(coordinates, size)
        blur = math.ldexp(blur, -2 * size)
        return Points(
            rows=rows,
            coordinates=coordinates,
            frame=frame,
            first_copy=first_copies(rows),
            blur=blur,
            raw_square=_largest_square(rows, exponent + size),
            storage=storage,
            _exponent=exponent,
            _scale=size,
        )

    @property
    def n_points(self) -> int:
        """Number of points."""
        return int(self.coordinates.shape[0])

    @property
    def n_dims(self) -> int:
        """Number of coordinates after rotation."""
        return int(self.coordinates.shape[1])

    @property
    def n_copies(self) -> int:
        """Number of points that repeat an earlier one exactly."""
        return int((self.first_copy != np.arange(self.n_points)).sum())

    @property
    def n_identical_pairs(self) -> int:
        """Number of pairs of identical points; they have no direction."""
        counts = np.bincount(self.first_copy)
        return int((counts * (counts - 1) // 2).sum())

    def are_distinct(self, pairs: Indices) -> NDArray[np.bool_]:
        """Return which pairs join two points that differ, shape (m,)."""
        first = self.first_copy[pairs]
        return np.asarray(first[:, 0] != first[:, 1])

    def mapped(self, components: Array) -> Array:
        """Return the points under a map of shape (k, n_features), translated.

        The result has shape (n_points, k), in the scale of ``coordinates``.
        """
        if not is_sparse(self.rows):
            directions = self.frame.coordinates_of(components.T)
            return times(self.coordinates, directions, self.storage)
        # A Gram matrix misses small parts of sparse rows, so that span coordinates
        # lack them; the rows themselves do not.
        images = np.ldexp(self.rows @ components.T, -self._exponent)
        images -= self.frame.mean @ components.T
        return np.asarray(np.ldexp(images, -self._scale))

    def differences(self, pairs: Indices) -> Rows:
        """Return ``u_i - u_j`` of pairs, from the data itself, in float64.

        Each difference is scaled to size about 1 by a power of two of its own. The
        result is dense or CSR, of shape (m, n_features).
        """
        return self._scaled_gaps(pairs)[0]

    def distances(self, pairs: Indices) -> Array:
        """Return ``|u_i - u_j|`` of pairs, from the data itself, in float64."""
        lengths = np.empty(pairs.shape[0])
        for start in range(0, pairs.shape[0], _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gaps, exponents = self._scaled_gaps(pairs[chunk])
            with np.errstate(over="ignore"):
                lengths[chunk] = np.ldexp(np.sqrt(squared_lengths(gaps)), exponents)
        return lengths

    def centred(self, chosen: Indices) -> Array:
        """Return some points, centred and of size about 1, where products are safe.

        Dense rows give the same result whether they were rotated or not, so that ties
        between distances stay ties.
        """
        if is_sparse(self.rows):
            return np.asarray(self.coordinates[chosen])
        centred = self.storage.empty((chosen.size, self.rows.shape[1]))
        for chunk in row_slices(centred):
            rows = self.rows[chosen[chunk]].astype(np.float64)
            rows = np.ldexp(rows, -self._exponent) - self.frame.mean
            np.ldexp(rows, -self._scale, out=centred[chunk])
        return centred

    def varying_columns(self) -> Indices:
        """Return the columns of ``coordinates`` that differ between points, ascending.

        Other columns hold one value, which changes no distance.

        Examples
        --------
        >>> import numpy as np
        >>> from isoproj.pairs.points import Points
        >>> rows = np.array([[0.1, 0.0], [0.1, 1.0], [0.1, 3.0]])
        >>> Points.prepare(rows, rotate=False).varying_columns().tolist()
        [1]
        """
        first = self.coordinates[0]
        constant = np.arange(self.n_dims)
        # Most columns that vary already differ among a few points.
        for start in range(0, self.n_points, _SMALL_CHUNK):
            if constant.size == 0:
                break
            block = self.coordinates[start : start + _SMALL_CHUNK, constant]
            constant = constant[(block == first[constant]).all(axis=0)]
        return np.setdiff1d(np.arange(self.n_dims), constant)

    def to_coordinate_scale(self, length: float) -> float:
        """Return a length of the data in the scale of ``coordinates``."""
        with np.errstate(over="ignore"):
            return float(np.ldexp(length, -self._exponent - self._scale))

    def _scaled_gaps(self, pairs: Indices) -> tuple[Rows, NDArray[np.intc]]:
        """Return differences of size about 1, and the powers of two taken out."""
        left, right = (self.rows[p].astype(np.float64) for p in pairs.T)
        quartered = np.zeros(pairs.shape[0], dtype=bool)
        if self._exponent > _LARGE_EXPONENT:
            # A difference of large rows may be too large to be a number. Only those
            # rows are quartered, because a quarter of the smallest number is 0.
            with np.errstate(over="ignore"):
                quartered = np.isinf(largest_of_each(left - right))
            factors = np.where(quartered, 0.25, 1.0)
            left, right = scale_each(factors, left), scale_each(factors, right)
        gaps = left - right
        exponents = np.clip(np.frexp(largest_of_each(gaps))[1], -1022, 1022)
        gaps = scale_each(np.ldexp(1.0, -exponents), gaps)
        return gaps, exponents + 2 * quartered


def _largest_square(rows: Rows, exponent: int) -> float:
    """Return the largest squared length of a sparse row over ``2 ** exponent``."""
    if not is_sparse(rows):
        return 0.0
    scaled = rows.astype(np.float64)
    scale_in_place(scaled, exponent)
    return float(squared_lengths(scaled).max(initial=0.0))
