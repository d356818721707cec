"""Local search for a basis of the minimax problem, and the best of it so far.

Descent on the Grassmannian at falling temperature (``solvers.grassmann``) on a working
set of pairs that grows by searches of all pairs until the worst pair overall is inside;
then sequential quadratic programming on the tight pairs (``solvers.tight``), which
removes what smoothing left.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Journal
from isoproj.solvers.descent.sqp import finish
from isoproj.solvers.descent.working_set import (
    SMALL_BASIS,
    WorkingSet,
    batch_size,
    cooled,
)
from isoproj.solvers.relaxation.path import Relaxation

__all__ = ["FEW", "TEMPERATURES", "Progress", "anneal", "first_set", "polish", "see"]

TEMPERATURES = (0.05, 0.02, 0.008, 0.003, 0.001, 0.0003, 0.0001)
# Few enough pairs to work on all of them, and to close the solver gap for nothing.
FEW = 6_000
# A scan may find a pair this much worse than the working set's worst.
_EXCESS = 1e-5
# Polishing ends when a round gains less.
_GAIN = 2e-5


@dataclass(slots=True, eq=False)
class Progress:
    """The best of both sides so far."""

    journal: Journal
    basis: Array
    codes: Indices
    weights: Array
    distortion: float = math.inf
    lower: float = 0.0
    relaxed: float = math.inf
    factor: Array | None = None

    @property
    def gap(self) -> float:
        """Relative gap between both sides."""
        return (self.distortion - self.lower) / max(self.lower, 1e-12)

    def see_basis(self, basis: Array, distortion: float) -> None:
        """Keep a basis if no earlier one loses less."""
        if distortion < self.distortion:
            self.basis, self.distortion = basis, distortion

    def see_relaxation(self, relaxation: Relaxation) -> None:
        """Keep of a relaxation what is better than before, either side."""
        if relaxation.lower > self.lower:
            self.lower = relaxation.lower
            self.codes, self.weights = relaxation.codes, relaxation.weights
        if relaxation.relaxed < self.relaxed:
            self.relaxed, self.factor = relaxation.relaxed, relaxation.factor

    def tell(self, n_working: int) -> None:
        """Record a round; stop when a limit has passed."""
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            relaxed=self.relaxed,
            n_working=n_working,
        )


def see(search: PairSearch, basis: Array, progress: Progress) -> None:
    """Measure a basis on all pairs."""
    weakest = search.weakest(basis, 0.0)
    progress.see_basis(basis, 1.0 - float(weakest.retained[0]))


def first_set(
    search: PairSearch, start: Array, codes: Indices, rng: np.random.Generator
) -> tuple[WorkingSet, int]:
    """Return the pairs to begin with, and how many may be added at once."""
    count = batch_size(start.shape[1])
    if search.n_pairs <= FEW:
        first = search.sample(FEW * FEW, rng)
    else:
        lowest = search.lowest(start, count // 2).codes
        sample = search.sample(count // 2, rng)
        # The bad pairs of one basis alone would mislead the hot stages, whose
        # smoothed maximum is close to an average over all pairs.
        first = np.unique(np.concatenate([codes, lowest, sample]))
    return WorkingSet(search, first), count


def anneal(
    known: WorkingSet,
    basis: Array,
    count: int,
    temperatures: tuple[float, ...],
    progress: Progress,
    enough: float = 0.0,
) -> None:
    """Cool down, and at each temperature grow the set until it holds the worst.

    Nothing is left to do once the gap is small enough.
    """
    worst = math.inf
    for temperature in temperatures:
        for _ in range(6):
            moved = cooled(known.secants, basis, temperature)
            excess, overall = known.grow(moved, 2.0 * temperature + 0.005, count)
            progress.see_basis(moved, overall)
            # Blind to the pairs just added, a cold move may be a step back.
            if excess < temperature or overall < worst or temperature > 0.01:
                basis, worst = moved, overall
            progress.tell(known.codes.size)
            if progress.gap <= enough:
                return
            if excess < temperature:
                break


def polish(known: WorkingSet, basis: Array, count: int, progress: Progress) -> None:
    """Alternate exact programmes on the tight pairs with searches of all pairs."""
    rounds, programmes = (8, 3) if basis.size <= SMALL_BASIS else (1, 1)
    for _ in range(rounds):
        before = progress.distortion
        moved = finish(known.secants, basis, max_iter=programmes)
        excess, overall = known.grow(moved, 0.005, count)
        progress.see_basis(moved, overall)
        progress.tell(known.codes.size)
        if excess <= _EXCESS and overall > before - _GAIN:
            break
        basis = progress.basis
        if excess > _EXCESS:
            basis = cooled(known.secants, moved, TEMPERATURES[-1])
