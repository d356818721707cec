"""Most of an objective under a cap on what any pair may lose.

Upper side of the value: the relaxation under the cap, whose multipliers are the
certificate. Lower side: from the rounding of the relaxation's matrix, descent at
falling temperature on an exact penalty (``descent.merit.Capped``), on a working set
that grows by searches of all pairs; then sequential quadratic programming on the tight
pairs, which ends with every pair of the set under the cap. What is returned has been
under the cap in a search of all pairs, by a margin that covers the search's rounding.

Where a search of all pairs takes seconds, both sides are solved on a pool of pairs
(``solvers.large``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import (
    Clock,
    Journal,
    Problem,
    Result,
    Status,
    Stopped,
    Weights,
)
from isoproj.solvers.descent.anneal import Review, anneal, polish
from isoproj.solvers.descent.grassmann import random_starts
from isoproj.solvers.descent.merit import Capped, Merit
from isoproj.solvers.descent.sqp import finish
from isoproj.solvers.descent.working_set import WorkingSet, leading
from isoproj.solvers.large import Pool, generate
from isoproj.solvers.minimax import minimax
from isoproj.solvers.relaxation.multipliers import Multipliers
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import MostKept, Relaxation
from isoproj.solvers.settings import CapSettings, Settings
from isoproj.solvers.sides import COARSE, FIRST_SAMPLE, TENTH

__all__ = ["guaranteed", "most_kept", "principal_basis"]


def principal_basis(objective: Array, k: int) -> Array:
    """Return the basis that keeps most of the objective when nothing is capped."""
    return top_eigenpairs(objective, k)[1]


def most_kept(problem: Problem, settings: Settings | None = None) -> Result:
    """Find what keeps most of the objective under the cap, given or found.

    Without a cap, the least distortion is found first, and the cap is ``1 + slack``
    times that.
    """
    settings = Settings() if settings is None else settings
    if problem.cap is not None:
        unconstrained = _principal(problem, settings.cap)
        if unconstrained is not None:
            return unconstrained
    journal = problem.journal
    # With a time limit, some of the time is left for what this function is about.
    first = replace(journal, clock=journal.clock.part(settings.cap.first_share))
    best = minimax(replace(problem, journal=first), settings)
    cap = problem.cap
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


def _principal(problem: Problem, settings: CapSettings) -> Result | None:
    """Return PCA itself if it is under the cap: then nothing keeps more."""
    search, k, cap = problem.search, problem.k, problem.cap
    assert k is not None
    assert cap is not None
    assert problem.objective is not None
    basis = principal_basis(problem.objective, k)
    distortion = 1.0 - float(search.weakest(basis, 0.0).retained[0])
    if distortion > cap - settings.accepted * settings.margin and cap < 1.0:
        return None
    sample = search.sample(FIRST_SAMPLE, np.random.default_rng(problem.seed))
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
        Of ``minimax`` for the same points and ``k``.
    starts : tuple of ndarray of shape (n_dims, k)
        Bases to start from besides the relaxation's, for example one known to be under
        the cap.
    settings : Settings or None
        Tuning figures.

    Returns
    -------
    Result
        ``OPTIMAL`` if no cap was needed or both sides meet, ``CONVERGED`` if the search
        ended, ``STALLED`` if the relaxation stopped improving before its gap closed,
        else the limit that stopped it.
    """
    settings = Settings() if settings is None else settings
    if problem.tol >= COARSE:
        descent = replace(settings.descent, is_partial=False)
        settings = replace(settings, cap=settings.cap.coarse(), descent=descent)
    search, k, objective = problem.search, problem.k, problem.objective
    assert k is not None
    assert objective is not None
    assert problem.cap is not None
    problem.journal.begin()
    kept = _Kept(
        problem.journal, search, settings.cap, objective, problem.cap, best.lower
    )
    principal = principal_basis(objective, k)
    status = Status.OPTIMAL
    if not kept.measure(principal) and problem.cap < 1.0:
        try:
            for start in starts:
                kept.measure(start)
            solve = _Capped(problem, settings, kept, _anchor(search, best), starts)
            status = solve.run(principal)
        except Stopped as stop:
            status = stop.status
        except KeyboardInterrupt:
            status = Status.INTERRUPTED
        principal = best.basis if kept.basis is None else kept.basis
    multipliers = Weights()
    if kept.relaxation is not None:
        codes = kept.relaxation.codes
        multipliers = Weights(search.decode(codes), kept.relaxation.weights)
    return replace(
        best,
        basis=principal,
        fallbacks=(*starts, best.basis),
        status=best.status if best.status.advice else status,
        cap=problem.cap,
        multipliers=multipliers,
        history=tuple(problem.journal.history),
    )


