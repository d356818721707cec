"""Walk over pairs in blocks: the worst ones exactly, the rest as a histogram.

Squared distances of a block come from one matrix product (norms ride along as two
extra columns). Products cancel for points that are close compared with their norms,
so every decision carries the product's worst-case rounding error: a pair is ruled out
only when it cannot be among the worst, and whatever is left is settled in float64 from
the difference of the two rows themselves. Memory is a few blocks, whatever the number
of pairs.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Engine, Progress, Visitor, chosen, current_walk
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import n_threads, threaded_map
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.pairs.top_pairs import Leaders, exact_losses

__all__ = ["N_BINS", "PairSummary", "largest_ratio", "summarise"]

N_BINS = 4096
_BLOCK_ROWS = 768
_BLOCK_COLUMNS = 2048
# Parts into which the square on the diagonal is cut.
_DIAGONAL = 3
_FEW_ROWS = 64
_SETTLE = 2048
_PIECE = 131_072
# Below this many pairs float64 throughout costs less than it is worth to avoid.
_SMALL = 2_000_000
# Pairs whose squared distance is below this many error bounds are settled exactly.
_CLOSE = 16.0
_STRETCHED = 1e8

Block = NDArray[Any]


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
        The share of squared length each of them loses, settled in float64.
    largest_gain : float
        The share of squared length the most stretched pair gains, 0 if none does.
    mean_loss : float
        Average share lost.
    counts : ndarray of shape (N_BINS,)
        Histogram of the share lost.
    edges : ndarray of shape (N_BINS + 1,)
        Its bin edges, ascending.
    """

    n_pairs: int
    worst_pairs: Indices
    worst_losses: Array
    largest_gain: float
    mean_loss: float
    counts: NDArray[np.int64]
    edges: Array


