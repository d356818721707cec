"""The loop: two sides of one problem, and the next step for the one that gains.

The upper side searches for a basis, the lower side for what proves a bound. Each makes
one step at a time, and says how many multiplications it took. The next step goes to the
side whose last step closed more of the gap for its work. The loop ends when the gap is
``tol``, when neither side gains any more, or when a limit is reached. Both sides are
known and told after every step.

Every question asks this loop: a fit, the fewest dimensions under a cap, a curve, a fit
with more points, the separate projections of a nested one. With an objective under a
cap, the sides are those of ``solvers.capped``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.container import Header, Tensors
from isoproj.numerics.progress import OutOfTime, Step, ending_within
from isoproj.numerics.spectral import (
    Array,
    Indices,
    orthonormal,
    top_eigenvalue_sum,
)
from isoproj.proof.hull import MOST_DIMENSIONS
from isoproj.solvers.anneal import Search
from isoproj.solvers.api import (
    Clock,
    Journal,
    Problem,
    Result,
    Status,
    Stopped,
    Subspace,
    Weights,
)
from isoproj.solvers.fantope import Fantope, Relaxation, leading
from isoproj.solvers.grassmann import random_basis
from isoproj.solvers.hull import hull_search
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Merit
from isoproj.solvers.working_set import WorkingSet

# A gap that rounding cannot tell from none, relative and absolute.
_NONE = 1e-6, 1e-9


class Side(Protocol):
    """One side of a problem."""

    phase: str
    rate: float  # what its last step closed of the gap, for each multiplication
    is_over: bool  # whether it has stopped gaining

    def step(self) -> tuple[float, int]:
        """Make a step; return its work, and the number of pairs it worked on."""


class Goal(Protocol):
    """What both sides share: the best of each, and when that is enough."""

    journal: Journal

    @property
    def open(self) -> float:
        """What lies between both sides."""

    @property
    def scale(self) -> float:
        """Size of the losses that matter."""

    @property
    def is_enough(self) -> bool:
        """Whether nothing is left to do."""

    @property
    def status(self) -> Status:
        """Why a solve that ran to its end stopped."""

    def see(self, basis: Array, distortion: float) -> None:
        """Keep a basis if it is the best."""

    def tell(self, phase: str, n_working: int) -> None:
        """Record a step; raise ``Stopped`` when a limit has passed."""


def drive(
    goal: Goal, sides: Sequence[Side], save: Callable[[], None] | None = None
) -> Status:
    """Make steps until both sides are done or a limit is reached; return which.

    ``save`` is called after every whole step. A step ends early where a walk over
    pairs in it would not end within the limit.
    """
    clock = goal.journal.clock
    try:
        while not goal.is_enough:
            live = [side for side in sides if not side.is_over]
            if not live:
                break
            side = max(live, key=lambda side: side.rate)
            before = goal.open
            with ending_within(clock.left):
                work, n_working = side.step()
            side.rate = max(0.0, before - goal.open) / max(work, 1.0)
            try:
                goal.tell(side.phase, n_working)
            finally:
                # What a limit has cut short is not what a run without would have found.
                if save is not None and not clock.is_over:
                    save()
    except Stopped as stop:
        return stop.status
    except OutOfTime:
        return Status.TIME_LIMIT
    except KeyboardInterrupt:
        return Status.INTERRUPTED
    return goal.status


@dataclass(slots=True, eq=False)
class Bounds:
    """The best of both sides so far, for the least distortion.

    Parameters
    ----------
    journal : Journal
        Clock and rounds.
    basis : ndarray of shape (n_dims, k)
        The best basis.
    codes, weights : ndarray of shape (m,)
        Pairs and weights that prove the best bound.
    tol : float
        Relative gap that is enough.
    cap : float or None
        With a cap, knowing on which side of it the least distortion lies is enough.
    weakest : ndarray of shape (q,)
        Pairs that the first basis keeps least of.
    """

    journal: Journal
    basis: Array
    codes: Indices
    weights: Array
    tol: float
    cap: float | None = None
    weakest: Indices = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    distortion: float = math.inf
    lower: float = 0.0
    relaxed: float = math.inf
    factor: Array | None = None
    hull: Subspace | None = None

    @property
    def gap(self) -> float:
        """Relative gap between both sides."""
        return self.open / max(self.lower, 1e-12)

    @property
    def open(self) -> float:
        """What lies between both sides."""
        return self.distortion - self.lower

    @property
    def fine_tol(self) -> float:
        """Relative accuracy at which either side works, however wide the gap may be."""
        return min(self.tol, 0.01)

    @property
    def is_met(self) -> bool:
        """Whether rounding cannot tell both sides apart."""
        return self.open <= _NONE[0] * self.lower + _NONE[1]

    @property
    def is_enough(self) -> bool:
        """Whether the gap is small enough, or the cap's question answered."""
        if self.cap is not None:
            is_under = self.distortion <= self.cap
            return is_under or self.lower > self.cap * (1.0 + _NONE[1])
        return self.is_met or self.gap <= self.tol

    @property
    def is_proved(self) -> bool:
        """Whether the relaxation's own gap is a small part of the open one."""
        relaxed = min(self.relaxed, self.distortion)
        own_gap = (relaxed - self.lower) / max(self.lower, 1e-12)
        return own_gap <= min(0.1 * self.gap, self.fine_tol)

    @property
    def scale(self) -> float:
        """Size of the losses that matter."""
        return min(1.0, max(self.distortion, 1e-6))

    @property
    def status(self) -> Status:
        """Why a solve that ran to its end stopped."""
        if self.is_met:
            return Status.OPTIMAL
        return Status.CONVERGED if self.gap <= self.tol else Status.SETTLED

    def see(self, basis: Array, distortion: float) -> None:
        """Keep a basis if no earlier one loses less."""
        if distortion < self.distortion:
            self.basis, self.distortion = basis, distortion

    def see_relaxation(self, relaxation: Relaxation) -> None:
        """Keep of a relaxation what is better than before, either side."""
        if relaxation.lower > self.lower:
            self.lower, self.hull = relaxation.lower, None
            self.codes, self.weights = relaxation.codes, relaxation.weights
        if relaxation.relaxed < self.relaxed:
            self.relaxed, self.factor = relaxation.relaxed, relaxation.factor

    def tell(self, phase: str, n_working: int) -> None:
        """Record a step; raise ``Stopped`` when a limit has passed."""
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            relaxed=self.relaxed,
            n_working=n_working,
            phase=phase,
        )


