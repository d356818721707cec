"""Both sides where a search of all pairs takes seconds.

The relaxation is solved on a pool of pairs (``solvers.large``). The local search sees
a sample of points at every step, and all pairs once it has settled at a temperature;
what these show joins the pool. A round of the bound comes first, then the search, then
the rest of the bound, then polishing. The state after every round can be saved and
taken up again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.container import Header, Tensors
from isoproj.numerics.progress import Step
from isoproj.numerics.spectral import (
    Array,
    Indices,
    orthonormal,
)
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.checkpoint import STAGES, check_state
from isoproj.solvers.descent.anneal import anneal
from isoproj.solvers.descent.working_set import WorkingSet
from isoproj.solvers.large import Pool, generate
from isoproj.solvers.relaxation.multipliers import Multipliers
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, Relaxation
from isoproj.solvers.sides import COARSE, Sides

__all__ = ["solve_on_pool"]

# A round of the bound pays if it closes this share of the open gap.
_PAYING = 0.02
# Entries of the directions that a round on a pool takes in, and its fewest pairs.
_HELD = 3e5
_FEWEST = 400


def solve_on_pool(sides: Sides) -> None:
    """Solve both sides with few searches of all pairs, saved after each round."""
    problem, bounds = sides.problem, sides.bounds
    checkpoint = problem.checkpoint
    stored = None if checkpoint is None else checkpoint.load()
    bounds.enough = problem.tol
    if stored is None:
        state = _begun(sides)
    else:
        assert checkpoint is not None
        try:
            check_state(problem.search, sides.k, *stored)
            state = _Pooled.restored(sides, *stored)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise checkpoint.damaged(str(error) or "a part is missing") from None
    while state.stage != "done":
        if state.stage in ("early", "lower"):
            generate(state.pool, _PooledLower(state), state.rounds(), state.told)
        elif state.stage == "search":
            _search(state)
        else:
            _polish(state)


def _begun(sides: Sides) -> _Pooled:
    """Return the state after one search of all pairs, which measures and begins."""
    problem = sides.problem
    search, settings = problem.search, sides.settings.pool
    sides.bounds.phase = "first projection"
    given = None if problem.start is None else orthonormal(problem.start)
    start = sides.bounds.basis if given is None else given
    lowest = search.lowest(start, settings.most)
    known = distinct(lowest.codes, sides.known())
    pool = Pool.begin(search, known, sides.rng, settings)
    sides.first_bounds(start, lowest)
    working = sides.first_set(pool.inside(), start, sides.known()).codes
    return _Pooled(sides, pool, start, working, given is not None)


def _search(state: _Pooled) -> None:
    """Search for a basis, one temperature a round; what is weak joins the pool."""
    sides = state.sides
    bounds, known = sides.bounds, state.known()
    bounds.phase = "search"
    for number in state.rounds():
        ladder = sides.ladder(is_given=state.is_given)
        if not bounds.is_content:
            stage = replace(ladder, temperatures=ladder.temperatures[number:][:1])
            settings = sides.settings.descent
            state.start = anneal(known, state.start, stage, bounds, settings=settings)
        state.see(known)
        state.finished(number, number == len(ladder.temperatures) - 1)


def _polish(state: _Pooled) -> None:
    """Cool and polish the best basis."""
    sides, known = state.sides, state.known()
    sides.bounds.phase = "polishing"
    if not sides.bounds.is_content:
        sides.polish(sides.cool(known), sides.bounds)
    state.finished(0, is_last=True)


@dataclass(slots=True, eq=False)
class _Pooled:
    """A solve between two rounds.

    ``start`` is where the search has come to, and ``working`` the pairs it sees.
    """

    sides: Sides
    pool: Pool
    start: Array
    working: Indices
    is_given: bool
    stage: str = STAGES[0]
    n_rounds: int = 0
    relaxation: Relaxation | None = None
    violation: float = math.inf

    def rounds(self) -> range:
        """Return the numbers of the rounds that this stage may still take."""
        settings = self.pool.settings
        ladder = self.sides.ladder(is_given=self.is_given)
        counts = {
            "early": settings.early_rounds,
            "search": len(ladder.temperatures),
            "lower": settings.rounds,
        }
        return range(self.n_rounds, counts.get(self.stage, 1))

    def known(self) -> WorkingSet:
        """Return the pairs that the search sees."""
        return self.sides.working_set(self.pool.search, self.working)

    def see(self, known: WorkingSet) -> None:
        """Keep the pairs that a search has found."""
        self.working = known.codes
        self.pool.codes = distinct(self.pool.codes, known.codes)

    def told(self, number: int, is_last: bool) -> None:
        """Tell a round of the bound, and finish it."""
        bounds = self.sides.bounds
        # What a limit has cut short is not what a run without it would have found.
        is_whole = not bounds.clock.is_over
        try:
            bounds.tell(self.pool.codes.size)
        finally:
            if is_whole:
                self.finished(number, is_last)

    def finished(self, number: int, is_last: bool) -> None:
        """Count a round, and save the state."""
        self.n_rounds = number + 1
        if is_last:
            self.stage = STAGES[STAGES.index(self.stage) + 1]
            self.n_rounds = 0
        checkpoint = self.sides.problem.checkpoint
        if checkpoint is not None:
            checkpoint.save(*self.parts())

    def parts(self) -> tuple[dict[str, Any], dict[str, Array | Indices]]:
        """Return all that a restarted solve needs, as a dict and named arrays."""
        assert self.relaxation is not None
        relaxation, bounds = self.relaxation, self.sides.bounds
        state = {
            "stage": self.stage,
            "is_given": self.is_given,
            "n_rounds": self.n_rounds,
            "n_iter": relaxation.n_iter,
            "rng": self.sides.rng.bit_generator.state,
            "history": [asdict(step) for step in bounds.journal.history],
        }
        arrays: dict[str, Array | Indices | None] = {
            "pool": self.pool.codes,
            "working": self.working,
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
    def restored(sides: Sides, state: Header, arrays: Tensors) -> _Pooled:
        """Return the state that ``parts`` took apart; bounds and draws too."""
        bounds = sides.bounds
        sides.rng.bit_generator.state = state["rng"]
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
        search, settings = sides.problem.search, sides.settings.pool
        restored = _Pooled(
            sides,
            Pool(search, arrays["pool"], settings),
            arrays["start"],
            arrays["working"],
            bool(state["is_given"]),
            str(state["stage"]),
            int(state["n_rounds"]),
            relaxation,
            violation,
        )
        if not restored.rounds():
            msg = "its rounds are used up"
            raise ValueError(msg)
        return restored


@dataclass(slots=True, eq=False)
class _PooledLower:
    """The relaxation on a pool."""

    state: _Pooled

    def solve(self, inside: PairSearch) -> tuple[Array, float]:
        """Solve the relaxation as exactly as the pool deserves."""
        state, sides = self.state, self.state.sides
        sides.bounds.phase = "bound"
        if sides.problem.tol >= COARSE and inside.n_pairs > sides.k:
            relaxation = self._bounded(inside)
            state.relaxation = relaxation
            return relaxation.factor, relaxation.relaxed
        # While the pool lacks pairs that matter, its own optimum matters little.
        tol = max(0.3 * sides.problem.tol, 0.2 * state.violation)
        relaxation = solve_relaxation(
            inside,
            LargestFloor(sides.k, state.relaxation),
            tol=min(state.pool.settings.loose_gap, tol),
            callback=lambda *_: sides.bounds.clock.is_over,
            settings=sides.settings.relaxation,
        )
        state.relaxation = relaxation
        return relaxation.factor, relaxation.relaxed

    def _bounded(self, inside: PairSearch) -> Relaxation:
        """Solve by projected gradients until that gains nothing more."""
        state, sides = self.state, self.state.sides
        basis = sides.bounds.basis
        # A pool is for data that hardly fit the memory: few directions are held at
        # once, however much memory there is, so that the result does not depend on it.
        settings = sides.settings.multipliers
        few = max(_FEWEST, int(_HELD / basis.shape[0]))
        settings = replace(
            settings,
            batch=min(settings.batch, few),
            spare_columns=state.pool.settings.spare_columns,
        )
        codes = distinct(
            inside.lowest(basis, settings.batch // 2).codes,
            inside.sample(settings.batch // 4, np.random.default_rng(state.n_rounds)),
        )
        last = state.relaxation
        if last is not None:
            codes = distinct(codes, last.codes)
        multipliers = Multipliers.begin(inside, codes, basis, settings)
        clock = sides.bounds.clock
        best, is_over = multipliers.round(1.0, clock), False
        while not is_over:
            multipliers.round(max(best.relaxed, 1e-9), clock)
            assert multipliers.best is not None
            best = multipliers.best
            multipliers.saw(best.lower, sides.bounds.distortion)
            is_over = multipliers.is_over or clock.is_over
        if last is not None and last.upper < best.upper:
            best = replace(last, factor=best.factor, value=best.value)
        return best

    def accept(self, distortion: float) -> bool:
        """Keep both sides; the relaxed value is that over all pairs."""
        state, bounds = self.state, self.state.sides.bounds
        assert state.relaxation is not None
        before = bounds.lower
        bounds.see_relaxation(replace(state.relaxation, value=1.0 - distortion))
        state.violation = distortion / max(state.relaxation.lower, 1e-12) - 1.0
        tol = state.sides.problem.tol
        if state.stage == "early":
            return False
        gained, missing = bounds.lower - before, bounds.distortion - bounds.lower
        if tol >= COARSE and gained < _PAYING * missing:
            return True
        return distortion <= bounds.lower * (1.0 + tol)
