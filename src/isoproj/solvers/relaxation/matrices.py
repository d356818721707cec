"""Small facts about symmetric matrices that the interior-point method rests on."""

from __future__ import annotations

import numpy as np
from scipy.optimize import brentq

from isoproj.numerics.spectral import Array

__all__ = [
    "block_diagonal",
    "central_occupations",
    "congruence",
    "filling",
    "moment_of",
    "nearest_occupations",
    "onto_fantope",
    "quadratic",
    "soft_minimum",
    "spectral",
    "symmetric",
    "trace_product",
]


def filling(energies: Array, level: float, barrier: float) -> Array:
    """Return p with ``energy - level + barrier (1/p - 1/(1-p)) = 0``."""
    x = (energies - level) / (2 * barrier)
    root = np.sqrt(1 + x * x)
    minor = 0.5 * (1 + 1 / (root + np.abs(x))) / (1 + root)  # no cancellation
    result: Array = np.where(x < 0, minor, 1 - minor)
    return result


def central_occupations(
    energies: Array, k: float, barrier: float
) -> tuple[Array, float]:
    """Return central occupations that sum to k, and their level."""
    margin = 2 * barrier * len(energies) ** 2 + 1e-9

    def excess(level: float) -> float:
        return float(filling(energies, level, barrier).sum() - k)

    level = float(
        brentq(excess, energies[0] - margin, energies[-1] + margin, xtol=1e-15)
    )
    return filling(energies, level, barrier), level


def onto_fantope(occupations: Array, k: int) -> Array:
    """Return occupations in [0, 1] summing to k, by a convex combination."""
    clipped = np.clip(occupations, 0.0, 1.0)
    excess = clipped.sum() - k
    if excess > 0:
        result: Array = clipped * (k / clipped.sum())
        return result
    room = len(clipped) - clipped.sum()
    return clipped if room <= 0 else clipped + (1 - clipped) * (-excess / room)


def nearest_occupations(values: Array, k: int) -> Array:
    """Return the occupations in [0, 1] with sum k that are nearest to values.

    These are the values less a level, clipped. Their sum is a piecewise linear function
    of the level, with breaks where a value is clipped.
    """
    breaks = np.sort(np.concatenate([values - 1.0, values]))
    sums = np.clip(values - breaks[:, None], 0.0, 1.0).sum(axis=1)
    after = min(max(int(np.searchsorted(-sums, -k)), 1), len(breaks) - 1)
    drop = sums[after - 1] - sums[after]
    share = (sums[after - 1] - k) / drop if drop > 0.0 else 0.0
    level = breaks[after - 1] + share * (breaks[after] - breaks[after - 1])
    result: Array = np.clip(values - level, 0.0, 1.0)
    return result


def symmetric(matrix: Array) -> Array:
    """Return the symmetric part."""
    return (matrix + matrix.T) / 2


def trace_product(first: Array, second: Array) -> float:
    """Return the trace of the product of two symmetric matrices."""
    return float(np.vdot(first, second))


def spectral(vectors: Array, values: Array) -> Array:
    """Return the symmetric matrix with these eigenpairs."""
    return symmetric((vectors * values) @ vectors.T)


def block_diagonal(matrix: Array, diagonal: Array) -> Array:
    """Return the matrix extended by a diagonal block."""
    width = len(matrix)
    extended = np.zeros((width + len(diagonal), width + len(diagonal)))
    extended[:width, :width] = matrix
    tail = np.arange(width, len(extended))
    extended[tail, tail] = diagonal
    return extended


def congruence(factor: Array, matrix: Array) -> Array:
    """Return ``factor.T @ matrix @ factor`` for symmetric ``matrix``."""
    return symmetric(factor.T @ matrix @ factor)


def quadratic(rows: Array, matrix: Array) -> Array:
    """Return ``row @ matrix @ row`` for every row."""
    result: Array = np.einsum("ij,ij->i", rows @ matrix, rows)
    return result


def moment_of(rows: Array, weights: Array) -> Array:
    """Return ``sum_l weights_l row_l row_l'``."""
    return symmetric((rows.T * weights) @ rows)


def soft_minimum(values: Array, barrier: float) -> float:
    """Return t below all values with ``sum barrier / (values - t) = 1``."""
    low = float(values.min())

    def excess(t: float) -> float:
        return float((barrier / (values - t)).sum() - 1)

    return float(
        brentq(excess, low - barrier * len(values) - 1e-12, low - 0.999 * barrier)
    )
