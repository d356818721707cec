"""Find the worst pairs alone, exactly, without measuring most of the others.

A certificate needs the worst pairs, not the spread of all others. Some bad pairs are
known early, from suspects and from a sample. A sieve rules out every pair that
certainly keeps more than these, and only the others are settled in float64 from their
rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from isoproj.engines.base import Engine, Visitor, chosen
from isoproj.numerics.arrays import is_sparse
from isoproj.numerics.progress import Walk, tell
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.blocks import SquaredDistances, Workspace
from isoproj.pairs.full_scan import (
    LARGEST_FLOAT32_RATIO,
    largest_ratio,
    summarise,
)
from isoproj.pairs.losses import NEARLY_EVEN, Leaders, exact_losses, unevenness
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.pairs.screening import Screens, Sieve
from isoproj.pairs.settings import USUAL, PairSettings

# One stripe of this many comes in the first round, which sets the level of the second.
_FIRST = 16
# Survivors that wait before the most promising of them are settled, as a multiple of
# those that are settled at a time.
_WAITING = 64


@dataclass(frozen=True, slots=True)
class Effort:
    """How many pairs were ruled out how, and how many were measured.

    Pairs are ruled out by the narrow product of a block, or by their bound from more
    coordinates. Others are settled from the rows, or ruled out by a full-width product.
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
    """The pairs that lose most under a linear map, worst first; ties by index."""

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
    engine: Engine | None = None,
    settings: PairSettings = USUAL,
) -> WorstPairs:
    """Return the worst pairs under a linear map, the same as ``summarise`` finds.

    ``components`` has shape (k, n_features). ``suspects`` are pairs of distinct points
    that are likely bad; they save time and do not change the answer.
    """
    if not _pays(points, pairs, components, settings):
        summary = summarise(
            points,
            pairs,
            components,
            n_worst=n_worst,
            engine=engine,
            settings=settings,
        )
        effort = Effort(measured=summary.n_pairs)
        return WorstPairs(summary.worst_pairs, summary.worst_losses, effort)
    sweep = _Sweep(components, min(n_worst, pairs.n_pairs), settings)
    leaders = sweep.opening(points, suspects)
    return _screened(points, pairs.n_pairs, sweep, leaders, engine)


def _screened(
    points: Points,
    n_pairs: int,
    sweep: _Sweep,
    leaders: Leaders,
    engine: Engine | None,
) -> WorstPairs:
    """Return the worst of all pairs, given some that are likely among them."""
    effort = Effort()
    tell(Walk(0, n_pairs))

    def told(part: _Part) -> None:
        nonlocal effort
        effort = effort + part.effort
        tell(Walk(effort.n_pairs, n_pairs))

    starts = np.arange(0, points.n_points, sweep.settings.block_rows)
    is_first = np.arange(starts.size) % _FIRST == 0
    # No pair keeps more than this, so a higher level rules out no pair.
    most = 2.0 * largest_ratio(sweep.components)
    with chosen(engine).opened(points, sweep) as run:
        # All stripes of a round have one level, so that the effort does not depend on
        # which stripe is done first.
        for stripes in (starts[is_first], starts[~is_first]):
            if stripes.size:
                level = min(most, 1.0 - leaders.floor)
                part = run([(int(start), level) for start in stripes], told)
                leaders = leaders.joined(part.leaders.values, part.leaders.pairs)
    return WorstPairs(*leaders.settled(points, sweep.components), effort)


