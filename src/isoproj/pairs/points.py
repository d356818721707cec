"""Points ready for geometry: centred, in their own span, with copies known."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import scipy.linalg
import scipy.sparse
from numpy.typing import NDArray

from isoproj.numerics.arrays import Rows, is_sparse
from isoproj.numerics.spectral import Array, Indices, orthonormal
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import n_threads, single_blas_thread, threaded_map
from isoproj.pairs.duplicates import first_copies

__all__ = ["Frame", "Points", "squared_lengths", "times"]

_CHUNK = 4096
_SMALL_CHUNK = 1024
_EPS = float(np.finfo(np.float64).eps)


@dataclass(frozen=True, slots=True, eq=False)
class Frame:
    """Orthonormal directions of the feature space that span the points.

    The directions are either explicit or, for sparse rows with fewer points than
    features, given as combinations of the centred rows, which stay sparse.

    Parameters
    ----------
    directions : ndarray of shape (n_features, n_dims) or None
        The directions themselves; None together with ``combinations=None`` means
        the coordinate axes.
    combinations : ndarray of shape (n_points, n_dims) or None
        Coefficients of the centred rows.
    rows : CSR array of shape (n_points, n_features) or None
        What ``combinations`` combines.
    mean : ndarray of shape (n_features,)
        Mean of the (scaled) rows.
    """

    directions: Array | None
    combinations: Array | None
    rows: Rows
    mean: Array

    def lift(self, basis: Array) -> Array:
        """Return orthonormal columns in feature space for ``basis`` in the span.

        Parameters
        ----------
        basis : ndarray of shape (n_dims, k)
            Orthonormal columns in span coordinates.

        Returns
        -------
        ndarray of shape (n_features, k)
            The same subspace in the coordinates of the data.
        """
        if self.directions is not None:
            return orthonormal(self.directions @ basis)
        if self.combinations is None:
            return orthonormal(basis)
        mixed = self.combinations @ basis
        return orthonormal(self.rows.T @ mixed - np.outer(self.mean, mixed.sum(0)))

    def coordinates_of(self, columns: Array) -> Array:
        """Return feature-space ``columns`` in span coordinates.

        Parameters
        ----------
        columns : ndarray of shape (n_features, k)
            Any columns.

        Returns
        -------
        ndarray of shape (n_dims, k)
            Their part inside the span.
        """
        if self.directions is not None:
            return np.asarray(self.directions.T @ columns)
        if self.combinations is None:
            return columns
        seen = self.rows @ columns - self.mean @ columns
        return np.asarray(self.combinations.T @ seen)


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
        How span coordinates and features translate.
    first_copy : ndarray of shape (n_points,)
        For every point the smallest index of a point identical to it.
    blur : float
        How far off a squared distance of ``coordinates`` may be beyond rounding
        relative to the two rows; 0 for dense data.
    raw_square : float
        Largest squared length of a sparse row before centring, in the scale of
        ``coordinates``; 0 for dense data.
    storage : Storage
        Where arrays go that are as large as these.
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

        Parameters
        ----------
        rows : ndarray or CSR array of shape (n_rows, n_features)
            Finite floats.
        rotate : bool
            Whether to change to an orthonormal basis of the span, widest spread
            first. Sparse rows are always rotated.
        with_origin : bool
            Whether the origin counts as one more point, the last.
        storage : Storage or None
            Where coordinates go; None means memory.

        Returns
        -------
        Points
            Ready for geometry.

        Examples
        --------
        >>> import numpy as np
        >>> from isoproj.pairs.points import Points
        >>> line = np.array([[0.0, 0.0], [3.0, 4.0], [6.0, 8.0]])
        >>> Points.prepare(line, rotate=True).coordinates.shape
        (3, 1)
        """
        storage = storage or Storage()
        if with_origin:
            rows = _with_zero_row(rows, storage)
        exponent = _exponent_of(rows)
        if is_sparse(rows):
            coordinates, frame, blur = _span_of_sparse(rows, exponent, storage)
        else:
            prepare = _span_of_dense if rotate else _centred
            (coordinates, frame), blur = prepare(rows, exponent, storage), 0.0
        # Powers of two are exact, so distances keep every digit; entries near 1
        # keep float32 copies clear of its ends.
        spread = _largest_entry(coordinates)
        size = math.frexp(spread)[1] if spread > 0.0 else 0
        _scale_in_place(coordinates, size)
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
        """Return the points under a linear map, in the scale of ``coordinates``.

        Parameters
        ----------
        components : ndarray of shape (k, n_features)
            One output coordinate a row.

        Returns
        -------
        ndarray of shape (n_points, k)
            Translated by the image of the mean.
        """
        if not is_sparse(self.rows):
            directions = self.frame.coordinates_of(components.T)
            return times(self.coordinates, directions, self.storage)
        # Span coordinates of sparse rows lack what a Gram matrix cannot see; the rows
        # themselves do not.
        images = np.ldexp(self.rows @ components.T, -self._exponent)
        images -= self.frame.mean @ components.T
        return np.asarray(np.ldexp(images, -self._scale))

    def differences(self, pairs: Indices) -> Rows:
        """Return ``u_i - u_j`` from the data itself, each scaled to size about 1.

        Parameters
        ----------
        pairs : ndarray of shape (m, 2)
            Point numbers.

        Returns
        -------
        ndarray or CSR array of shape (m, n_features)
            Differences in float64, each times a power of two of its own.
        """
        return self._scaled_gaps(pairs)[0]

    def distances(self, pairs: Indices) -> Array:
        """Return ``|u_i - u_j|`` from the data itself, in float64.

        Parameters
        ----------
        pairs : ndarray of shape (m, 2)
            Point numbers.

        Returns
        -------
        ndarray of shape (m,)
            Lengths in the scale of the data.

        Examples
        --------
        >>> import numpy as np
        >>> from isoproj.pairs.points import Points
        >>> points = Points.prepare(np.array([[0.0, 0.0], [3.0, 4.0]]), rotate=False)
        >>> points.distances(np.array([[0, 1]])).tolist()
        [5.0]
        """
        lengths = np.empty(pairs.shape[0])
        for start in range(0, pairs.shape[0], _CHUNK):
            chunk = slice(start, start + _CHUNK)
            gaps, exponents = self._scaled_gaps(pairs[chunk])
            with np.errstate(over="ignore"):
                lengths[chunk] = np.ldexp(np.sqrt(squared_lengths(gaps)), exponents)
        return lengths

    def centred(self, chosen: Indices) -> Array:
        """Return some points, centred and of size about 1, where products are safe.

        Parameters
        ----------
        chosen : ndarray of shape (m,)
            Point numbers.

        Returns
        -------
        ndarray of shape (m, n_features) or (m, n_dims)
            The same whether dense rows were rotated or not, so that ties stay ties.
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
        """Return the columns of ``coordinates`` that differ between points.

        Others are the same in every row: no distance sees them.

        Returns
        -------
        ndarray of shape (n_columns,)
            Column numbers, ascending.

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
        # Most columns that vary do so among a few points.
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
        if self._exponent > 1000:
            # A difference of large rows may be too large to be a number. Others are
            # left as they are: a quarter of the smallest number there is would be 0.
            with np.errstate(over="ignore"):
                quartered = np.isinf(_largest_of_each(left - right))
            factors = np.where(quartered, 0.25, 1.0)
            left, right = _times_each(factors, left), _times_each(factors, right)
        gaps = left - right
        exponents = np.clip(np.frexp(_largest_of_each(gaps))[1], -1022, 1022)
        gaps = _times_each(np.ldexp(1.0, -exponents), gaps)
        return gaps, exponents + 2 * quartered