def _anchor(search: PairSearch, best: Result) -> Relaxation:
    """Return the minimax relaxation's solution as a strictly feasible point."""
    return Relaxation(
        search.encode(best.dual.pairs),
        best.dual.weights,
        best.basis if best.factor is None else best.factor,
        1.0 - best.lower,
        1.0 - best.relaxed,
    )


@dataclass(slots=True, eq=False)
class _Kept:
    """The best basis under the cap so far, and the best bound."""

    journal: Journal
    search: PairSearch
    settings: CapSettings
    objective: Array
    cap: float
    lower: float
    relaxation: Relaxation | None = None
    basis: Array | None = None
    kept: float = -math.inf
    distortion: float = math.inf
    last: float = -math.inf  # what was kept after the last round of polishing
    phase: str = ""

    @property
    def clock(self) -> Clock:
        """Time used and allowed."""
        return self.journal.clock

    @property
    def is_content(self) -> bool:
        """Whether a search may stop early."""
        return self.settings.is_hasty and self.is_close

    @property
    def is_close(self) -> bool:
        """Whether next to nothing of the bound is missing."""
        if self.relaxation is None:
            return False
        return self.kept >= (1.0 - self.settings.close) * self.relaxation.upper

    def is_under(self, distortion: float) -> bool:
        """Return whether a distortion is safely under the cap."""
        return distortion <= self.cap - self.settings.accepted * self.settings.margin

    def see(self, basis: Array, distortion: float) -> bool:
        """Keep a basis if it is under the cap and the best such; say whether."""
        kept = float(np.vdot(basis, self.objective @ basis))
        is_better = self.is_under(distortion) and kept > self.kept
        if is_better:
            self.basis, self.kept, self.distortion = basis, kept, distortion
        return is_better

    def measure(self, basis: Array) -> bool:
        """Measure a basis on all pairs, and keep it if it is the best."""
        weakest = self.search.weakest(basis, 0.0)
        return self.see(basis, 1.0 - float(weakest.retained[0]))

    def bound(self, relaxation: Relaxation) -> None:
        """Keep a bound if none is lower; weights of any pairs bound all of them."""
        if self.relaxation is None or relaxation.upper < self.relaxation.upper:
            self.relaxation = relaxation

    def tell(self, n_working: int) -> None:
        """Record a round; stop when a limit has passed."""
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            n_working=n_working,
            kept=max(self.kept, 0.0),
            kept_bound=1.0 if self.relaxation is None else self.relaxation.upper,
            phase=self.phase,
        )

    def review(
        self, basis: Array, excess: float, distortion: float, merit: Merit
    ) -> Review:
        """End polishing when a round under the cap gains little."""
        is_better = self.see(basis, distortion)
        if self.is_under(distortion):
            is_settled = not is_better or self.kept < self.last + self.settings.gain
            self.last = self.kept
            return Review(is_settled, basis, merit)
        if isinstance(merit, Capped) and distortion - excess > merit.cap:
            # The penalty is not exact yet: local multipliers exceed the relaxation's.
            price = merit.price / self.settings.cheaper
            return Review(False, basis, replace(merit, price=price), True)
        return Review(False, basis, merit)


