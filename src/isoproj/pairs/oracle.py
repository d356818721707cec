"""Find the pairs that a map keeps least of, again and again, for solvers.

Squared distances of the points never change while a solver runs, so their inverses are
kept, in blocks, as long as they fit a memory budget; a search then costs one product of
the width of the map. Answers are accurate to the product's rounding (float32 beyond two
million pairs): good enough to choose what to work on. Beyond the budget a sieve rules
out most pairs from a few coordinates, and only the others are measured. The last word
on any basis is the exact scan of ``pairs.full_scan`` or ``pairs.worst_pairs``.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Engine, Visitor, chosen, current_walk
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import n_threads, one_blas_thread, threaded_map
from isoproj.pairs.points import Points, squared_lengths, times
from isoproj.pairs.rule import PairSet
from isoproj.pairs.screening import BLOCK_ROWS, Screens, Sieve

__all__ = ["PairSearch", "Weakest"]

_BLOCK = 512
# Entries of a block of gaps.
_CHUNK = 2**20
_SMALL = 2_000_000
_SAMPLE = 20_000
# Pairs found weak lately; one of them tells how weak the weakest is at least.
_POOL = 40_000
# Stripes whose number shares this factor with the first come in the same round.
_ROUNDS = (32, 16, 8, 4, 2, 1)
# Pairs closer than this share of their norms are measured by their difference.
_CLOSE = {np.dtype(np.float32): 1e-4, np.dtype(np.float64): 1e-12}


# Codes of pairs, what is kept of them, and how many pairs were looked at.
_Found: TypeAlias = tuple[Indices, Array, int]


@dataclass(frozen=True, slots=True, eq=False)
class Weakest:
    """The pairs that a map keeps least of.

    Parameters
    ----------
    codes : ndarray of shape (m,)
        ``i * n_points + j`` for each pair.
    retained : ndarray of shape (m,)
        Share of squared length kept, least first.
    """

    codes: Indices
    retained: Array


class PairSearch:
    """All pairs that count, ready to be searched under one map after another.

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    pairs : PairSet
        The pairs.
    memory_limit : float
        Bytes that kept distances may take.
    engine : Engine or None
        Where pairs are looked at that do not fit the memory; None means threads of
        this process.

    Attributes
    ----------
    n_searches : int
        Searches of all pairs so far.
    is_slow : bool
        Whether a search takes seconds: distances did not fit the memory.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> points, pairs = prepare_pairs(np.eye(3), rotate=True)
    >>> found = PairSearch(points, pairs).weakest(np.eye(2), level=0.0)
    >>> round(float(found.retained[0]), 12)
    1.0
    """

    def __init__(
        self,
        points: Points,
        pairs: PairSet,
        *,
        memory_limit: float = 2e9,
        engine: Engine | None = None,
    ) -> None:
        self.points = points
        self.pairs = pairs
        self.n_pairs = pairs.n_pairs
        self.coordinates = points.coordinates
        small = pairs.n_pairs <= _SMALL
        self._dtype = np.dtype(np.float64 if small else np.float32)
        self._extra = np.empty((0, 2), dtype=np.intp)
        self._kept: list[NDArray[Any]] = []
        self._engine = chosen(engine)
        self._pool = np.empty(0, dtype=np.intp)
        self.n_searches = 0
        self.is_slow = False
        if pairs.listed is not None:
            self._extra = pairs.listed
        elif pairs.n_pairs * self._dtype.itemsize < min(
            memory_limit, points.storage.room
        ):
            self._starts = range(0, points.n_points, _BLOCK)
            with one_blas_thread():
                self._keep_blocks()
        else:
            self.is_slow = True
        inverse = _inverse_squares(self.coordinates, self._extra)
        # Rotation rounded some gaps to nothing: they have no direction to work with,
        # and the exact scan at the end judges them on the data itself.
        self._extra = self._extra[np.isfinite(inverse)]
        self._extra_inverse = inverse[np.isfinite(inverse)]
        sampled = self.decode(self.sample(_SAMPLE, np.random.default_rng(0)))
        # Listed pairs may join few of the points; only those need mapping.
        self._rows, self._labels = self.coordinates, np.arange(points.n_points)
        if pairs.listed is not None:
            used = np.unique(self._extra)
            self._rows = _taken(self.coordinates, used, points.storage)
            self._labels = np.cumsum(np.bincount(used, minlength=points.n_points)) - 1
        self._sampled = sampled, _inverse_squares(self.coordinates, sampled)

    @property
    def recent(self) -> Indices:
        """Codes of pairs found weak lately; none where distances are kept."""
        return self._pool

    def decode(self, codes: Indices) -> Indices:
        """Return point numbers, shape (m, 2), of pair codes."""
        return np.column_stack(np.divmod(codes, self.points.n_points))

    def encode(self, pairs: Indices) -> Indices:
        """Return the codes of pairs, shape (m, 2), of point numbers."""
        return np.asarray(pairs @ np.array([self.points.n_points, 1]))

    def directions(self, codes: Indices) -> Array:
        """Return the unit directions of pairs, shape (m, n_dims)."""
        pairs = self.decode(codes)
        gaps = self.coordinates[pairs[:, 0]] - self.coordinates[pairs[:, 1]]
        lengths = np.sqrt(squared_lengths(gaps))
        gaps /= np.where(lengths > 0.0, lengths, 1.0)[:, None]
        return gaps

    def sample(self, count: int, rng: np.random.Generator) -> Indices:
        """Return codes of about ``count`` random pairs, all where there are fewer."""
        n = self.points.n_points
        if self.pairs.listed is not None:
            pairs = rng.permutation(self.pairs.listed)[:count]
        else:
            # One point stands for all that are identical to it.
            alone = np.flatnonzero(self.points.first_copy == np.arange(n))
            if alone.size * (alone.size - 1) // 2 <= count:
                chosen = np.column_stack(np.triu_indices(alone.size, 1))
            else:
                chosen = np.sort(rng.integers(alone.size, size=(count, 2)), axis=1)
                chosen = chosen[chosen[:, 0] != chosen[:, 1]]
            pairs = alone[chosen]
        pairs = pairs[np.isfinite(_inverse_squares(self.coordinates, pairs))]
        return np.unique(self.encode(pairs))

    def weakest(self, factor: Array, level: float, most: int = 20_000) -> Weakest:
        """Return the pairs of which at most ``level`` is kept, and the weakest anyway.

        Parameters
        ----------
        factor : ndarray of shape (n_dims, s)
            ``|factor.T x|^2`` is what is kept of direction ``x``.
        level : float
            Share below which pairs are wanted.
        most : int
            Largest number of pairs to return, weakest first.

        Returns
        -------
        Weakest
            At least one pair.
        """
        with one_blas_thread():
            mapped = times(self._rows, factor, self.points.storage)
            if self.n_pairs > _SMALL:
                # Collecting millions of pairs to keep thousands would cost more than
                # the search itself.
                level = min(level, self._sampled_level(mapped, most))
            parts = []
            if self._extra.shape[0]:
                parts.append(self._among_extra(mapped, level))
            if self._kept:
                parts += self._among_blocks(mapped.astype(self._dtype), level)
        self.n_searches += 1
        if self.is_slow:
            parts.append(self._sifted(factor, mapped, level, most))
        codes = np.concatenate([part[0] for part in parts])
        retained = np.concatenate([part[1] for part in parts])
        if retained.size > most:
            keep = np.argpartition(retained, most)[:most]
            codes, retained = codes[keep], retained[keep]
        order = np.lexsort((codes, retained))
        least = retained[order] <= max(level, float(retained.min()))
        return Weakest(codes[order][least], retained[order][least])

    def lowest(self, factor: Array, count: int) -> Weakest:
        """Return about ``count`` of the pairs that are kept least of.

        The share below which they lie is estimated from a sample.

        Parameters
        ----------
        factor : ndarray of shape (n_dims, s)
            ``|factor.T x|^2`` is what is kept of direction ``x``.
        count : int
            How many pairs are wanted.

        Returns
        -------
        Weakest
            At least one pair, at most ``count``.
        """
        with one_blas_thread():
            level = self._sampled_level(
                times(self._rows, factor, self.points.storage), count
            )
        return self.weakest(factor, level, most=count)

    def _sampled_level(self, mapped: Array, count: int) -> float:
        """Return the share below which about ``count`` pairs, or more, are kept."""
        share = 1.5 * count / self.n_pairs
        if share >= 1.0:
            return math.inf
        pairs, inverse = self._sampled
        squares = _squares(mapped, self._labels[pairs])
        return float(np.quantile(squares * inverse, share))

    def _among_extra(self, mapped: Array, level: float) -> tuple[Indices, Array]:
        """Measure listed and close pairs by their differences."""
        retained = _squares(mapped, self._labels[self._extra]) * self._extra_inverse
        rows = _low_rows(retained, level)
        return self.encode(self._extra[rows]), retained[rows]

    def _sifted(
        self, factor: Array, mapped: Array, level: float, most: int
    ) -> tuple[Indices, Array]:
        """Search with a sieve, at a level that the weakest pair stays below."""
        pool = np.concatenate([self._pool, self.encode(self._sampled[0])])
        pairs = self.decode(pool)
        inverse = _inverse_squares(self.coordinates, pairs)
        retained = np.where(
            np.isfinite(inverse), _squares(mapped, pairs) * inverse, math.inf
        )
        sweep = _WeakestSweep(factor, most)
        least = float(retained.min())
        # No pair keeps more than this, so that a level above it rules out none.
        level = min(level, 2.0 * float(np.linalg.norm(factor, 2)) ** 2)
        starts = np.arange(0, self.points.n_points, BLOCK_ROWS)
        turn = np.gcd(np.arange(starts.size), _ROUNDS[0])
        found: _Found = np.empty(0, dtype=np.intp), np.empty(0), 0
        tell, n_seen = current_walk(), 0
        tell(0, self.n_pairs)

        def told(part: _Found) -> None:
            nonlocal n_seen
            n_seen += part[2]
            tell(n_seen, self.n_pairs)

        with self._engine.opened(self.points, sweep) as run:
            done = 0
            for size in _ROUNDS:
                chosen = starts[turn == size]
                if not chosen.size:
                    continue
                bar = max(level, least)
                part = run([(int(start), bar) for start in chosen], told)
                found = sweep.merge([found, part])
                done += chosen.size
                # What is left can be told by what was seen: no weaker pair than the
                # weakest, or no more pairs than wanted.
                least = min(least, float(found[1].min(initial=math.inf)))
                expected = math.ceil(1.5 * most * done / starts.size)
                if found[1].size > expected:
                    level = min(level, float(found[1][expected]))
        least = max(level, least)
        codes, weak = found[0][found[1] <= least], found[1][found[1] <= least]
        pool = np.unique(np.concatenate([codes, self._pool]))
        if pool.size > _POOL:
            pool = codes[:_POOL]
        self._pool = pool
        return codes, weak

    def _among_blocks(
        self, mapped: NDArray[Any], level: float
    ) -> list[tuple[Indices, Array]]:
        norms = np.einsum("ij,ij->i", mapped, mapped)

        def visit(number: int) -> tuple[Indices, Array]:
            start = self._starts[number]
            ratios = _squared_distances(mapped, norms, start)
            ratios *= self._kept[number]
            return self._low_entries(ratios, start, level)

        return list(threaded_map(visit, range(len(self._starts)), n_threads()))

    def _low_entries(
        self, ratios: NDArray[Any], start: int, level: float
    ) -> tuple[Indices, Array]:
        flat = np.flatnonzero(ratios <= ratios.dtype.type(level))
        if flat.size == 0:
            # NaN marks what is no pair; fmin passes over it.
            least = np.fmin.reduce(ratios, axis=None)
            flat = np.flatnonzero(ratios == least)[:1]
        i, j = np.divmod(flat, ratios.shape[1])
        codes = (i + start) * self.points.n_points + j + start
        return codes, ratios.ravel()[flat].astype(np.float64)

    def _keep_blocks(self) -> None:
        """Keep inverse squared distances, and find close pairs."""
        storage, walked = self.points.storage, self.coordinates
        if self._dtype != walked.dtype:
            walked = storage.filled(walked, walked.shape, self._dtype)
        norms = np.einsum("ij,ij->i", walked, walked)
        close: list[Indices] = []

        def visit(start: int) -> NDArray[Any]:
            inverse, near = self._measured_block(walked, norms, start)
            close.append(near)
            return inverse

        self._kept = list(threaded_map(visit, self._starts, n_threads()))
        storage.count(self._kept)
        self._extra = np.concatenate(close)
        order = np.lexsort((self._extra[:, 1], self._extra[:, 0]))
        self._extra = self._extra[order]

    def _measured_block(
        self, walked: NDArray[Any], norms: NDArray[Any], start: int
    ) -> tuple[NDArray[Any], Indices]:
        """Return inverse squared distances, NaN where close or no pair, and the close.

        Rows are points ``start:start+_BLOCK``, columns ``start:``.
        """
        table = _squared_distances(walked, norms, start)
        height = table.shape[0]
        limits = norms[start:] + norms[start : start + height, None]
        limits *= self._dtype.type(_CLOSE[self._dtype])
        close = table <= limits
        corner = np.tri(height, dtype=bool)
        close[:, :height] &= ~corner
        near = np.argwhere(close) + start
        table[close] = np.nan
        table[:, :height][corner] = np.nan
        first = self.points.first_copy
        distinct = first[near[:, 0]] != first[near[:, 1]]
        return np.reciprocal(table, out=table), near[distinct]


@dataclass(frozen=True, slots=True, eq=False)
class _WeakestSweep:
    """A search with a sieve as an engine sees it; a task is a stripe and a level."""

    factor: Array
    most: int

    def visitor(self, points: Points) -> Visitor[tuple[int, float], _Found]:
        coordinates = points.coordinates
        sieve = Sieve.of(coordinates, self.factor, points.storage)
        screens = Screens(sieve)
        mapped = times(coordinates, self.factor, points.storage)
        local = threading.local()

        def visit(task: tuple[int, float]) -> _Found:
            start, level = task
            parts = []
            for found, n_pairs in screens.at(level).survivors(points, start, local):
                pairs = found[sieve.least(found) <= level]
                inverse = _inverse_squares(coordinates, pairs)
                # Rotation may have rounded a gap to nothing.
                pairs, inverse = pairs[inverse < math.inf], inverse[inverse < math.inf]
                retained = _squares(mapped, pairs) * inverse
                weak = retained <= level
                codes = pairs[weak] @ np.array([points.n_points, 1])
                parts.append((codes, retained[weak], n_pairs))
            return self.merge(parts)

        return visit

    def merge(self, parts: Sequence[_Found]) -> _Found:
        codes = np.concatenate([part[0] for part in parts])
        retained = np.concatenate([part[1] for part in parts])
        order = np.lexsort((codes, retained))[: self.most]
        return codes[order], retained[order], sum(part[2] for part in parts)


def _low_rows(retained: Array, level: float) -> Indices:
    rows = np.flatnonzero(retained <= level)
    return rows if rows.size else np.array([int(retained.argmin())])


def _squared_distances(
    rows: NDArray[Any], norms: NDArray[Any], start: int
) -> NDArray[Any]:
    """Return squared distances of points ``start:start+_BLOCK`` to ``start:``."""
    block = rows[start : start + _BLOCK]
    table = block @ rows[start:].T
    table *= table.dtype.type(-2.0)
    table += norms[start : start + block.shape[0], None]
    table += norms[start:]
    return np.asarray(table)


def _squares(mapped: Array, pairs: Indices) -> Array:
    squares = np.empty(pairs.shape[0])
    step = max(1, _CHUNK // max(1, mapped.shape[1]))
    for start in range(0, pairs.shape[0], step):
        chunk = pairs[start : start + step]
        gaps = mapped[chunk[:, 0]]
        gaps -= mapped[chunk[:, 1]]
        squares[start : start + step] = squared_lengths(gaps)
    return squares


def _taken(rows: Array, used: Indices, storage: Storage) -> Array:
    """Return some of the rows, in memory or in a file."""
    if used.size == rows.shape[0]:
        return rows
    taken = storage.empty((used.size, rows.shape[1]))
    for chunk in row_slices(taken):
        taken[chunk] = rows[used[chunk]]
    return taken


def _inverse_squares(coordinates: Array, pairs: Indices) -> Array:
    """Return inverse squared distances; infinity where the gap was rounded away."""
    squares = _squares(coordinates, pairs)
    return np.where(
        squares > 0.0, 1.0 / np.where(squares > 0.0, squares, 1.0), math.inf
    )