def summarise(
    points: Points,
    pairs: PairSet,
    components: Array,
    *,
    n_worst: int = 10,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> PairSummary:
    """Return the exact worst pairs under a linear map and the spread of all others.

    Parameters
    ----------
    points : Points
        The geometry.
    pairs : PairSet
        The pairs that count.
    components : ndarray of shape (k, n_features)
        Linear map, float64.
    n_worst : int
        How many of the worst pairs to return (fewer if there are fewer pairs).
    progress : callable or None
        Called with pairs done and pairs in all; None tells who is ``walking``.
    engine : Engine or None
        Where blocks are looked at; None means threads of this process.

    Returns
    -------
    PairSummary
        ``worst_pairs`` and ``worst_losses`` are exact; mean and histogram are exact
        to the rounding of the block product (float64 up to two million pairs,
        float32 above: about 1e-5).

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.full_scan import summarise
    >>> rows = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    >>> points, pairs = prepare_pairs(rows, rotate=False)
    >>> summary = summarise(points, pairs, np.array([[1.0, 0.0]]), n_worst=1)
    >>> summary.worst_pairs.tolist()
    [[1, 2]]
    """
    sweep = _Sweep(
        components=components,
        listed=pairs.listed,
        n_pairs=pairs.n_pairs,
        n_worst=min(n_worst, pairs.n_pairs),
        top=largest_ratio(components),
    )
    n_done = 0
    tell = current_walk(progress)
    tell(0, pairs.n_pairs)

    def told(tally: _Tally) -> None:
        nonlocal n_done
        n_done += tally.n_done
        tell(n_done, pairs.n_pairs)

    with chosen(engine).opened(points, sweep) as run:
        tally = run(sweep.tasks(points), told)
    return tally.summary(*tally.losers.settled(points, components))


def largest_ratio(components: Array) -> float:
    """Return the square of the largest singular value, or 1 for contractions.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.full_scan import largest_ratio
    >>> largest_ratio(np.array([[0.5, 0.0]]))
    1.0
    """
    k, d = components.shape
    gram = components @ components.T if k <= d else components.T @ components
    top = float(np.linalg.eigvalsh(gram)[-1])
    return 1.0 if top <= 1.0 else top


@dataclass(slots=True, eq=False)
class _Tally:
    """What a scan has found; the order of joining tallies does not matter."""

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
        """Whether gains need looking for; within 1e-6 the spectral bound is told."""
        return self.top > 1.0 + 1e-6

    def add_exact(self, pairs: Indices, losses: Array) -> None:
        """Add pairs whose losses are settled: to the leaders and to the spread."""
        self.add_leaders(pairs, losses)
        self.add_spread(1.0 - losses)

    def add_leaders(self, pairs: Indices, losses: Array) -> None:
        self.losers = self.losers.joined(losses, pairs)
        if self.may_stretch:
            self.gainers = self.gainers.joined(-losses, pairs)

    def add_spread(self, ratios: Block) -> None:
        """Add a contiguous block of kept shares."""
        shares = ratios.ravel()
        # Pieces that stay in the cache from one operation to the next.
        small, wide = np.empty(_PIECE, dtype=np.int32), np.empty(_PIECE, dtype=np.intp)
        for start in range(0, shares.size, _PIECE):
            piece = shares[start : start + _PIECE]
            self.ratio_sums.append(_sum(piece))
            numbers, bins = small[: piece.size], wide[: piece.size]
            # Straight to wide integers would be slower: no vector instruction does it.
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

    def join(self, other: _Tally) -> None:
        self.losers = self.losers.joined(other.losers.values, other.losers.pairs)
        self.gainers = self.gainers.joined(other.gainers.values, other.gainers.pairs)
        self.counts += other.counts
        self.ratio_sums += other.ratio_sums
        self.n_done += other.n_done

    def summary(self, worst_pairs: Indices, worst_losses: Array) -> PairSummary:
        gain = self.gainers.values[0] if self.may_stretch else self.top - 1.0
        # Exactly rounded: the order of the blocks does not matter.
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


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Sweep:
    """The scan as an engine sees it; a task is the first row of a stripe of pairs."""

    components: Array
    listed: Indices | None
    n_pairs: int
    n_worst: int
    top: float

    def tasks(self, points: Points) -> Sequence[int]:
        if self.listed is not None:
            return range(0, self.n_pairs, _SETTLE)
        return range(0, points.n_points, _BLOCK_ROWS)

    def visitor(self, points: Points) -> Visitor[int, _Tally]:
        if self.listed is None:
            return _AllPairsWalk(points, self).stripe
        listed = self.listed

        def visit(start: int) -> _Tally:
            tally = self.tally()
            chunk = listed[start : start + _SETTLE]
            tally.add_exact(chunk, exact_losses(points, chunk, self.components))
            return tally

        return visit

    def merge(self, parts: Sequence[_Tally]) -> _Tally:
        whole = self.tally()
        for part in parts:
            whole.join(part)
        return whole

    def tally(self) -> _Tally:
        return _Tally(top=self.top, n_worst=self.n_worst)


def _sum(values: Block) -> float:
    """Return the sum by short products with ones, which are fast, then in float64."""
    width = 1024
    whole = values.size - values.size % width
    rows = values[:whole].reshape(-1, width) @ np.ones(width, values.dtype)
    rest = values[whole:].sum(dtype=np.float64)
    return float(rows.sum(dtype=np.float64) + rest)


@dataclass(slots=True, eq=False)
class _Factor:
    """Coordinates ready for block products of squared distances, in one precision.

    ``right[j] = [b_j, 1, |b_j|^2]`` and ``left[i] = [-2 a_i, |a_i|^2, 1]`` multiply to
    ``|a_i - b_j|^2`` up to ``error * (|a_i|^2 + |b_j|^2) + offset``.
    """

    right: Block
    error: float
    offset: float

    @staticmethod
    def of(
        coordinates: Array,
        dtype: type[np.floating[Any]],
        blur: float,
        haze: float,
        storage: Storage,
        columns: Indices | None = None,
    ) -> _Factor:
        """Build for coordinates off by ``haze`` in length, their distances by ``blur``.

        ``blur`` is in squared distance already; ``columns`` are those to take, or all.
        """
        n_points, n_columns = coordinates.shape
        width = n_columns if columns is None else columns.size
        # Slices cost no copy.
        chosen = slice(None) if width == n_columns else columns
        right = storage.empty((n_points, width + 2), dtype)

        def fill(start: int) -> None:
            # Few rows at a time stay in the cache for their second use.
            for first in range(start, min(start + _BLOCK_ROWS, n_points), _FEW_ROWS):
                rows = slice(first, first + _FEW_ROWS)
                block = coordinates[rows][:, chosen]
                right[rows, :width] = block
                right[rows, width] = 1.0
                right[rows, width + 1] = np.einsum("ij,ij->i", block, block)

        for _ in threaded_map(fill, range(0, n_points, _BLOCK_ROWS), n_threads()):
            pass
        # Worst case of a dot product of this length, twice (for the factor 2), with
        # room for the rounding of coordinates and norms to the block's precision.
        unit = float(np.finfo(dtype).eps) / 2.0
        error = 2.5 * (width + 12) * unit
        # Squares next to the smallest number there is lose digits, or are lost.
        faint = 8.0 * (width + 12) * float(np.finfo(dtype).tiny)
        # 4 haze (|a| + |b|) + 4 haze^2, split by the mean inequality.
        return _Factor(right, error, blur + faint + (8.0 / error + 4.0) * haze**2)

    def row_errors(self, rows: slice, columns: slice) -> Block:
        """Return, for every row of a block, a bound on the error of its entries."""
        return np.asarray(
            self.error * (self.norms[rows] + self.norms[columns].max()) + self.offset
        )

    def errors(self, pairs: Indices) -> Array:
        """Return the bound on the error of the squared distance of each pair."""
        norms = self.norms[pairs].sum(axis=1, dtype=np.float64)
        return np.asarray(self.error * norms + self.offset)

    @property
    def norms(self) -> Block:
        return np.asarray(self.right[:, -1])

    def left(self, rows: slice) -> Block:
        taken = self.right[rows] * self.right.dtype.type(-2.0)
        taken[:, -2] = self.norms[rows]
        taken[:, -1] = 1.0
        return np.asarray(taken)


def _corner(rows: slice, columns: slice) -> Indices:
    return np.array([rows.start, columns.start], dtype=np.intp)


class _AllPairsWalk:
    """All pairs of points in stripes of rows, each stripe in blocks of columns."""

    def __init__(self, points: Points, sweep: _Sweep) -> None:
        self.points = points
        self.sweep = sweep
        self.components = sweep.components
        self.mapped = points.mapped(sweep.components)
        # Squares of what a map stretches by thousands may not fit float32.
        wide = sweep.n_pairs <= _SMALL or sweep.top > _STRETCHED
        fast = np.float64 if wide else np.float32
        self.varying = points.varying_columns()
        self.factors = self._factors(fast)
        self.exact_factors = self.factors if fast is np.float64 else None
        counts = np.bincount(points.first_copy, minlength=points.n_points)
        self.repeated = counts[points.first_copy] > 1
        # What leaders of any stripe so far must reach, by sign.
        self.floors = {1.0: -math.inf, -1.0: -math.inf}
        self.lock = threading.Lock()
        self.local = threading.local()

    def _factors(self, dtype: type[np.floating[Any]]) -> tuple[_Factor, _Factor]:
        points, storage = self.points, self.points.storage
        lengths = _Factor.of(
            points.coordinates, dtype, points.blur, 0.0, storage, self.varying
        )
        # What columns left out hold is the same in every row, and rounds when mapped.
        constant = np.delete(points.coordinates[0], self.varying)
        longest = float(lengths.norms.max()) + float(constant @ constant)
        size = max(2.0 * longest, 4.0 * points.raw_square)
        # Mapped rows carry the rounding of a product as long as the row they map.
        eps = float(np.finfo(np.float64).eps)
        haze = points.rows.shape[1] * eps * math.sqrt(self.sweep.top * size)
        return (
            lengths,
            _Factor.of(self.mapped, dtype, self.sweep.top * points.blur, haze, storage),
        )

    def stripe(self, start: int) -> _Tally:
        """Visit every pair (i, j), j > i, with i in the stripe."""
        tally = self.sweep.tally()
        stop = min(start + _BLOCK_ROWS, self.points.n_points)
        lefts = tuple(factor.left(slice(start, stop)) for factor in self.factors)
        space = self._space(lefts[0].dtype)
        for rows, columns in self._blocks(start, stop):
            own = slice(rows.start - start, rows.stop - start)
            some = tuple(left[own] for left in lefts)
            if not self._visit(tally, rows, columns, self.factors, some, space):
                # Too many close pairs for float32: this block again in float64.
                factors = self._float64_factors()
                again = tuple(factor.left(rows) for factor in factors)
                wide = self._space(again[0].dtype)
                self._visit(tally, rows, columns, factors, again, wide)
        return tally

    def _blocks(self, start: int, stop: int) -> Iterator[tuple[slice, slice]]:
        """Yield rows and columns of the blocks of a stripe."""
        n_points = self.points.n_points
        # On the diagonal, where half of a block is no pairs, blocks are smaller.
        step = -(-(stop - start) // _DIAGONAL)
        for first in range(start, stop, step):
            yield slice(first, min(first + step, stop)), slice(first, stop)
        for first in range(stop, n_points, _BLOCK_COLUMNS):
            columns = slice(first, min(first + _BLOCK_COLUMNS, n_points))
            yield slice(start, stop), columns

    def _space(self, dtype: np.dtype[Any]) -> Block:
        """Return this thread's memory for two blocks.

        Fresh megabytes for every block would cost as much as looking at them.
        """
        space: Block | None = getattr(self.local, dtype.name, None)
        if space is None:
            space = np.empty((2, _BLOCK_ROWS * _BLOCK_COLUMNS), dtype)
            setattr(self.local, dtype.name, space)
        return space

    def _float64_factors(self) -> tuple[_Factor, _Factor]:
        with self.lock:
            if self.exact_factors is None:
                self.exact_factors = self._factors(np.float64)
            return self.exact_factors

    def _visit(
        self,
        tally: _Tally,
        rows: slice,
        columns: slice,
        factors: tuple[_Factor, _Factor],
        lefts: tuple[Block, ...],
        space: Block,
    ) -> bool:
        """Add one block to the tally; False if another precision must do it."""
        shape = (rows.stop - rows.start, columns.stop - columns.start)
        total, ratios = space[:, : shape[0] * shape[1]].reshape(2, *shape)
        np.matmul(lefts[0], factors[0].right[columns].T, out=total)
        absent = self._absent(rows, columns)
        if absent is not None:
            total[absent] = np.inf
        least = total.min(axis=1)
        close = self._close(total, least, rows, columns, factors[0])
        if close.shape[0]:
            if factors is not self.exact_factors and close.shape[0] > total.size // 64:
                return False
            self._settle(tally, close + _corner(rows, columns))
            if absent is None:
                absent = np.zeros(total.shape, dtype=bool)
            absent[close[:, 0], close[:, 1]] = True
            total[absent] = np.inf
            least = total.min(axis=1)
        np.matmul(lefts[1], factors[1].right[columns].T, out=ratios)
        np.divide(ratios, total, out=ratios)
        for sign in (1.0, -1.0) if tally.may_stretch else (1.0,):
            if absent is not None:
                ratios[absent] = sign * np.inf
            self._lead(tally, sign, ratios, total, least, rows, columns, factors)
        present = ratios if absent is None else ratios[~absent]
        tally.add_spread(present)
        return True

    def _absent(self, rows: slice, columns: slice) -> Block | None:
        """Return which entries of a block are no pairs: mirrored or identical."""
        absent = None
        if columns.start < rows.stop:
            i = np.arange(rows.start, rows.stop)
            absent = np.arange(columns.start, columns.stop) <= i[:, None]
        if self.repeated[rows].any() and self.repeated[columns].any():
            first = self.points.first_copy
            same = first[rows][:, None] == first[columns]
            absent = same if absent is None else absent | same
        return absent

    @staticmethod
    def _close(
        total: Block, least: Block, rows: slice, columns: slice, factor: _Factor
    ) -> Indices:
        """Return the entries whose squared distance drowns in rounding error."""
        limits = _CLOSE * factor.row_errors(rows, columns)
        suspects = np.flatnonzero(least <= limits)
        near, far = factor.norms[rows][suspects], factor.norms[columns]
        errors = factor.error * (near[:, None] + far) + factor.offset
        entries = np.argwhere(total[suspects] <= _CLOSE * errors)
        entries[:, 0] = suspects[entries[:, 0]]
        return entries

    def _settle(self, tally: _Tally, pairs: Indices) -> None:
        for start in range(0, pairs.shape[0], _SETTLE):
            chunk = pairs[start : start + _SETTLE]
            losses = exact_losses(self.points, chunk, self.components)
            tally.add_exact(chunk, losses)

    def _lead(
        self,
        tally: _Tally,
        sign: float,
        ratios: Block,
        total: Block,
        least: Block,
        rows: slice,
        columns: slice,
        factors: tuple[_Factor, _Factor],
    ) -> None:
        """Settle the entries that may be among the most shrunk (or stretched)."""
        if self._floor(tally, sign) == -math.inf:
            # Nothing to compare with yet: the block's own extremes set the bar.
            m = min(2 * self.sweep.n_worst + 16, ratios.size)
            index = np.argpartition(sign * ratios, m - 1, axis=None)[:m]
            entries = np.column_stack(np.unravel_index(index, ratios.shape))
            finite = np.isfinite(ratios[entries[:, 0], entries[:, 1]])
            self._settle_leaders(tally, entries[finite] + _corner(rows, columns))
        floor = self._floor(tally, sign)
        bars = self._bars(sign, floor, least, rows, columns, factors)
        # Infinite ratios mark what is no pair, and pass no finite bar.
        bars = np.minimum(bars, np.finfo(ratios.dtype).max)
        extremes = ratios.min(axis=1) if sign > 0 else -ratios.max(axis=1)
        suspects = np.flatnonzero(extremes <= bars)
        if suspects.size == 0:
            return
        entries = np.argwhere(sign * ratios[suspects] <= bars[suspects, None])
        entries[:, 0] = suspects[entries[:, 0]]
        i, j = entries.T
        self._settle_best(
            tally,
            sign,
            entries + _corner(rows, columns),
            ratios[i, j].astype(np.float64),
            total[i, j].astype(np.float64),
            factors,
        )

    def _bars(
        self,
        sign: float,
        floor: float,
        least: Block,
        rows: slice,
        columns: slice,
        factors: tuple[_Factor, _Factor],
    ) -> Block:
        """Return, row by row, what ``sign * ratio`` of a leader cannot exceed.

        A ratio ``q`` is off by at most ``(m + q e) / length`` with the errors ``m`` and
        ``e`` of what is divided, and the length as it was computed. For a whole row
        ``e / length`` may be above 1: one far point is enough.
        """
        error = 1.1 * factors[0].row_errors(rows, columns) / least
        mapped = 1.1 * factors[1].row_errors(rows, columns) / least
        if sign > 0:
            return np.asarray((1.0 - floor) * (1.0 + error) + mapped + 1e-6)
        return np.asarray(-1.0 - floor + mapped + self.sweep.top * error + 1e-6)

    def _settle_best(
        self,
        tally: _Tally,
        sign: float,
        pairs: Indices,
        kept: Array,
        lengths: Array,
        factors: tuple[_Factor, _Factor],
    ) -> None:
        """Settle pairs, most promising first, until none left can lead."""
        error = factors[0].errors(pairs)
        reach = (factors[1].errors(pairs) + np.abs(kept) * error) / (lengths - error)
        reach += 4.0 * float(np.finfo(factors[0].right.dtype).eps) * np.abs(kept)
        best = sign * (1.0 - kept) + reach
        order = np.argsort(-best)
        for start in range(0, order.size, _SETTLE):
            chunk = order[start : start + _SETTLE]
            chunk = chunk[best[chunk] >= self._floor(tally, sign)]
            if chunk.size == 0:
                break
            self._settle_leaders(tally, pairs[chunk])

    def _settle_leaders(self, tally: _Tally, pairs: Indices) -> None:
        losses = exact_losses(self.points, pairs, self.components)
        tally.add_leaders(pairs, losses)

    def _floor(self, tally: _Tally, sign: float) -> float:
        """Return what a leader must reach, be it in this stripe or in another."""
        own = (tally.losers if sign > 0 else tally.gainers).floor
        with self.lock:
            self.floors[sign] = max(self.floors[sign], own)
            return self.floors[sign]
