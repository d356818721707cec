"""The worst pairs alone, exactly, with most pairs ruled out from a few coordinates.

What a certificate needs is the worst pairs, not how all others fare. A level that the
worst pairs stay below is known early, from pairs suspected and from a sample; the sieve
rules out whatever certainly keeps more, and only what is left is settled in float64
from the rows themselves.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.engines.base import Engine, Progress, Visitor, chosen, current_walk
from isoproj.numerics.arrays import is_sparse
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.full_scan import largest_ratio, summarise
from isoproj.pairs.points import Points, squared_lengths
from isoproj.pairs.rule import PairSet
from isoproj.pairs.screening import BLOCK_ROWS, Screens, Sieve
from isoproj.pairs.top_pairs import Leaders, exact_losses

__all__ = ["Effort", "WorstPairs", "find_worst"]

_SETTLE = 256
_WAITING = 65_536
# Below this many pairs the whole scan costs less than a sieve.
_SMALL = 2_000_000
_STRETCHED = 1e8
# Points whose pairs are looked at first; share of the stripes that come first.
_OPENING = 1024
_FIRST = 16


@dataclass(frozen=True, slots=True)
class Effort:
    """How many pairs were settled how.

    Parameters
    ----------
    by_product : int
        Pairs ruled out by the narrow product of a block.
    by_bound : int
        Pairs ruled out by their bound from more coordinates.
    measured : int
        Pairs settled from the rows themselves, or ruled out by a full-width product.
    """

    by_product: int = 0
    by_bound: int = 0
    measured: int = 0

    def __add__(self, other: Effort) -> Effort:
        return Effort(
            self.by_product + other.by_product,
            self.by_bound + other.by_bound,
            self.measured + other.measured,
        )

    @property
    def n_pairs(self) -> int:
        """Pairs in all."""
        return self.by_product + self.by_bound + self.measured

    def __str__(self) -> str:
        n = max(1, self.n_pairs)
        return (
            f"{self.by_product / n:.4%} of {self.n_pairs:,} pairs ruled out by a "
            f"narrow product, {self.by_bound / n:.4%} by a bound, "
            f"{self.measured / n:.4%} measured"
        )


@dataclass(frozen=True, slots=True, eq=False)
class WorstPairs:
    """The pairs that lose most under a linear map; exact.

    Parameters
    ----------
    worst_pairs : ndarray of shape (m, 2)
        Worst first; ties by index.
    worst_losses : ndarray of shape (m,)
        The share of squared length each of them loses.
    effort : Effort
        How many pairs were settled how.
    """

    worst_pairs: Indices
    worst_losses: Array
    effort: Effort


def find_worst(
    points: Points,
    pairs: PairSet,
    components: Array,
    *,
    n_worst: int = 10,
    suspects: Indices | None = None,
    progress: Progress | None = None,
    engine: Engine | None = None,
) -> WorstPairs:
    """Return the worst pairs under a linear map, exactly.

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
    suspects : ndarray of shape (m, 2) or None
        Pairs of distinct points that are likely bad. They save time and decide
        nothing.
    progress : callable or None
        Called with pairs done and pairs in all; None tells who is ``walking``.
    engine : Engine or None
        Where blocks are looked at; None means threads of this process.

    Returns
    -------
    WorstPairs
        The same as ``summarise`` finds.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.worst_pairs import find_worst
    >>> rows = np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 0.0]])
    >>> points, pairs = prepare_pairs(rows, rotate=False)
    >>> found = find_worst(points, pairs, np.array([[1.0, 0.0]]), n_worst=1)
    >>> found.worst_pairs.tolist()
    [[1, 2]]
    """
    if not _pays(points, pairs, components):
        summary = summarise(
            points,
            pairs,
            components,
            n_worst=n_worst,
            progress=progress,
            engine=engine,
        )
        effort = Effort(measured=summary.n_pairs)
        return WorstPairs(summary.worst_pairs, summary.worst_losses, effort)
    leaders = _opening(points, components, min(n_worst, pairs.n_pairs), suspects)
    effort = Effort()
    tell = current_walk(progress)
    tell(0, pairs.n_pairs)

    def told(part: _Sifted) -> None:
        nonlocal effort
        effort = effort + part.effort
        tell(effort.n_pairs, pairs.n_pairs)

    starts = np.arange(0, points.n_points, BLOCK_ROWS)
    is_first = np.arange(starts.size) % _FIRST == 0
    # No pair keeps more than this, so that a level above it rules out none.
    most = 2.0 * largest_ratio(components)
    sweep = _Sweep(components, leaders.size)
    with chosen(engine).opened(points, sweep) as run:
        # The level is the same for all stripes of a round, so that the effort does
        # not depend on which stripe came first.
        for stripes in (starts[is_first], starts[~is_first]):
            if stripes.size:
                level = min(most, 1.0 - leaders.floor)
                part = run([(int(start), level) for start in stripes], told)
                leaders = leaders.joined(part.leaders.values, part.leaders.pairs)
    return WorstPairs(*leaders.settled(points, components), effort)


def _pays(points: Points, pairs: PairSet, components: Array) -> bool:
    """Return whether a sieve can be used and is worth it."""
    return (
        pairs.listed is None
        and pairs.n_pairs > _SMALL
        # Span coordinates of sparse rows lack what a Gram matrix cannot see.
        and not is_sparse(points.rows)
        and largest_ratio(components) <= _STRETCHED
    )


@single_blas_thread
def _opening(
    points: Points, components: Array, n_worst: int, suspects: Indices | None
) -> Leaders:
    """Return pairs that are likely among the worst, settled."""
    leaders = Leaders(n_worst)
    if suspects is not None and suspects.size:
        losses = exact_losses(points, suspects, components)
        leaders = leaders.joined(losses, np.sort(suspects, axis=1))
    alone = np.flatnonzero(points.first_copy == np.arange(points.n_points))
    chosen = alone[:: max(1, alone.size // _OPENING)]
    linear = points.frame.coordinates_of(components.T)
    rows = points.coordinates[chosen].astype(np.float32)
    ratios = _squared_distances(rows @ linear.astype(np.float32))
    with np.errstate(invalid="ignore", divide="ignore"):
        ratios /= _squared_distances(rows)
    ratios[np.tri(chosen.size, dtype=bool) | ~np.isfinite(ratios)] = np.inf
    count = min(32 + 2 * n_worst, ratios.size - 1)
    lowest = np.argpartition(ratios, count, axis=None)[:count]
    i, j = np.divmod(lowest, chosen.size)
    found = np.column_stack([chosen[i], chosen[j]])[i < j]
    return leaders.joined(exact_losses(points, found, components), found)


def _squared_distances(rows: NDArray[Any]) -> NDArray[Any]:
    norms = squared_lengths(rows)
    return np.asarray(norms[:, None] + norms - 2.0 * (rows @ rows.T))


@dataclass(frozen=True, slots=True, eq=False)
class _Sifted:
    """The worst pairs of some stripes."""

    leaders: Leaders
    effort: Effort


@dataclass(frozen=True, slots=True, eq=False)
class _Sweep:
    """The search as an engine sees it; a task is a stripe's first row and a level."""

    components: Array
    n_worst: int

    def visitor(self, points: Points) -> Visitor[tuple[int, float], _Sifted]:
        linear = points.frame.coordinates_of(self.components.T)
        sieve = Sieve.of(points.coordinates, linear, points.storage)
        screens = Screens(sieve)
        local = threading.local()

        def visit(task: tuple[int, float]) -> _Sifted:
            start, level = task
            harvest = _Harvest(points, self.components, Leaders(self.n_worst), level)
            screen = screens.at(level)
            for found, n_pairs in screen.survivors(points, start, local):
                harvest.add(found, sieve.least(found), n_pairs)
            return harvest.sifted()

        return visit

    def merge(self, parts: Sequence[_Sifted]) -> _Sifted:
        leaders, effort = Leaders(self.n_worst), Effort()
        for part in parts:
            leaders = leaders.joined(part.leaders.values, part.leaders.pairs)
            effort = effort + part.effort
        return _Sifted(leaders, effort)


