"""Distortion and bound at one number of dimensions after another.

Upwards, a basis for ``k`` dimensions gets the direction that the pairs losing most lack
most, which can only lower what any pair loses, and local search goes on from there, on
one working set for all. The relaxation is solved at some of the dimensions only, each
from the last: its dual weights bound the distortion at every dimension at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.solvers.api import Clock, Problem
from isoproj.solvers.descent.anneal import Review, anneal, polish
from isoproj.solvers.descent.merit import Merit
from isoproj.solvers.descent.objectives import losses, soft_maximum
from isoproj.solvers.descent.working_set import WorkingSet, leading
from isoproj.solvers.dimensions import bounds_by_dimension
from isoproj.solvers.relaxation.matrices import moment_of
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, Relaxation
from isoproj.solvers.settings import Settings

__all__ = ["CurveResult", "follow"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurveResult:
    """What the solver claims at every dimension; ``certify`` has the last word.

    Parameters
    ----------
    ks : tuple of int
        The dimensions, ascending.
    bases : tuple of ndarray
        One for each.
    relaxations : tuple of Relaxation
        Whose dual weights bound all of them.
    chosen : tuple of int
        For each dimension the relaxation that bounds it best.
    """

    ks: tuple[int, ...]
    bases: tuple[Array, ...]
    relaxations: tuple[Relaxation, ...]
    chosen: tuple[int, ...]


@single_blas_thread
def follow(
    problem: Problem, ks: list[int], settings: Settings | None = None
) -> CurveResult:
    """Find a basis at every dimension, and dual weights that bound them.

    ``ks`` ascend and are below ``n_dims``. Where time runs out, the result has fewer
    dimensions.
    """
    settings = Settings() if settings is None else settings
    curve = _Curve(problem, settings)
    for k in ks:
        curve.add(k, is_last=k == ks[-1])
        if problem.journal.clock.is_over:
            break
    return CurveResult(
        ks=tuple(curve.ks),
        bases=tuple(curve.bases),
        relaxations=tuple(curve.relaxations),
        chosen=tuple(np.argmax(curve.bounds, axis=0)[curve.ks].tolist()),
    )


@dataclass(slots=True, eq=False)
class _Curve:
    """The dimensions done so far, on one working set."""

    problem: Problem
    settings: Settings
    ks: list[int] = field(default_factory=list)
    bases: list[Array] = field(default_factory=list)
    relaxations: list[Relaxation] = field(default_factory=list)
    bounds: list[Array] = field(default_factory=list)
    last_solved: int = 0
    known: WorkingSet = field(init=False)

    def __post_init__(self) -> None:
        search, curve = self.problem.search, self.settings.curve
        sample = search.sample(curve.batch, np.random.default_rng(self.problem.seed))
        self.known = WorkingSet(
            search, sample, batch=curve.batch, limit=curve.largest_set
        )

    def add(self, k: int, *, is_last: bool) -> None:
        """Find a basis for ``k`` dimensions, and bound it."""
        settings = self.settings.curve
        starts = [_extended(self.known, self.bases[-1], k)] if self.bases else []
        stride = max(settings.shortest, round(settings.stale * k))
        if not self.bases or k - self.last_solved >= stride or is_last:
            relaxation = self._relaxed(k)
            if k <= settings.loose_k or not self.bases:
                starts.append(leading(relaxation.factor, k))
        clock: Clock = self.problem.journal.clock
        best = _best(self.known, starts, self.settings, clock)
        self.ks.append(k)
        self.bases.append(best.basis)
        step = Step(
            iteration=k,
            distortion=best.distortion,
            lower_bound=max(float(each[k]) for each in self.bounds),
            seconds=clock.seconds,
            n_working=self.known.size,
            phase=f"{k} dimensions",
        )
        tell(step)

    def _relaxed(self, k: int) -> Relaxation:
        """Solve the relaxation at ``k``, from the last one."""
        search = self.problem.search
        relaxation = solve_relaxation(
            search,
            LargestFloor(k, self.relaxations[-1] if self.relaxations else None),
            tol=self.problem.tol,
            callback=lambda *_: self.problem.journal.clock.is_over,
            settings=self.settings.relaxation,
        )
        self.relaxations.append(relaxation)
        self.bounds.append(bounds_by_dimension(search, relaxation))
        self.last_solved = k
        return relaxation


def _extended(known: WorkingSet, basis: Array, k: int) -> Array:
    """Return the basis with the directions that the worst pairs lack most."""
    while basis.shape[1] < k:
        images = known.secants.images(basis)
        weights = soft_maximum(losses(images), 0.01)[1]
        rows: Indices = np.flatnonzero(weights > 1e-4 * weights.max())
        rows = rows[np.argsort(-weights[rows], kind="stable")[:500]]
        normals = known.secants.explicit(rows) - images[rows] @ basis.T
        count = min(k - basis.shape[1], len(rows))
        fresh = top_eigenpairs(moment_of(normals, weights[rows]), count)[1]
        basis = orthonormal(np.hstack([basis, fresh]))
    return basis


@dataclass(slots=True, eq=False)
class _BestBasis:
    """The basis of least distortion at one dimension."""

    basis: Array
    clock: Clock
    distortion: float = math.inf

    @property
    def is_content(self) -> bool:
        """Whether a search may stop early: never."""
        return False

    def see(self, basis: Array, distortion: float) -> bool:
        """Keep a basis if no earlier one loses less."""
        is_better = distortion < self.distortion
        if is_better:
            self.basis, self.distortion = basis, distortion
        return is_better

    def tell(self, n_working: int) -> None:
        """Tell nothing: one step is told for each dimension."""

    def review(
        self, basis: Array, excess: float, distortion: float, merit: Merit
    ) -> Review:
        """End polishing after one round."""
        del excess
        self.see(basis, distortion)
        return Review(True, basis, merit)


def _best(
    known: WorkingSet, starts: list[Array], settings: Settings, clock: Clock
) -> _BestBasis:
    """Search from every start, and polish the best basis once."""
    best, ladder = _BestBasis(starts[0], clock), settings.curve.ladder
    descent = settings.descent
    for start in starts:
        best.see(start, known.grow(start, 2.0 * descent.near)[1])
        anneal(known, start, ladder, best, settings=descent)
    if best.basis.size <= descent.small_basis:
        one = replace(descent, programmes=1)
        temperature = ladder.temperatures[-1]
        polish(known, best.basis, best, rounds=1, temperature=temperature, settings=one)
    return best