def _largest_of_each(rows: Rows) -> Array:
    """Return the largest absolute value of every row, dense or sparse."""
    size = abs(rows).max(axis=1)
    return np.asarray(size.toarray().ravel() if is_sparse(rows) else size)


def _times_each(factors: Array, rows: Rows) -> Rows:
    """Multiply every row by its factor; dense rows in place."""
    if is_sparse(rows):
        return scipy.sparse.csr_array(scipy.sparse.diags_array(factors) @ rows)
    rows *= factors[:, None]
    return rows


def squared_lengths(gaps: Rows) -> Array:
    """Return the squared length of every row, dense or sparse.

    Parameters
    ----------
    gaps : ndarray or CSR array of shape (m, n_features)
        Differences of points.

    Returns
    -------
    ndarray of shape (m,)
        Their squared lengths.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.points import squared_lengths
    >>> squared_lengths(np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    if is_sparse(gaps):
        return np.asarray(gaps.multiply(gaps).sum(axis=1)).ravel()
    return np.asarray(np.einsum("ij,ij->i", gaps, gaps))


def _with_zero_row(rows: Rows, storage: Storage) -> Rows:
    n_rows, n_features = rows.shape
    if is_sparse(rows):
        zero = scipy.sparse.csr_array((1, n_features), dtype=rows.dtype)
        return scipy.sparse.vstack([rows, zero], format="csr")
    longer = storage.empty((n_rows + 1, n_features), rows.dtype)
    longer[:n_rows], longer[n_rows] = rows, 0.0
    return longer


def _largest_square(rows: Rows, exponent: int) -> float:
    """Return the largest squared length of a sparse row over ``2 ** exponent``."""
    if not is_sparse(rows):
        return 0.0
    scaled = rows.astype(np.float64)
    _scale_in_place(scaled, exponent)
    return float(squared_lengths(scaled).max(initial=0.0))


def _exponent_of(rows: Rows) -> int:
    """Return the power of two to divide by so that squares neither over- nor underflow.

    Zero, the common case, leaves the data alone.
    """
    exponent = math.frexp(_largest_entry(rows))[1]
    return exponent if abs(exponent) > 100 else 0


def _largest_entry(rows: Rows) -> float:
    """Return the largest absolute value."""
    values = rows.data if is_sparse(rows) else rows

    def look(start: int) -> float:
        chunk = values[start : start + _SMALL_CHUNK]
        return max(float(chunk.max()), -float(chunk.min()))

    starts = range(0, values.shape[0], _SMALL_CHUNK)
    return max(threaded_map(look, starts, n_threads()), default=0.0)


def _scale_in_place(values: Rows, exponent: int) -> None:
    if exponent == 0:
        return
    data = values.data if is_sparse(values) else values

    # Products are far faster than ldexp, and round as it does; the power of two may be
    # too large to be a number.
    powers = [exponent // 2, exponent - exponent // 2]
    factors = [2.0**-p for p in ([exponent] if abs(exponent) < 1000 else powers)]

    def scale(start: int) -> None:
        chunk = data[start : start + _SMALL_CHUNK]
        for factor in factors:
            chunk *= factor

    starts = range(0, data.shape[0], _SMALL_CHUNK)
    for _ in threaded_map(scale, starts, n_threads()):
        pass


def _centred(rows: Rows, exponent: int, storage: Storage) -> tuple[Array, Frame]:
    """Return dense rows minus their mean, in a fresh float64 array.

    The mean's own rounding is a translation, which no distance sees, and the
    subtraction rounds relative to its result: there is no blur.
    """
    coordinates = storage.empty(rows.shape)
    starts = range(0, rows.shape[0], _SMALL_CHUNK)
    if exponent:

        def scale(start: int) -> None:
            chunk = slice(start, start + _SMALL_CHUNK)
            coordinates[chunk] = rows[chunk]
            _scale_in_place(coordinates[chunk], exponent)

        for _ in threaded_map(scale, starts, n_threads()):
            pass
        rows = coordinates
    sums = threaded_map(
        lambda a: rows[a : a + _SMALL_CHUNK].sum(axis=0, dtype=np.float64),
        starts,
        n_threads(),
    )
    mean = np.asarray(sum(sums) / rows.shape[0])

    def fill(start: int) -> None:
        chunk = slice(start, start + _SMALL_CHUNK)
        np.subtract(rows[chunk], mean, out=coordinates[chunk])

    for _ in threaded_map(fill, starts, n_threads()):
        pass
    return coordinates, Frame(None, None, None, mean)


def _span_of_dense(rows: Rows, exponent: int, storage: Storage) -> tuple[Array, Frame]:
    """Rotate centred rows into an orthonormal basis of their span."""
    centred, frame = _centred(rows, exponent, storage)
    n_points, n_features = centred.shape
    if n_points <= n_features:
        # QR keeps the directions orthonormal however ill-conditioned the points.
        q, r = scipy.linalg.qr(centred.T, mode="economic", check_finite=False)
        directions = q @ scipy.linalg.svd(r, full_matrices=False)[0]
    else:
        directions = scipy.linalg.eigh(_second_moment(centred))[1][:, ::-1]
    largest = float(squared_lengths(centred).max(initial=0.0))
    # Rotating row by row keeps small rows accurate relative to their own size.
    coordinates = times(centred, directions, storage)
    keep = _occupied(coordinates, largest, max(centred.shape))
    del centred
    if keep.size < coordinates.shape[1]:
        coordinates = _columns(coordinates, keep, storage)
    return coordinates, Frame(directions[:, keep], None, None, frame.mean)


def _columns(rows: Array, keep: Indices, storage: Storage) -> Array:
    kept = storage.empty((rows.shape[0], keep.size))
    for chunk in row_slices(rows):
        kept[chunk] = rows[chunk][:, keep]
    return kept


def _second_moment(centred: Array) -> Array:
    """Return ``centred.T @ centred``, threaded over chunks of rows."""
    starts = range(0, centred.shape[0], _CHUNK)
    products = threaded_map(
        lambda a: centred[a : a + _CHUNK].T @ centred[a : a + _CHUNK],
        starts,
        n_threads(),
    )
    total = next(products).copy()
    for product in products:
        total += product
    return np.asarray(total)


def times(
    rows: Array,
    directions: Array,
    storage: Storage | None = None,
    *,
    out: Array | None = None,
) -> Array:
    """Return ``rows @ directions``, threaded over chunks of rows.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_dims)
        Points.
    directions : ndarray of shape (n_dims, s)
        Columns.
    storage : Storage or None
        Where a fresh array goes; None means memory.
    out : ndarray of shape (n_rows, s) or None
        An array to fill instead.

    Returns
    -------
    ndarray of shape (n_rows, s)
        The same for any number of threads.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.points import times
    >>> times(np.eye(2), np.array([[1.0], [2.0]])).tolist()
    [[1.0], [2.0]]
    """
    shape = (rows.shape[0], directions.shape[1])
    result = (storage or Storage()).empty(shape) if out is None else out

    def fill(start: int) -> None:
        stop = start + _CHUNK
        np.matmul(rows[start:stop], directions, out=result[start:stop])

    for _ in threaded_map(fill, range(0, rows.shape[0], _CHUNK), n_threads()):
        pass
    return result


def _occupied(coordinates: Array, largest: float, length: int) -> Indices:
    """Return the columns that hold more than the rotation's own rounding.

    That of products of ``length`` terms, with rows of at most the squared length
    ``largest``.
    """
    rounding = length * _EPS * math.sqrt(largest)
    extent = np.maximum(coordinates.max(axis=0), -coordinates.min(axis=0))
    occupied = np.flatnonzero(extent > rounding)
    # Identical points span nothing, yet callers need one axis to speak about.
    return occupied if occupied.size else np.arange(1)


def _span_of_sparse(
    rows: Rows, exponent: int, storage: Storage
) -> tuple[Array, Frame, float]:
    """Rotate sparse rows into their span; only (n_points, n_dims) becomes dense."""
    scaled: Rows = scipy.sparse.csr_array(rows, dtype=np.float64, copy=True)
    if exponent:
        _scale_in_place(scaled, exponent)
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
        blur = 16.0 * n_features * _EPS * size
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
    keep = np.flatnonzero(values > n_points * _EPS * size)
    keep = keep if keep.size else np.arange(1)
    lengths = np.sqrt(np.maximum(values[keep], 0.0))
    coordinates = vectors[:, keep] * lengths
    combinations = vectors[:, keep] / np.where(lengths > 0.0, lengths, 1.0)
    blur = 16.0 * n_points * _EPS * size
    return coordinates, Frame(None, combinations, scaled, mean), blur
