"""Most of an objective under a cap on what any pair may lose.

Upper side of the value: the relaxation under the cap (``solvers.capped``), whose
multipliers are the certificate. Lower side: from the rounding of the relaxation's
matrix, descent at falling temperature on an exact penalty (``solvers.goals.Capped``),
on a working set that grows by searches of all pairs; then sequential quadratic
programming on the tight pairs, which ends with every pair of the set under the cap.
What is returned has been under the cap in a search of all pairs, by a margin that
covers the search's own rounding.

Where a search of all pairs takes seconds, both sides are solved on a pool of pairs that
few searches of all pairs enlarge (``solvers.pool``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock, Journal, Monitor, Status, Step, Stopped
from isoproj.solvers.descent.anneal import FEW
from isoproj.solvers.descent.grassmann import random_starts
from isoproj.solvers.descent.merit import Capped
from isoproj.solvers.descent.sqp import finish
from isoproj.solvers.descent.working_set import (
    SMALL_BASIS,
    WorkingSet,
    batch_size,
    cooled,
    leading,
)
from isoproj.solvers.pool import Pool
from isoproj.solvers.relaxation.capped import CappedRelaxation, solve_capped
from isoproj.solvers.relaxation.path import Relaxation

__all__ = ["GuaranteedResult", "guaranteed", "principal_basis"]

_TEMPERATURES = (0.01, 0.003, 0.001, 0.0003, 0.0001)
# A start that was optimal under a neighbouring cap needs no heat.
_N_COOL = 3
# Caps are aimed at this far inside, which covers the rounding of searches.
_MARGIN = 1e-5
_ROUNDS = 10
# The price falls by this factor while the cap is not reached.
_CHEAPER = 3.0
_CHEAPEST = 100.0
_HALVINGS = 6
_GAIN = 1e-6
# Nothing more is tried when this share of the bound at most is missing.
_CLOSE = 2e-3
# Searches of all pairs, at most, that a side solved on a pool may ask for.
_POOLED_ROUNDS = 6
# Random starts where there are few pairs, and few dimensions, at which local optima
# differ most.
_N_RESTARTS = 6
_LOOSE = 7
_UNLIMITED = 10**9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GuaranteedResult:
    """What the solver claims; it proves nothing until ``certify`` has seen it.

    Parameters
    ----------
    basis : ndarray of shape (n_dims, k) or None
        Orthonormal columns; None if no basis under the cap was found.
    pairs : ndarray of shape (m, 2)
        Pairs that carry multipliers.
    multipliers : ndarray of shape (m,)
        Positive.
    kept, kept_bound : float
        Share of the objective that the basis keeps, and its bound.
    status : Status
        Why it stopped.
    history : tuple of Step
        One entry per round.
    """

    basis: Array | None
    pairs: Indices
    multipliers: Array
    kept: float
    kept_bound: float
    status: Status
    history: tuple[Step, ...] = field(repr=False)


@dataclass(slots=True, eq=False)
class _Progress:
    """The best basis under the cap so far."""

    journal: Journal
    search: PairSearch
    k: int
    objective: Array
    cap: float
    lower: float
    relaxation: CappedRelaxation | None = None
    basis: Array | None = None
    kept: float = -math.inf
    distortion: float = math.inf

    def see(self, basis: Array, distortion: float) -> bool:
        """Keep a basis if it is under the cap and the best such; say whether."""
        kept = float(np.vdot(basis, self.objective @ basis))
        better = distortion <= self.cap - 0.3 * _MARGIN and kept > self.kept
        if better:
            self.basis, self.kept, self.distortion = basis, kept, distortion
        return better

    def measure(self, basis: Array) -> bool:
        """Measure a basis on all pairs, and keep it if it is the best."""
        weakest = self.search.weakest(basis, 0.0)
        return self.see(basis, 1.0 - float(weakest.retained[0]))

    def tell(self, n_working: int) -> None:
        """Record a round; stop when a limit has passed."""
        relaxation = self.relaxation
        self.journal.record(
            distortion=self.distortion,
            lower_bound=self.lower,
            n_working=n_working,
            kept=max(self.kept, 0.0),
            kept_bound=1.0 if relaxation is None else relaxation.bound,
        )


def principal_basis(objective: Array, k: int) -> Array:
    """Return the basis that keeps most of the objective when nothing is capped."""
    return top_eigenpairs(objective, k)[1]


@single_blas_thread
def guaranteed(
    search: PairSearch,
    k: int,
    objective: Array,
    cap: float,
    anchor: Relaxation,
    starts: list[Array],
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    time_limit: float | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> GuaranteedResult:
    """Find the basis under a cap that keeps most, and multipliers that bound it.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    k : int
        Target dimension, below ``n_dims``.
    objective : ndarray of shape (n_dims, n_dims)
        Positive semidefinite, trace 1.
    cap : float
        What no pair may lose more than.
    anchor : Relaxation
        Solution of the relaxation without objective, for the same ``k``.
    starts : list of ndarray of shape (n_dims, k)
        Bases to start from besides the relaxation's, for example one known to be
        under the cap.
    tol : float
        Relative gap at which the relaxation is content.
    max_iter : int
        Most rounds.
    time_limit : float or None
        Seconds after which to stop with the best so far.
    seed : int
        Of the sample of pairs.
    monitor : callable or None
        Called with every ``Step``.

    Returns
    -------
    GuaranteedResult
        ``OPTIMAL`` if no cap was needed or both sides meet, ``CONVERGED`` if the search
        ended, else the limit that stopped it.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.solvers.guaranteed import guaranteed
    >>> from isoproj.solvers.relaxation.path import solve_relaxation
    >>> points, pairs = prepare_pairs(np.eye(4), "directions", rotate=True)
    >>> search = PairSearch(points, pairs)
    >>> anchor = solve_relaxation(search, 2)
    >>> result = guaranteed(search, 2, np.eye(4) / 4, 0.9, anchor, [])
    >>> round(result.kept, 6)
    0.5
    """
    journal = Journal(Clock(time_limit), max_iter, monitor)
    progress = _Progress(journal, search, k, objective, cap, anchor.lower)
    principal = principal_basis(objective, k)
    if progress.measure(principal) or cap >= 1.0:
        # Ky Fan: nothing keeps more, with or without a cap.
        return _result(progress, Status.OPTIMAL, principal)
    try:
        for start in starts:
            progress.measure(start)
        rng = np.random.default_rng(seed)
        if search.is_slow:
            pool = Pool.begin(search, principal, rng)
            pool.codes = np.union1d(pool.codes, np.union1d(search.recent, anchor.codes))
            relaxation = _bound_pooled(progress, pool, anchor, tol)
            _search_pooled(progress, pool, relaxation, starts, rng)
        else:
            relaxation = _relaxed(progress, search, anchor, tol)
            progress.relaxation = relaxation
            progress.tell(relaxation.codes.size)
            _search(progress, relaxation, starts, rng)
        status = _final_status(progress, relaxation, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _result(progress, status, progress.basis)


def _result(
    progress: _Progress, status: Status, basis: Array | None
) -> GuaranteedResult:
    search, relaxation = progress.search, progress.relaxation
    codes: Indices = np.empty(0, dtype=np.intp)
    multipliers, bound = np.empty(0), 1.0
    if relaxation is not None:
        codes, multipliers = relaxation.codes, relaxation.multipliers
        bound = relaxation.bound
    kept = 0.0
    if basis is not None:
        kept = float(np.vdot(basis, progress.objective @ basis))
    if status is Status.OPTIMAL and relaxation is None:
        bound = kept
    return GuaranteedResult(
        basis=basis,
        pairs=search.decode(codes),
        multipliers=multipliers,
        kept=kept,
        kept_bound=bound,
        status=status,
        history=tuple(progress.journal.history),
    )


def _final_status(
    progress: _Progress, relaxation: CappedRelaxation, tol: float
) -> Status:
    if progress.kept >= relaxation.bound * (1.0 - 1e-6):
        return Status.OPTIMAL
    if relaxation.bound - relaxation.relaxed <= tol * relaxation.bound + 1e-12:
        return Status.CONVERGED
    return Status.MAX_ITER


def _relaxed(
    progress: _Progress, search: PairSearch, anchor: Relaxation, tol: float
) -> CappedRelaxation:
    return solve_capped(
        search,
        progress.k,
        progress.objective,
        progress.cap,
        anchor,
        tol=tol,
        callback=lambda *_: progress.journal.clock.is_over,
    )


def _bound_pooled(
    progress: _Progress, pool: Pool, anchor: Relaxation, tol: float
) -> CappedRelaxation:
    """Solve the relaxation on a pool until no pair outside violates it.

    Multipliers on pairs of the pool bound what any projection keeps, whatever the pool
    lacks; a pool that lacks pairs only makes the bound worse.
    """
    for _ in range(_POOLED_ROUNDS):
        relaxation = _relaxed(progress, pool.inside(), anchor, tol)
        worst = pool.enlarge(relaxation.factor, progress.cap)
        is_whole = worst <= progress.cap * (1.0 + tol)
        if not is_whole:
            # The value is that of a matrix which some pair outside forbids.
            relaxation = replace(relaxation, relaxed=0.0)
        if progress.relaxation is None or relaxation.bound < progress.relaxation.bound:
            progress.relaxation = relaxation
        progress.tell(pool.codes.size)
        if is_whole:
            break
    return relaxation


def _search_pooled(
    progress: _Progress,
    pool: Pool,
    relaxation: CappedRelaxation,
    starts: list[Array],
    rng: np.random.Generator,
) -> None:
    """Search on a pool until what is found there is under the cap on all pairs."""
    found: Array | None = None
    for _ in range(_POOLED_ROUNDS):
        inside = replace(
            progress,
            journal=Journal(progress.journal.clock, _UNLIMITED, None),
            search=pool.inside(),
            basis=None,
            kept=-math.inf,
            distortion=math.inf,
        )
        _search(inside, relaxation, starts, rng, found)
        if inside.basis is None:
            break
        found = inside.basis
        worst = pool.enlarge(found, inside.distortion)
        progress.see(found, worst)
        progress.tell(pool.codes.size)
        if worst <= progress.cap - 0.3 * _MARGIN:
            break
    else:
        if found is not None and progress.basis is not None:
            goal = _goal(progress, relaxation, 0)
            known = WorkingSet(progress.search, pool.codes)
            _approach(progress, known, goal, found, batch_size(progress.k))


def _goal(progress: _Progress, relaxation: CappedRelaxation, n_further: int) -> Capped:
    # An exact penalty needs a price below one over the sum of the multipliers.
    price = 1.0 / (1.5 * float(relaxation.multipliers.sum()) + 0.5)
    return Capped(progress.cap - _MARGIN, price, n_further)


def _search(
    progress: _Progress,
    relaxation: CappedRelaxation,
    starts: list[Array],
    rng: np.random.Generator,
    found: Array | None = None,
) -> None:
    """Search from the relaxation's rounding and from every start; polish the best.

    What was ``found`` on fewer pairs is gone on from instead.
    """
    search, objective = progress.search, progress.objective
    k = progress.k
    rounded = leading(relaxation.factor, k)
    count = batch_size(k)
    codes = np.concatenate(
        [
            relaxation.codes,
            search.lowest(rounded, count // 2).codes,
            search.sample(count // 2, rng),
        ]
    )
    further = _root(objective)
    known = WorkingSet(search, np.unique(codes), further)
    goal = _goal(progress, relaxation, len(further))
    if found is not None:
        _anneal(progress, known, goal, found, _TEMPERATURES[-_N_COOL:], count)
        return
    _anneal(progress, known, goal, rounded, _TEMPERATURES, count)
    # A start under the cap must not leave it: any lower price is exact as well.
    goal = replace(goal, price=goal.price / _CHEAPEST)
    for start in starts:
        if progress.kept >= (1.0 - _CLOSE) * relaxation.bound:
            break
        _anneal(progress, known, goal, start, _TEMPERATURES[-_N_COOL:], count)
    is_close = progress.kept >= (1.0 - _CLOSE) * relaxation.bound
    if is_close or search.n_pairs > FEW or k > _LOOSE:
        return
    for start in random_starts(known.secants, goal, rounded.shape, _N_RESTARTS, rng):
        if progress.kept >= (1.0 - _CLOSE) * relaxation.bound:
            break
        _anneal(progress, known, goal, start, _TEMPERATURES, count)


def _anneal(
    progress: _Progress,
    known: WorkingSet,
    goal: Capped,
    basis: Array,
    temperatures: tuple[float, ...],
    count: int,
) -> None:
    """Cool down with a growing set, then solve for the tight pairs exactly."""
    for temperature in temperatures:
        for _ in range(3):
            basis = cooled(known.secants, basis, temperature, goal)
            slack = 2.0 * temperature + 0.005
            excess, overall = known.grow(basis, slack, count, cap=goal.cap)
            progress.see(basis, overall)
            progress.tell(known.codes.size)
            if excess < temperature:
                break
    last = -math.inf
    programmes = 3 if basis.size <= SMALL_BASIS else 1
    for _ in range(_ROUNDS):
        basis = finish(known.secants, basis, goal=goal, max_iter=programmes)
        excess, overall = known.grow(basis, 0.005, count, cap=goal.cap)
        better = progress.see(basis, overall)
        progress.tell(known.codes.size)
        if overall <= progress.cap - 0.3 * _MARGIN:
            if not better or progress.kept < last + _GAIN:
                break
            last = progress.kept
        elif overall - excess > goal.cap:
            # The penalty is not exact yet: local multipliers exceed the relaxation's.
            goal = replace(goal, price=goal.price / _CHEAPER)
            basis = cooled(known.secants, basis, temperatures[-1], goal)
    else:
        _retreat(progress, known, goal, basis, count)


def _retreat(
    progress: _Progress, known: WorkingSet, goal: Capped, basis: Array, count: int
) -> None:
    """Go from the best basis under the cap towards another, then polish."""
    if progress.basis is None:
        return
    basis = _approach(progress, known, goal, basis, count)
    for _ in range(_HALVINGS):
        basis = finish(known.secants, basis, goal=goal, max_iter=1)
        _, overall = known.grow(basis, 0.005, count, cap=goal.cap)
        progress.tell(known.codes.size)
        if not progress.see(basis, overall):
            break


def _approach(
    progress: _Progress, known: WorkingSet, goal: Capped, basis: Array, count: int
) -> Array:
    """Go from the best basis under the cap towards one above it, as far as allowed."""
    assert progress.basis is not None
    left, _, right = np.linalg.svd(basis.T @ progress.basis)
    inside, outside = progress.basis, basis @ (left @ right)
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        between = orthonormal((1.0 - middle) * inside + middle * outside)
        _, overall = known.grow(between, 0.005, count, cap=goal.cap)
        progress.see(between, overall)
        progress.tell(known.codes.size)
        low, high = (middle, high) if overall <= progress.cap else (low, middle)
    return orthonormal((1.0 - low) * inside + low * outside)


def _root(objective: Array) -> Array:
    """Return rows ``F`` with ``F^T F`` the objective."""
    values, vectors = np.linalg.eigh(objective)
    keep = values > 1e-12 * values[-1]
    return np.asarray((vectors[:, keep] * np.sqrt(values[keep])).T)