@dataclass(slots=True, eq=False)
class Searches(ABC):
    """An upper side: searches for a basis, from one start after another.

    The first ``n_sure`` starts are made in any case. Random ones follow until starts in
    vain have taken a fixed amount of work: so tiny problems, whose local optima differ,
    get many and large ones none.
    """

    problem: Problem
    settings: Settings
    rng: np.random.Generator
    phase: str = "search"
    rate: float = 0.0
    is_over: bool = False
    search: Search | None = None
    before: float = math.inf
    vain: float = 0.0
    spent: float = 0.0
    n_starts: int = 0

    @property
    @abstractmethod
    def goal(self) -> Goal:
        """What both sides share."""

    @property
    @abstractmethod
    def n_sure(self) -> int:
        """Number of starts that are made in any case."""

    @abstractmethod
    def _begun(self) -> Search:
        """Return the search from the next start."""

    @abstractmethod
    def _has_ended(self, search: Search, temperature: float) -> bool:
        """Return whether a search has ended after a stage at a temperature."""

    def step(self) -> tuple[float, int]:
        """Run a stage of a search; begin the next one where it has ended."""
        goal = self.goal
        if self.search is None:
            self.search = self._begun()
            self.before, self.spent = goal.open, 0.0
            self.n_starts += 1
        search = self.search
        temperature = search.temperatures[0]
        # The colder stages gain most: time for them is left over.
        clock = goal.journal.clock.part(0.5)
        moved, distortion, work = search.stage(goal.scale, clock)
        goal.see(moved, distortion)
        self.spent += work
        if self._has_ended(search, temperature):
            self.search = None
            self.is_over = self._is_last()
        return work, search.known.size

    def _is_last(self) -> bool:
        """Return whether the search that has ended was the last one."""
        gained = self.before - self.goal.open
        is_vain = gained < self.settings.restart_gain * self.goal.scale
        self.vain = self.vain + self.spent if is_vain else 0.0
        n_random = self.n_starts - self.n_sure
        if n_random <= 0:
            # Starts that are made in any case are not in vain.
            self.vain = 0.0
        if n_random < 0:
            return False
        if self.problem.n_restarts is not None:
            return n_random >= self.problem.n_restarts
        return self.vain + self.spent > self.settings.patience


