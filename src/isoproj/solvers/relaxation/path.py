"""Fantope relaxation of the best rank-k linear map that keeps all directions long.

For unit rows ``x_l`` the relaxation is the semidefinite programme ::

    maximise t   subject to   x_l' P x_l >= t,   0 <= P <= I,   tr P = k,

with dual ``min_w topk(M(w))`` over the simplex, ``M(w) = sum_l w_l x_l x_l'`` and
``topk`` the sum of the k largest eigenvalues.  In distortion terms every ``w`` gives
the lower bound ``1 - topk(M(w))`` and every feasible ``P`` the relaxed value
``1 - min_l x_l' P x_l``; the optimum lies between the two, so the reported gap is a
certificate whatever path the iteration took.

The method is the path following of ``solvers.interior``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import brentq

from isoproj.numerics.spectral import Array, Indices, top_eigenpairs
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.relaxation.newton import (
    central_occupations,
    moment_of,
    quadratic,
    spectral,
    symmetric,
)
from isoproj.solvers.relaxation.problem import FULL_DIMENSION, State

__all__ = ["Callback", "Relaxation", "soft_minimum", "solve_relaxation"]

_START_BARRIER = 1e-3  # distortions live on [0, 1]; larger values only waste steps
_ATTEMPTS = 3  # starts, should an iterate get stuck at the boundary
_ZERO = 1e-9  # distortions below this count as zero
_SAMPLE = 4000  # random pairs whose moment starts a cold solve

Callback = Callable[[int, float, float], bool]


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """Both sides of the relaxation's optimum.

    Parameters
    ----------
    codes : ndarray of shape (m,)
        Pairs that carry dual weight, as ``PairSearch`` codes.
    weights : ndarray of shape (m,)
        The weights, on the simplex.
    factor : ndarray of shape (n_dims, s)
        ``P = factor @ factor.T`` is feasible: eigenvalues in [0, 1], trace k.
    lower : float
        Dual value of the weights, up to rounding.
    relaxed : float
        ``1 - min x^T P x`` over all pairs, to the accuracy of the search.
    n_iter : int
        Newton steps.
    """

    codes: Indices
    weights: Array
    factor: Array
    lower: float
    relaxed: float
    n_iter: int


def solve_relaxation(
    search: PairSearch,
    k: int,
    *,
    tol: float = 1e-3,
    start: Relaxation | None = None,
    max_iter: int = 60,
    enough: float = np.inf,
    callback: Callback | None = None,
) -> Relaxation:
    """Solve the relaxation over all pairs of a search.

    Parameters
    ----------
    search : PairSearch
        The pairs.
    k : int
        Target dimension, below ``n_dims``.
    tol : float
        Relative gap ``relaxed / lower - 1`` at which to stop.
    start : Relaxation or None
        Warm start, of the same or another ``k``.
    max_iter : int
        Most Newton steps of one attempt; one that gets stuck is followed by another
        from another start.
    enough : float
        A lower bound above this stops the solve too.
    callback : callable or None
        Called as ``callback(iteration, lower, relaxed)``; True stops the solve.

    Returns
    -------
    Relaxation
        Valid on both sides whether or not the gap was closed.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.solvers.relaxation.path import solve_relaxation
    >>> points, pairs = prepare_pairs(np.eye(4), "directions", rotate=True)
    >>> result = solve_relaxation(PairSearch(points, pairs), 2, tol=1e-6)
    >>> round(result.lower, 5)
    0.5
    """
    if search.n_pairs <= k:
        return _spanned(search, k)
    best: Relaxation | None = None
    for seed in range(_ATTEMPTS):
        # Should a warm start get stuck, a cold one may not.
        warm = start if seed == 0 else None
        result, is_done = _attempt(
            search, k, tol, warm, max_iter, enough, callback, seed
        )
        best = result if best is None else _better(best, result)
        if is_done:
            break
    assert best is not None
    return best


def _bound(state: State, *, restricted: bool) -> float:
    """Return the dual value of an iterate; optimistic where restricted."""
    return 1 - state.energy(restricted=restricted) / float(state.weights.sum())


def _better(first: Relaxation, second: Relaxation) -> Relaxation:
    """Return the better of each side of two attempts."""
    dual = first if first.lower >= second.lower else second
    primal = first if first.relaxed <= second.relaxed else second
    return Relaxation(
        dual.codes,
        dual.weights,
        primal.factor,
        dual.lower,
        primal.relaxed,
        first.n_iter + second.n_iter,
    )


def _attempt(
    search: PairSearch,
    k: int,
    tol: float,
    start: Relaxation | None,
    max_iter: int,
    enough: float,
    callback: Callback | None,
    seed: int,
) -> tuple[Relaxation, bool]:
    """Follow the central path once; also return whether trying again is pointless."""
    state = _start(search, k, start, seed)
    best = _Best.of(state)
    told = False
    for iteration in range(max_iter + 1):
        best = best.with_point(state, search)
        # The bound restricted to the subspace is optimistic but cheap.
        bound = _bound(state, restricted=True)
        close = best.gap(bound) <= tol or bound > enough
        told = callback is not None and callback(iteration, best.lower, best.relaxed)
        stop = told or iteration == max_iter
        if close or stop:
            best = best.with_bound(state)
        if stop or best.is_done(tol, enough):
            break
        try:
            state.grow(search, dense=close)
            state.step()
        except np.linalg.LinAlgError:
            # The iterate has reached rounding level.
            best = best.with_bound(state)
            break
    return best.result(iteration), told or best.is_done(tol, enough)


def _spanned(search: PairSearch, k: int) -> Relaxation:
    """Return the exact answer when there are no more pairs than dimensions."""
    codes = search.sample(search.n_pairs, np.random.default_rng(0))
    rows = search.directions(codes)
    factor = np.linalg.svd(rows, full_matrices=True)[2][:k].T
    weights = np.full(codes.size, 1 / codes.size)
    return Relaxation(codes, weights, factor, 0.0, 0.0, 0)


def soft_minimum(values: Array, barrier: float) -> float:
    """Return t below all values with ``sum barrier / (values - t) = 1``."""
    low = float(values.min())

    def excess(t: float) -> float:
        return float((barrier / (values - t)).sum() - 1)

    return float(
        brentq(excess, low - barrier * len(values) - 1e-12, low - 0.999 * barrier)
    )


def _start(search: PairSearch, k: int, warm: Relaxation | None, seed: int) -> State:
    """Return a primal feasible, centred starting state."""
    moment, basis = _start_subspace(search, k, warm, seed)
    energies, vectors = np.linalg.eigh(symmetric(basis.T @ moment @ basis))
    barrier = _START_BARRIER
    if warm is not None:
        barrier = _warm_barrier(search, k, basis @ vectors, energies)
    filled, level = central_occupations(energies, k, barrier)
    factor = basis @ (vectors * np.sqrt(filled))
    codes = search.lowest(factor, max(2 * basis.shape[1], 20)).codes
    if warm is not None:
        busy = warm.codes[warm.weights > 1e-4 / codes.size]
        codes = np.union1d(codes, busy)
    rows = search.directions(codes)
    values = quadratic(rows @ (basis @ vectors), np.diag(filled))
    t = soft_minimum(values, barrier)
    slacks = values - t
    weights = barrier / slacks
    if warm is not None:
        # Weights above the central ones carry the warm start.
        order = np.argsort(warm.codes)
        at = np.searchsorted(warm.codes[order], codes)
        at = np.minimum(at, order.size - 1)
        known = warm.codes[order][at] == codes
        weights = np.maximum(weights, np.where(known, warm.weights[order][at], 0.0))
    weights /= weights.sum()
    return State(
        k=k,
        basis=basis,
        projector=spectral(vectors, filled),
        lower_dual=spectral(vectors, barrier / filled),
        upper_dual=spectral(vectors, barrier / (1 - filled)),
        level=level,
        codes=codes,
        rows=rows,
        weights=weights,
        slacks=slacks,
        t=t,
    )


def _warm_barrier(search: PairSearch, k: int, vectors: Array, energies: Array) -> float:
    """Return the barrier whose central P is the best one over all directions."""
    grid = 10.0 ** np.arange(-6.0, -2.9, 0.5)
    levels = []
    for barrier in grid:
        filled = central_occupations(energies, k, barrier)[0]
        factor = vectors * np.sqrt(filled)
        levels.append(search.weakest(factor, 0.0).retained[0])
    return float(grid[int(np.argmax(levels))])


def _start_subspace(
    search: PairSearch, k: int, warm: Relaxation | None, seed: int
) -> tuple[Array, Array]:
    """Return the moment to start from and the subspace to work in."""
    if warm is None:
        # Another attempt is another one even where a sample would hold all pairs.
        size = _SAMPLE if seed == 0 else min(_SAMPLE, search.n_pairs // 2)
        codes = search.sample(size, np.random.default_rng(seed))
        weights = np.full(codes.size, 1.0 / codes.size)
    else:
        codes, weights = warm.codes, warm.weights
    moment = moment_of(search.directions(codes), weights)
    dimension = moment.shape[0]
    if dimension <= FULL_DIMENSION:
        return moment, np.eye(dimension)
    basis = top_eigenpairs(moment, min(dimension, k + 20))[1]
    if warm is not None:
        joined = np.hstack([warm.factor, basis[:, : k + 5]])
        left, sizes, _ = np.linalg.svd(joined, full_matrices=False)
        basis = left[:, sizes > 1e-6]
    return moment, basis


@dataclass(frozen=True)
class _Best:
    """Best bound and best feasible point seen, not necessarily of one iterate."""

    lower: float
    relaxed: float
    codes: Indices
    weights: Array
    factor: Array

    @classmethod
    def of(cls, state: State) -> _Best:
        """Return the vacuous bounds of a start."""
        weights = state.weights / state.weights.sum()
        return cls(0.0, np.inf, state.codes, weights, state.factor())

    def gap(self, bound: float) -> float:
        """Return the relative gap to a bound; a zero distortion has none."""
        if self.relaxed <= _ZERO:
            return 0.0
        return (self.relaxed - bound) / bound if bound > 0 else np.inf

    def is_done(self, tol: float, enough: float) -> bool:
        """Return whether the gap is closed, or the bound high enough."""
        return self.gap(self.lower) <= tol or self.lower > enough

    def with_point(self, state: State, search: PairSearch) -> _Best:
        """Return the certificate with the better feasible point."""
        factor = state.factor()
        relaxed = 1 - float(search.weakest(factor, 0.0).retained[0])
        if relaxed >= self.relaxed:
            return self
        return replace(self, relaxed=relaxed, factor=factor)

    def with_bound(self, state: State) -> _Best:
        """Return the certificate with the better exact lower bound."""
        weights = state.weights / state.weights.sum()
        lower = _bound(state, restricted=False)
        if lower <= self.lower:
            return self
        return replace(self, lower=lower, codes=state.codes, weights=weights)

    def result(self, n_iter: int) -> Relaxation:
        """Return the public result; rounding must not give a negative bound."""
        lower = max(self.lower, 0.0)
        relaxed = max(self.relaxed, lower)
        keep = self.weights > 1e-12
        weights = self.weights[keep] / self.weights[keep].sum()
        return Relaxation(
            self.codes[keep], weights, self.factor, lower, relaxed, n_iter
        )
