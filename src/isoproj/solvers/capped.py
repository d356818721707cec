"""Relaxation of the most that can be kept of an objective under a cap on every pair.

With ``C`` positive semidefinite of trace 1 and a floor ``t`` (one minus the cap) ::

    maximise <C, P>   subject to   x_l' P x_l >= t,   0 <= P <= I,   tr P = k.

Its dual is ``min topk(C + M(w)) - t sum(w)`` over ``w >= 0``: by Ky Fan's theorem every
such ``w`` bounds from above what any projection under the cap can keep.

The method is the path following of ``solvers.interior``, warm-started from the
relaxation without objective (``solvers.relaxation``), whose matrix is strictly feasible
whenever the cap is above the best possible distortion. An iterate that violates rows
is pulled towards that matrix until it is feasible, which gives the value that the
bound is compared with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isoproj._spectral import Array, Indices, top_eigenpairs, top_eigenvalue_sum
from isoproj.search import PairSearch
from isoproj.solvers.interior import FULL_DIMENSION, State
from isoproj.solvers.newton import moment_of, onto_fantope, quadratic, spectral
from isoproj.solvers.relaxation import Callback, Relaxation

__all__ = ["CappedRelaxation", "solve_capped"]

_BARRIER = 1e-3
# How much of the start is spread evenly, so that no occupation is at its end.
_EVEN = 0.1
_END = 1e-3
# First slack of a violated row, in barriers per row.
_FIRST_SLACK = 0.1


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
    >>> from isoproj.pairs import prepare_pairs
    >>> from isoproj.search import PairSearch
    >>> from isoproj.solvers.capped import solve_capped
    >>> from isoproj.solvers.relaxation import solve_relaxation
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
    return energy - state.t * float(state.weights.sum())


def _start(
    search: PairSearch, k: int, objective: Array, floor: float, anchor: Relaxation
) -> State:
    """Return the anchor's matrix, moved inside, with central duals."""
    basis = _start_subspace(search, k, objective, anchor)
    width = basis.shape[1]
    inner = basis.T @ anchor.factor
    mixed = (1.0 - _EVEN) * (inner @ inner.T) + (_EVEN * k / width) * np.eye(width)
    filled, vectors = np.linalg.eigh(mixed)
    filled = onto_fantope(np.clip(filled, _END, 1.0 - _END), k)
    busy = anchor.codes[anchor.weights > 1e-3 / anchor.codes.size]
    lowest = search.lowest(basis @ (vectors * np.sqrt(filled)), 2 * width).codes
    codes = np.union1d(busy, lowest)
    rows = search.directions(codes)
    values = quadratic(rows @ (basis @ vectors), np.diag(filled))
    slacks = np.maximum(values - floor, _BARRIER * (20.0 + _FIRST_SLACK * codes.size))
    weights = _BARRIER / slacks
    energies = np.linalg.eigvalsh(basis.T @ objective @ basis)
    return State(
        k=k,
        basis=basis,
        projector=spectral(vectors, filled),
        lower_dual=spectral(vectors, _BARRIER / filled),
        upper_dual=spectral(vectors, _BARRIER / (1.0 - filled)),
        level=float(energies[-k]),
        codes=codes,
        rows=rows,
        weights=weights,
        slacks=slacks,
        t=floor,
        objective=objective,
    )


def _start_subspace(
    search: PairSearch, k: int, objective: Array, anchor: Relaxation
) -> Array:
    """Return a subspace with the anchor's matrix and the objective's leading part."""
    dimension = objective.shape[0]
    if dimension <= FULL_DIMENSION:
        return np.eye(dimension)
    moment = moment_of(search.directions(anchor.codes), anchor.weights)
    count = min(dimension, k + 20)
    leading = top_eigenpairs(objective + 0.5 * moment, count)[1]
    joined = np.hstack([anchor.factor, leading])
    left, sizes, _ = np.linalg.svd(joined, full_matrices=False)
    return np.asarray(left[:, sizes > 1e-6])


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
        if least < state.t:
            room = max(self.anchor_floor - least, 1e-12)
            pull = min(1.0, (state.t - least) / room)
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
