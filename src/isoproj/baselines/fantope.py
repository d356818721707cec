"""Matrices of the fantope and how they become projections.

The fantope, ``0 <= P <= I`` with ``tr P = k``, is the convex hull of the projections to
``k`` dimensions. A matrix of it is a fractional projection
``P = sum_i p_i q_i q_i^T``; rounding it turns it into a basis.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, Indices


@dataclass(frozen=True, slots=True, eq=False)
class FractionalProjection:
    """The eigenvalues ``p_i`` of a fantope matrix, largest first, and eigenvectors."""

    values: Array
    vectors: Array

    @staticmethod
    def of(matrix: Array) -> FractionalProjection:
        """Return the eigenvalues, clipped to [0, 1], and eigenvectors of a matrix."""
        values, vectors = np.linalg.eigh(matrix)
        return FractionalProjection(np.clip(values[::-1], 0.0, 1.0), vectors[:, ::-1])

    @property
    def root(self) -> Array:
        """``F`` with ``F F^T = P``."""
        return np.asarray(self.vectors * np.sqrt(self.values))

    def leading(self, k: int) -> Array:
        """Return the ``k`` leading eigenvectors: deterministic rounding.

        Their distortion is at most ``deterministic_factor`` times that of ``P``.
        """
        return np.asarray(self.vectors[:, :k])

    def deterministic_factor(self, k: int) -> float:
        """Return ``1 / (1 - p_{k+1})``, the most that deterministic rounding loses.

        For a direction ``x``, ``1 - x^T P x >= (1 - p_{k+1}) |dropped part of x|^2``.
        The ``k + 1`` largest eigenvalues sum to at most ``k``, so the factor never
        exceeds ``k + 1``.
        """
        dropped = float(self.values[k]) if k < self.values.size else 0.0
        return math.inf if dropped >= 1.0 else 1.0 / (1.0 - dropped)

    def heavy(self, slack: float) -> Array:
        """Return every eigenvector with ``p_i >= slack / (1 + slack)``: bi-criteria.

        There are at most ``k (1 + slack) / slack`` of them, and their distortion is at
        most ``1 + slack`` times that of ``P``.
        """
        # An eigenvalue exactly at the threshold is kept whatever its last digits say.
        count = int(np.count_nonzero(self.values >= slack / (1.0 + slack) - 1e-12))
        return np.asarray(self.vectors[:, : max(1, count)])

    def sampled(self, k: int, generator: np.random.RandomState) -> Array:
        """Return ``k`` random eigenvectors ``V`` with ``E[V V^T] = P``."""
        return np.asarray(self.vectors[:, systematic_sample(self.values, k, generator)])

    def binned(self, k: int, generator: np.random.RandomState) -> Array:
        """Return the complement of random mixtures of what ``P`` leaves out.

        The eigenvectors of ``I - P`` are put in ``n_dims - k`` bins, each of total
        eigenvalue at least 1/2. One vector per bin, the sum of ``+- sqrt(1 - p_i) q_i``
        with random signs, scaled to length 1, is what the basis drops. Each dropped
        vector sees at most twice the loss of ``P`` on average, so by a union bound the
        best of a few draws is within a factor ``O(log n_pairs)`` of ``P``.
        """
        missing = 1.0 - self.values
        n_bins = missing.size - k
        signs = np.where(generator.uniform(size=missing.size) < 0.5, -1.0, 1.0)
        weights = np.zeros((missing.size, n_bins))
        weights[np.arange(missing.size), _bins(missing, n_bins)] = signs
        weights *= np.sqrt(missing)[:, None]
        dropped = self.vectors @ (weights / np.linalg.norm(weights, axis=0))
        return np.asarray(np.linalg.qr(dropped, mode="complete")[0][:, n_bins:])


def systematic_sample(
    shares: Array, count: int, generator: np.random.RandomState
) -> Indices:
    """Draw ``count`` distinct items, item ``i`` with probability ``shares[i]``.

    The shares lie in [0, 1] and sum to ``count``. Items in random order are laid end to
    end on a line of length ``count``; a comb of unit spacing with a random offset picks
    where it falls.
    """
    order = generator.permutation(shares.size)
    ends = np.cumsum(shares[order])
    # The shares sum to count up to rounding; the comb must not fall off the end.
    ends *= count / ends[-1]
    comb = np.arange(count) + generator.uniform()
    picked = np.searchsorted(ends, comb, side="right")
    return np.sort(order[np.minimum(picked, shares.size - 1)])


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
