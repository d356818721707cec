"""What a linear map does to many pairs: the worst ones and the spread of all."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.top_pairs import Leaders

__all__ = ["N_BINS", "PairSummary", "Tally"]

# Bins of the histogram of losses.
N_BINS = 4096
# Shares that are added at a time: they stay in the cache between operations.
_PIECE = 131_072
# Below this excess over 1 the largest singular value itself bounds the gain.
_NO_STRETCH = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class PairSummary:
    """What a linear map does to the squared lengths of many pairs.

    Parameters
    ----------
    n_pairs : int
        Pairs looked at.
    worst_pairs : ndarray of shape (m, 2)
        The pairs that lose most, worst first; ties by index.
    worst_losses : ndarray of shape (m,)
        The share of squared length that each of them loses, from float64 differences.
    largest_gain : float
        The share of squared length that the most stretched pair gains, or 0.
    mean_loss : float
        Average share lost.
    counts : ndarray of shape (N_BINS,)
        Histogram of the share lost.
    edges : ndarray of shape (N_BINS + 1,)
        Bin edges of the histogram, ascending.
    """

    n_pairs: int
    worst_pairs: Indices
    worst_losses: Array
    largest_gain: float
    mean_loss: float
    counts: NDArray[np.int64]
    edges: Array


@dataclass(slots=True, eq=False)
class Tally:
    """What a scan has found so far; tallies can be joined in any order.

    ``top`` is the square of the largest singular value of the map, at least 1.
    """

    top: float
    n_worst: int
    n_done: int = 0
    counts: NDArray[np.int64] = field(
        default_factory=lambda: np.zeros(N_BINS, dtype=np.int64)
    )
    ratio_sums: list[float] = field(default_factory=list)
    losers: Leaders = field(init=False)
    gainers: Leaders = field(init=False)

    def __post_init__(self) -> None:
        self.losers = Leaders(self.n_worst)
        self.gainers = Leaders(1)

    @property
    def may_stretch(self) -> bool:
        """Whether the most stretched pair must be searched for."""
        return self.top > 1.0 + _NO_STRETCH

    def floor(self, sign: float) -> float:
        """Return the loss (``sign=1``) or gain (``-1``) a new leader must reach."""
        return (self.losers if sign > 0 else self.gainers).floor

    def may_join(self, sign: float, pairs: Indices, most: Array) -> NDArray[np.bool_]:
        """Return which pairs can become leaders if they reach at most ``most``."""
        return (self.losers if sign > 0 else self.gainers).may_join(pairs, most)

    def add_exact(self, pairs: Indices, losses: Array) -> None:
        """Add pairs with exact losses to the leaders and to the spread."""
        self.add_leaders(pairs, losses)
        self.add_spread(1.0 - losses)

    def add_leaders(self, pairs: Indices, losses: Array) -> None:
        """Add pairs with exact losses to the leaders."""
        self.losers = self.losers.joined(losses, pairs)
        if self.may_stretch:
            self.gainers = self.gainers.joined(-losses, pairs)

    def add_spread(self, ratios: NDArray[Any]) -> None:
        """Add a contiguous array of kept shares to the mean and the histogram."""
        shares = ratios.ravel()
        small, wide = np.empty(_PIECE, dtype=np.int32), np.empty(_PIECE, dtype=np.intp)
        for start in range(0, shares.size, _PIECE):
            piece = shares[start : start + _PIECE]
            self.ratio_sums.append(_sum(piece))
            numbers, bins = small[: piece.size], wide[: piece.size]
            # Vector instructions convert to 32-bit integers, but not to wider ones.
            scaled = piece * piece.dtype.type(N_BINS / self.top)
            np.copyto(numbers, scaled, casting="unsafe")
            # Rounding takes ratios of close pairs beyond either end.
            if numbers.min() < 0:
                np.maximum(numbers, 0, out=numbers)
            np.copyto(bins, numbers)
            counts = np.bincount(bins, minlength=N_BINS)
            self.counts += counts[:N_BINS]
            self.counts[-1] += counts[N_BINS:].sum()
        self.n_done += shares.size

    def join(self, other: Tally) -> None:
        """Add what another tally has found."""
        self.losers = self.losers.joined(other.losers.values, other.losers.pairs)
        self.gainers = self.gainers.joined(other.gainers.values, other.gainers.pairs)
        self.counts += other.counts
        self.ratio_sums += other.ratio_sums
        self.n_done += other.n_done

    def summary(self, worst_pairs: Indices, worst_losses: Array) -> PairSummary:
        """Return the summary, given the final order of the worst pairs."""
        gain = self.gainers.values[0] if self.may_stretch else self.top - 1.0
        # fsum rounds once, so that the order of the blocks does not matter.
        kept = math.fsum(self.ratio_sums) / self.n_done
        edges = 1.0 - self.top * np.arange(N_BINS, -1, -1) / N_BINS
        return PairSummary(
            n_pairs=self.n_done,
            worst_pairs=worst_pairs,
            worst_losses=worst_losses,
            largest_gain=max(float(gain), 0.0),
            mean_loss=1.0 - kept,
            counts=self.counts[::-1],
            edges=edges,
        )


def _sum(values: NDArray[Any]) -> float:
    """Return the sum: products with ones for short runs, float64 for their results."""
    width = 1024
    whole = values.size - values.size % width
    rows = values[:whole].reshape(-1, width) @ np.ones(width, values.dtype)
    rest = values[whole:].sum(dtype=np.float64)
    return float(rows.sum(dtype=np.float64) + rest)
