"""The default solver: both sides of the minimax problem, each by its own method.

Lower side: the fantope relaxation by an interior-point method over all pairs
(``solvers.relaxation``); its dual weights are the certificate. Upper side: local search
from the rounding of the relaxation's matrix (``solvers.descent``).

The relaxation is convex, so its gap goes to zero with work (``tol``). The gap between
basis and bound may stay open: the relaxation is not always tight, and local search
promises a local optimum only.

Where a search of all pairs takes seconds, both sides are solved on a pool of pairs
(``solvers.large``).
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from isoproj.numerics.container import Header, Tensors
from isoproj.numerics.progress import Step
from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Journal, Problem, Result, Status, Stopped, Weights
from isoproj.solvers.descent.anneal import Review, anneal, polish
from isoproj.solvers.descent.grassmann import random_starts
from isoproj.solvers.descent.merit import Merit, Worst
from isoproj.solvers.descent.working_set import WorkingSet, leading
from isoproj.solvers.large import Pool, generate
from isoproj.solvers.relaxation.matrices import moment_of
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, Relaxation
from isoproj.solvers.settings import DescentSettings, Settings

__all__ = ["minimax", "refine"]

# Random pairs whose uniform weights are the first certificate.
_FIRST_SAMPLE = 1000


@dataclass(slots=True, eq=False)
class _Bounds:
    """The best of both sides so far."""

    journal: Journal
    settings: DescentSettings
    basis: Array
    codes: Indices
    weights: Array
    distortion: float = math.inf
    lower: float = 0.0
    relaxed: float = math.inf
    factor: Array | None = None
    enough: float = 0.0
    is_stalled: bool = False

    @property
    def gap(self) -> float:
        """Relative gap between both sides."""
        return (self.distortion - self.lower) / max(self.lower, 1e-12)

    @property
    def is_content(self) -> bool:
        """Whether the gap is small enough."""
        return self.gap <= self.enough

    def see(self, basis: Array, distortion: float) -> bool:
        """Keep a basis if no earlier one loses less."""
        is_better = distortion < self.distortion
        if is_better:
            self.basis, self.distortion = basis, distortion
        return is_better

    def see_relaxation(self, relaxation: Relaxation) -> None:
        """Keep of a relaxation what is better than before, either side."""
        self.is_stalled = not relaxation.is_closed
        if relaxation.lower > self.lower:
            self.lower = relaxation.lower
            self.codes, self.weights = relaxation.codes, relaxation.weights
        if relaxation.relaxed < self.relaxed:
            self.relaxed, self.factor = relaxation.relaxed, relaxation.factor

    def measure(self, search: PairSearch, basis: Array) -> None:
        """Measure a basis on all pairs, and keep it if it is the best."""
        self.see(basis, 1.0 - float(search.weakest(basis, 0.0).retained[0]))

    def tell(self, n_working: int) -> None:
        """Record a round; stop when a limit has passed."""
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            relaxed=self.relaxed,
            n_working=n_working,
        )

    def review(
        self, basis: Array, excess: float, distortion: float, merit: Merit
    ) -> Review:
        """End polishing when a round gains little and overlooked no pair."""
        before = self.distortion
        self.see(basis, distortion)
        is_blind = excess > self.settings.excess
        is_settled = not is_blind and distortion > before - self.settings.gain
        start = basis if is_blind else self.basis
        return Review(is_settled, start, merit, is_blind)

    def status(self, search: PairSearch, k: int, tol: float) -> Status:
        """Return why a solve that ran to its end stopped."""
        gap = self.distortion - self.lower
        if gap <= 1e-6 * self.lower + 1e-9:
            return Status.OPTIMAL
        if gap <= tol * self.lower and self._is_separated(search, k, tol):
            return Status.OPTIMAL
        if self.relaxed <= self.lower * (1.0 + tol) + 1e-9:
            return Status.CONVERGED
        return Status.STALLED

    def _is_separated(self, search: PairSearch, k: int, tol: float) -> bool:
        """Return whether the k-th eigenvalue of the dual matrix is clear of the next.

        Then the relaxation's optimum is a projection, and the basis is that one up to
        the solver's tolerance.
        """
        moment = moment_of(search.directions(self.codes), self.weights)
        values, _ = top_eigenpairs(moment, k + 1)
        return bool(values[k - 1] - values[k] > 2.0 * tol * values[k - 1])

    def result(self, search: PairSearch, status: Status) -> Result:
        """Return what is claimed."""
        return Result(
            basis=self.basis,
            dual=Weights(search.decode(self.codes), self.weights),
            status=status,
            distortion=self.distortion,
            lower=self.lower,
            relaxed=self.relaxed,
            factor=self.factor,
            history=tuple(self.journal.history),
        )


@single_blas_thread
def minimax(problem: Problem, settings: Settings | None = None) -> Result:
    """Find a basis and dual weights whose values are close together.

    Returns
    -------
    Result
        ``OPTIMAL`` if the two sides meet (within ``tol`` where the k-th eigenvalue of
        the dual matrix stands clear of the next), ``CONVERGED`` if the solver gap
        closed and local search ended, ``STALLED`` if the relaxation stopped improving
        before, else the limit that stopped it.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Problem
    >>> from isoproj.solvers.minimax import minimax
    >>> search = PairSearch(*prepare_pairs(np.eye(6), rotate=True))
    >>> result = minimax(Problem(search=search, k=2))
    >>> result.distortion >= result.lower
    True
    """
    settings = Settings() if settings is None else settings
    search, k = problem.search, problem.k
    assert k is not None
    rng = np.random.default_rng(problem.seed)
    codes = search.sample(_FIRST_SAMPLE, rng)
    bounds = _Bounds(
        journal=problem.journal,
        settings=settings.descent,
        basis=np.eye(problem.n_dims, k),
        codes=codes,
        weights=np.full(codes.size, 1.0 / codes.size),
    )
    solve = _Solve(problem, settings, bounds, rng)
    try:
        if problem.checkpoint is not None or (
            search.is_slow and search.n_pairs > settings.descent.few_pairs
        ):
            solve.on_pool()
        else:
            solve.on_all_pairs()
        status = bounds.status(search, k, problem.tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return bounds.result(search, status)


@single_blas_thread
def refine(
    problem: Problem,
    last: Result,
    gap: float,
    settings: Settings | None = None,
) -> Result:
    """Go on from a solution of nearly the same problem until its gap is back.

    Dual weights bound the problem with more pairs as they are, so the basis comes
    first: from where it was, warm enough to leave it. Where that does not bring the gap
    back, the relaxation goes on from the weights; where the old basis was no place to
    start from, the search begins anew.

    Parameters
    ----------
    problem : Problem
        The points as they are now.
    last : Result
        What was found before.
    gap : float
        Relative gap between both sides that is good enough, up to ``tol``.
    settings : Settings or None
        Tuning figures.
    """
    settings = Settings() if settings is None else settings
    search, tol = problem.search, problem.tol
    start = orthonormal(last.basis)
    k = start.shape[1]
    codes = search.encode(np.sort(last.dual.pairs, axis=1))
    bounds = _Bounds(
        journal=problem.journal,
        settings=settings.descent,
        basis=start,
        codes=codes,
        weights=last.dual.weights,
        lower=last.lower,
        enough=gap + tol,
    )
    solve = _Solve(problem, settings, bounds, np.random.default_rng(problem.seed))
    try:
        bounds.measure(search, start)
        solve.warm(start, codes)
        status = Status.CONVERGED
        if not bounds.is_content:
            warm = Relaxation(codes, last.dual.weights, start, 1.0, 0.0)
            relaxation = solve.lower(warm)
            if not bounds.is_content:
                bounds.enough = 0.0
                starts = [leading(relaxation.factor, k)]
                solve.upper(starts, bounds.basis, relaxation.codes)
            status = bounds.status(search, k, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return bounds.result(search, status)


@dataclass(slots=True, eq=False)
class _Solve:
    """Both sides of one problem, solved with searches of all pairs or on a pool."""

    problem: Problem
    settings: Settings
    bounds: _Bounds
    rng: np.random.Generator

    @property
    def k(self) -> int:
        """Target dimension."""
        return int(self.bounds.basis.shape[1])

    def on_all_pairs(self) -> None:
        """Solve both sides with a search of all pairs whenever one is useful."""
        problem, descent = self.problem, self.settings.descent
        search, n_restarts = problem.search, problem.n_restarts
        relaxation = self.lower()
        if n_restarts is None:
            is_cheap = search.n_pairs <= descent.restart_pairs
            is_loose = self.k <= descent.restart_k
            n_restarts = descent.n_restarts if is_cheap and is_loose else 0
        given = None if problem.start is None else orthonormal(problem.start)
        starts = [leading(relaxation.factor, self.k)]
        starts += [np.eye(problem.n_dims, self.k)] if n_restarts else []
        codes = np.union1d(relaxation.codes, self.known())
        self.upper(starts, given, codes, n_restarts)

    def known(self) -> Indices:
        """Return the codes of pairs that mattered in an earlier solve."""
        if self.problem.known is None:
            return np.empty(0, dtype=np.intp)
        return self.problem.search.encode(np.sort(self.problem.known, axis=1))

    def lower(self, warm: Relaxation | None = None) -> Relaxation:
        """Solve the relaxation over all pairs, and see its rounding."""
        search, tol = self.problem.search, self.problem.tol
        settings = self.settings.relaxation
        if search.n_pairs <= self.settings.descent.few_pairs:
            tol *= settings.closer
        relaxation = solve_relaxation(
            search,
            LargestFloor(self.k, warm),
            tol=tol,
            callback=lambda *_: self.bounds.journal.clock.is_over,
            settings=settings,
        )
        self.bounds.see_relaxation(relaxation)
        self.bounds.measure(search, leading(relaxation.factor, self.k))
        self.bounds.tell(relaxation.codes.size)
        return relaxation

    def upper(
        self,
        starts: list[Array],
        given: Array | None,
        codes: Indices,
        n_restarts: int = 0,
    ) -> None:
        """Search from every start, then polish the best to a local optimum."""
        descent, bounds = self.settings.descent, self.bounds
        known = self.first_set(self.problem.search, starts[0], codes)
        drawn = random_starts(
            known.secants,
            Worst(),
            starts[0].shape,
            n_restarts,
            self.rng,
            descent.n_drawn,
        )
        for start in starts + drawn:
            anneal(known, start, descent.ladder, bounds, settings=descent)
        if given is not None:
            # A given basis is near an optimum already: heat would only lose it.
            bounds.measure(self.problem.search, given)
            cold = descent.ladder.last(descent.cold_stages)
            anneal(known, given, cold, bounds, settings=descent)
        self.polish(known, bounds)

    def warm(self, start: Array, codes: Indices) -> None:
        """Search from a solution of nearly the same problem."""
        descent, search = self.settings.descent, self.problem.search
        batch = descent.batch_size(self.k)
        lowest = search.lowest(start, descent.warm_batches * batch).codes
        known = WorkingSet(search, np.union1d(codes, lowest), batch=batch)
        anneal(known, start, descent.warm_ladder, self.bounds, settings=descent)

    def polish(self, known: WorkingSet, bounds: _Bounds) -> None:
        """Polish the best basis."""
        descent = self.settings.descent
        is_small = bounds.basis.size <= descent.small_basis
        polish(
            known,
            bounds.basis,
            bounds,
            rounds=descent.rounds if is_small else 1,
            temperature=descent.ladder.temperatures[-1],
            settings=descent,
        )

    def first_set(self, search: PairSearch, start: Array, codes: Indices) -> WorkingSet:
        """Return the pairs to begin with: known, weakest, and random ones."""
        descent, rng = self.settings.descent, self.rng
        batch = descent.batch_size(self.k)
        if search.n_pairs <= descent.few_pairs:
            first = search.sample(descent.few_pairs**2, rng)
        else:
            lowest = search.lowest(start, batch // 2).codes
            sample = search.sample(batch // 2, rng)
            # The bad pairs of one basis alone would mislead the hot stages, whose
            # smoothed maximum is close to an average over all pairs.
            first = np.unique(np.concatenate([codes, lowest, sample]))
        return WorkingSet(search, first, batch=batch, limit=descent.largest_set)

    def on_pool(self) -> None:
        """Solve both sides with few searches of all pairs, saved after each."""
        problem, bounds = self.problem, self.bounds
        checkpoint = problem.checkpoint
        stored = None if checkpoint is None else checkpoint.load()
        if stored is None:
            pool = Pool.begin(
                problem.search, bounds.basis, self.known(), self.rng, self.settings.pool
            )
            state = _Pooled(self, pool, problem.start)
        else:
            state = _Pooled.restored(self, *stored)
        while state.stage != "done":
            side = (
                _PooledLower(state) if state.stage == "lower" else _PooledUpper(state)
            )
            generate(state.pool, side, state.rounds(), state.finished)


@dataclass(slots=True, eq=False)
class _Pooled:
    """A solve on a pool of pairs, between two searches of all pairs."""

    solve: _Solve
    pool: Pool
    start: Array | None
    stage: str = "lower"
    n_rounds: int = 0
    relaxation: Relaxation | None = None
    violation: float = math.inf

    def rounds(self) -> range:
        """Return the numbers of the rounds that this stage may still take."""
        return range(self.n_rounds, self.pool.settings.rounds)

    def finished(self, number: int, is_last: bool) -> None:
        """Count a round, tell it, and save the state."""
        self.n_rounds = number + 1
        if is_last:
            self.stage = "upper" if self.stage == "lower" else "done"
            self.n_rounds = 0
        bounds, checkpoint = self.solve.bounds, self.solve.problem.checkpoint
        # What a limit has cut short is not what a run without it would have found.
        is_whole = not bounds.journal.clock.is_over
        try:
            bounds.tell(self.pool.codes.size)
        finally:
            if checkpoint is not None and is_whole:
                checkpoint.save(*self.parts())

    def parts(self) -> tuple[dict[str, Any], dict[str, Array | Indices]]:
        """Return all that a restarted solve needs, as a dict and named arrays."""
        assert self.relaxation is not None
        relaxation, bounds = self.relaxation, self.solve.bounds
        state = {
            "stage": self.stage,
            "n_rounds": self.n_rounds,
            "n_iter": relaxation.n_iter,
            "rng": self.solve.rng.bit_generator.state,
            "history": [asdict(step) for step in bounds.journal.history],
        }
        arrays: dict[str, Array | Indices | None] = {
            "pool": self.pool.codes,
            "start": self.start,
            "relaxation_codes": relaxation.codes,
            "relaxation_weights": relaxation.weights,
            "relaxation_factor": relaxation.factor,
            "relaxation_values": np.array(
                [relaxation.lower, relaxation.relaxed, self.violation]
            ),
            "basis": bounds.basis,
            "codes": bounds.codes,
            "weights": bounds.weights,
            "factor": bounds.factor,
            "values": np.array([bounds.distortion, bounds.lower, bounds.relaxed]),
        }
        return state, {n: a for n, a in arrays.items() if a is not None}

    @staticmethod
    def restored(solve: _Solve, state: Header, arrays: Tensors) -> _Pooled:
        """Return the state that ``parts`` took apart; bounds and draws too."""
        bounds = solve.bounds
        solve.rng.bit_generator.state = state["rng"]
        bounds.journal.history.extend(Step(**step) for step in state["history"])
        bounds.basis, bounds.factor = arrays["basis"], arrays.get("factor")
        bounds.codes, bounds.weights = arrays["codes"], arrays["weights"]
        values = [float(value) for value in arrays["values"]]
        bounds.distortion, bounds.lower, bounds.relaxed = values
        lower, relaxed, violation = (float(v) for v in arrays["relaxation_values"])
        relaxation = Relaxation(
            arrays["relaxation_codes"],
            arrays["relaxation_weights"],
            arrays["relaxation_factor"],
            1.0 - lower,
            1.0 - relaxed,
            int(state["n_iter"]),
        )
        search, settings = solve.problem.search, solve.settings.pool
        return _Pooled(
            solve,
            Pool(search, arrays["pool"], settings),
            arrays.get("start"),
            str(state["stage"]),
            int(state["n_rounds"]),
            relaxation,
            violation,
        )


@dataclass(slots=True, eq=False)
class _PooledLower:
    """The relaxation on a pool."""

    state: _Pooled

    def solve(self, inside: PairSearch) -> tuple[Array, float]:
        """Solve the relaxation as exactly as the pool deserves."""
        state, solve = self.state, self.state.solve
        # While the pool lacks pairs that matter, its own optimum matters little.
        tol = max(0.3 * solve.problem.tol, 0.2 * state.violation)
        relaxation = solve_relaxation(
            inside,
            LargestFloor(solve.k, state.relaxation),
            tol=min(state.pool.settings.loose_gap, tol),
            callback=lambda *_: solve.bounds.journal.clock.is_over,
            settings=solve.settings.relaxation,
        )
        state.relaxation = relaxation
        return relaxation.factor, relaxation.relaxed

    def accept(self, distortion: float) -> bool:
        """Keep both sides; the relaxed value is that over all pairs."""
        state, bounds = self.state, self.state.solve.bounds
        assert state.relaxation is not None
        bounds.see_relaxation(replace(state.relaxation, value=1.0 - distortion))
        state.violation = distortion / max(state.relaxation.lower, 1e-12) - 1.0
        return distortion <= bounds.lower * (1.0 + state.solve.problem.tol)


@dataclass(slots=True, eq=False)
class _PooledUpper:
    """The search for a basis on a pool."""

    state: _Pooled
    own: _Bounds | None = field(default=None)

    def solve(self, inside: PairSearch) -> tuple[Array, float]:
        """Search from the relaxation's rounding, or go on from the last round."""
        state, solve = self.state, self.state.solve
        assert state.relaxation is not None
        descent = solve.settings.descent
        ladder, basis = descent.ladder, leading(state.relaxation.factor, solve.k)
        if state.start is not None:
            ladder = descent.ladder.last(descent.cold_stages)
            basis = orthonormal(state.start)
        own = replace(
            solve.bounds, journal=solve.bounds.journal.silent(), distortion=math.inf
        )
        known = solve.first_set(inside, basis, state.relaxation.codes)
        anneal(known, basis, ladder, own, settings=descent)
        solve.polish(known, own)
        self.own, state.start = own, own.basis
        return own.basis, own.distortion

    def accept(self, distortion: float) -> bool:
        """Keep the basis with its loss over all pairs."""
        assert self.own is not None
        self.state.solve.bounds.see(self.own.basis, distortion)
        tol = 0.1 * self.state.solve.problem.tol
        return distortion <= self.own.distortion * (1.0 + tol)