@dataclass(slots=True, eq=False)
class _Capped:
    """Both sides of one problem under a cap."""

    problem: Problem
    settings: Settings
    kept: _Kept
    anchor: Relaxation
    starts: tuple[Array, ...]

    @property
    def k(self) -> int:
        """Target dimension."""
        assert self.problem.k is not None
        return self.problem.k

    def run(self, principal: Array) -> Status:
        """Solve both sides; return why the solve stopped."""
        kept, search = self.kept, self.kept.search
        rng = np.random.default_rng(self.problem.seed)
        if search.is_slow:
            settings = self.settings.pool
            lowest = search.lowest(principal, settings.most).codes
            known = np.concatenate([search.recent, self.anchor.codes, lowest])
            pool = Pool.begin(search, known, rng, settings)
            self._on_pool(pool, rng)
        else:
            self._early(principal)
            kept.relaxation = self.relaxed(search)
            kept.tell(kept.relaxation.codes.size)
            self.search(kept, rng)
        relaxation = kept.relaxation
        assert relaxation is not None
        if kept.kept >= relaxation.upper * (1.0 - 1e-6):
            return Status.OPTIMAL
        tol = self.problem.tol
        missing = relaxation.upper - max(relaxation.value, kept.kept)
        is_closed = missing <= tol * relaxation.upper + 1e-12
        return Status.CONVERGED if tol >= COARSE or is_closed else Status.STALLED

    def _early(self, principal: Array) -> None:
        """Win back what a short search can, before the relaxation is known.

        The price of the penalty is guessed from both ends: the basis under the cap, and
        the one that keeps most.
        """
        kept, descent = self.kept, self.settings.descent
        if kept.basis is None:
            return
        kept.phase = "first search"
        batch = descent.batch_size(self.k)
        lowest = kept.search.lowest(principal, batch)
        root = _root(kept.objective)
        known = WorkingSet(kept.search, distinct(lowest.codes), root, batch)
        rise = 1.0 - float(lowest.retained[0]) - kept.distortion
        most = float(np.vdot(principal, kept.objective @ principal))
        slope = (most - kept.kept) / max(rise, 1e-9)
        cap = kept.cap - self.settings.cap.margin
        merit = Capped(cap, 1.0 / (1.5 * slope + 0.5), len(root))
        basis = self._approach(kept, known, merit, principal)
        ladder = replace(self.settings.cap.ladder, is_loose=True)
        ladder = ladder.last(descent.cold_stages)
        anneal(known, basis, ladder, kept, merit=merit, settings=descent)

    def relaxed(self, search: PairSearch) -> Relaxation:
        """Solve the relaxation under the cap over the pairs of a search.

        The interior point is for few pairs, and where ``tol`` asks for its digits.
        """
        kept, tol = self.kept, self.problem.tol
        programme = MostKept.of(search, self.k, kept.objective, kept.cap, self.anchor)
        if tol >= COARSE and search.n_pairs > self.settings.multipliers.few_tight:
            return self._bounded(search, programme)
        kept.phase = "closing the bound"
        return solve_relaxation(
            search,
            programme,
            tol=tol,
            callback=self._told,
            settings=self.settings.relaxation,
        )

    def _told(self, iteration: int, best: Relaxation) -> bool:
        """Tell a step of the interior point; return whether to stop it."""
        if iteration % 4 == 0:
            if best.codes.size:
                self.kept.bound(replace(best, value=0.0))
            self.kept.tell(best.codes.size)
        return self.kept.clock.is_over

    def _bounded(self, search: PairSearch, programme: MostKept) -> Relaxation:
        """Bound by projected gradients until that is content or gains nothing more."""
        kept, settings = self.kept, self.settings.multipliers
        kept.phase = "bound"
        principal = principal_basis(kept.objective, self.k)
        lowest = search.lowest(principal, settings.batch // 2).codes
        state = Multipliers.begin_capped(search, programme, lowest, settings)
        is_over = False
        while not is_over:
            state.round(max(kept.cap, 1e-9), kept.clock)
            best = state.best
            assert best is not None
            # A matrix that is known on some pairs only has no value.
            is_whole = search is kept.search
            kept.bound(best if is_whole else replace(best, value=0.0))
            kept.tell(state.codes.size)
            state.saw(best.upper, max(kept.kept, 0.0))
            open_gap = best.upper - max(kept.kept, 0.0)
            is_closed = best.upper - best.value <= TENTH * open_gap
            is_over = state.is_over or is_closed or kept.is_close
        assert state.best is not None
        return state.best

    def search(
        self, kept: _Kept, rng: np.random.Generator, found: Array | None = None
    ) -> None:
        """Search from the relaxation's rounding and from every start.

        With ``found``, a basis found on fewer pairs, go on from that instead.
        """
        assert kept.relaxation is not None
        kept.phase = "search"
        search, descent = kept.search, self.settings.descent
        ladder = self.settings.cap.ladder
        cold = ladder.last(descent.cold_stages)
        rounded = leading(kept.relaxation.factor, self.k)
        known = self._first_set(kept, rounded, rng)
        merit = self._merit(kept, known)
        if found is not None:
            self._descend(kept, known, merit, found, cold.temperatures)
            return
        before = kept.kept
        self._descend(kept, known, merit, rounded, ladder.temperatures)
        is_many = search.n_pairs > descent.few_pairs or self.k > descent.restart_k
        if is_many and self.problem.tol >= COARSE and kept.kept > before:
            # From elsewhere little more is to be had.
            return
        # A start under the cap must not leave it: any lower price is exact as well.
        merit = replace(merit, price=merit.price / self.settings.cap.cheapest)
        for start in self.starts:
            if kept.is_close:
                return
            self._descend(kept, known, merit, start, cold.temperatures)
        if kept.is_close or is_many:
            return
        for start in random_starts(
            known.secants, merit, rounded.shape, descent.n_restarts, rng
        ):
            if kept.is_close:
                break
            self._descend(kept, known, merit, start, ladder.temperatures)

    def _first_set(
        self, kept: _Kept, rounded: Array, rng: np.random.Generator
    ) -> WorkingSet:
        """Return the pairs to begin with, and the rows of the objective."""
        assert kept.relaxation is not None
        search, batch = kept.search, self.settings.descent.batch_size(self.k)
        codes = np.concatenate(
            [
                kept.relaxation.codes,
                search.lowest(rounded, batch // 2).codes,
                search.sample(batch // 2, rng),
            ]
        )
        return WorkingSet(search, distinct(codes), _root(kept.objective), batch)

    def _merit(self, kept: _Kept, known: WorkingSet) -> Capped:
        """Return the exact penalty: its price is below one over the multipliers."""
        assert kept.relaxation is not None
        price = 1.0 / (1.5 * float(kept.relaxation.weights.sum()) + 0.5)
        assert known.further is not None
        return Capped(kept.cap - self.settings.cap.margin, price, len(known.further))

    def _descend(
        self,
        kept: _Kept,
        known: WorkingSet,
        merit: Capped,
        basis: Array,
        temperatures: tuple[float, ...],
    ) -> None:
        """Cool down with a growing set, then solve for the tight pairs exactly."""
        descent, cap = self.settings.descent, self.settings.cap
        ladder = replace(cap.ladder, temperatures=temperatures)
        before = math.inf
        while True:
            basis = anneal(known, basis, ladder, kept, merit=merit, settings=descent)
            if kept.is_content:
                return
            excess = float(known.losses(basis).max()) - kept.cap
            if excess <= cap.far or excess > cap.paying * before:
                break
            # Local multipliers may exceed the relaxation's by far: above the cap, more
            # is kept than the penalty costs.
            merit = replace(merit, price=merit.price / cap.cheaper)
            before = excess
        kept.last = -math.inf
        rest = polish(
            known,
            basis,
            kept,
            merit=merit,
            rounds=cap.rounds,
            temperature=temperatures[-1],
            settings=descent,
        )
        if rest is not None and kept.basis is not None:
            self._retreat(kept, known, merit, rest)

    def _retreat(
        self, kept: _Kept, known: WorkingSet, merit: Capped, basis: Array
    ) -> None:
        """Go from the best basis under the cap towards another, then polish."""
        descent = self.settings.descent
        basis = self._approach(kept, known, merit, basis)
        for _ in range(self.settings.cap.halvings):
            basis = finish(
                known.secants, basis, merit=merit, max_iter=1, settings=descent
            )
            _, overall = known.grow(basis, descent.near, cap=merit.cap)
            kept.tell(known.size)
            if not kept.see(basis, overall):
                break

    def _approach(
        self, kept: _Kept, known: WorkingSet, merit: Capped, basis: Array
    ) -> Array:
        """Go from the best basis under the cap towards one above it, by bisection."""
        assert kept.basis is not None
        left, _, right = np.linalg.svd(basis.T @ kept.basis)
        inside, outside = kept.basis, basis @ (left @ right)
        low, high = 0.0, 1.0
        for _ in range(self.settings.cap.halvings):
            middle = 0.5 * (low + high)
            between = orthonormal((1.0 - middle) * inside + middle * outside)
            _, overall = known.grow(between, self.settings.descent.near, cap=merit.cap)
            kept.see(between, overall)
            kept.tell(known.size)
            low, high = (middle, high) if overall <= kept.cap else (low, middle)
        return orthonormal((1.0 - low) * inside + low * outside)

    def _on_pool(self, pool: Pool, rng: np.random.Generator) -> None:
        """Solve both sides with few searches of all pairs."""
        rounds = range(self.settings.pool.capped_rounds)

        def told(_number: int, _is_last: bool) -> None:
            self.kept.tell(pool.codes.size)

        generate(pool, _PooledBound(self), rounds, told)
        side = _PooledSearch(self, rng)
        is_whole = generate(pool, side, rounds, told)
        if is_whole or side.found is None or self.kept.basis is None:
            return
        known = WorkingSet(
            self.kept.search,
            pool.codes,
            _root(self.kept.objective),
            self.settings.descent.batch_size(self.k),
        )
        self._approach(self.kept, known, self._merit(self.kept, known), side.found)


@dataclass(slots=True, eq=False)
class _PooledBound:
    """The relaxation under a cap on a pool.

    Multipliers on pairs of the pool bound what any projection keeps, whatever the pool
    lacks; a pool that lacks pairs only makes the bound worse.
    """

    capped: _Capped
    relaxation: Relaxation | None = None

    def solve(self, inside: PairSearch) -> tuple[Array, float]:
        """Solve the relaxation on the pool."""
        self.relaxation = self.capped.relaxed(inside)
        return self.relaxation.factor, self.capped.kept.cap

    def accept(self, distortion: float) -> bool:
        """Keep the best bound; a matrix that some pair outside forbids has no value."""
        relaxation, kept = self.relaxation, self.capped.kept
        assert relaxation is not None
        is_whole = distortion <= kept.cap * (1.0 + self.capped.problem.tol)
        if not is_whole:
            relaxation = replace(relaxation, value=0.0)
        kept.bound(relaxation)
        return is_whole


@dataclass(slots=True, eq=False)
class _PooledSearch:
    """The search for a basis under a cap on a pool."""

    capped: _Capped
    rng: np.random.Generator
    found: Array | None = None
    distortion: float = math.inf

    def solve(self, inside: PairSearch) -> tuple[Array, float] | None:
        """Search on the pool, from what the last round found there."""
        kept = self.capped.kept
        own = replace(
            kept,
            journal=kept.journal.silent(),
            search=inside,
            basis=None,
            kept=-math.inf,
            distortion=math.inf,
        )
        self.capped.search(own, self.rng, self.found)
        if own.basis is None:
            return None
        self.found = own.basis
        return own.basis, own.distortion

    def accept(self, distortion: float) -> bool:
        """Keep the basis if it is under the cap over all pairs."""
        assert self.found is not None
        self.capped.kept.see(self.found, distortion)
        return self.capped.kept.is_under(distortion)


def _root(objective: Array) -> Array:
    """Return rows ``F`` with ``F^T F`` the objective."""
    values, vectors = np.linalg.eigh(objective)
    keep = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, keep] * np.sqrt(values[keep])).T)
