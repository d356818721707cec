"""Exact losses of single pairs, and the worst pairs seen so far."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths

__all__ = ["Leaders", "exact_losses"]

_CHUNK = 2048
# And most entries of their differences.
_ENTRIES = 2**19
# Losses closer than this differ by rounding alone.
_TIE = 1e-14
# Leaders kept beyond the number asked for.
_SPARE = 6


def exact_losses(points: Points, pairs: Indices, components: Array) -> Array:
    """Return the share of squared length that each pair of distinct points loses.

    The share ``1 - |A (u_i - u_j)|^2 / |u_i - u_j|^2``, for ``components`` ``A`` of
    shape (k, n_features), comes from the differences themselves, in float64.
    """
    losses = np.empty(pairs.shape[0])
    step = min(_CHUNK, max(64, _ENTRIES // max(1, int(points.rows.shape[1]))))
    for start in range(0, pairs.shape[0], step):
        gaps = points.differences(pairs[start : start + step])
        mapped = np.asarray(gaps @ components.T)
        kept = squared_lengths(mapped)
        losses[start : start + step] = 1.0 - kept / squared_lengths(gaps)
    return losses


@dataclass(frozen=True, slots=True, eq=False)
class Leaders:
    """The largest values seen so far, with their pairs; ties by index.

    A value may change in its last bit when it is computed together with other pairs.
    So a few more than ``size`` are kept, and the final order is that of values computed
    all together. ``values`` has shape (m,), largest first; ``pairs`` has shape (m, 2).
    """

    size: int
    values: Array = field(default_factory=lambda: np.empty(0))
    pairs: Indices = field(default_factory=lambda: np.empty((0, 2), dtype=np.intp))

    @property
    def floor(self) -> float:
        """Smallest value that could still become a leader."""
        if self.values.size < self.size + _SPARE:
            return -math.inf
        return float(self.values[-1]) - 2.0 * _TIE

    def may_join(self, pairs: Indices, most: Array) -> NDArray[np.bool_]:
        """Return which pairs can become leaders if their values are at most ``most``.

        A pair that differs from the last leader by rounding alone must come before it.
        """
        if self.values.size < self.size + _SPARE:
            return np.ones(most.size, dtype=bool)
        i, j = self.pairs[-1]
        is_before = (pairs[:, 0] < i) | ((pairs[:, 0] == i) & (pairs[:, 1] < j))
        is_worse = most > float(self.values[-1]) + 2.0 * _TIE
        return np.asarray(is_worse | ((most >= self.floor) & is_before))

    def joined(self, values: Array, pairs: Indices) -> Leaders:
        """Return the leaders among these and further pairs."""
        values = np.concatenate([self.values, values])
        pairs = np.concatenate([self.pairs, pairs])
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        values, pairs = values[order], pairs[order]
        # A pair may have been added twice; its two entries are now next to each other.
        fresh = np.ones(values.size, dtype=bool)
        fresh[1:] = (np.diff(pairs, axis=0) != 0).any(axis=1)
        values, pairs = values[fresh], pairs[fresh]
        # Values that differ by rounding alone count as tied, and the index decides, so
        # that the answer does not depend on which block came first.
        order = np.argsort(-np.round(values / _TIE), kind="stable")
        order = order[: self.size + _SPARE]
        return Leaders(self.size, values[order], pairs[order])

    def settled(self, points: Points, components: Array) -> tuple[Indices, Array]:
        """Return the pairs that lose most and their losses, computed together."""
        order = np.lexsort((self.pairs[:, 1], self.pairs[:, 0]))
        pairs = self.pairs[order]
        losses = exact_losses(points, pairs, components)
        order = np.argsort(-np.round(losses / _TIE), kind="stable")[: self.size]
        return pairs[order], losses[order]