@dataclass(slots=True, eq=False)
class Upper(Searches):
    """The search for the least distortion.

    A basis that is given comes first, then the rounding of the bound's matrix.
    """

    bounds: Bounds = field(kw_only=True)
    n_checks: int = 0
    known: WorkingSet = field(init=False)

    def __post_init__(self) -> None:
        problem, bounds = self.problem, self.bounds
        known = distinct(bounds.codes, bounds.weakest)
        self.known = WorkingSet.begin(problem.search, known, self.settings, self.rng)
        if problem.start is not None:
            self.rate = math.inf

    @property
    def goal(self) -> Goal:
        """What both sides share."""
        return self.bounds

    @property
    def n_sure(self) -> int:
        """Number of starts that are made in any case."""
        is_near = self.problem.start is not None
        return 2 if is_near and not self.problem.search.is_large else 1

    def _begun(self) -> Search:
        """Return the search from the next start."""
        settings, bounds = self.settings, self.bounds
        k, tol = bounds.basis.shape[1], bounds.fine_tol
        is_large, basis = self.problem.search.is_large, bounds.basis
        is_near = self.n_starts < self.n_sure - 1
        # A basis near an optimum would be lost in the heat, and a working set says
        # nothing about pairs far below the worst.
        first = settings.warm if is_near or is_large else None
        temperatures = settings.temperatures(tol, first)
        if self.n_starts >= self.n_sure and not self.n_checks:
            secants, merit = self.known.secants, Merit.worst(k)
            basis = random_basis(secants, merit, basis.shape, self.rng)
        elif bounds.factor is not None and not (is_near or is_large):
            basis = leading(bounds.factor, k)
        return Search(self.known, basis, Merit.worst(k), temperatures, settings)

    def _has_ended(self, search: Search, temperature: float) -> bool:
        """Return whether a search has ended, or lags by more than smoothing hides."""
        hidden = 0.5 * self.settings.reach * temperature
        most = self.bounds.distortion * (1.0 + hidden)
        return search.is_over or search.distortion > most

    def _is_last(self) -> bool:
        """Return whether the search that has ended was the last one."""
        # A class with slots is made twice, which leaves ``super()`` without its class.
        return Searches._is_last(self) and self._is_confirmed()

    def _is_confirmed(self) -> bool:
        """Return whether a search of all pairs finds what was found on the way.

        Where that takes long, searches on the way look at some pairs only. Those that
        they have missed join, and the search goes on from the basis.
        """
        search, bounds = self.problem.search, self.bounds
        if not search.is_slow or self.n_checks == 3:
            return True
        weakest = search.weakest(bounds.basis, 1.0, self.settings.batch)
        missed = 1.0 - float(weakest.retained[0]) - bounds.distortion
        bounds.distortion += max(0.0, missed)
        self.known = WorkingSet(
            search, distinct(self.known.codes, weakest.codes), self.settings
        )
        self.n_checks += 1
        return missed <= self.settings.restart_gain * bounds.distortion


