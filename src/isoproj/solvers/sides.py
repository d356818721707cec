"""Both sides of one problem: the best so far, and the steps that better either.

The principal axes and uniform weights give both sides at once. Lower side: the fantope
relaxation, by projected gradients (``relaxation.multipliers``), then, where few pairs
are tight or ``tol`` asks for it, by an interior-point method (``relaxation.path``).
Upper side: local search (``solvers.descent``) from the principal axes, from the
rounding of the relaxation's matrix where that may gain, and from other bases where that
is cheap.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import (
    Array,
    Indices,
    orthonormal,
    top_eigenpairs,
    top_eigenvalue_sum,
)
from isoproj.pairs.oracle import PairSearch, Weakest
from isoproj.solvers.api import Clock, Journal, Problem, Result, Status, Weights
from isoproj.solvers.descent.anneal import Pace, Review, anneal, polish
from isoproj.solvers.descent.grassmann import random_starts
from isoproj.solvers.descent.merit import Merit, Worst
from isoproj.solvers.descent.working_set import WorkingSet, leading
from isoproj.solvers.relaxation.multipliers import Multipliers
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, Relaxation
from isoproj.solvers.settings import DescentSettings, Ladder, Settings

__all__ = ["COARSE", "FIRST_SAMPLE", "TENTH", "Bounds", "Sides"]

# Random pairs whose uniform weights are the first certificate.
FIRST_SAMPLE = 1000
# The lower side goes on while its own gap is more than this share of the open one.
TENTH = 0.1
# And while it is more than this, however wide the gap.
_ROUGH = 0.01
# From this tolerance on a solve saves work; below, it closes the relaxation's own gap.
COARSE = 5e-3
# Rows that the interior point starts with: fewest in multiples of k, and most.
_HEAVY = 8
_MOST_HEAVY = 1500
# The relaxation's own gap from which on the interior point goes on, however many pairs
# are tight.
_LOOSE = 0.1
# The relaxation's own gap from which on its weights are no better start than none.
_FAR = 0.3
# Rounds that bound a problem before a long search.
_EARLY_ROUNDS = 2
# Share of the time left that a bound may take: the searches after it gain as much.
_BOUND_SHARE = 0.4
# A gap that can make a basis optimal where the relaxation's optimum is a projection.
_FINE = 1e-3


@dataclass(slots=True, eq=False)
class Bounds:
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
    phase: str = ""
    n_idle: int = 0  # rounds of polishing, one after another, that gained little

    @property
    def clock(self) -> Clock:
        """Time used and allowed."""
        return self.journal.clock

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
            phase=self.phase,
        )

    @property
    def solver_gap(self) -> float:
        """Relative gap of the relaxation itself."""
        return (min(self.relaxed, self.distortion) - self.lower) / max(
            self.lower, 1e-12
        )

    def is_proved(self, tol: float) -> bool:
        """Return whether the lower side has done its part.

        Nobody waits for the fourth digit of a bound under a gap of seven per cent,
        unless ``tol`` asks for it; under a gap of fifty the second counts all the same.
        """
        share = min(TENTH * self.gap, _ROUGH)
        wanted = share if tol >= COARSE else min(share, tol)
        return self.gap <= tol or self.solver_gap <= wanted

    def review(
        self, basis: Array, excess: float, distortion: float, merit: Merit
    ) -> Review:
        """End polishing when a round gains little, or some that overlooked pairs."""
        before = self.distortion
        self.see(basis, distortion)
        settings = self.settings.at(before)
        is_blind = excess > settings.excess
        self.n_idle = 0 if distortion <= before - settings.gain else self.n_idle + 1
        is_settled = self.n_idle >= (settings.blind_rounds if is_blind else 1)
        start = basis if is_blind else self.basis
        return Review(is_settled, start, merit, is_blind)

    def status(self, search: PairSearch, k: int, tol: float) -> Status:
        """Return why a solve that ran to its end stopped."""
        gap = self.distortion - self.lower
        if gap <= 1e-6 * self.lower + 1e-9:
            return Status.OPTIMAL
        if gap <= _FINE * self.lower and self._is_separated(search, k, min(tol, _FINE)):
            return Status.OPTIMAL
        if tol >= COARSE or self.is_proved(tol):
            return Status.CONVERGED
        closed = self.relaxed <= self.lower * (1.0 + tol) + 1e-9
        return Status.CONVERGED if closed else Status.STALLED

    def _is_separated(self, search: PairSearch, k: int, tol: float) -> bool:
        """Return whether the k-th eigenvalue of the dual matrix is clear of the next.

        Then the relaxation's optimum is a projection, and the basis is that one up to
        the solver's tolerance.
        """
        moment = search.moment(self.codes, self.weights)
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


@dataclass(slots=True, eq=False)
class Sides:
    """Both sides of one problem, solved with searches of all pairs or on a pool."""

    problem: Problem
    settings: Settings
    bounds: Bounds
    rng: np.random.Generator
    pace: tuple[float, ...] = ()  # what the best search had reached stage by stage
    n_tight: float = 0.0  # effective number of tight pairs, known after ``bounded``
    multipliers: Multipliers | None = None

    @property
    def k(self) -> int:
        """Target dimension."""
        return int(self.bounds.basis.shape[1])

    def on_all_pairs(self) -> None:
        """Solve both sides with a search of all pairs whenever one is useful."""
        problem, bounds, tol = self.problem, self.bounds, self.problem.tol
        bounds.enough = tol
        given = None if problem.start is None else orthonormal(problem.start)
        start = bounds.basis if given is None else given
        bounds.phase = "first projection"
        self.first_bounds(start, problem.search.weakest(start, 0.0))
        if problem.search.is_sampled:
            # A search takes long where points are many: the bound does not wait for it.
            self.bounded(start, _EARLY_ROUNDS)
            bounds.phase = "first projection"
        known = self.first_set(problem.search, start, self.known())
        at_start = bounds.distortion
        if not bounds.is_content:
            self.descend(known, start, is_given=given is not None)
        fall = at_start / max(bounds.distortion, 1e-300)
        relaxation = self.bounded(bounds.basis)
        if not bounds.is_proved(tol):
            relaxation = self.closed(relaxation)
        seeds = distinct(known.codes, self.seeds(relaxation))
        known = self.first_set(problem.search, bounds.basis, seeds)
        bounds.phase, before = "search", bounds.distortion
        if not bounds.is_content and (given is not None or self.is_rounding_near(fall)):
            self.descend(known, leading(relaxation.factor, self.k))
        if not bounds.is_content:
            self.restarted(known, 1.0 - bounds.distortion / before)
        if not bounds.is_content:
            bounds.phase = "polishing"
            known = self.cool(known)
            if not bounds.is_content:
                self.polish(known, bounds)
        # A bound that was near enough to a worse basis may be too far from this one.
        if not bounds.is_proved(tol):
            if self.multipliers is not None:
                relaxation = self.bounded(bounds.basis, share=1.0)
            self.closed(relaxation, share=1.0)

    def is_rounding_near(self, fall: float) -> bool:
        """Return whether the relaxation's rounding is a better start than the first.

        ``fall`` is what the principal axes lose, over what the search from them has
        found. Where they lose little more, the basis is as near to them as to the
        rounding, and a search from there ends at the same loss. Where points are many,
        a search is dear.
        """
        is_far = fall >= self.settings.descent.far_start
        return is_far and not self.problem.search.is_sampled

    def seeds(self, relaxation: Relaxation) -> Indices:
        """Return pairs that matter: known ones, and the heaviest of the relaxation."""
        order = np.argsort(-relaxation.weights, kind="stable")
        heavy = relaxation.codes[order[: self.settings.descent.batch_size(self.k)]]
        return distinct(heavy, self.known())

    def first_bounds(self, basis: Array, weakest: Weakest) -> None:
        """See a basis with its weakest pairs, and the bound of uniform weights."""
        bounds, search = self.bounds, self.problem.search
        bounds.see(basis, 1.0 - float(weakest.retained[0]))
        moment = search.moment(bounds.codes, bounds.weights)
        bounds.lower = max(0.0, 1.0 - top_eigenvalue_sum(moment, self.k))
        bounds.tell(bounds.codes.size)

    def descend(
        self, known: WorkingSet, start: Array, *, is_given: bool = False
    ) -> None:
        """Search for a basis from a start, as far as it takes to tell starts apart."""
        bounds, descent = self.bounds, self.settings.descent
        # A given basis begins at lower temperatures than others.
        pace = None if is_given else Pace(self.pace, descent.lags)
        before = bounds.distortion
        ladder = self.ladder(is_given=is_given)
        anneal(known, start, ladder, bounds, pace=pace, settings=descent)
        if pace is not None and bounds.distortion < before:
            self.pace = tuple(pace.own)

    def ladder(self, *, is_given: bool) -> Ladder:
        """Return how a search cools, in shares of what the best basis loses."""
        descent = self.settings.descent
        ladder = replace(descent.ladder, is_relative=True)
        if is_given:
            # A given basis is near an optimum already: heat would only lose it.
            return ladder.last(descent.given_stages)
        return ladder.first(descent.cold_stages)

    def cool(self, known: WorkingSet) -> WorkingSet:
        """Search on from the best basis, at the lowest temperatures.

        The set that is returned holds the pairs that matter there.
        """
        bounds = self.bounds
        descent = self.settings.descent.at(bounds.distortion)
        ladder = descent.ladder.last(descent.cold_stages)
        if known.search.is_sampled:
            ladder = ladder.eased(descent.easing)
        few = descent.few(known.search, self.k)
        if few:
            # A pair that comes within reach later is then checked, not overlooked.
            lowest = known.search.lowest(bounds.basis, few).codes
            known = self.working_set(known.search, distinct(known.codes, lowest))
            reach = descent.reaches(ladder.temperatures[0])
            known.grow(bounds.basis, descent.near, reach=reach, few=few)
        lost = bounds.distortion
        anneal(known, bounds.basis, ladder, bounds, settings=descent, lost=lost)
        return known

    def bounded(
        self, basis: Array, rounds: int | None = None, share: float = _BOUND_SHARE
    ) -> Relaxation:
        """Bound by projected gradients until that is content or gains nothing more.

        No round begins once a share of the time left is used up and, with ``rounds``,
        only so many are made; the next call goes on from there.
        """
        bounds, settings = self.bounds, self.settings.multipliers
        search = self.problem.search
        bounds.phase = "bound"
        if search.n_pairs <= max(self.k, settings.few_tight):
            return self.lower()
        if self.multipliers is None:
            weakest = search.lowest(basis, settings.batch // 2).codes
            sample = search.sample(settings.batch // 2, self.rng)
            codes = distinct(weakest, sample)
            self.multipliers = Multipliers.begin(search, codes, basis, settings)
        state = self.multipliers
        clock = bounds.clock.part(share)
        while not state.is_over and state.n_rounds != rounds:
            scale = min(bounds.distortion, bounds.relaxed)
            bounds.see_relaxation(state.round(max(scale, 1e-9), bounds.clock.lenient))
            # A rounding seldom beats a search; before one it is what there is.
            if rounds is not None:
                bounds.measure(search, leading(state.factor, self.k))
            bounds.tell(state.codes.size)
            if clock.is_over or bounds.is_proved(self.problem.tol):
                break
            state.saw(bounds.lower, bounds.distortion)
        assert state.best is not None
        self.n_tight = state.perplexity
        return state.best

    def closed(self, warm: Relaxation, share: float = _BOUND_SHARE) -> Relaxation:
        """Close the relaxation's own gap where that is affordable or asked for.

        It may take a share of the time left.
        """
        bounds, problem = self.bounds, self.problem
        settings = self.settings.multipliers
        is_few = self.n_tight <= settings.few_tight
        is_loose = bounds.solver_gap > _LOOSE
        if self.multipliers is not None and not self.multipliers.is_over:
            # Time cut its rounds short, or they are good enough.
            return warm
        if problem.tol >= COARSE and not (is_few or is_loose):
            return warm
        bounds.phase = "closing the bound"
        if bounds.solver_gap > _FAR:
            return self.lower(share=share)
        # Multipliers spread weights over many pairs; the heaviest are the rows to start
        # from.
        count = max(_HEAVY * self.k, min(_MOST_HEAVY, int(self.n_tight)))
        heavy = np.argsort(-warm.weights, kind="stable")[:count]
        weights = warm.weights[heavy] / warm.weights[heavy].sum()
        warm = replace(warm, codes=warm.codes[heavy], weights=weights)
        return self.lower(warm, share)

    def restarted(self, known: WorkingSet, gain: float) -> None:
        """Search from further starts where that is cheap or may pay.

        ``gain`` is the share by which the search from the rounding lowered the loss.
        """
        descent, asked = self.settings.descent, self.problem.n_restarts
        n_pairs = known.search.n_pairs
        count = descent.restarts(n_pairs, self.k, gain) if asked is None else asked
        self.bounds.phase = "restarts"
        idle = 0
        for start in self._starts(known, count):
            before = self.bounds.distortion
            self.descend(known, start)
            is_gain = self.bounds.distortion < before * (1.0 - descent.restart_gain)
            idle = 0 if is_gain else idle + 1
            # A number that was asked for is tried in full.
            is_idle = asked is None and idle > descent.restart_patience(n_pairs, self.k)
            if self.bounds.is_content or is_idle:
                return

    def _starts(self, known: WorkingSet, count: int) -> Iterator[Array]:
        """Yield random bases in few dimensions, else the best one, shaken.

        In few dimensions local optima differ much. In many they are alike, and a better
        one is near.
        """
        descent, shape = self.settings.descent, self.bounds.basis.shape
        if self.k <= descent.restart_k:
            yield from random_starts(
                known.secants, Worst(), shape, count, self.rng, descent.n_drawn
            )
            return
        size = descent.shake / math.sqrt(shape[0])
        for _ in range(count):
            noise = self.rng.standard_normal(shape)
            yield orthonormal(self.bounds.basis + size * noise)

    def known(self) -> Indices:
        """Return the codes of pairs that mattered in an earlier solve."""
        if self.problem.known is None:
            return np.empty(0, dtype=np.intp)
        return self.problem.search.encode(np.sort(self.problem.known, axis=1))

    def lower(self, warm: Relaxation | None = None, share: float = 1.0) -> Relaxation:
        """Solve the relaxation by the interior point, and see its rounding."""
        search, bounds = self.problem.search, self.bounds
        clock = bounds.clock.part(share)
        relaxation = solve_relaxation(
            search,
            LargestFloor(self.k, warm),
            tol=self._wanted_gap(),
            callback=partial(self._told, clock),
            settings=self.settings.relaxation.expecting(min(self.n_tight, _MOST_HEAVY)),
        )
        bounds.see_relaxation(relaxation)
        bounds.measure(search, leading(relaxation.factor, self.k))
        bounds.tell(relaxation.codes.size)
        return relaxation

    def _wanted_gap(self) -> float:
        """Return the relaxation's own gap at which it has done its part."""
        tol, descent = self.problem.tol, self.settings.descent
        if self.problem.search.n_pairs <= descent.few_pairs:
            return tol * self.settings.relaxation.closer
        if tol < COARSE:
            return tol
        return min(TENTH * max(tol, self.bounds.gap), _ROUGH)

    def _told(self, clock: Clock, iteration: int, best: Relaxation) -> bool:
        """Tell a step of the interior point; return whether to stop it."""
        bounds = self.bounds
        if iteration and iteration % 4 == 0:
            bounds.see_relaxation(best)
            bounds.tell(best.codes.size)
        return clock.is_over or bounds.is_proved(self.problem.tol)

    def warm(self, start: Array, codes: Indices) -> None:
        """Search from a solution of nearly the same problem."""
        descent, search = self.settings.descent, self.problem.search
        batch = descent.batch_size(self.k)
        lowest = search.lowest(start, descent.warm_batches * batch).codes
        known = WorkingSet(search, distinct(codes, lowest), batch=batch)
        anneal(known, start, descent.warm_ladder, self.bounds, settings=descent)

    def polish(self, known: WorkingSet, bounds: Bounds) -> None:
        """Polish the best basis."""
        bounds.n_idle = 0
        descent = self.settings.descent.at(bounds.distortion)
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
            first = distinct(codes, lowest, sample)
        return self.working_set(search, first)

    def working_set(self, search: PairSearch, codes: Indices) -> WorkingSet:
        """Return some pairs as a set that grows as fast as searches are dear."""
        descent = self.settings.descent
        if search.is_sampled:
            batch, limit = descent.batch_sampled, descent.largest_sampled
        else:
            batch, limit = descent.batch_size(self.k), descent.largest_set
        return WorkingSet(search, codes, batch=batch, limit=limit)
