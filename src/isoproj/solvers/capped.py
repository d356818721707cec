"""Most of an objective under a cap on what any pair may lose.

Both sides of the value are those of the loop. Lower side: the relaxation under the cap,
whose multipliers bound what any projection keeps. Upper side: a search on an exact
penalty, from the rounding of the relaxation's matrix and from bases known to be under
the cap. What is returned has been under the cap in a search of all pairs, by a margin
that covers the search's rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.anneal import Search
from isoproj.solvers.api import Clock, Journal, Problem, Result, Status, Weights
from isoproj.solvers.drive import Searches, drive, minimax
from isoproj.solvers.fantope import Fantope, Goal, Relaxation, leading
from isoproj.solvers.grassmann import random_basis
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Merit
from isoproj.solvers.working_set import WorkingSet


def root_of(objective: Array) -> Array:
    """Return rows ``F`` with ``F^T F`` the objective."""
    values, vectors = np.linalg.eigh(objective)
    keep = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, keep] * np.sqrt(values[keep])).T)


def most_kept(problem: Problem, settings: Settings) -> Result:
    """Find what keeps most of the objective under the cap, given or found.

    Without a cap, the least distortion is found first, and the cap is ``1 + slack``
    times that.
    """
    journal, cap = problem.journal, problem.cap
    if cap is not None:
        unconstrained = _principal(problem, cap, settings)
        if unconstrained is not None:
            return unconstrained
    # With a time limit, some of the time is left for what this function is about.
    first = replace(journal, clock=journal.clock.part(0.4))
    plain = replace(problem, objective=None, cap=None, journal=first)
    best = minimax(plain, settings)
    if best.status is Status.INTERRUPTED:
        # Whoever stops a fit does not want to wait for its second half.
        return replace(best, cap=0.0 if cap is None else cap)
    if cap is None:
        cap = min(1.0, (1.0 + problem.slack) * max(0.0, best.distortion))
    elif cap < best.lower:
        return replace(best, cap=cap)
    starts: tuple[Array, ...] = (best.basis,)
    if problem.start is not None:
        starts = (*starts, problem.start)
    return guaranteed(replace(problem, cap=cap), best, starts, settings)


def _principal(problem: Problem, cap: float, settings: Settings) -> Result | None:
    """Return PCA itself if it is under the cap: then nothing keeps more."""
    search = problem.search
    assert problem.k is not None
    assert problem.objective is not None
    basis = top_eigenpairs(problem.objective, problem.k)[1]
    distortion = 1.0 - float(search.weakest(basis, 0.0).retained[0])
    if distortion > cap - 0.3 * settings.margin and cap < 1.0:
        return None
    sample = search.sample(1000, np.random.default_rng(problem.seed))
    uniform = np.full(sample.size, 1.0 / sample.size)
    return Result(
        basis=basis,
        dual=Weights(search.decode(sample), uniform),
        status=Status.OPTIMAL,
        distortion=distortion,
        cap=cap,
    )


@single_blas_thread
def guaranteed(
    problem: Problem,
    best: Result,
    starts: tuple[Array, ...],
    settings: Settings | None = None,
) -> Result:
    """Find the basis under a cap that keeps most, and multipliers that bound it.

    Parameters
    ----------
    problem : Problem
        With objective and cap.
    best : Result
        Of a solve for the least distortion, for the same points and ``k``.
    starts : tuple of ndarray of shape (n_dims, k)
        Bases to start from besides the relaxation's, for example one known to be under
        the cap.
    settings : Settings or None
        Tuning figures.

    Returns
    -------
    Result
        The best basis under the cap and the multipliers.
    """
    settings = Settings() if settings is None else settings
    search, k, objective = problem.search, problem.k, problem.objective
    assert k is not None
    assert objective is not None
    assert problem.cap is not None
    problem.journal.begin()
    kept = _Kept(problem.journal, search, settings, objective, problem)
    kept.lower = best.lower
    basis = top_eigenpairs(objective, k)[1]
    status = Status.OPTIMAL
    if not kept.measure(basis) and problem.cap < 1.0:
        for start in starts:
            kept.measure(start)
        lower = _CappedLower(problem, settings, kept, best)
        rng = np.random.default_rng(problem.seed)
        upper = _CappedUpper(problem, settings, rng, kept=kept, starts=starts)
        status = drive(kept, [lower, upper])
        basis = best.basis if kept.basis is None else kept.basis
    multipliers = Weights()
    if kept.relaxation is not None:
        codes = kept.relaxation.codes
        multipliers = Weights(search.decode(codes), kept.relaxation.weights)
    return replace(
        best,
        basis=basis,
        fallbacks=(*starts, best.basis),
        status=best.status if best.status.advice else status,
        cap=problem.cap,
        multipliers=multipliers,
        history=tuple(problem.journal.history),
    )


@dataclass(slots=True, eq=False)
class _Kept:
    """The best basis under the cap so far, and the best bound on what is kept."""

    journal: Journal
    search: PairSearch
    settings: Settings
    objective: Array
    problem: Problem
    lower: float = 0.0
    relaxation: Relaxation | None = None
    basis: Array | None = None
    kept: float = -math.inf
    distortion: float = math.inf

    @property
    def cap(self) -> float:
        """What no pair may lose more than."""
        assert self.problem.cap is not None
        return self.problem.cap

    @property
    def upper(self) -> float:
        """No projection under the cap keeps more."""
        return 1.0 if self.relaxation is None else self.relaxation.upper

    @property
    def open(self) -> float:
        """What lies between both sides."""
        return self.upper - max(self.kept, 0.0)

    @property
    def scale(self) -> float:
        """Size of the losses that matter."""
        return max(self.cap, 1e-6)

    @property
    def is_enough(self) -> bool:
        """Whether next to nothing of the bound is missing."""
        return self.open <= 0.5 * self.problem.tol * self.upper

    @property
    def status(self) -> Status:
        """Why a solve that ran to its end stopped."""
        if self.open <= 1e-6 * self.upper:
            return Status.OPTIMAL
        is_close = self.open <= self.problem.tol * self.upper
        return Status.CONVERGED if is_close else Status.SETTLED

    def is_under(self, distortion: float) -> bool:
        """Return whether a distortion is safely under the cap."""
        return distortion <= self.cap - 0.3 * self.settings.margin

    def see(self, basis: Array, distortion: float) -> None:
        """Keep a basis if it is under the cap and the best such."""
        kept = float(np.vdot(basis, self.objective @ basis))
        if self.is_under(distortion) and kept > self.kept:
            self.basis, self.kept, self.distortion = basis, kept, distortion

    def measure(self, basis: Array) -> bool:
        """See a basis after a search of all pairs; return whether it is under."""
        distortion = 1.0 - float(self.search.weakest(basis, 0.0).retained[0])
        self.see(basis, distortion)
        return self.is_under(distortion)

    def bound(self, relaxation: Relaxation) -> None:
        """Keep a bound if none is lower; weights of any pairs bound all of them."""
        if self.relaxation is None or relaxation.upper < self.relaxation.upper:
            self.relaxation = relaxation

    def tell(self, phase: str, n_working: int) -> None:
        """Record a step; raise ``Stopped`` when a limit has passed."""
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            n_working=n_working,
            kept=max(self.kept, 0.0),
            kept_bound=self.upper,
            phase=phase,
        )


@dataclass(slots=True, eq=False)
class _CappedLower:
    """The multipliers that bound what is kept under the cap."""

    problem: Problem
    settings: Settings
    kept: _Kept
    best: Result
    phase: str = "bound"
    rate: float = 1e300
    is_over: bool = False
    state: Fantope | None = None
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = self.kept.journal.clock.part(0.5)

    def step(self) -> tuple[float, int]:
        """Make a round."""
        kept, search = self.kept, self.kept.search
        if self.state is None:
            self.state = self._begun()
        self.state.round(max(kept.cap, 1e-9), self.clock)
        best = self.state.best
        assert best is not None
        kept.bound(best)
        is_near = best.upper - best.value <= 0.1 * kept.open
        has_stopped = self.state.has_stopped_gaining(best.upper, max(kept.kept, 0.0))
        self.is_over = has_stopped or is_near or self.clock.is_over
        return self.state.work + search.n_pairs, int(self.state.codes.size)

    def _begun(self) -> Fantope:
        """Return the state before the first round, at the matrix without an objective.

        That is strictly under the cap, as far as it has been found.
        """
        kept, best, search = self.kept, self.best, self.kept.search
        anchor = best.basis if best.factor is None else best.factor
        least = float(search.weakest(anchor, 0.0).retained[0])
        goal = Goal(kept.objective, kept.cap, anchor, least)
        codes = search.encode(np.sort(best.dual.pairs, axis=1))
        warm = Relaxation(codes, best.dual.weights, anchor, 1.0, least)
        k = best.basis.shape[1]
        tol = min(self.problem.tol, 0.01)
        return Fantope.begin_capped(search, goal, k, warm, self.settings, tol)


@dataclass(slots=True, eq=False)
class _CappedUpper(Searches):
    """The search on an exact penalty.

    The rounding of the relaxation's matrix comes first, then, where that has led
    nowhere, the bases that are given.
    """

    kept: _Kept = field(kw_only=True)
    starts: tuple[Array, ...] = ()
    excess: float = math.inf

    @property
    def goal(self) -> _Kept:
        """What both sides share."""
        return self.kept

    @property
    def n_sure(self) -> int:
        """Number of starts that are made in any case."""
        is_found = self.kept.basis is not None and self.n_starts > 0
        return 1 if is_found else 1 + len(self.starts)

    def _begun(self) -> Search:
        """Return the search from the next start."""
        kept, settings, relaxation = self.kept, self.settings, self.kept.relaxation
        assert relaxation is not None
        assert self.problem.k is not None
        price = 1.0 / (1.5 * float(relaxation.weights.sum()) + 0.5)
        first = settings.warm if kept.search.is_large else settings.hottest
        basis = leading(relaxation.factor, self.problem.k)
        if 0 < self.n_starts < self.n_sure:
            # A start under the cap must not leave it: any lower price is exact as well.
            basis, first = self.starts[self.n_starts - 1], settings.warm
            price *= 0.01
        weakest = kept.search.lowest(basis, settings.batch // 2).codes
        known = WorkingSet.begin(
            kept.search,
            distinct(relaxation.codes, weakest),
            settings,
            self.rng,
            root_of(kept.objective),
        )
        cap = kept.cap - settings.margin
        merit = Merit.capped(self.problem.k, cap, price)
        if self.n_starts >= self.n_sure:
            basis = random_basis(known.secants, merit, basis.shape, self.rng)
            # Heat leads most starts to one place. Where the cap leaves bases in parts,
            # every second start stays in its own.
            if self.n_starts % 2:
                merit = Merit.capped(self.problem.k, cap, 0.01 * price)
                first = settings.warm
        self.excess = math.inf
        return Search(known, basis, merit, self._temperatures(first), settings)

    def _temperatures(self, first: float) -> list[float]:
        """Return temperatures, as shares of the cap."""
        return self.settings.temperatures(min(self.problem.tol, 0.01), first)

    def _has_ended(self, search: Search, temperature: float) -> bool:
        """Return whether a search has ended; if so, go back under the cap."""
        self._reprice(search, self.goal.scale * temperature)
        if not search.is_over:
            return False
        excess = search.reached - self.kept.cap
        if 0.01 * self.kept.cap < excess <= 0.8 * self.excess:
            # Local multipliers exceed the relaxation's: it goes on at a lower price.
            search.temperatures = self._temperatures(self.settings.warm)
            self.excess = excess
            return False
        self._retreat(search)
        return True

    def _reprice(self, search: Search, temperature: float) -> None:
        """Set the price so that pairs have two thirds of the penalty's weight.

        With more they are above the cap, with less they are kept further below it than
        they need to be.
        """
        merit, secants = search.merit, search.known.secants
        assert merit.prices is not None
        lost = 1.0 - merit.retained(secants.images(search.basis))
        rates = merit.smoothed(lost, len(secants), temperature)[1]
        share = float(rates[: len(secants)].sum())
        factor = min(max(2.0 / (3.0 * max(share, 1e-3)), 1.0 / 3.0), 3.0)
        search.merit = replace(merit, prices=merit.prices * factor)

    def _retreat(self, search: Search) -> None:
        """Go from the best basis under the cap towards one above it, by bisection."""
        kept, basis = self.kept, search.basis
        if kept.basis is None or kept.is_under(search.distortion):
            return
        left, _, right = np.linalg.svd(basis.T @ kept.basis)
        inside, outside = kept.basis, basis @ (left @ right)
        low, high = 0.0, 1.0
        for _ in range(8):
            middle = 0.5 * (low + high)
            between = orthonormal((1.0 - middle) * inside + middle * outside)
            is_under = kept.measure(between)
            low, high = (middle, high) if is_under else (low, middle)
