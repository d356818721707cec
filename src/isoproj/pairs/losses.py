"""Losses of pairs under a linear map: exact, bounded, the worst, the spread."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.arrays import is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import row_slices
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths

# Most pairs, and most entries of their differences, that are in memory at once.
_CHUNK = 2048
_ENTRIES = 2**19
# Losses closer than this differ by rounding alone.
_TIE = 1e-14
# Leaders kept beyond the number asked for.
_SPARE = 6
# Bins of the histogram of losses.
N_BINS = 4096
# Shares that are added at a time: they stay in the cache between operations.
_PIECE = 131_072
# Below this excess over 1 the largest singular value itself bounds the gain.
_NO_STRETCH = 1e-6
# A map with a smaller unevenness leaves float32 nothing to tell pairs apart by.
NEARLY_EVEN = 1e-4
# Points that are looked at first.
_FEW = 64
# Relative difference from a multiple of an isometry that is rounding.
_ROUNDING = 1e-12
# The bound is used for pairs whose squared distance is this share of their squared
# norms, and of the largest norm: for closer pairs the rounding of the points counts.
_OWN_SHARE = 1.0 / 8.0
_LARGEST_SHARE = 1e-4


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


@dataclass(frozen=True, slots=True, eq=False)
class PairSummary:
    """What a linear map does to the squared lengths of many pairs.

    ``worst_pairs``, of shape (m, 2), are those that lose most, worst first, ties by
    index; ``worst_losses`` are the shares they lose, from float64 differences.
    ``largest_gain`` is the share that the most stretched pair gains, or 0. ``counts``,
    of shape (N_BINS,), is the histogram of the share lost, and ``edges`` are its bin
    edges.
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


@dataclass(frozen=True, slots=True, eq=False)
class EvenMap:
    """Bounds on losses under a map that is nearly a multiple of an isometry.

    Let ``h`` be centred points, and ``L`` the map in their coordinates over a number.
    With ``M = L^T L`` and ``s = M h - h`` the square that a pair keeps differs from
    that number squared by the share ``q = (h_i - h_j).(s_i - s_j) / |h_i - h_j|^2``.
    So ``|q|`` is at most ``(|s_i| + |s_j|)`` over the distance. If all eigenvalues of
    ``M`` are within ``e`` of 0 or 1, ``|q|`` is also at most ``e`` plus the square of
    that, and at most ``e`` if none is near 0. If this is rounding, as for a projection
    that keeps the span of the points, all pairs tie and none must be measured alone.

    ``scale`` is the square that the map keeps, ``error`` is ``e``, and ``is_whole``
    tells whether no eigenvalue is near 0. ``deviations`` are the lengths ``|s|``, and
    ``norms`` the squared norms of points.
    """

    scale: float
    error: float
    is_whole: bool
    deviations: Array
    norms: Array

    @staticmethod
    def of(points: Points, components: Array) -> EvenMap | None:
        """Return the bounds, or None if the map scales lengths differently."""
        if unevenness(points, components) > _ROUNDING:
            return None
        linear = points.frame.coordinates_of(components.T)
        scale = _scale(points.coordinates[:_FEW], linear)
        linear = linear / math.sqrt(scale)
        n_dims, k = linear.shape
        gram = linear.T @ linear if k < n_dims else linear @ linear.T
        error = float(np.abs(np.linalg.eigvalsh(gram) - 1.0).max())
        n_points = points.n_points
        deviations, norms = np.empty(n_points), np.empty(n_points)
        for chunk in row_slices(points.coordinates):
            rows = points.coordinates[chunk]
            deviations[chunk] = _deviations(rows, linear)
            norms[chunk] = squared_lengths(rows)
        return EvenMap(scale, error, k >= n_dims, deviations, norms)

    def ceilings(self, pairs: Indices, squares: Array, sign: float) -> Array:
        """Return the most that pairs can lose (``sign=1``) or gain (``-1``).

        ``squares`` are their squared distances. There is no bound for close pairs.
        """
        i, j = pairs.T
        own = self.norms[i] + self.norms[j]
        least = np.maximum(_OWN_SHARE * own, _LARGEST_SHARE * self.norms.max())
        is_far = squares >= least
        spread = np.full(squares.size, np.inf)
        bend = self.deviations[i] + self.deviations[j]
        np.divide(bend, np.sqrt(squares), out=spread, where=is_far)
        finer = np.where(
            is_far, self.error + (0.0 if self.is_whole else spread**2), np.inf
        )
        spread = np.minimum(spread, finer)
        return np.asarray(sign * (1.0 - self.scale) + self.scale * spread)


def unevenness(points: Points, components: Array) -> float:
    """Return how differently a map scales a few points; infinite if that is unknown."""
    # Span coordinates of sparse rows lack what a Gram matrix cannot see.
    if is_sparse(points.rows):
        return math.inf
    linear = points.frame.coordinates_of(components.T)
    rows = points.coordinates[:_FEW]
    lengths = np.sqrt(squared_lengths(rows))
    is_some = lengths > 0.0
    if not is_some.any():
        return math.inf
    scale = _scale(rows, linear)
    if not scale > 0.0:
        return math.inf
    deviations = _deviations(rows, linear / math.sqrt(scale))
    return float((deviations[is_some] / lengths[is_some]).max())


def _scale(rows: Array, linear: Array) -> float:
    """Return the share of squared length that rows keep together."""
    whole = float(squared_lengths(rows).sum())
    return float(squared_lengths(rows @ linear).sum()) / whole if whole else 0.0


def _deviations(rows: Array, linear: Array) -> Array:
    """Return ``|L^T L h - h|`` for every row ``h``."""
    gaps = (rows @ linear) @ linear.T
    gaps -= rows
    return np.asarray(np.sqrt(squared_lengths(gaps)))
