"""Tell why weights on pairs prove no bound."""

from __future__ import annotations

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet

__all__ = ["weights_fault"]


def weights_fault(
    counting: PairSet, pairs: Indices, weights: Array, points: Points
) -> str:
    """Return why weights on pairs prove no bound, or an empty string."""
    if weights.shape != (pairs.shape[0],) or pairs.shape[1:] != (2,) or not pairs.size:
        return "weights that do not fit their pairs"
    if pairs.min() < 0 or pairs.max() >= points.n_points:
        return "pairs outside the data"
    with np.errstate(over="ignore"):
        mass = weights.sum()
    if not np.isfinite(mass) or weights.min() < 0.0:
        return "weights that are negative or not finite"
    first = points.first_copy[pairs]
    if (first[:, 0] == first[:, 1]).any():
        return "a pair of identical points"
    # A pair that does not count may lose more than every pair that does.
    if not counting.holds(pairs, points.n_points).all():
        return "weight on a pair that does not count"
    return ""
