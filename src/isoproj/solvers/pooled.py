"""Both sides on a pool of pairs, where a search of all pairs takes seconds.

The first basis comes from a sample of points. Then the relaxation and the local search
are solved on the pool (``solvers.large``); each search of all pairs serves both. The
state after every search can be saved and taken up again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from isoproj.numerics.container import Header, Tensors
from isoproj.numerics.progress import Step
from isoproj.numerics.spectral import (
    Array,
    Indices,
    orthonormal,
)
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.checkpoint import check_state
from isoproj.solvers.descent.anneal import anneal
from isoproj.solvers.descent.grassmann import Stage, cooled
from isoproj.solvers.descent.merit import Worst
from isoproj.solvers.descent.objectives import OnAllPairs
from isoproj.solvers.descent.working_set import leading
from isoproj.solvers.large import Pool, generate
from isoproj.solvers.relaxation.multipliers import Multipliers
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, Relaxation
from isoproj.solvers.sides import COARSE, Bounds, Sides

__all__ = ["solve_on_pool"]

# A search of all pairs pays if it shrinks the relaxation's own gap to this share.
_PAYING = 0.9
# Entries of the directions that a round on a pool takes in, and its fewest pairs.
_HELD = 3e5
_FEWEST = 400


def solve_on_pool(sides: Sides) -> None:
    """Solve both sides with few searches of all pairs, saved after each."""
    problem, bounds = sides.problem, sides.bounds
    checkpoint = problem.checkpoint
    stored = None if checkpoint is None else checkpoint.load()
    if stored is None:
        bounds.phase = "first projection"
        given = None if problem.start is None else orthonormal(problem.start)
        basis = bounds.basis if given is None else given
        search, settings = problem.search, sides.settings.pool
        # One search of all pairs measures the basis and begins the pool.
        lowest = search.lowest(basis, settings.most)
        known = np.union1d(lowest.codes, sides.known())
        pool = Pool.begin(search, known, sides.rng, settings)
        sides.first_bounds(basis, lowest)
        if given is None:
            _sampled(sides, pool)
        state = _Pooled(sides, pool, given)
    else:
        assert checkpoint is not None
        try:
            check_state(problem.search, sides.k, *stored)
            state = _Pooled.restored(sides, *stored)
        except (ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise checkpoint.damaged(str(error) or "a part is missing") from None
    while state.stage != "done":
        side = _PooledLower(state) if state.stage == "lower" else _PooledUpper(state)
        generate(state.pool, side, state.rounds(), state.finished)


def _sampled(sides: Sides, pool: Pool) -> None:
    """Search for a basis on a sample of points; its worst pairs join the pool."""
    search, descent = sides.problem.search, sides.settings.descent
    if not search.has_smoothed:
        return
    basis = sides.bounds.basis
    for temperature in descent.ladder.temperatures:
        is_cold = temperature < pool.settings.coldest
        if is_cold or sides.bounds.journal.clock.is_over:
            break
        stage = Stage.of(temperature, descent, is_loose=True)
        objective = OnAllPairs(search.smoothed, Worst(), temperature)
        basis = cooled(objective, basis, stage)
    inside = 1.0 - float(pool.inside().weakest(basis, 0.0).retained[0])
    sides.bounds.see(basis, pool.enlarge(basis, inside))
    sides.bounds.tell(pool.codes.size)


@dataclass(slots=True, eq=False)
class _Pooled:
    """A solve on a pool of pairs, between two searches of all pairs."""

    sides: Sides
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
        bounds, checkpoint = self.sides.bounds, self.sides.problem.checkpoint
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
        relaxation, bounds = self.relaxation, self.sides.bounds
        state = {
            "stage": self.stage,
            "n_rounds": self.n_rounds,
            "n_iter": relaxation.n_iter,
            "rng": self.sides.rng.bit_generator.state,
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
        return _Pooled(
            sides,
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
        state, sides = self.state, self.state.sides
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
            callback=lambda *_: sides.bounds.journal.clock.is_over,
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
        settings = replace(settings, batch=min(settings.batch, few))
        codes = np.union1d(
            inside.lowest(basis, settings.batch // 2).codes,
            inside.sample(settings.batch // 4, np.random.default_rng(state.n_rounds)),
        )
        if state.relaxation is not None:
            codes = np.union1d(codes, state.relaxation.codes)
        multipliers = Multipliers.begin(inside, sides.k, codes, settings)
        best, is_over = multipliers.round(1.0), False
        while not is_over:
            multipliers.round(max(best.relaxed, 1e-9))
            assert multipliers.best is not None
            best = multipliers.best
            multipliers.saw(best.lower, sides.bounds.distortion)
            is_over = multipliers.is_over or sides.bounds.journal.clock.is_over
        last = state.relaxation
        if last is not None and last.upper < best.upper:
            best = replace(last, factor=best.factor, value=best.value)
        return best

    def accept(self, distortion: float) -> bool:
        """Keep both sides; the relaxed value is that over all pairs."""
        state, bounds = self.state, self.state.sides.bounds
        assert state.relaxation is not None
        bounds.see_relaxation(replace(state.relaxation, value=1.0 - distortion))
        before = state.violation
        state.violation = distortion / max(state.relaxation.lower, 1e-12) - 1.0
        tol = state.sides.problem.tol
        if tol >= COARSE and state.violation > _PAYING * before:
            return True
        return distortion <= bounds.lower * (1.0 + tol)


@dataclass(slots=True, eq=False)
class _PooledUpper:
    """The search for a basis on a pool."""

    state: _Pooled
    own: Bounds | None = field(default=None)

    def solve(self, inside: PairSearch) -> tuple[Array, float]:
        """Search from the relaxation's rounding, or go on from the last round."""
        state, sides = self.state, self.state.sides
        assert state.relaxation is not None
        descent = sides.settings.descent
        ladder, basis = descent.ladder, leading(state.relaxation.factor, sides.k)
        if state.start is not None:
            ladder = descent.ladder.last(descent.given_stages)
            basis = orthonormal(state.start)
        own = replace(
            sides.bounds, journal=sides.bounds.journal.silent(), distortion=math.inf
        )
        known = sides.first_set(inside, basis, state.relaxation.codes)
        anneal(known, basis, ladder, own, settings=descent)
        sides.polish(known, own)
        self.own, state.start = own, own.basis
        return own.basis, own.distortion

    def accept(self, distortion: float) -> bool:
        """Keep the basis with its loss over all pairs."""
        assert self.own is not None
        self.state.sides.bounds.see(self.own.basis, distortion)
        tol = 0.1 * self.state.sides.problem.tol
        return distortion <= self.own.distortion * (1.0 + tol)
