"""Scan all pairs: the worst ones exactly, the others as a mean and a histogram.

Blocks of squared distances, of the points and of their images, give the share that
each pair keeps. Every decision carries the error bound of the block: a pair is ruled
out only if it cannot be among the worst, and every other candidate is settled in
float64 from the difference of its two rows. Memory is a few blocks, whatever the number
of pairs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isoproj.engines.base import Engine, Visitor, chosen
from isoproj.numerics.progress import Walk, tell
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.blocks import Block, PairBlocks, Real, SquaredDistances, Workspace
from isoproj.pairs.losses import (
    NEARLY_EVEN,
    EvenMap,
    PairSummary,
    Tally,
    exact_losses,
    unevenness,
)
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.pairs.settings import USUAL, PairSettings

# Parts into which the square on the diagonal is cut.
_DIAGONAL = 3
# Relative error of a squared distance beyond which a pair is settled exactly.
_ACCURACY = 1.0 / 16.0
# With a larger share of close pairs than this, a float32 block is done in float64.
_MANY_CLOSE = 1.0 / 64.0
# Squares of lengths that a map stretches by more than 1e4 may not fit float32.
LARGEST_FLOAT32_RATIO = 1e8


def summarise(
    points: Points,
    pairs: PairSet,
    components: Array,
    *,
    n_worst: int = 10,
    engine: Engine | None = None,
    settings: PairSettings = USUAL,
) -> PairSummary:
    """Return the exact worst pairs under a linear map and the spread of all pairs.

    ``components`` has shape (k, n_features). Mean and histogram are exact to about
    1e-5.
    """
    sweep = _Sweep(
        components=components,
        listed=pairs.listed,
        n_pairs=pairs.n_pairs,
        n_worst=min(n_worst, pairs.n_pairs),
        is_dense=pairs.is_dense(points.n_points),
        top=largest_ratio(components),
        settings=settings,
    )
    n_done = 0
    tell(Walk(0, pairs.n_pairs))

    def told(tally: Tally) -> None:
        nonlocal n_done
        n_done += tally.n_done
        tell(Walk(n_done, pairs.n_pairs))

    with chosen(engine).opened(points, sweep) as run:
        tally = run(sweep.tasks(points), told)
    return tally.summary(*tally.losers.settled(points, components))


def largest_ratio(components: Array) -> float:
    """Return the square of the largest singular value, or 1 if that is larger."""
    k, d = components.shape
    gram = components @ components.T if k <= d else components.T @ components
    top = float(np.linalg.eigvalsh(gram)[-1])
    return 1.0 if top <= 1.0 else top


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Sweep:
    """The scan as an engine runs it; a task is the first row of a stripe of pairs."""

    components: Array
    listed: Indices | None
    n_pairs: int
    n_worst: int
    is_dense: bool
    top: float
    settings: PairSettings

    def tasks(self, points: Points) -> Sequence[int]:
        if not self.is_dense:
            return range(0, self.n_pairs, self.settings.n_settled)
        return range(0, points.n_points, self.settings.block_rows)

    def visitor(self, points: Points) -> Visitor[int, Tally]:
        if self.is_dense or self.listed is None:
            return _AllPairsScan(points, self).stripe
        listed = self.listed

        def visit(start: int) -> Tally:
            tally = self.tally()
            chunk = listed[start : start + self.settings.n_settled]
            tally.add_exact(chunk, exact_losses(points, chunk, self.components))
            return tally

        return visit

    def merge(self, parts: Sequence[Tally]) -> Tally:
        whole = self.tally()
        for part in parts:
            whole.join(part)
        return whole

    def tally(self) -> Tally:
        return Tally(top=self.top, n_worst=self.n_worst)


@dataclass(frozen=True, slots=True, eq=False)
class _Factors:
    """Squared distances before and after the map, in one precision."""

    lengths: SquaredDistances
    images: SquaredDistances

    def left(self, rows: slice) -> tuple[Real, Real]:
        return self.lengths.left(rows), self.images.left(rows)


class _AllPairsScan:
    """The scan of all pairs of points, in stripes of rows and blocks of columns."""

    def __init__(self, points: Points, sweep: _Sweep) -> None:
        self.points = points
        self.sweep = sweep
        self.settings = sweep.settings
        self.components = sweep.components
        self.mapped = points.mapped(sweep.components)
        self.varying = points.varying_columns()
        is_wide = (
            sweep.n_pairs <= self.settings.few_pairs
            or sweep.top > LARGEST_FLOAT32_RATIO
            # Float32 cannot tell pairs apart that lose nearly the same.
            or unevenness(points, sweep.components) <= NEARLY_EVEN
        )
        self.factors = self._factors(np.float64 if is_wide else np.float32)
        self.float64_factors = self.factors if is_wide else None
        self.blocks = PairBlocks(points.first_copy, _ACCURACY, sweep.listed)
        self.even = EvenMap.of(points, sweep.components)
        # What a leader must reach in any stripe so far, by sign.
        self.floors = {1.0: -math.inf, -1.0: -math.inf}
        self.lock = threading.Lock()
        self.workspace = Workspace()

    def _factors(self, dtype: type[np.floating[Any]]) -> _Factors:
        points, storage = self.points, self.points.storage
        lengths = SquaredDistances.of(
            points.coordinates,
            dtype,
            blur=points.blur,
            storage=storage,
            columns=self.varying,
        )
        # Columns that hold one value in every row change no distance, but they add to
        # the rounding of mapped rows.
        constant = np.delete(points.coordinates[0], self.varying)
        longest = float(lengths.norms.max()) + float(constant @ constant)
        size = max(2.0 * longest, 4.0 * points.raw_square)
        eps = float(np.finfo(np.float64).eps)
        haze = points.rows.shape[1] * eps * math.sqrt(self.sweep.top * size)
        blur = self.sweep.top * points.blur
        images = SquaredDistances.of(
            self.mapped, dtype, blur=blur, haze=haze, storage=storage
        )
        return _Factors(lengths, images)

    def stripe(self, start: int) -> Tally:
        """Return the tally of every pair (i, j), j > i, with i in the stripe."""
        tally = self.sweep.tally()
        stop = min(start + self.settings.block_rows, self.points.n_points)
        lefts = self.factors.left(slice(start, stop))
        for rows, columns in self._blocks(start, stop):
            own = slice(rows.start - start, rows.stop - start)
            some = (lefts[0][own], lefts[1][own])
            if not self._visit(tally, rows, columns, self.factors, some):
                factors = self._in_float64()
                self._visit(tally, rows, columns, factors, factors.left(rows))
        return tally

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[slice, slice]]:
        """Yield rows and columns of the blocks of a stripe."""
        n_points, width = self.points.n_points, self.settings.block_columns
        # Half of a block on the diagonal holds no pairs, so blocks are smaller there.
        step = -(-(stop - start) // _DIAGONAL)
        for first in range(start, stop, step):
            yield slice(first, min(first + step, stop)), slice(first, stop)
        for first in range(stop, n_points, width):
            yield slice(start, stop), slice(first, min(first + width, n_points))

    def _in_float64(self) -> _Factors:
        with self.lock:
            if self.float64_factors is None:
                self.float64_factors = self._factors(np.float64)
            return self.float64_factors

    def _visit(
        self,
        tally: Tally,
        rows: slice,
        columns: slice,
        factors: _Factors,
        lefts: tuple[Real, Real],
    ) -> bool:
        """Add one block to the tally; return False if float64 must do it instead."""
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        lengths = factors.lengths
        squares, ratios = self.workspace.arrays(2, shape, lengths.dtype)
        block = self.blocks.measure(lengths, lefts[0], rows, columns, squares)
        n_close = block.close.shape[0]
        if factors is not self.float64_factors and n_close > _MANY_CLOSE * squares.size:
            return False
        self._settle_close(tally, block.close)
        factors.images.block(lefts[1], columns, ratios)
        np.divide(ratios, squares, out=ratios)
        for sign in (1.0, -1.0) if tally.may_stretch else (1.0,):
            if block.absent is not None:
                ratios[block.absent] = sign * np.inf
            self._lead(tally, sign, ratios, block, factors)
        tally.add_spread(ratios if block.absent is None else ratios[~block.absent])
        return True

    def _settle_close(self, tally: Tally, pairs: Indices) -> None:
        """Add close pairs to the tally by their exact losses."""
        for start in range(0, pairs.shape[0], self.settings.n_settled):
            chunk = pairs[start : start + self.settings.n_settled]
            tally.add_exact(chunk, exact_losses(self.points, chunk, self.components))

    def _lead(
        self, tally: Tally, sign: float, ratios: Real, block: Block, factors: _Factors
    ) -> None:
        """Settle the entries that may be among the most shrunk (or stretched)."""
        if self._floor(tally, sign) == -math.inf:
            # There is nothing to compare with yet: start with the block's extremes.
            m = min(2 * self.sweep.n_worst + 16, ratios.size)
            index = np.argpartition(sign * ratios, m - 1, axis=None)[:m]
            entries = np.column_stack(np.unravel_index(index, ratios.shape))
            is_pair = np.isfinite(ratios[entries[:, 0], entries[:, 1]])
            self._settle_leaders(tally, block.numbered(entries[is_pair]))
        bars = self._bars(sign, self._floor(tally, sign), block, factors)
        # Infinite ratios mark entries that are not pairs; they pass no finite bar.
        bars = np.minimum(bars, np.finfo(ratios.dtype).max)
        extremes = ratios.min(axis=1) if sign > 0 else -ratios.max(axis=1)
        suspects = np.flatnonzero(extremes <= bars)
        if suspects.size == 0:
            return
        entries = np.argwhere(sign * ratios[suspects] <= bars[suspects, None])
        entries[:, 0] = suspects[entries[:, 0]]
        i, j = entries.T
        pairs = block.numbered(entries)
        kept = ratios[i, j].astype(np.float64)
        squares = block.squares[i, j].astype(np.float64)
        best = sign * (1.0 - kept)
        best += _reach(kept, squares, pairs, factors)
        # Where pairs tie, those after the last leader need no measurement. No pair
        # loses more than its whole length.
        most = np.full(best.size, 1.0 if sign > 0.0 else np.inf)
        if self.even is not None:
            most = np.minimum(most, self.even.ceilings(pairs, squares, sign))
        chosen = best >= self._floor(tally, sign)
        chosen &= tally.may_join(sign, pairs, most)
        self._settle_best(tally, sign, pairs[chosen], best[chosen], most[chosen])

    def _bars(self, sign: float, floor: float, block: Block, factors: _Factors) -> Real:
        """Return, row by row, what ``sign * ratio`` of a leader cannot exceed.

        A ratio ``q`` is off by at most ``(m + q e) / length`` with the errors ``m`` and
        ``e`` of its numerator and denominator, and the length as it was computed. For a
        whole row ``e / length`` may be above 1: one far point is enough.
        """
        rows, columns, least = block.rows, block.columns, block.least
        error = 1.1 * factors.lengths.row_errors(rows, columns) / least
        mapped = 1.1 * factors.images.row_errors(rows, columns) / least
        if sign > 0:
            return np.asarray((1.0 - floor) * (1.0 + error) + mapped + 1e-6)
        return np.asarray(-1.0 - floor + mapped + self.sweep.top * error + 1e-6)

    def _settle_best(
        self, tally: Tally, sign: float, pairs: Indices, best: Array, most: Array
    ) -> None:
        """Settle pairs, largest upper bound ``best`` first, until none can lead.

        ``most`` is another upper bound, finer for maps that scale all lengths alike.
        """
        order = np.argsort(-best)
        for start in range(0, order.size, self.settings.n_settled):
            chunk = order[start : start + self.settings.n_settled]
            chunk = chunk[best[chunk] >= self._floor(tally, sign)]
            if chunk.size == 0:
                break
            chunk = chunk[tally.may_join(sign, pairs[chunk], most[chunk])]
            if chunk.size:
                self._settle_leaders(tally, pairs[chunk])

    def _settle_leaders(self, tally: Tally, pairs: Indices) -> None:
        losses = exact_losses(self.points, pairs, self.components)
        tally.add_leaders(pairs, losses)

    def _floor(self, tally: Tally, sign: float) -> float:
        """Return what a leader must reach, in this stripe or in another."""
        own = tally.floor(sign)
        if self.even is not None:
            # Which of tied pairs are measured must not depend on other threads.
            return own
        with self.lock:
            self.floors[sign] = max(self.floors[sign], own)
            return self.floors[sign]


def _reach(kept: Array, lengths: Array, pairs: Indices, factors: _Factors) -> Array:
    """Return how far off the computed ratio ``kept`` of each pair may be."""
    error = factors.lengths.errors(pairs)
    reach = (factors.images.errors(pairs) + np.abs(kept) * error) / (lengths - error)
    reach += 4.0 * float(np.finfo(factors.lengths.dtype).eps) * np.abs(kept)
    return np.asarray(reach)