def _pays(
    points: Points, pairs: PairSet, components: Array, settings: PairSettings
) -> bool:
    """Return whether a sieve can be used and costs less than a scan of all pairs."""
    return (
        pairs.listed is None
        and pairs.n_pairs > settings.few_pairs
        # Span coordinates of sparse rows lack what a Gram matrix cannot see.
        and not is_sparse(points.rows)
        and largest_ratio(components) <= LARGEST_FLOAT32_RATIO
        # Where all pairs lose nearly the same, a sieve rules out none.
        and unevenness(points, components) > NEARLY_EVEN
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """The worst pairs of some stripes, and how many pairs were ruled out how."""

    leaders: Leaders
    effort: Effort


@dataclass(frozen=True, slots=True, eq=False)
class _Sweep:
    """The search as an engine runs it; a task is a stripe's first row and a level."""

    components: Array
    n_worst: int
    settings: PairSettings

    @single_blas_thread
    def opening(self, points: Points, suspects: Indices | None) -> Leaders:
        """Return pairs that are likely among the worst, with their exact losses."""
        leaders = Leaders(self.n_worst)
        if suspects is not None and suspects.size:
            losses = exact_losses(points, suspects, self.components)
            leaders = leaders.joined(losses, np.sort(suspects, axis=1))
        alone = np.flatnonzero(points.first_copy == np.arange(points.n_points))
        chosen = alone[:: max(1, alone.size // self.settings.block_rows)]
        linear = points.frame.coordinates_of(self.components.T)
        rows = points.coordinates[chosen]
        ratios = SquaredDistances.of(rows @ linear, np.float32).table()
        with np.errstate(invalid="ignore", divide="ignore"):
            ratios /= SquaredDistances.of(rows, np.float32).table()
        ratios[np.tri(chosen.size, dtype=bool) | ~np.isfinite(ratios)] = np.inf
        count = min(32 + 2 * self.n_worst, ratios.size - 1)
        lowest = np.argpartition(ratios, count, axis=None)[:count]
        i, j = np.divmod(lowest, chosen.size)
        found = np.column_stack([chosen[i], chosen[j]])[i < j]
        return leaders.joined(exact_losses(points, found, self.components), found)

    def visitor(self, points: Points) -> Visitor[tuple[int, float], _Part]:
        linear = points.frame.coordinates_of(self.components.T)
        sieve = Sieve.of(points.coordinates, linear, points.storage, self.settings)
        screens, workspace = Screens(sieve), Workspace()

        def visit(task: tuple[int, float]) -> _Part:
            start, level = task
            survivors = _Survivors(points, self, level)
            for found, n_pairs in screens.at(level).survivors(points, start, workspace):
                survivors.add(found, sieve.least(found), n_pairs)
            return survivors.part()

        return visit

    def merge(self, parts: Sequence[_Part]) -> _Part:
        leaders, effort = Leaders(self.n_worst), Effort()
        for part in parts:
            leaders = leaders.joined(part.leaders.values, part.leaders.pairs)
            effort = effort + part.effort
        return _Part(leaders, effort)


class _Survivors:
    """Pairs of one stripe that are not ruled out, settled most promising first."""

    def __init__(self, points: Points, sweep: _Sweep, level: float) -> None:
        self.points = points
        self.components = sweep.components
        self.settings = sweep.settings
        self.leaders = Leaders(sweep.n_worst)
        self.level = level
        self.n_pairs = self.n_found = self.n_measured = 0
        self.pairs: list[Indices] = []
        self.least: list[Array] = []
        self.n_waiting = 0

    def add(self, found: Indices, least: Array, n_pairs: int) -> None:
        """Add survivors of a block of ``n_pairs`` pairs, with their lower bounds."""
        self.n_pairs += n_pairs
        self.n_found += found.shape[0]
        chosen = least <= self.level
        self.pairs.append(found[chosen])
        self.least.append(least[chosen])
        self.n_waiting += int(chosen.sum())
        if self.n_waiting > _WAITING * self.settings.n_settled:
            self._settle()

    def part(self) -> _Part:
        """Return the worst pairs of the stripe."""
        self._settle()
        effort = Effort(
            self.n_pairs - self.n_found,
            self.n_found - self.n_measured,
            self.n_measured,
        )
        return _Part(self.leaders, effort)

    def _settle(self) -> None:
        if not self.n_waiting:
            return
        pairs, least = np.concatenate(self.pairs), np.concatenate(self.least)
        self.pairs, self.least, self.n_waiting = [], [], 0
        order = np.argsort(least, kind="stable")
        step = self.settings.n_settled
        for first in range(0, order.size, step):
            chunk = order[first : first + step]
            chunk = chunk[least[chunk] <= 1.0 - self.leaders.floor]
            if not chunk.size:
                break
            # No pair loses more than its whole length; pairs that lose it tie.
            chunk = chunk[self.leaders.may_join(pairs[chunk], np.ones(chunk.size))]
            if not chunk.size:
                continue
            self.n_measured += chunk.size
            losses = exact_losses(self.points, pairs[chunk], self.components)
            self.leaders = self.leaders.joined(losses, pairs[chunk])
