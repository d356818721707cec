"""From a matrix of the fantope to a basis: four roundings and what they promise.

``P`` with ``0 <= P <= I`` and ``tr P = k`` is a fractional projection. All roundings
work in its eigenbasis ``P = sum_i p_i q_i q_i^T``, largest ``p_i`` first.
"""

from __future__ import annotations

import math

import numpy as np

from isoproj.numerics.spectral import Array, Indices

__all__ = [
    "binned_basis",
    "deterministic_factor",
    "heavy_basis",
    "leading_basis",
    "sampled_basis",
    "systematic_sample",
]


def _occupations(relaxed: Array) -> tuple[Array, Array]:
    """Return eigenvalues in [0, 1], descending, and their eigenvectors."""
    values, vectors = np.linalg.eigh(relaxed)
    return np.clip(values[::-1], 0.0, 1.0), vectors[:, ::-1]


def leading_basis(relaxed: Array, k: int) -> Array:
    """Return the ``k`` leading eigenvectors: deterministic rounding.

    Parameters
    ----------
    relaxed : ndarray of shape (n_dims, n_dims)
        Matrix of the fantope.
    k : int
        Number of columns.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Its distortion is at most ``deterministic_factor`` times that of ``relaxed``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.rounding import leading_basis
    >>> abs(leading_basis(np.diag([0.4, 0.6]), 1)).tolist()
    [[0.0], [1.0]]
    """
    return np.asarray(_occupations(relaxed)[1][:, :k])


def deterministic_factor(relaxed: Array, k: int) -> float:
    """Return ``1 / (1 - p_{k+1})``, what deterministic rounding may lose.

    For a direction ``x``, ``1 - x^T P x >= (1 - p_{k+1}) |dropped part of x|^2``. The
    ``k + 1`` largest eigenvalues sum to at most ``k``, so the factor never exceeds
    ``k + 1``.

    Parameters
    ----------
    relaxed : ndarray of shape (n_dims, n_dims)
        Matrix of the fantope.
    k : int
        Number of eigenvectors kept.

    Returns
    -------
    float
        At least 1; infinite only for matrices outside the fantope.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.rounding import deterministic_factor
    >>> round(deterministic_factor(np.eye(3) * 2 / 3, k=2), 9)
    3.0
    """
    values = _occupations(relaxed)[0]
    dropped = float(values[k]) if k < values.size else 0.0
    return math.inf if dropped >= 1.0 else 1.0 / (1.0 - dropped)


def heavy_basis(relaxed: Array, slack: float) -> Array:
    """Return every eigenvector with ``p_i >= slack / (1 + slack)``: bi-criteria.

    Parameters
    ----------
    relaxed : ndarray of shape (n_dims, n_dims)
        Matrix of the fantope, of trace ``k``.
    slack : float
        Positive; the distortion is at most ``1 + slack`` times that of ``relaxed``.

    Returns
    -------
    ndarray of shape (n_dims, m)
        With ``m <= k (1 + slack) / slack``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.rounding import heavy_basis
    >>> heavy_basis(np.diag([1.0, 0.6, 0.4, 0.0]), slack=0.5).shape
    (4, 3)
    """
    values, vectors = _occupations(relaxed)
    # An eigenvalue exactly at the threshold is kept whatever its last digits say.
    count = int(np.count_nonzero(values >= slack / (1.0 + slack) - 1e-12))
    return np.asarray(vectors[:, : max(1, count)])


def systematic_sample(
    shares: Array, count: int, generator: np.random.RandomState
) -> Indices:
    """Draw ``count`` distinct items, item ``i`` with probability ``shares[i]``.

    Items in random order are laid end to end on a line of length ``count``; a comb of
    unit spacing with a random offset picks where it falls.

    Parameters
    ----------
    shares : ndarray of shape (n,)
        Inclusion probabilities in [0, 1] that sum to ``count``.
    count : int
        Number of items.
    generator : RandomState
        Source of randomness.

    Returns
    -------
    ndarray of shape (count,)
        Sorted item numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.rounding import systematic_sample
    >>> generator = np.random.RandomState(0)
    >>> systematic_sample(np.array([1.0, 0.5, 0.5, 0.0]), 2, generator).size
    2
    """
    order = generator.permutation(shares.size)
    ends = np.cumsum(shares[order])
    # The shares sum to count up to rounding; the comb must not fall off the end.
    ends *= count / ends[-1]
    comb = np.arange(count) + generator.uniform()
    picked = np.searchsorted(ends, comb, side="right")
    return np.sort(order[np.minimum(picked, shares.size - 1)])


def sampled_basis(relaxed: Array, k: int, generator: np.random.RandomState) -> Array:
    """Return ``k`` random eigenvectors ``V`` with ``E[V V^T] = P``.

    Parameters
    ----------
    relaxed : ndarray of shape (n_dims, n_dims)
        Matrix of the fantope, of trace ``k``.
    k : int
        Number of columns.
    generator : RandomState
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.rounding import sampled_basis
    >>> relaxed = np.diag([1.0, 0.5, 0.5])
    >>> sampled_basis(relaxed, 2, np.random.RandomState(0)).shape
    (3, 2)
    """
    values, vectors = _occupations(relaxed)
    return np.asarray(vectors[:, systematic_sample(values, k, generator)])


def binned_basis(relaxed: Array, k: int, generator: np.random.RandomState) -> Array:
    """Return the complement of random mixtures of what ``P`` leaves out.

    The eigenvectors of ``I - P`` are put in ``n_dims - k`` bins, each of total
    eigenvalue at least 1/2. One vector per bin, the sum of ``+- sqrt(1 - p_i) q_i``
    with random signs, scaled to length 1, is what the basis drops. Each dropped
    vector sees at most twice the loss of ``P`` on average, so by a union bound the
    best of a few draws is within a factor ``O(log n_pairs)`` of ``P``.

    Parameters
    ----------
    relaxed : ndarray of shape (n_dims, n_dims)
        Matrix of the fantope, of trace ``k``.
    k : int
        Number of columns, below ``n_dims``.
    generator : RandomState
        Source of randomness.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal columns.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.rounding import binned_basis
    >>> relaxed = np.diag([1.0, 0.5, 0.5])
    >>> binned_basis(relaxed, 2, np.random.RandomState(0)).shape
    (3, 2)
    """
    values, vectors = _occupations(relaxed)
    missing = 1.0 - values
    signs = np.where(generator.uniform(size=missing.size) < 0.5, -1.0, 1.0)
    weights = np.zeros((missing.size, missing.size - k))
    weights[np.arange(missing.size), _bins(missing, missing.size - k)] = signs
    weights *= np.sqrt(missing)[:, None]
    dropped = vectors @ (weights / np.linalg.norm(weights, axis=0))
    full = np.linalg.qr(dropped, mode="complete")[0]
    return np.asarray(full[:, missing.size - k :])


def _bins(missing: Array, count: int) -> Indices:
    """Return a bin number for each item so that every bin sums to at least 1/2.

    Items are at most 1 and sum to ``count``. Filled from the largest, a bin closes at
    1/2 and never exceeds 1, so at least ``count`` of them close; what is left over
    joins the bins round robin.
    """
    bins = np.empty(missing.size, dtype=np.intp)
    current, filled = 0, 0.0
    for item in np.argsort(-missing, kind="stable"):
        bins[item] = current
        filled += float(missing[item])
        # Rounding may leave an exact half a digit short.
        if filled >= 0.5 - 1e-9:
            current, filled = current + 1, 0.0
    return np.asarray(bins % count)