@dataclass(slots=True, eq=False)
class Lower:
    """The bound of weights on pairs, round after round.

    It comes first, unless a basis is given: the rounding of its matrix is the best
    place to search from. With a time limit it leaves half of the time to the search.
    """

    problem: Problem
    settings: Settings
    bounds: Bounds
    rng: np.random.Generator
    phase: str = "bound"
    rate: float = 1e300
    is_over: bool = False
    state: Fantope | None = None
    clock: Clock = field(init=False)

    def __post_init__(self) -> None:
        self.clock = self.bounds.journal.clock.part(0.5)

    def step(self) -> tuple[float, int]:
        """Make a round."""
        bounds, search = self.bounds, self.problem.search
        if self.state is None:
            sample = search.sample(self.settings.batch // 2, self.rng)
            codes = distinct(bounds.weakest, sample, bounds.codes)
            self.state = Fantope.begin(
                search, codes, bounds.basis, self.settings, bounds.fine_tol
            )
        scale = max(min(bounds.distortion, bounds.relaxed), 1e-9)
        bounds.see_relaxation(self.state.round(scale, self.clock))
        has_stopped = self.state.has_stopped_gaining(bounds.lower, bounds.distortion)
        self.is_over = has_stopped or bounds.is_proved or self.clock.is_over
        # A search of all pairs costs as much as a round: after 1, 2, 4, ... of them.
        count = self.state.n_rounds
        if self.is_over or count & (count - 1) == 0:
            rounded = leading(self.state.factor, self.state.k)
            bounds.see(rounded, 1.0 - float(search.near(rounded, 0.0).retained[0]))
        return self.state.work, int(self.state.codes.size)


@dataclass(slots=True, eq=False)
class Hull:
    """The bound of a hull, where dimensions are few; it comes last."""

    problem: Problem
    settings: Settings
    bounds: Bounds
    phase: str = "hull bound"
    rate: float = 0.0
    is_over: bool = False

    def __post_init__(self) -> None:
        n_dims, k = self.bounds.basis.shape
        is_possible = k < n_dims and k <= MOST_DIMENSIONS
        self.is_over = not is_possible or self.problem.search.is_slow
        if k + 1 == n_dims:
            # The hull of the whole space gives the optimum itself.
            self.rate = 1e299

    def step(self) -> tuple[float, int]:
        """Search for a subspace whose hull proves more than the weights."""
        problem, bounds = self.problem, self.bounds
        self.is_over = True
        enough = bounds.distortion / (1.0 + bounds.tol)
        found, work = hull_search(
            problem.search,
            bounds.basis,
            Weights(problem.search.decode(bounds.codes), bounds.weights),
            bounds.lower,
            bounds.journal.clock,
            problem.seed,
            self.settings,
            enough=enough if bounds.cap is None else min(enough, bounds.cap),
        )
        if found is None:
            return work, 0
        bounds.hull, bounds.lower = found.subspace, found.subspace.bound
        if found.basis is not None:
            weakest = problem.search.weakest(found.basis, 0.0)
            bounds.see(found.basis, 1.0 - float(weakest.retained[0]))
        return work, int(found.subspace.pairs.shape[0])


def minimax(problem: Problem, settings: Settings) -> Result:
    """Find a basis and a proof whose values are close together.

    With a cap, find out whether some basis is under it.
    """
    search = problem.search
    rng = np.random.default_rng(problem.seed)
    bounds = _first_bounds(problem, settings, rng)
    try:
        bounds.tell("first projection", bounds.codes.size)
        upper = Upper(problem, settings, rng, bounds=bounds)
        lower = Lower(problem, settings, bounds, rng)
        hull = Hull(problem, settings, bounds)
        state = _State(problem, bounds, upper, lower, hull)
        status = drive(bounds, [lower, upper, hull], state.begun())
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return Result(
        basis=bounds.basis,
        dual=Weights(search.decode(bounds.codes), bounds.weights),
        status=status,
        distortion=bounds.distortion,
        lower=bounds.lower,
        relaxed=bounds.relaxed,
        factor=bounds.factor,
        hull=bounds.hull,
        history=tuple(problem.journal.history),
    )


def _first_bounds(
    problem: Problem, settings: Settings, rng: np.random.Generator
) -> Bounds:
    """Return what is known at once: a basis that is given, or the principal axes.

    Weights of an earlier solve, or equal ones on random pairs, give a first bound.
    """
    search, k = problem.search, problem.k
    assert k is not None
    codes = search.encode(np.sort(problem.dual.pairs, axis=1))
    weights = problem.dual.weights
    if not codes.size:
        codes = search.sample(1000, rng)
        weights = np.full(codes.size, 1.0 / codes.size)
    basis = np.eye(problem.n_dims, k)
    if problem.start is not None:
        basis = orthonormal(problem.start)
    weakest = search.lowest(basis, settings.batch // 2)
    kept = top_eigenvalue_sum(search.moment(codes, weights), k)
    return Bounds(
        problem.journal,
        basis,
        codes,
        weights,
        problem.tol,
        problem.cap,
        weakest=weakest.codes,
        distortion=1.0 - float(weakest.retained[0]),
        lower=max(0.0, 1.0 - kept),
    )


@dataclass(slots=True, eq=False)
class _State:
    """All that a solve needs to go on after it was killed."""

    problem: Problem
    bounds: Bounds
    upper: Upper
    lower: Lower
    hull: Hull

    def begun(self) -> Callable[[], None] | None:
        """Take up the state of the checkpoint; return what saves it, if any does."""
        checkpoint = self.problem.checkpoint
        if checkpoint is None:
            return None
        from isoproj.solvers.checkpoint import check_state

        stored = checkpoint.load()
        if stored is not None:
            k = self.bounds.basis.shape[1]
            try:
                check_state(self.problem.search, k, *stored)
                self._restore(*stored)
            except (ArithmeticError, LookupError, TypeError, ValueError) as error:
                raise checkpoint.damaged(str(error) or "a part is missing") from None
        return lambda: checkpoint.save(*self._parts())

    def _parts(self) -> tuple[dict[str, Any], dict[str, Array | Indices]]:
        """Return the state as numbers and named arrays."""
        bounds, upper, lower = self.bounds, self.upper, self.lower
        sides: dict[str, Side] = {"upper": upper, "lower": lower, "hull": self.hull}
        header: dict[str, Any] = {
            "sides": {name: [s.rate, s.is_over] for name, s in sides.items()},
            "starts": [
                upper.n_starts,
                upper.n_checks,
                upper.before,
                upper.vain,
                upper.spent,
            ],
            "rng": upper.rng.bit_generator.state,
            "history": [asdict(step) for step in bounds.journal.history],
        }
        values = [bounds.distortion, bounds.lower, bounds.relaxed]
        arrays: dict[str, Array | Indices] = {
            "values": np.array(values),
            "basis": bounds.basis,
            "codes": bounds.codes,
            "weights": bounds.weights,
            "working": upper.known.codes,
        }
        if bounds.factor is not None:
            arrays["factor"] = bounds.factor
        if bounds.hull is not None:
            arrays["hull_axes"] = bounds.hull.axes
            arrays["hull_pairs"] = bounds.hull.pairs
        search, state = upper.search, lower.state
        if search is not None:
            is_complete = search.known.complete_at is search.basis
            header["search"] = [search.distortion, search.n_tries, is_complete]
            header["temperatures"] = search.temperatures
            arrays["start"] = search.basis
        if state is not None:
            header["bound"] = [state.n_rounds, state.n_fresh, state.heat, state.step]
            header["gains"] = list(state.gains)
            arrays["bound_codes"], arrays["bound_weights"] = state.codes, state.weights
            arrays["bound_space"] = state.space
            arrays["bound_occupations"] = state.occupations
        return header, arrays

    def _restore(self, header: Header, arrays: Tensors) -> None:
        """Take up the state that ``_parts`` took apart."""
        problem, bounds, upper = self.problem, self.bounds, self.upper
        settings, search = upper.settings, problem.search
        for name, side in (
            ("upper", upper),
            ("lower", self.lower),
            ("hull", self.hull),
        ):
            side.rate, side.is_over = header["sides"][name]
        upper.n_starts, upper.n_checks, *spent = header["starts"]
        upper.before, upper.vain, upper.spent = spent
        upper.rng.bit_generator.state = header["rng"]
        bounds.journal.history[:] = [Step(**step) for step in header["history"]]
        values = arrays["values"].tolist()
        bounds.distortion, bounds.lower, bounds.relaxed = values
        bounds.basis, bounds.factor = arrays["basis"], arrays.get("factor")
        bounds.codes, bounds.weights = arrays["codes"], arrays["weights"]
        if "hull_axes" in arrays:
            axes, pairs = arrays["hull_axes"], arrays["hull_pairs"]
            bounds.hull = Subspace(axes, pairs, bounds.lower)
        upper.known = WorkingSet(search, arrays["working"], settings)
        if "search" in header:
            distortion, n_tries, is_complete = header["search"]
            upper.search = Search(
                upper.known,
                arrays["start"],
                Merit.worst(bounds.basis.shape[1]),
                header["temperatures"],
                settings,
                distortion,
                n_tries=n_tries,
            )
            if is_complete:
                upper.known.complete_at = upper.search.basis
        if "bound" in header:
            state = Fantope(
                search,
                bounds.basis.shape[1],
                arrays["bound_codes"],
                arrays["bound_space"],
                arrays["bound_occupations"],
                settings,
                bounds.fine_tol,
                weights=arrays["bound_weights"],
            )
            state.n_rounds, state.n_fresh, state.heat, state.step = header["bound"]
            state.gains.extend(header["gains"])
            factor = state.factor if bounds.factor is None else bounds.factor
            state.best = Relaxation(
                bounds.codes,
                bounds.weights,
                factor,
                1.0 - bounds.lower,
                1.0 - bounds.relaxed,
            )
            self.lower.state = state
