"""Both sides of the minimax problem on a pool of pairs, with few searches of all.

For data where a search of all pairs takes seconds: the relaxation, then the basis, are
solved on the pool; a search of all pairs adds those that the answer overlooked, until
none is left. What is known between two searches can be saved and taken up again.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from isoproj.numerics.container import Header, Tensors
from isoproj.numerics.spectral import Array, Indices, orthonormal
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Journal, Step
from isoproj.solvers.checkpoint import Checkpoint
from isoproj.solvers.descent.anneal import (
    TEMPERATURES,
    Progress,
    anneal,
    first_set,
    polish,
)
from isoproj.solvers.descent.working_set import leading
from isoproj.solvers.pool import Pool
from isoproj.solvers.relaxation.path import Relaxation, solve_relaxation

__all__ = ["solve_pooled"]

# Searches of all pairs, at most, that either side may ask for.
_POOLED_ROUNDS = 12
_UNLIMITED = 10**9
# The gap to which a pool's relaxation is solved while the pool is new.
_LOOSE_GAP = 0.08


def solve_pooled(
    search: PairSearch,
    start: Array | None,
    known: Indices,
    tol: float,
    progress: Progress,
    rng: np.random.Generator,
    checkpoint: Checkpoint | None,
) -> None:
    """Solve both sides with few searches of all pairs, saved after each."""
    stored = None if checkpoint is None else checkpoint.load()
    if stored is None:
        pool = Pool.begin(search, progress.basis, rng)
        pool.codes = np.union1d(pool.codes, known)
        state = _Pooled(pool, start)
    else:
        state = _Pooled.restored(search, progress, rng, *stored)
    while state.stage != "done":
        if state.stage == "lower":
            state.solve_lower(tol, progress)
        else:
            state.solve_upper(tol, progress, rng)
        # What a limit has cut short is not what a run without it would have found.
        is_whole = not progress.journal.clock.is_over
        try:
            progress.tell(state.pool.codes.size)
        finally:
            if checkpoint is not None and is_whole:
                checkpoint.save(*state.parts(progress, rng))


@dataclass(slots=True, eq=False)
class _Pooled:
    """A solve on a pool of pairs, between two searches of all pairs."""

    pool: Pool
    start: Array | None
    stage: str = "lower"
    n_rounds: int = 0
    relaxation: Relaxation | None = None
    violation: float = math.inf

    def solve_lower(self, tol: float, progress: Progress) -> None:
        """Solve the relaxation on the pool, and look for pairs that violate it."""
        k = progress.basis.shape[1]
        relaxation = solve_relaxation(
            self.pool.inside(),
            k,
            # While the pool lacks pairs that matter, its own optimum matters little.
            tol=min(_LOOSE_GAP, max(0.3 * tol, 0.2 * self.violation)),
            start=self.relaxation,
            callback=lambda *_: progress.journal.clock.is_over,
        )
        relaxed = self.pool.enlarge(relaxation.factor, relaxation.relaxed)
        progress.see_relaxation(replace(relaxation, relaxed=relaxed))
        self.relaxation = relaxation
        self.violation = relaxed / max(relaxation.lower, 1e-12) - 1.0
        self.n_rounds += 1
        if relaxed <= progress.lower * (1.0 + tol) or self.n_rounds == _POOLED_ROUNDS:
            self.stage, self.n_rounds = "upper", 0

    def solve_upper(
        self, tol: float, progress: Progress, rng: np.random.Generator
    ) -> None:
        """Search for a basis on the pool, and look for pairs that lose more."""
        assert self.relaxation is not None
        temperatures: tuple[float, ...] = TEMPERATURES
        basis = leading(self.relaxation.factor, progress.basis.shape[1])
        if self.start is not None:
            basis, temperatures = orthonormal(self.start), TEMPERATURES[-3:]
        inside = self.pool.inside()
        own = replace(
            progress,
            journal=Journal(progress.journal.clock, _UNLIMITED, None),
            distortion=math.inf,
        )
        known, count = first_set(inside, basis, self.relaxation.codes, rng)
        anneal(known, basis, count, temperatures, own)
        polish(known, own.basis, count, own)
        overall = self.pool.enlarge(own.basis, own.distortion)
        progress.see_basis(own.basis, overall)
        self.start = own.basis
        self.n_rounds += 1
        inside_pool = overall <= own.distortion * (1.0 + 0.1 * tol)
        if inside_pool or self.n_rounds == _POOLED_ROUNDS:
            self.stage = "done"

    def parts(
        self, progress: Progress, rng: np.random.Generator
    ) -> tuple[dict[str, Any], dict[str, Array | Indices]]:
        """Return all that a restarted solve needs, as a dict and named arrays."""
        assert self.relaxation is not None
        relaxation = self.relaxation
        state = {
            "stage": self.stage,
            "n_rounds": self.n_rounds,
            "n_iter": relaxation.n_iter,
            "rng": rng.bit_generator.state,
            "history": [asdict(step) for step in progress.journal.history],
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
            "basis": progress.basis,
            "codes": progress.codes,
            "weights": progress.weights,
            "factor": progress.factor,
            "values": np.array([progress.distortion, progress.lower, progress.relaxed]),
        }
        return state, {n: a for n, a in arrays.items() if a is not None}

    @staticmethod
    def restored(
        search: PairSearch,
        progress: Progress,
        rng: np.random.Generator,
        state: Header,
        arrays: Tensors,
    ) -> _Pooled:
        """Return the solve that ``parts`` took apart; progress and ``rng`` too."""
        rng.bit_generator.state = state["rng"]
        progress.journal.history.extend(Step(**step) for step in state["history"])
        progress.basis, progress.factor = arrays["basis"], arrays.get("factor")
        progress.codes, progress.weights = arrays["codes"], arrays["weights"]
        values = [float(value) for value in arrays["values"]]
        progress.distortion, progress.lower, progress.relaxed = values
        lower, relaxed, violation = (float(v) for v in arrays["relaxation_values"])
        relaxation = Relaxation(
            arrays["relaxation_codes"],
            arrays["relaxation_weights"],
            arrays["relaxation_factor"],
            lower,
            relaxed,
            int(state["n_iter"]),
        )
        return _Pooled(
            Pool(search, arrays["pool"]),
            arrays.get("start"),
            str(state["stage"]),
            int(state["n_rounds"]),
            relaxation,
            violation,
        )
