"""The oracle that solvers ask which pairs a map treats worst.

Up to a memory budget the inverse squared distances of all pairs are kept, and a search
costs one product of the width of the map. Beyond the budget a sieve rules out most
pairs. Answers are accurate to the rounding of the product (float32 beyond two million
pairs), which is good enough to choose pairs to work on. The exact scans of
``pairs.full_scan`` and ``pairs.worst_pairs`` have the last word on any basis.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Engine, chosen
from isoproj.exceptions import NoPairsError
from isoproj.numerics.arrays import compacted, distinct
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import (
    for_each_chunk,
    n_threads,
    one_blas_thread,
    threaded_map,
)
from isoproj.pairs.blocks import (
    DistanceTable,
    Mask,
    Real,
    Stripe,
    inverse_squares,
    squared_gaps,
)
from isoproj.pairs.directions import normalised
from isoproj.pairs.moments import ListedPairsDual, summed_moment
from isoproj.pairs.points import Points
from isoproj.pairs.rows import times
from isoproj.pairs.rule import PairSet
from isoproj.pairs.settings import USUAL, PairSettings
from isoproj.pairs.smoothed import SmoothedWorst

# A sample estimates a level; this factor makes too few pairs below it unlikely.
_MARGIN = 1.5
# A smaller share of all pairs of points is not worth smoothing all of them, and fewer
# points are no work anyway.
_SPARSE = 0.05
_TINY = 20
# Numbers that stay in the cache.
_CACHED = 2**17
# Pairs per point from which on a moment costs less by points, and those whose
# directions are multiplied at once otherwise.
_PAIRS_PER_POINT = 4
_CHUNK = 2048


@dataclass(frozen=True, slots=True, eq=False)
class Weakest:
    """The pairs that a map keeps least of, least first; codes ``i * n_points + j``.

    ``level`` is the share up to which all pairs are there.
    """

    codes: Indices
    retained: Array
    level: float


@dataclass(frozen=True, slots=True, eq=False)
class Extremes:
    """The pairs that a map shrinks most and those that it stretches most.

    ``low`` and ``high`` are their shares of squared length kept, outermost first.
    """

    low_pairs: Indices
    low: Array
    high_pairs: Indices
    high: Array


class PairSearch:
    """All pairs that count, ready to be searched under one map after another.

    A pair whose gap rounding swallowed has no direction here, and no search names it.

    Parameters
    ----------
    points : Points
        Points in span coordinates.
    pairs : PairSet
        The pairs.
    memory_limit : float
        Bytes that kept distances may take.
    engine : Engine or None
        Where pairs are searched if distances do not fit the memory.
    labels : ndarray of shape (n_points,) or None
        With labels, ``extremes`` looks only for pairs of different classes at the low
        end and only for pairs of one class at the high end.

    Attributes
    ----------
    n_searches : int
        Number of searches for the weakest pairs so far.
    is_slow : bool
        Whether a search takes seconds because distances did not fit the memory.
    recent : ndarray of shape (m,)
        Codes of pairs found weak in earlier slow searches.
    """

    def __init__(
        self,
        points: Points,
        pairs: PairSet,
        *,
        memory_limit: float = 2e9,
        engine: Engine | None = None,
        labels: NDArray[np.intp] | None = None,
        settings: PairSettings = USUAL,
    ) -> None:
        self.points = points
        self.pairs = pairs
        self.labels = labels
        self.n_pairs = pairs.n_pairs
        self.coordinates = points.coordinates
        self.settings = settings
        self.n_searches = 0
        self.recent: Indices = np.empty(0, dtype=np.intp)
        self._engine = chosen(engine)
        self._table: DistanceTable | None = None
        self._single = _Differences(self.coordinates, self._singled_out(memory_limit))
        # Listed pairs may join few of the points; only those need mapping.
        self._rows, self._row_of = self.coordinates, np.arange(points.n_points)
        if self._table is None:
            used = distinct(self._single.pairs)
            self._rows = _taken(self.coordinates, used, points.storage)
            self._row_of = np.cumsum(np.bincount(used, minlength=points.n_points)) - 1
        sampled = self.sample(settings.n_sampled, np.random.default_rng(0))
        self._sampled = _Differences(self.coordinates, self.decode(sampled))

    @property
    def n_dims(self) -> int:
        """Number of coordinates of a direction."""
        return self.points.n_dims

    @property
    def is_slow(self) -> bool:
        """Whether distances did not fit the memory."""
        return self._table is not None and not self._table.is_kept

    @property
    def is_large(self) -> bool:
        """Whether there are too many points to smooth all pairs at once."""
        return self.points.n_points > self.settings.most_smoothed

    @property
    def has_smoothed(self) -> bool:
        """Whether there are enough pairs, and of those that the points have."""
        n_points = self.points.n_points
        is_dense = n_points >= _TINY and self.n_pairs >= _SPARSE * n_points**2
        return is_dense and not self.is_large

    @functools.cached_property
    def smoothed(self) -> SmoothedWorst:
        """The smoothed maximum over all pairs."""
        return SmoothedWorst(self.points, self.pairs)

    def decode(self, codes: Indices) -> Indices:
        """Return point numbers, shape (m, 2), of pair codes."""
        return np.column_stack(np.divmod(codes, self.points.n_points))

    def encode(self, pairs: Indices) -> Indices:
        """Return the codes of pairs, shape (m, 2), of point numbers."""
        return np.asarray(pairs @ np.array([self.points.n_points, 1]))

    def directions(self, pairs: Indices) -> Array:
        """Return the unit directions, shape (m, n_dims), of pairs or of pair codes."""
        pairs = pairs if pairs.ndim == 2 else self.decode(pairs)
        directions = np.empty((len(pairs), self.n_dims))

        def fill(chunk: slice) -> None:
            gaps = self.coordinates[pairs[chunk, 0]]
            gaps -= self.coordinates[pairs[chunk, 1]]
            directions[chunk] = normalised(gaps)

        # Memory that is touched for the first time costs more than the arithmetic.
        for_each_chunk(fill, len(pairs), max(1, _CACHED // self.n_dims))
        return directions

    def moment(self, pairs: Indices, weights: Array) -> Array:
        """Return ``sum_l w_l x_l x_l^T``, shape (n_dims, n_dims), of pairs or codes.

        Weights are nonnegative.
        """
        pairs = pairs if pairs.ndim == 2 else self.decode(pairs)
        points, ends = compacted(pairs, self.points.n_points)
        if _PAIRS_PER_POINT * points.size <= len(pairs):
            rows = self.coordinates[points]
            return ListedPairsDual(rows, ends, self.n_dims).moment(weights)
        moment = np.zeros((self.n_dims, self.n_dims))
        roots = np.sqrt(weights)

        def visit(start: int) -> Array:
            chunk = slice(start, start + _CHUNK)
            rows = self.directions(pairs[chunk])
            rows *= roots[chunk, None]
            # A matrix with its own transpose takes half the work of any product.
            return np.asarray(rows.T @ rows)

        for part in threaded_map(visit, range(0, len(pairs), _CHUNK), n_threads()):
            moment += part
        return moment

    def uniform_moment(self) -> Array:
        """Return the mean of ``x x^T`` over all pairs, shape (n_dims, n_dims)."""
        total = summed_moment(
            self.coordinates, self.points.first_copy, self.pairs.listed
        )
        return np.asarray(total / self.n_pairs)

    def sample(self, count: int, rng: np.random.Generator) -> Indices:
        """Return codes of about ``count`` random pairs, or of all if they are fewer.

        There is at least one if any pair counts.
        """
        n, is_whole = self.points.n_points, True
        if self.pairs.listed is not None:
            is_whole = count >= len(self.pairs.listed)
            some = rng.integers(len(self.pairs.listed), size=count)
            pairs = self.pairs.listed[slice(None) if is_whole else some]
        else:
            # One point stands for all points that are identical to it.
            alone = np.flatnonzero(self.points.first_copy == np.arange(n))
            if alone.size * (alone.size - 1) // 2 <= count:
                some = np.column_stack(np.triu_indices(alone.size, 1))
            else:
                some = np.sort(rng.integers(alone.size, size=(count, 2)), axis=1)
                some = some[some[:, 0] != some[:, 1]]
                is_whole = False
            pairs = alone[some]
        codes = self.encode(_Differences(self.coordinates, pairs).pairs)
        if self.pairs.listed is not None or not is_whole:
            codes = distinct(codes)
        if not (codes.size or is_whole):
            # A point may be drawn twice, and rounding may swallow a gap.
            return self.sample(2 * count, rng)
        return codes

    def weakest(self, factor: Array, level: float, most: int = 20_000) -> Weakest:
        """Return the pairs that keep at most ``level``, and the weakest in any case.

        The map keeps ``|factor.T x|^2`` of direction ``x``; at most ``most`` pairs are
        returned, weakest first.
        """
        with one_blas_thread():
            mapped = times(self._rows, factor, self.points.storage)
            if self.n_pairs > self.settings.few_pairs:
                # Collecting millions of pairs to return thousands would cost more
                # than the search itself.
                level = min(level, self._sampled_level(mapped, most))
            parts = []
            if self._single.pairs.size:
                parts.append(self._weak_singles(mapped, level))
            if self._table is not None and self._table.is_kept:
                parts += self._table.over_stripes(
                    mapped, lambda stripe: self._weak_entries(stripe, level)
                )
        self.n_searches += 1
        if self.is_slow:
            parts.append(self._weak_survivors(factor, mapped, level, most))
        if not parts:
            msg = (
                f"pairs must have a direction; rounding swallows all {self.n_pairs:,} "
                "gaps beside the other rows. Drop rows that are far away from them."
            )
            raise NoPairsError(msg)
        codes = np.concatenate([part[0] for part in parts])
        retained = np.concatenate([part[1] for part in parts])
        if retained.size > most:
            keep = np.argpartition(retained, most)[:most]
            codes, retained = codes[keep], retained[keep]
        if retained.size >= most or self.is_slow:
            level = min(level, float(np.fmax.reduce(retained)))
        order = np.lexsort((codes, retained))
        is_weak = retained[order] <= max(level, float(np.fmin.reduce(retained)))
        return Weakest(codes[order][is_weak], retained[order][is_weak], level)

    def near(self, factor: Array, level: float, most: int = 4_000) -> Weakest:
        """Return up to ``most`` pairs of which nearly all are the weakest; no promise.

        Where distances do not fit the memory, this takes a few per cent of the time of
        ``weakest``: pairs are looked for by cells (``pairs.cells``), and those found
        earlier are looked at again. Shares are those of the differences, and ``level``
        is minus infinity. Elsewhere it is what ``weakest`` returns.
        """
        if not self.is_slow:
            return self.weakest(factor, level, most)
        from isoproj.pairs.cells import near_pairs

        codes = near_pairs(self.points, factor, most)
        known = self.encode(self._sampled.pairs)
        measured = _Differences(
            self.coordinates, self.decode(distinct(codes, self.recent, known))
        )
        with one_blas_thread():
            mapped = times(self.coordinates, factor, self.points.storage)
            shares = measured.shares(mapped)
        codes = self.encode(measured.pairs)
        order = np.lexsort((codes, shares))[:most]
        self._remember(codes[order])
        return Weakest(codes[order], shares[order], -math.inf)

    def lowest(self, factor: Array, count: int) -> Weakest:
        """Return about ``count`` of the pairs that a map keeps least of.

        The level that they stay below is estimated from a sample. There is at least
        one pair, and at most ``count``.
        """
        with one_blas_thread():
            mapped = times(self._rows, factor, self.points.storage)
            level = self._sampled_level(mapped, count)
        return self.near(factor, level, most=count)

    def extremes(self, factor: Array, *, n_low: int, n_high: int = 0) -> Extremes:
        """Return the pairs that a map shrinks and stretches most, outermost first.

        Candidates come from the product; their shares are measured from differences.
        """
        low, high = [self._single.pairs], [self._single.pairs]
        with one_blas_thread():
            mapped = times(self.coordinates, factor, self.points.storage)
            if self._table is not None:
                for ends in self._table.over_stripes(
                    mapped, lambda stripe: self._ends(stripe, n_low, n_high)
                ):
                    low.append(ends[0])
                    high.append(ends[1])
            low_pairs, lows = self._outermost(mapped, low, n_low, sign=1.0)
            high_pairs, highs = self._outermost(mapped, high, n_high, sign=-1.0)
        return Extremes(low_pairs, lows, high_pairs, highs)

    def _singled_out(self, memory_limit: float) -> Indices:
        """Return the pairs to measure by differences; keep distances of the others."""
        listed, n_points = self.pairs.listed, self.points.n_points
        is_small = self.n_pairs <= self.settings.few_pairs
        dtype = np.dtype(np.float64 if is_small else np.float32)
        room = min(memory_limit, self.points.storage.room)
        has_room = n_points**2 // 2 * dtype.itemsize < room
        if listed is not None and not (has_room and self.pairs.is_dense(n_points)):
            return listed
        rows = self.settings.block_rows
        self._table = DistanceTable(self.points, dtype, rows, listed)
        if has_room:
            with one_blas_thread():
                self._table.keep()
        return self._table.close

    def _sampled_level(self, mapped: Array, count: int) -> float:
        """Return a share that about ``count`` pairs, or more, stay below."""
        fraction = _MARGIN * count / self.n_pairs
        if fraction >= 1.0:
            return math.inf
        shares = self._sampled.shares(mapped, self._row_of)
        return float(np.quantile(shares, fraction))

    def _weak_singles(self, mapped: Array, level: float) -> tuple[Indices, Array]:
        """Return weak pairs among those that are measured by their differences."""
        retained = self._single.shares(mapped, self._row_of)
        rows = _low_entries(retained, level)
        return self.encode(self._single.pairs[rows]), retained[rows]

    def _weak_entries(self, stripe: Stripe, level: float) -> tuple[Indices, Array]:
        """Return weak pairs of a stripe of the table."""
        shares = stripe.shares.ravel()
        flat = _low_entries(shares, level)
        return self.encode(stripe.pairs(flat)), shares[flat].astype(np.float64)

    def _weak_survivors(
        self, factor: Array, mapped: Array, level: float, most: int
    ) -> tuple[Indices, Array]:
        """Return weak pairs that survive a sieve, and remember them."""
        from isoproj.pairs.screened_search import screened_weakest

        recent = _Differences(self.coordinates, self.decode(self.recent))
        known = [
            x.shares(mapped).min(initial=math.inf) for x in (recent, self._sampled)
        ]
        codes, retained = screened_weakest(
            self.points,
            factor,
            level,
            float(min(known)),
            most=most,
            n_pairs=self.n_pairs,
            engine=self._engine,
            settings=self.settings,
        )
        self._remember(codes)
        return codes, retained

    def _remember(self, codes: Indices) -> None:
        """Keep weak pairs, weakest first, together with those of earlier searches."""
        joined = distinct(codes, self.recent)
        most = 2 * self.settings.n_sampled
        self.recent = codes[:most] if joined.size > most else joined

    def _ends(self, stripe: Stripe, n_low: int, n_high: int) -> tuple[Indices, Indices]:
        """Return candidates of a stripe for either end, close pairs included."""
        low = high = stripe.shares
        if self.labels is not None:
            rows = slice(stripe.start, stripe.start + low.shape[0])
            same = self.labels[rows][:, None] == self.labels[stripe.start :]
            low = np.where(same, np.nan, low)
            high = np.where(same, high, np.nan)
        ends = [stripe.pairs(_smallest(low.ravel(), n_low)), stripe.close]
        if not n_high:
            return np.concatenate(ends), stripe.close
        others = [stripe.pairs(_smallest(-high.ravel(), n_high)), stripe.close]
        return np.concatenate(ends), np.concatenate(others)

    def _outermost(
        self, mapped: Array, candidates: list[Indices], count: int, sign: float
    ) -> tuple[Indices, Array]:
        """Return the ``count`` smallest shares times ``sign``, with their pairs."""
        pairs = np.concatenate(candidates)
        if self.labels is not None:
            same = self.labels[pairs[:, 0]] == self.labels[pairs[:, 1]]
            pairs = pairs[same if sign < 0.0 else ~same]
        measured = _Differences(self.coordinates, pairs if count else pairs[:0])
        shares, pairs = measured.shares(mapped), measured.pairs
        order = np.lexsort((pairs[:, 1], pairs[:, 0], sign * shares))[:count]
        return pairs[order], shares[order]


class _Differences:
    """Pairs that are measured by their differences; swallowed gaps are left out."""

    def __init__(self, coordinates: Array, pairs: Indices) -> None:
        inverse = inverse_squares(squared_gaps(coordinates, pairs))
        has_direction: Mask = ~np.isnan(inverse)
        self.pairs = pairs[has_direction]
        self._inverse = inverse[has_direction]

    def shares(self, mapped: Array, row_of: Indices | None = None) -> Array:
        """Return the share that each pair keeps, given the points under a map.

        ``row_of`` says in which row of ``mapped`` each point is; None means its own.
        """
        pairs = self.pairs if row_of is None else row_of[self.pairs]
        return squared_gaps(mapped, pairs) * self._inverse


def _low_entries(shares: Real, level: float) -> Indices:
    """Return the entries up to ``level``, or else the smallest; NaN is no entry."""
    low = np.flatnonzero(shares <= shares.dtype.type(level))
    if low.size:
        return low
    return np.flatnonzero(shares == np.fmin.reduce(shares))[:1]


def _smallest(values: Real, count: int) -> Indices:
    """Return the numbers of the ``count`` smallest values; NaN is no value."""
    if count < values.size:
        # NaN sorts last.
        chosen = np.argpartition(values, count)[:count]
    else:
        chosen = np.arange(values.size)
    return np.asarray(chosen[~np.isnan(values[chosen])])


def _taken(rows: Array, used: Indices, storage: Storage) -> Array:
    """Return some of the rows, in memory or in a file."""
    if used.size == rows.shape[0]:
        return rows
    taken = storage.empty((used.size, rows.shape[1]))
    for chunk in row_slices(taken):
        taken[chunk] = rows[used[chunk]]
    return taken
