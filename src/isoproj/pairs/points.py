"""Points ready for geometry: centred, in their own span, with copies known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, is_sparse
from isoproj.numerics.spectral import EPS, Array, Indices, orthonormal
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import (
    for_each_chunk,
    n_threads,
    single_blas_thread,
    threaded_map,
)
from isoproj.pairs.rows import (
    first_copies,
    largest_entry,
    largest_of_each,
    power_of_two,
    scale_each,
    scale_in_place,
    squared_lengths,
    stacked,
    times,
)

_CHUNK = 4096
_SMALL_CHUNK = 1024
# Rows whose entries may be above 2^1000 can have differences that are not numbers.
_LARGE_EXPONENT = 1000


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Orthonormal directions of the feature space that span the points.

    ``directions``, of shape (n_features, n_dims), holds them. For sparse rows with
    fewer points than features they are ``combinations``, of shape (n_points, n_dims),
    of the centred ``rows``, which stay sparse. If both are None they are the coordinate
    axes. ``mean`` is that of the (scaled) rows.
    """

    directions: Array | None
    combinations: Array | None
    rows: Rows
    mean: Array

    def lift(self, basis: Array) -> Array:
        """Return the subspace of orthonormal ``basis``, (n_dims, k), in feature space.

        The result has shape (n_features, k) and orthonormal columns.
        """
        if self.directions is not None:
            return orthonormal(self.directions @ basis)
        if self.combinations is None:
            return orthonormal(basis)
        mixed = self.combinations @ basis
        return orthonormal(self.rows.T @ mixed - np.outer(self.mean, mixed.sum(0)))

    def coordinates_of(self, columns: Array) -> Array:
        """Return the part of ``columns``, (n_features, k), inside the span.

        The result has shape (n_dims, k).
        """
        if self.directions is not None:
            return np.asarray(self.directions.T @ columns)
        if self.combinations is None:
            return columns
        seen = self.rows @ columns - self.mean @ columns
        return np.asarray(self.combinations.T @ seen)


def _centred(rows: Rows, exponent: int, storage: Storage) -> tuple[Array, Frame]:
    """Return dense rows minus their mean, in a fresh float64 array.

    A rounded mean only translates the points, and the subtraction rounds relative to
    its result. Distances are as accurate as those of the rows.
    """
    coordinates = storage.empty(rows.shape)
    n_points = rows.shape[0]
    if exponent:

        def scale(chunk: slice) -> None:
            coordinates[chunk] = rows[chunk]
            scale_in_place(coordinates[chunk], exponent)

        for_each_chunk(scale, n_points, _SMALL_CHUNK)
        rows = coordinates
    sums = threaded_map(
        lambda a: rows[a : a + _SMALL_CHUNK].sum(axis=0, dtype=np.float64),
        range(0, n_points, _SMALL_CHUNK),
        n_threads(),
    )
    mean = np.asarray(sum(sums) / n_points)

    def fill(chunk: slice) -> None:
        np.subtract(rows[chunk], mean, out=coordinates[chunk])

    for_each_chunk(fill, n_points, _SMALL_CHUNK)
    return coordinates, Frame(None, None, None, mean)


def _span_of_dense(rows: Rows, exponent: int, storage: Storage) -> tuple[Array, Frame]:
    """Rotate centred rows into an orthonormal basis of their span."""
    points, frame = _centred(rows, exponent, storage)
    n_points, n_features = points.shape
    if n_points <= n_features:
        # QR keeps the directions orthonormal however ill-conditioned the points.
        q, r = scipy.linalg.qr(points.T, mode="economic", check_finite=False)
        directions = q @ scipy.linalg.svd(r, full_matrices=False)[0]
    else:
        directions = scipy.linalg.eigh(_second_moment(points))[1][:, ::-1]
    largest = float(squared_lengths(points).max(initial=0.0))
    # Rotating row by row keeps small rows accurate relative to their own size.
    coordinates = times(points, directions, storage)
    keep = _occupied(coordinates, largest, max(points.shape))
    del points
    if keep.size < coordinates.shape[1]:
        coordinates = _columns(coordinates, keep, storage)
    return coordinates, Frame(directions[:, keep], None, None, frame.mean)


