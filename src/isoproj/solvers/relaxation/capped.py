"""Relaxation of the most that can be kept of an objective under a cap on every pair.

With ``C`` positive semidefinite of trace 1 and a floor ``t`` (one minus the cap) ::

    maximise <C, P>   subject to   x_l' P x_l >= t,   0 <= P <= I,   tr P = k.

Its dual is ``min topk(C + M(w)) - t sum(w)`` over ``w >= 0``: by Ky Fan's theorem every
such ``w`` bounds from above what any projection under the cap can keep.

The method is the path following of ``solvers.interior``, warm-started from the
relaxation without objective (``solvers.relaxation``), whose matrix is strictly feasible
whenever the cap is above the best possible distortion. The floor is elastic: ``t`` may
stay below it at a price, so that pairs which enter late cost no feasibility and the
multipliers cannot run away; the price is raised while it is what holds ``t`` down. An
iterate that violates the floor is pulled towards the anchor's matrix until it does not,
which gives the value that the bound is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, Indices, top_eigenpairs, top_eigenvalue_sum
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.relaxation.newton import (
    central_occupations,
    congruence,
    moment_of,
    quadratic,
    spectral,
)
from isoproj.solvers.relaxation.path import Callback, Relaxation, soft_minimum
from isoproj.solvers.relaxation.problem import FULL_DIMENSION, State

__all__ = ["CappedRelaxation", "solve_capped"]

_BARRIER = 1e-3
_FIRST_MASS = 8.0
# The price is raised once the barrier is low and less than this share of it is spare.
_LOW = 3e-6
_RAISE = 4.0
_SPARE = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class CappedRelaxation:
    """Both sides of the relaxation's optimum.

    Parameters
    ----------
    codes : ndarray of shape (m,)
        Pairs that carry multipliers, as ``PairSearch`` codes.
    multipliers : ndarray of shape (m,)
        Positive.
    factor : ndarray of shape (n_dims, s)
        The best ``P = factor @ factor.T`` seen; it may violate rows slightly.
    bound : float
        Dual value: no projection under the cap keeps more, up to rounding.
    relaxed : float
        Value of a feasible matrix.
    n_iter : int
        Newton steps.
    """

    codes: Indices
    multipliers: Array
    factor: Array
    bound: float
    relaxed: float
    n_iter: int


def solve_capped(
    search: PairSearch,
    k: int,
    objective: Array,
    cap: float,
    anchor: Relaxation,
    *,
    tol: float = 1e-3,
    max_iter: int = 60,
    callback: Callback | None = None,
) -> CappedRelaxation:
    """Solve the relaxation under a cap over all pairs of a search.

    Parameters
    ----------
    search : PairSearch
        The pairs.
    k : int
        Target dimension, below ``n_dims``.
    objective : ndarray of shape (n_dims, n_dims)
        Positive semidefinite, trace 1.
    cap : float
        What no pair may lose more than; above ``anchor.relaxed``.
    anchor : Relaxation
        Solution without objective, for the same ``k``.
    tol : float
        Gap ``bound - relaxed``, relative to the bound, at which to stop.
    max_iter : int
        Most Newton steps.
    callback : callable or None
        Called as ``callback(iteration, bound, relaxed)``; True stops the solve.

    Returns
    -------
    CappedRelaxation
        Valid on both sides whether or not the gap was closed.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.solvers.relaxation.capped import solve_capped
    >>> from isoproj.solvers.relaxation.path import solve_relaxation
    >>> points, pairs = prepare_pairs(np.eye(4), "directions", rotate=True)
    >>> search = PairSearch(points, pairs)
    >>> anchor = solve_relaxation(search, 2)
    >>> spread = np.diag([0.4, 0.3, 0.2, 0.1])
    >>> result = solve_capped(search, 2, spread, 0.7, anchor)
    >>> bool(result.bound >= result.relaxed)
    True
    """
    best = _Best.of(search, k, objective, anchor)
    state = _start(search, k, objective, 1.0 - cap, anchor)
    for iteration in range(max_iter + 1):
        best.see_point(state, search)
        # The bound restricted to the subspace is optimistic but cheap.
        close = _bound(state, restricted=True) - best.relaxed <= tol * best.bound
        told = callback is not None and callback(iteration, best.bound, best.relaxed)
        stop = told or iteration == max_iter
        if close or stop:
            best.see_bound(state)
        if stop or best.bound - best.relaxed <= tol * best.bound:
            break
        try:
            if state.barrier < _LOW and state.spare < _SPARE * state.mass:
                state.spare += (_RAISE - 1.0) * state.mass
                state.mass *= _RAISE
            state.grow(search, dense=close)
            state.step()
        except np.linalg.LinAlgError:
            # The iterate has reached rounding level.
            best.see_bound(state)
            break
    keep = best.multipliers > 1e-12
    return CappedRelaxation(
        best.codes[keep],
        best.multipliers[keep],
        best.factor,
        best.bound,
        min(best.relaxed, best.bound),
        iteration,
    )


def _bound(state: State, *, restricted: bool) -> float:
    """Return the dual value of an iterate; optimistic where restricted."""
    energy = state.energy(restricted=restricted)
    return energy - state.ceiling * float(state.weights.sum())


def _start(
    search: PairSearch, k: int, objective: Array, floor: float, anchor: Relaxation
) -> State:
    """Return a centred state whose dual matrix is objective plus anchor's moment."""
    basis, moment = _start_subspace(search, k, objective, anchor)
    energies, vectors = np.linalg.eigh(congruence(basis, moment))
    filled, level = central_occupations(energies, k, _BARRIER)
    factor = basis @ (vectors * np.sqrt(filled))
    busy = anchor.codes[anchor.weights > 1e-3 / anchor.codes.size]
    codes = np.union1d(busy, search.lowest(factor, 2 * basis.shape[1]).codes)
    rows = search.directions(codes)
    values = quadratic(rows @ (basis @ vectors), np.diag(filled))
    t = min(soft_minimum(values, _BARRIER), floor - _BARRIER)
    slacks = values - t
    weights = _BARRIER / slacks
    return State(
        k=k,
        basis=basis,
        projector=spectral(vectors, filled),
        lower_dual=spectral(vectors, _BARRIER / filled),
        upper_dual=spectral(vectors, _BARRIER / (1.0 - filled)),
        level=level,
        codes=codes,
        rows=rows,
        weights=weights,
        slacks=slacks,
        t=t,
        objective=objective,
        ceiling=floor,
        mass=_FIRST_MASS,
        spare=_FIRST_MASS - float(weights.sum()),
    )


