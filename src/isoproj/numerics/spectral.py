"""Spectral facts about moment matrices; everything the bounds rest on."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Indices",
    "canonical_signs",
    "contraction",
    "orthonormal",
    "top_eigenpairs",
    "top_eigenvalue_sum",
    "top_eigenvalues",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def _check_count(k: int, d: int) -> None:
    if not 1 <= k <= d:
        msg = f"k must be between 1 and n_features={d}; got k={k}. Lower k."
        raise ValueError(msg)


def top_eigenpairs(moment: Array, k: int) -> tuple[Array, Array]:
    """Return the ``k`` largest eigenvalues, descending, and their eigenvectors.

    Parameters
    ----------
    moment : ndarray of shape (n_features, n_features)
        Symmetric matrix; only its lower triangle is read.
    k : int
        Number of pairs, between 1 and ``n_features``.

    Returns
    -------
    values : ndarray of shape (k,)
        Largest first.
    vectors : ndarray of shape (n_features, k)
        Orthonormal columns in the same order.

    Raises
    ------
    ValueError
        If ``k`` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.spectral import top_eigenpairs
    >>> top_eigenpairs(np.diag([3.0, 1.0, 2.0]), k=2)[0].tolist()
    [3.0, 2.0]
    """
    d = moment.shape[0]
    _check_count(k, d)
    values, vectors = scipy.linalg.eigh(
        moment, subset_by_index=[d - k, d - 1], check_finite=False
    )
    return values[::-1], vectors[:, ::-1]


def top_eigenvalue_sum(moment: Array, k: int) -> float:
    """Return the most that ``k`` orthonormal directions can retain of ``moment``.

    By Ky Fan's theorem this is the sum of the ``k`` largest eigenvalues.

    Parameters
    ----------
    moment : ndarray of shape (n_features, n_features)
        Symmetric matrix; only its lower triangle is read.
    k : int
        Number of directions, between 1 and ``n_features``.

    Returns
    -------
    float
        Sum of the ``k`` largest eigenvalues, with multiplicity.

    Raises
    ------
    ValueError
        If ``k`` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.spectral import top_eigenvalue_sum
    >>> top_eigenvalue_sum(np.diag([3.0, 2.0, 1.0]), k=2)
    5.0
    """
    return float(top_eigenvalues(moment, k).sum())


def top_eigenvalues(moment: Array, k: int) -> Array:
    """Return the ``k`` largest eigenvalues, ascending.

    Parameters
    ----------
    moment : ndarray of shape (n_features, n_features)
        Symmetric matrix; only its lower triangle is read.
    k : int
        How many, between 1 and ``n_features``.

    Returns
    -------
    ndarray of shape (k,)
        With multiplicity.

    Raises
    ------
    ValueError
        If ``k`` is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.spectral import top_eigenvalues
    >>> top_eigenvalues(np.diag([3.0, 2.0, 1.0]), k=2).tolist()
    [2.0, 3.0]
    """
    d = moment.shape[0]
    _check_count(k, d)
    # Dense and backward stable: each eigenvalue is off by a small multiple of
    # d * eps * norm. An iterative solver would err on the unsafe side.
    values = scipy.linalg.eigvalsh(moment, subset_by_index=[d - k, d - 1])
    return np.asarray(values, dtype=np.float64)


def orthonormal(columns: Array) -> Array:
    """Return an orthonormal basis of the span of ``columns``, close to them.

    Parameters
    ----------
    columns : ndarray of shape (n_features, k)
        Linearly independent columns.

    Returns
    -------
    ndarray of shape (n_features, k)
        Q factor with the signs that keep an orthonormal input as it is.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.spectral import orthonormal
    >>> basis = orthonormal(np.array([[2.0], [0.0]]))
    >>> bool(np.allclose(basis, [[1.0], [0.0]]))
    True
    """
    q, r = scipy.linalg.qr(columns, mode="economic", check_finite=False)
    signs = np.where(np.diag(r) < 0, -1.0, 1.0)
    return np.asarray(q * signs)


def canonical_signs(rows: Array) -> Array:
    """Flip rows so that each one's largest entry in size is positive.

    Parameters
    ----------
    rows : ndarray of shape (k, n_features)
        Eigenvectors, known up to their sign.

    Returns
    -------
    ndarray of shape (k, n_features)
        The same rows with reproducible signs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.spectral import canonical_signs
    >>> canonical_signs(np.array([[0.6, -0.8]])).tolist()
    [[-0.6, 0.8]]
    """
    largest = np.abs(rows).argmax(axis=1)
    signs = np.where(rows[np.arange(rows.shape[0]), largest] < 0, -1.0, 1.0)
    return np.asarray(rows * signs[:, None])


def contraction(
    rows: Array, dtype: np.dtype[np.float64] | np.dtype[np.float32]
) -> NDArray[np.float64] | NDArray[np.float32]:
    """Round orthonormal rows to ``dtype`` so that the result stretches nothing.

    Rounding to float32 leaves singular values on both sides of 1. Shrinking by a
    few units in the last place first keeps the promise "no distance grows" true
    of the very matrix that is shipped.

    Parameters
    ----------
    rows : ndarray of shape (k, n_features)
        Orthonormal rows in float64.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    ndarray of shape (k, n_features)
        Rows in ``dtype``, orthonormal to its accuracy.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.spectral import contraction
    >>> contraction(np.eye(2), np.dtype(np.float32)).dtype
    dtype('float32')
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