def _span_of_sparse(
    rows: Rows, exponent: int, storage: Storage
) -> tuple[Array, Frame, float]:
    """Rotate sparse rows into their span; only (n_points, n_dims) becomes dense."""
    scaled: Rows = scipy.sparse.csr_array(rows, dtype=np.float64, copy=True)
    if exponent:
        scale_in_place(scaled, exponent)
    n_points, n_features = scaled.shape
    mean = np.asarray(scaled.mean(axis=0)).ravel()
    if n_points > n_features:
        moment = (scaled.T @ scaled).toarray() - n_points * np.outer(mean, mean)
        directions = scipy.linalg.eigh(moment)[1][:, ::-1]
        coordinates, size = storage.empty((n_points, n_features)), 0.0
        for chunk in row_slices(coordinates):
            rotated = scaled[chunk] @ directions
            # Rows are centred after rotation, so rounding is relative to the raw rows.
            size = max(size, float(squared_lengths(rotated).max()))
            np.subtract(rotated, mean @ directions, out=coordinates[chunk])
        keep = _occupied(coordinates, size, n_points)
        blur = 16.0 * n_features * EPS * size
        if keep.size < n_features:
            coordinates = _columns(coordinates, keep, storage)
        return coordinates, Frame(directions[:, keep], None, None, mean), blur
    gram = (scaled @ scaled.T).toarray()
    size = float(gram.trace())
    towards_mean = scaled @ mean
    gram += mean @ mean - towards_mean[:, None] - towards_mean[None, :]
    values, vectors = scipy.linalg.eigh(gram)
    values, vectors = values[::-1], vectors[:, ::-1]
    # A Gram matrix squares the singular values: axes below this are its rounding.
    keep = np.flatnonzero(values > n_points * EPS * size)
    keep = keep if keep.size else np.arange(1)
    lengths = np.sqrt(np.maximum(values[keep], 0.0))
    coordinates = vectors[:, keep] * lengths
    combinations = vectors[:, keep] / np.where(lengths > 0.0, lengths, 1.0)
    blur = 16.0 * n_points * EPS * size
    return coordinates, Frame(None, combinations, scaled, mean), blur


def _columns(rows: Array, keep: Indices, storage: Storage) -> Array:
    """Return some columns of the rows."""
    kept = storage.empty((rows.shape[0], keep.size))
    for chunk in row_slices(rows):
        kept[chunk] = rows[chunk][:, keep]
    return kept


def _second_moment(points: Array) -> Array:
    """Return ``points.T @ points``, threaded over chunks of rows."""
    starts = range(0, points.shape[0], _CHUNK)
    products = threaded_map(
        lambda a: points[a : a + _CHUNK].T @ points[a : a + _CHUNK],
        starts,
        n_threads(),
    )
    total = next(products).copy()
    for product in products:
        total += product
    return np.asarray(total)


def _occupied(coordinates: Array, largest: float, length: int) -> Indices:
    """Return the columns that hold more than the rounding of the rotation.

    The rotation sums ``length`` products, of rows with squared lengths up to
    ``largest``.
    """
    rounding = length * EPS * math.sqrt(largest)
    extent = np.maximum(coordinates.max(axis=0), -coordinates.min(axis=0))
    occupied = np.flatnonzero(extent > rounding)
    # Identical points span nothing, but callers need at least one axis.
    return occupied if occupied.size else np.arange(1)


@dataclass(frozen=True, slots=True, eq=False)
class Points:
    """A finite set of points, prepared once for scans, solvers and certificates.

    ``rows`` are the data as given, dense or CSR; exact differences are always taken
    from them. ``coordinates``, of shape (n_points, n_dims), are centred, scaled by a
    power of two, and rotated into the span when asked; ``frame`` translates them to
    features. ``first_copy`` holds for every point the smallest index of a point
    identical to it. ``blur`` is the error of a squared distance of ``coordinates``
    besides rounding relative to the two rows, and ``raw_square`` the largest squared
    length of a sparse row before centring; both are 0 for dense data. Further arrays of
    this size go to ``storage``.
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
            origin = np.zeros((1, rows.shape[1]), rows.dtype)
            rows = stacked(rows, origin, storage)
        exponent = power_of_two(rows)
        if is_sparse(rows):
            coordinates, frame, blur = _span_of_sparse(rows, exponent, storage)
        else:
            prepare = _span_of_dense if rotate else _centred
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
        if pairs.shape[0] > self.n_points and not self.n_copies:
            return np.asarray(pairs[:, 0] != pairs[:, 1])
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