def _start_subspace(
    search: PairSearch, k: int, objective: Array, anchor: Relaxation
) -> tuple[Array, Array]:
    """Return a subspace that holds the anchor, and the dual matrix to start from."""
    moment = objective + moment_of(search.directions(anchor.codes), anchor.weights)
    dimension = objective.shape[0]
    if dimension <= FULL_DIMENSION:
        return np.eye(dimension), moment
    joined = np.hstack(
        [anchor.factor, top_eigenpairs(moment, min(dimension, k + 20))[1]]
    )
    left, sizes, _ = np.linalg.svd(joined, full_matrices=False)
    return np.asarray(left[:, sizes > 1e-6]), moment


@dataclass(slots=True, eq=False)
class _Best:
    """Best bound and best feasible value seen, not necessarily of one iterate."""

    objective: Array
    codes: Indices
    multipliers: Array
    factor: Array
    bound: float
    relaxed: float
    anchor_value: float
    anchor_floor: float

    @classmethod
    def of(
        cls, search: PairSearch, k: int, objective: Array, anchor: Relaxation
    ) -> _Best:
        """Return what is known beforehand: no multipliers, and the anchor."""
        value = _value(objective, anchor.factor)
        return cls(
            objective=objective,
            codes=anchor.codes[:0],
            multipliers=np.empty(0),
            factor=anchor.factor,
            bound=top_eigenvalue_sum(objective, k),
            relaxed=value,
            anchor_value=value,
            anchor_floor=float(search.weakest(anchor.factor, 0.0).retained[0]),
        )

    def see_point(self, state: State, search: PairSearch) -> None:
        """Keep an iterate if, pulled to feasibility, it is the best so far."""
        factor = state.factor()
        least = float(search.weakest(factor, 0.0).retained[0])
        value = _value(self.objective, factor)
        if least < state.ceiling:
            room = max(self.anchor_floor - least, 1e-12)
            pull = min(1.0, (state.ceiling - least) / room)
            value += pull * (self.anchor_value - value)
        if value > self.relaxed:
            self.relaxed, self.factor = value, factor

    def see_bound(self, state: State) -> None:
        """Keep an iterate's multipliers if their bound is the best so far."""
        bound = _bound(state, restricted=False)
        if bound < self.bound:
            self.bound = bound
            self.codes, self.multipliers = state.codes, state.weights


def _value(objective: Array, factor: Array) -> float:
    return float(np.vdot(factor, objective @ factor))
