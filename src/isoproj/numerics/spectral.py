"""Eigenvalues, orthonormal bases and rounding of bases; the bounds rest on these."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
# A linear map in the precision of the data.
Map = NDArray[np.float64] | NDArray[np.float32]
# What a library without types returns, or a caller passes.
Foreign: TypeAlias = Any
# An estimator after its fit, ours or another's, or its certificate.
Fitted: TypeAlias = Any
# Distance from 1 to the next float64 number.
EPS = float(np.finfo(np.float64).eps)


def _check_count(k: int, d: int) -> None:
    """Raise ValueError unless ``k`` is between 1 and ``d``."""
    if not 1 <= k <= d:
        msg = f"k must be between 1 and n_features={d}; got k={k}. Lower k."
        raise ValueError(msg)


def top_eigenpairs(moment: Array, k: int) -> tuple[Array, Array]:
    """Return the ``k`` largest eigenvalues, descending, and their eigenvectors.

    Only the lower triangle of the symmetric matrix is read. The eigenvectors are the
    columns of an array of shape (n_features, k).
    """
    d = moment.shape[0]
    _check_count(k, d)
    values, vectors = scipy.linalg.eigh(
        moment, subset_by_index=[d - k, d - 1], check_finite=False
    )
    return values[::-1], vectors[:, ::-1]


def top_eigenvalue_sum(moment: Array, k: int) -> float:
    """Return the sum of the ``k`` largest eigenvalues.

    By Ky Fan's theorem no ``k`` orthonormal directions retain more of ``moment``.
    """
    return float(top_eigenvalues(moment, k).sum())


def top_eigenvalues(moment: Array, k: int) -> Array:
    """Return the ``k`` largest eigenvalues, ascending."""
    d = moment.shape[0]
    _check_count(k, d)
    # A dense solver is backward stable: each eigenvalue is off by a small multiple of
    # d * eps * norm. An iterative solver would return too small a sum.
    values = scipy.linalg.eigvalsh(moment, subset_by_index=[d - k, d - 1])
    return np.asarray(values, dtype=np.float64)


def orthonormal(columns: Array) -> Array:
    """Return the Q factor of ``columns``; orthonormal columns are kept as they are.

    So are signs and precision.
    """
    q, r = scipy.linalg.qr(columns, mode="economic", check_finite=False)
    signs = np.where(np.diag(r) < 0, -1.0, 1.0).astype(q.dtype)
    return np.asarray(q * signs)


def canonical_signs(rows: Array) -> Array:
    """Flip the signs of rows so that the largest entry of each row is positive."""
    largest = np.abs(rows).argmax(axis=1)
    signs = np.where(rows[np.arange(rows.shape[0]), largest] < 0, -1.0, 1.0)
    return np.asarray(rows * signs[:, None])


def contraction(rows: Array, dtype: np.dtype[np.float64] | np.dtype[np.float32]) -> Map:
    """Round orthonormal rows to ``dtype`` so that no distance grows.

    Rounding to float32 leaves singular values on both sides of 1, so the rows are
    first shrunk by a few units in the last place.
    """
    if dtype == np.float64:
        return rows
    shrink = 0.0
    while True:
        rounded = (rows * (1.0 - shrink)).astype(np.float32)
        exact = rounded.astype(np.float64)
        excess = float(np.linalg.eigvalsh(exact @ exact.T)[-1]) - 1.0
        if excess <= 0.0:
            return rounded
        shrink += excess + 2.0**-25
