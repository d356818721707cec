"""Path following for the relaxations, with working rows and a working subspace.

A primal-dual interior-point method with Nesterov-Todd scaling and Mehrotra's
predictor-corrector. On settled working sets it is the standard method, whose fast
convergence is a fact of practice, not a theorem. A restricted optimum is optimal once
no direction is violated and no occupied eigenvector sticks out, and that is what both
sides measure: a wrong turn costs time or leaves a gap, never a wrong bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.relaxation.iterate import Iterate
from isoproj.solvers.relaxation.matrices import symmetric
from isoproj.solvers.relaxation.newton import NewtonSystem
from isoproj.solvers.relaxation.problem import LargestFloor, Programme, Relaxation
from isoproj.solvers.settings import RelaxationSettings

__all__ = ["Callback", "advance", "solve_relaxation"]

# Called with the number of the step and the best of both sides; True stops the solve.
Callback = Callable[[int, Relaxation], bool]


def solve_relaxation(
    search: PairSearch,
    programme: Programme,
    *,
    tol: float = 1e-3,
    enough: float = -np.inf,
    callback: Callback | None = None,
    settings: RelaxationSettings | None = None,
) -> Relaxation:
    """Solve a relaxation over all pairs of a search; both sides are always valid.

    Parameters
    ----------
    search : PairSearch
        The pairs.
    programme : Programme
        What is maximised.
    tol : float
        Relative gap at which to stop.
    enough : float
        An upper bound below this stops the solve too.
    callback : callable or None
        Called as ``callback(iteration, best)``; True stops the solve.
    settings : RelaxationSettings or None
        Tuning figures.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.solvers.relaxation.path import solve_relaxation
    >>> from isoproj.solvers.relaxation.problem import LargestFloor
    >>> points, pairs = prepare_pairs(np.eye(4), "directions", rotate=True)
    >>> result = solve_relaxation(PairSearch(points, pairs), LargestFloor(2), tol=1e-6)
    >>> round(result.lower, 5)
    0.5
    """
    if isinstance(programme, LargestFloor) and search.n_pairs <= programme.k:
        return _spanned(search, programme.k)
    settings = RelaxationSettings() if settings is None else settings
    best: Relaxation | None = None
    for attempt in programme.attempts(settings):
        climb = _Climb(attempt, search, tol, enough, callback)
        result = climb.run(attempt.start(search, settings))
        best = result if best is None else _better(best, result)
        if climb.is_over:
            break
    assert best is not None
    return best


def advance(iterate: Iterate) -> None:
    """Take one predictor-corrector step."""
    system = NewtonSystem(iterate)
    affine = system.direction(None, 0.0)
    primal, dual = system.lengths(affine)
    primal, dual = min(1.0, primal), min(1.0, dual)
    ahead = system.complementarity(affine, primal, dual)
    centring = min(1.0, max(1e-6, (ahead / system.barrier) ** 3))
    # Where the boundary is near, what a whole step would do says little.
    trust = min(1.0, primal * dual / iterate.settings.trusted)
    move = system.direction(affine, centring * system.barrier, trust)
    primal, dual = system.lengths(move)
    fraction = 0.9 + 0.09 * min(primal, dual, 1.0)
    primal, dual = min(1.0, fraction * primal), min(1.0, fraction * dual)
    iterate.projector = symmetric(iterate.projector + primal * move.projector)
    iterate.slacks = iterate.slacks + primal * move.slacks
    iterate.t += primal * move.t
    iterate.spare += dual * move.spare
    iterate.weights = iterate.weights + dual * move.weights
    iterate.level += dual * move.level
    lower, upper = system.dual_moves(move)
    iterate.lower_dual = symmetric(iterate.lower_dual + dual * lower)
    iterate.upper_dual = symmetric(iterate.upper_dual + dual * upper)


class _Climb:
    """One attempt to follow the central path."""

    def __init__(
        self,
        programme: Programme,
        search: PairSearch,
        tol: float,
        enough: float,
        callback: Callback | None,
    ) -> None:
        self.programme = programme
        self.search = search
        self.tol = tol
        self.enough = enough
        self.callback = callback
        self.is_over = False

    def run(self, iterate: Iterate) -> Relaxation:
        """Follow the path; return the best of both sides."""
        programme, max_steps = self.programme, iterate.settings.max_steps
        best = programme.first(iterate)
        for iteration in range(max_steps + 1):
            best = self._with_point(best, iterate)
            # The dual value restricted to the subspace is optimistic but cheap.
            is_close = self._is_enough(best, programme.upper(iterate, restricted=True))
            told = self.callback is not None and self.callback(iteration, best)
            if is_close or told or iteration == max_steps:
                best = self._with_weights(best, iterate)
            self.is_over = told or self._is_enough(best, best.upper)
            if self.is_over or iteration == max_steps:
                break
            try:
                programme.prepare(iterate)
                iterate.grow(self.search, dense=is_close)
                advance(iterate)
            except np.linalg.LinAlgError:
                # The iterate has reached rounding level.
                best = self._with_weights(best, iterate)
                self.is_over = self._is_enough(best, best.upper)
                break
        return self._settled(best, iteration)

    def _is_enough(self, best: Relaxation, upper: float) -> bool:
        """Return whether the gap to an upper bound is closed, or the bound enough."""
        is_closed = self.programme.gap(best.value, upper) <= self.tol
        return is_closed or upper < self.enough

    def _with_point(self, best: Relaxation, iterate: Iterate) -> Relaxation:
        """Return both sides with the better feasible matrix."""
        factor = iterate.factor()
        value = self.programme.value(self.search, factor)
        return (
            best if value <= best.value else replace(best, value=value, factor=factor)
        )

    def _with_weights(self, best: Relaxation, iterate: Iterate) -> Relaxation:
        """Return both sides with the better exact upper bound."""
        upper = self.programme.upper(iterate, restricted=False)
        if upper >= best.upper:
            return best
        weights = self.programme.scaled(iterate.weights)
        return replace(best, upper=upper, codes=iterate.codes, weights=weights)

    def _settled(self, best: Relaxation, n_iter: int) -> Relaxation:
        """Return the result without idle weights; rounding must not cross the sides."""
        keep = best.weights > 1e-12
        weights = best.weights[keep]
        upper = min(best.upper, 1.0)
        return Relaxation(
            best.codes[keep],
            self.programme.scaled(weights) if weights.size else weights,
            best.factor,
            upper,
            min(best.value, upper),
            n_iter,
            self._is_enough(best, best.upper),
        )


def _better(first: Relaxation, second: Relaxation) -> Relaxation:
    """Return the better of each side of two attempts."""
    dual = first if first.upper <= second.upper else second
    primal = first if first.value >= second.value else second
    return Relaxation(
        dual.codes,
        dual.weights,
        primal.factor,
        dual.upper,
        primal.value,
        first.n_iter + second.n_iter,
        first.is_closed or second.is_closed,
    )


def _spanned(search: PairSearch, k: int) -> Relaxation:
    """Return the exact answer when there are no more pairs than dimensions."""
    codes = search.sample(search.n_pairs, np.random.default_rng(0))
    rows = search.directions(codes)
    factor = np.linalg.svd(rows, full_matrices=True)[2][:k].T
    weights = np.full(codes.size, 1 / codes.size)
    return Relaxation(codes, weights, factor, 1.0, 1.0)
