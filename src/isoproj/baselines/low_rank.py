"""Near-isometries of fixed rank: NILE-Pro and FroMax, reconstructed.

Luo, Shapiro, Shi, Yang and Zhu (arXiv 1601.00062) describe both; only the abstract was
at hand. It says what each minimises, and that both use alternating directions, NILE-Pro
with a Moreau decomposition for its proximal map. The steps here follow from that.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse.linalg

from isoproj.baselines.isometry import (
    Fit,
    alternate,
    clip_to_band,
    largest_deviation_prox,
    matrix_root,
    rank_limit,
    start_state,
)
from isoproj.baselines.numax_solver import NearIsometry, joined
from isoproj.numerics.spectral import Array, Indices, top_eigenpairs
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Clock, Monitor, Status, Step

__all__ = ["solve_fromax", "solve_nilepro"]

_MOST_ADDED = 300
_STEPS_PER_ROUND = 25
# Most pairs taken over from one round to the next.
_LARGEST_WORKING = 1000
# Rounds without a better map after which the search is over.
_PATIENCE = 6


@dataclass(slots=True, eq=False)
class _Best:
    """The map whose two ends are nearest to each other, of all that were scanned."""

    factor: Array
    constant: float = np.inf
    stale: int = 0

    def see(self, factor: Array, ends: Extremes) -> None:
        low, high = float(ends.low[0]), float(ends.high[0])
        constant = (high - low) / (high + low) if high > 0.0 else np.inf
        self.stale += 1
        if constant < self.constant:
            # The scale that makes the largest loss equal the largest gain.
            self._take(factor * np.sqrt(2.0 / (high + low)), constant)

    def _take(self, factor: Array, constant: float) -> None:
        if constant < self.constant * (1.0 - 1e-4):
            self.stale = 0
        self.factor, self.constant = factor, constant


@dataclass(slots=True, eq=False)
class _Shortest:
    """The map of least norm within the band; before one is, the nearest to it."""

    nearest: _Best
    delta: float
    factor: Array | None = None
    norm: float = np.inf
    stale: int = 0

    def see(self, factor: Array, ends: Extremes) -> None:
        self.nearest.see(factor, ends)
        self.stale += 1
        norm = float((factor**2).sum())
        off = max(1.0 - float(ends.low[0]), float(ends.high[0]) - 1.0)
        # Alternating steps approach the band's edge from outside.
        if off <= self.delta * 1.01 and norm < self.norm:
            if norm < self.norm * (1.0 - 1e-4):
                self.stale = 0
            self.factor, self.norm = factor, norm

    @property
    def is_done(self) -> bool:
        if self.factor is None:
            return self.nearest.stale >= _PATIENCE
        return self.stale >= _PATIENCE

    @property
    def best(self) -> Array:
        return self.nearest.factor if self.factor is None else self.factor


def _start(pool: PairSearch, k: int) -> tuple[_Best, Extremes]:
    """Return scaled principal components of the directions, and what they do."""
    basis = top_eigenpairs(pool.uniform_moment(), k)[1]
    ends = pool.extremes(basis, n_low=2 * _MOST_ADDED, n_high=_MOST_ADDED)
    best = _Best(basis)
    best.see(basis, ends)
    return best, ends


def _report(
    monitor: Monitor | None, number: int, best: _Best, clock: Clock, n_working: int
) -> None:
    if monitor is not None:
        monitor(
            Step(
                iteration=number,
                distortion=best.constant,
                lower_bound=0.0,
                seconds=clock.seconds,
                n_working=n_working,
            )
        )


def solve_nilepro(
    pool: PairSearch,
    k: int,
    *,
    penalty: float = 0.2,
    max_iter: int = 500,
    clock: Clock,
    monitor: Monitor | None = None,
) -> NearIsometry:
    """Return a map of rank ``k`` whose largest deviation from isometry is small.

    Minimises ``max |x^T P x - 1|`` over semidefinite ``P`` of rank ``k`` by alternating
    directions on a growing working set. Not convex: the best map met is returned.

    Parameters
    ----------
    pool : PairSearch
        The pairs.
    k : int
        Rank.
    penalty : float
        Of the alternating directions.
    max_iter : int
        Most alternating steps.
    clock : Clock
        Tells when time is over.
    monitor : callable or None
        Called after every round of steps.

    Returns
    -------
    NearIsometry
        Scaled so that its largest loss equals its largest gain.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.baselines.low_rank import solve_nilepro
    >>> points, pairs = prepare_pairs(np.eye(5), rotate=True)
    >>> solve_nilepro(PairSearch(points, pairs), 2, clock=Clock(None)).factor.shape
    (4, 2)
    """
    best, ends = _start(pool, k)
    factor = best.factor
    working = joined(ends.low_pairs, ends.high_pairs)
    state = start_state(pool, working, factor @ factor.T)
    fit = Fit(pool.directions(working))
    status = Status.COMPLETED
    for number in range(max(1, max_iter // _STEPS_PER_ROUND)):
        alternate(
            state,
            fit,
            lambda matrix: rank_limit(matrix, k),
            lambda values: largest_deviation_prox(values, 1.0 / penalty),
            max_iter=_STEPS_PER_ROUND,
            tol=1e-6,
            clock=clock,
            step=1.0,
        )
        factor = matrix_root(state.simple, rank=k)
        ends = pool.extremes(factor, n_low=_MOST_ADDED, n_high=_MOST_ADDED)
        best.see(factor, ends)
        _report(monitor, number, best, clock, working.shape[0])
        if clock.is_over:
            status = Status.TIME_LIMIT
        if clock.is_over or best.stale >= _PATIENCE:
            break
        band = float(np.abs(state.values - 1.0).max())
        outside = joined(
            ends.low_pairs[ends.low < 1.0 - band],
            ends.high_pairs[ends.high > 1.0 + band],
        )
        # Pairs well inside the band pull least; beyond a size they make room.
        pulling = np.argsort(-np.abs(state.values_dual))[:_LARGEST_WORKING]
        grown = joined(working[pulling], outside)
        if not np.array_equal(grown, working):
            working, fit = grown, Fit(pool.directions(grown))
            state = state.on(grown, pool.points.n_points, fit.directions)
    return NearIsometry(
        factor=best.factor,
        n_iter=state.n_iter,
        n_working=working.shape[0],
        status=status,
    )


def solve_fromax(
    pool: PairSearch,
    k: int,
    delta: float,
    *,
    penalty: float = 1.0,
    max_iter: int = 300,
    clock: Clock,
    monitor: Monitor | None = None,
) -> NearIsometry:
    """Return a map of rank ``k`` and small Frobenius norm that keeps to a band.

    Minimises ``|F|_F^2 / 2`` subject to ``| |F^T x|^2 - 1 | <= delta`` with two copies
    of ``F`` as factors, updated in turn by ridge regression.

    Parameters
    ----------
    pool : PairSearch
        The pairs.
    k : int
        Rank.
    delta : float
        Half the width of the band; one that rank ``k`` cannot reach is approached.
    penalty : float
        Of the alternating directions.
    max_iter : int
        Most alternating steps.
    clock : Clock
        Tells when time is over.
    monitor : callable or None
        Called after every round of steps.

    Returns
    -------
    NearIsometry
        The map of least norm within the band (to one part in a hundred), of those
        looked at; where there is none, the nearest, scaled so that its largest loss
        equals its largest gain.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.baselines.low_rank import solve_fromax
    >>> points, pairs = prepare_pairs(np.eye(5), rotate=True)
    >>> solve_fromax(PairSearch(points, pairs), 2, 0.4, clock=Clock(None)).factor.shape
    (4, 2)
    """
    start, ends = _start(pool, k)
    factor, best = start.factor, _Shortest(start, delta)
    state = _Factors(pool, joined(ends.low_pairs, ends.high_pairs), factor, penalty)
    status, n_iter = Status.COMPLETED, 0
    for number in range(max(1, max_iter // _STEPS_PER_ROUND)):
        for _ in range(_STEPS_PER_ROUND):
            state.step(delta)
            n_iter += 1
            if clock.is_over:
                status = Status.TIME_LIMIT
                break
        factor = (state.left + state.right) / 2.0
        ends = pool.extremes(factor, n_low=_MOST_ADDED, n_high=_MOST_ADDED)
        best.see(factor, ends)
        _report(monitor, number, start, clock, state.pairs.shape[0])
        if status is Status.TIME_LIMIT or best.is_done:
            break
        state.exchange(
            joined(
                ends.low_pairs[ends.low < 1.0 - delta],
                ends.high_pairs[ends.high > 1.0 + delta],
            )
        )
    return NearIsometry(
        factor=best.best,
        n_iter=n_iter,
        n_working=state.pairs.shape[0],
        status=status,
    )


class _Factors:
    """Where FroMax stands: two copies of the map, multipliers, a working set."""

    def __init__(
        self, pool: PairSearch, pairs: Indices, factor: Array, penalty: float
    ) -> None:
        self.pool, self.penalty = pool, penalty
        self.left, self.right = factor.copy(), factor.copy()
        self.gap_dual = np.zeros_like(factor)
        self._take(pairs, np.zeros(pairs.shape[0]))

    def _take(self, pairs: Indices, values_dual: Array) -> None:
        self.pairs, self.values_dual = pairs, values_dual
        self.directions = self.pool.directions(pairs)

    def exchange(self, outside: Indices) -> None:
        """Take in pairs outside the band; let go of those that no longer pull."""
        n = self.pool.points.n_points
        # One violation of 1e-6 is a pull; what decayed below it is not.
        pulls = np.abs(self.values_dual) > 1e-6
        held, duals = self.pairs[pulls], self.values_dual[pulls]
        fresh = ~np.isin(outside @ [n, 1], held @ [n, 1])
        self._take(
            np.concatenate([held, outside[fresh]]),
            np.concatenate([duals, np.zeros(int(fresh.sum()))]),
        )

    def step(self, delta: float) -> None:
        """Update forms, both copies and the multipliers once."""
        forms = self._forms()
        values = clip_to_band(forms + self.values_dual, delta, None)
        target = values - self.values_dual
        self.left = self._ridge(self.right, target, self.right - self.gap_dual)
        self.right = self._ridge(self.left, target, self.left + self.gap_dual)
        self.values_dual = self.values_dual + self._forms() - values
        self.gap_dual = self.gap_dual + self.left - self.right

    def _forms(self) -> Array:
        left, right = self.directions @ self.left, self.directions @ self.right
        return np.asarray(np.einsum("ij,ij->i", left, right))

    def _ridge(self, other: Array, target: Array, near: Array) -> Array:
        """Return one copy given the other; each bears half of the squared norm."""
        images = self.directions @ other
        shrunk = near * (self.penalty / (self.penalty + 0.5))
        ridge = (self.penalty + 0.5) / self.penalty

        def spread(pull: Array) -> Array:
            return np.asarray(self.directions.T @ (pull[:, None] * images))

        def system(pull: Array) -> Array:
            forms = np.einsum("ij,ij->i", self.directions @ spread(pull), images)
            return np.asarray(forms + ridge * pull)

        m = images.shape[0]
        held = np.einsum("ij,ij->i", self.directions @ shrunk, images)
        # An inexact solve is enough: the next step starts from its result.
        pull, _ = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator((m, m), matvec=system, dtype=float),
            target - held,
            rtol=1e-6,
            maxiter=20,
        )
        return np.asarray(shrunk + spread(pull))