class _Harvest:
    """What one stripe's blocks leave, settled many at a time, most promising first."""

    def __init__(
        self, points: Points, components: Array, leaders: Leaders, level: float
    ) -> None:
        self.points = points
        self.components = components
        self.leaders = leaders
        self.level = level
        self.n_pairs = self.n_found = self.n_measured = 0
        self.pairs: list[Indices] = []
        self.least: list[Array] = []
        self.n_waiting = 0

    def add(self, found: Indices, least: Array, n_pairs: int) -> None:
        """Add a block: the pairs that survived, what they keep at least, and of all."""
        self.n_pairs += n_pairs
        self.n_found += found.shape[0]
        chosen = least <= self.level
        self.pairs.append(found[chosen])
        self.least.append(least[chosen])
        self.n_waiting += int(chosen.sum())
        if self.n_waiting > _WAITING:
            self._settle()

    def sifted(self) -> _Sifted:
        """Return the worst pairs of the stripe."""
        self._settle()
        effort = Effort(
            self.n_pairs - self.n_found,
            self.n_found - self.n_measured,
            self.n_measured,
        )
        return _Sifted(self.leaders, effort)

    def _settle(self) -> None:
        if not self.n_waiting:
            return
        pairs, least = np.concatenate(self.pairs), np.concatenate(self.least)
        self.pairs, self.least, self.n_waiting = [], [], 0
        order = np.argsort(least, kind="stable")
        for first in range(0, order.size, _SETTLE):
            chunk = order[first : first + _SETTLE]
            chunk = chunk[least[chunk] <= 1.0 - self.leaders.floor]
            if not chunk.size:
                break
            self.n_measured += chunk.size
            losses = exact_losses(self.points, pairs[chunk], self.components)
            self.leaders = self.leaders.joined(losses, pairs[chunk])
