"""Coordinates of points in their own span: centred, and rotated without loss."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg
import scipy.sparse

from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Array, Indices, orthonormal
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import n_threads, threaded_map
from isoproj.pairs.rows import scale_in_place, squared_lengths, times

__all__ = ["Frame", "centred", "span_of_dense", "span_of_sparse"]

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
        The rows that ``combinations`` combines, before centring.
    mean : ndarray of shape (n_features,)
        Mean of the (scaled) rows.
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


def centred(rows: Rows, exponent: int, storage: Storage) -> tuple[Array, Frame]:
    """Return dense rows minus their mean, in a fresh float64 array.

    A rounded mean only translates the points, and the subtraction rounds relative to
    its result. Distances are as accurate as those of the rows.
    """
    coordinates = storage.empty(rows.shape)
    starts = range(0, rows.shape[0], _SMALL_CHUNK)
    if exponent:

        def scale(start: int) -> None:
            chunk = slice(start, start + _SMALL_CHUNK)
            coordinates[chunk] = rows[chunk]
            scale_in_place(coordinates[chunk], exponent)

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


def span_of_dense(rows: Rows, exponent: int, storage: Storage) -> tuple[Array, Frame]:
    """Rotate centred rows into an orthonormal basis of their span."""
    points, frame = centred(rows, exponent, storage)
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


def span_of_sparse(
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
    rounding = length * _EPS * math.sqrt(largest)
    extent = np.maximum(coordinates.max(axis=0), -coordinates.min(axis=0))
    occupied = np.flatnonzero(extent > rounding)
    # Identical points span nothing, but callers need at least one axis.
    return occupied if occupied.size else np.arange(1)
