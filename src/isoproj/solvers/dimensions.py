"""The fewest dimensions under a cap: found from above, proved from below.

The relaxation's value falls with ``k``, and one set of dual weights bounds the
distortion at every ``k`` at once. So bisection on the relaxation, warm-started from one
``k`` to the next, finds where a cap stops being provably impossible; from there the
dimension goes up until local search finds a basis under the cap, and down again in
between.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock, Monitor, SolveResult, Status
from isoproj.solvers.minimax import minimax
from isoproj.solvers.relaxation.newton import moment_of
from isoproj.solvers.relaxation.path import Relaxation, solve_relaxation

__all__ = ["Dimensions", "fewest_dimensions"]

# The relaxation is solved this much closer than the search's own first look.
_COARSE = 10.0
# A bound this far above the cap is above it whatever its rounding.
_CLEAR = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dimensions:
    """How many dimensions a cap takes.

    Parameters
    ----------
    k : int
        Dimensions found to suffice; the points' own where nothing less was found.
    result : SolveResult or None
        The basis for them; None where ``k`` is the points' own.
    impossible : int
        No projection to as many dimensions, or fewer, is under the cap; 0 if none.
    pairs, weights : ndarray
        The dual weights that prove it.
    status : Status
        ``CONVERGED``, or what stopped the search before its end.
    """

    k: int
    result: SolveResult | None
    impossible: int
    pairs: Indices
    weights: Array
    status: Status = Status.CONVERGED


@dataclass(slots=True, eq=False)
class _Hunt:
    """What is known so far."""

    search: PairSearch
    cap: float
    tol: float
    clock: Clock
    impossible: int = 0
    proof: tuple[Indices, Array] = field(
        default_factory=lambda: (np.empty(0, dtype=np.intp), np.empty(0))
    )
    nearest: dict[int, Relaxation] = field(default_factory=dict)
    status: Status = Status.CONVERGED

    def is_over(self) -> bool:
        """Return whether time is up, and remember it."""
        if self.clock.is_over:
            self.status = Status.TIME_LIMIT
        return self.clock.is_over

    def relax(self, k: int) -> bool:
        """Solve the relaxation at ``k``; return whether it allows the cap."""
        warm = None
        if self.nearest:
            warm = self.nearest[min(self.nearest, key=lambda other: abs(other - k))]
        relaxation = solve_relaxation(
            self.search,
            k,
            tol=self.tol,
            start=warm,
            # Proved impossible is proved, however wide the gap still is.
            enough=self.cap + _CLEAR,
            callback=lambda _, __, relaxed: relaxed <= self.cap or self.clock.is_over,
        )
        self.nearest[k] = relaxation
        self._use(relaxation)
        return k > self.impossible

    def _use(self, relaxation: Relaxation) -> None:
        """Prove what the weights of a solution prove at every number of dimensions."""
        rows = self.search.directions(relaxation.codes)
        energies = np.linalg.eigvalsh(moment_of(rows, relaxation.weights))[::-1]
        bounds = 1.0 - np.cumsum(energies)
        proved = int((bounds > self.cap + _CLEAR).sum())
        if proved > self.impossible:
            self.impossible = proved
            self.proof = relaxation.codes, relaxation.weights


@single_blas_thread
def fewest_dimensions(
    search: PairSearch,
    cap: float,
    *,
    tol: float = 1e-3,
    time_limit: float | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> Dimensions:
    """Find few dimensions under a cap, and prove how few cannot be.

    Parameters
    ----------
    search : PairSearch
        All pairs that count.
    cap : float
        What no pair may lose more than.
    tol : float
        Relative solver gap of the relaxations.
    time_limit : float or None
        Seconds after which the best so far is returned.
    seed : int
        Of the samples and random starts.
    monitor : callable or None
        Called with every ``Step`` of every solve.

    Returns
    -------
    Dimensions
        ``impossible < k``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.solvers.dimensions import fewest_dimensions
    >>> points, pairs = prepare_pairs(np.eye(6), "directions", rotate=True)
    >>> found = fewest_dimensions(PairSearch(points, pairs), 0.6)
    >>> found.impossible, found.k
    (2, 3)
    """
    hunt = _Hunt(search, cap, tol, Clock(time_limit))
    n_dims = search.points.n_dims
    low, high = 0, _principal_dimensions(search, cap)
    while high - low > 1:
        middle = (low + high) // 2
        if hunt.relax(middle):
            high = middle
        else:
            low = max(middle, hunt.impossible)
        if hunt.is_over():
            break
    found, k = _climb(hunt, max(high, hunt.impossible + 1), n_dims, seed, monitor)
    codes, weights = hunt.proof
    return Dimensions(
        k=k,
        result=found,
        impossible=hunt.impossible,
        pairs=search.decode(codes),
        weights=weights,
        status=hunt.status,
    )


def _principal_dimensions(search: PairSearch, cap: float) -> int:
    """Return how many leading coordinates are under the cap, by bisection."""
    low, high = 0, search.points.n_dims
    while high - low > 1:
        middle = (low + high) // 2
        weakest = search.weakest(np.eye(search.points.n_dims, middle), 0.0)
        if 1.0 - float(weakest.retained[0]) <= cap:
            high = middle
        else:
            low = middle
    return high


def _climb(
    hunt: _Hunt, first: int, n_dims: int, seed: int, monitor: Monitor | None
) -> tuple[SolveResult | None, int]:
    """Go up from the first dimension not ruled out until a basis is under the cap."""
    best: SolveResult | None = None
    failed, k, stride = first - 1, first, 1
    high = n_dims
    while failed + 1 < high:
        result = minimax(
            hunt.search.points,
            hunt.search.pairs,
            k,
            tol=_COARSE * hunt.tol,
            start=None if best is None else best.basis[:, :k],
            seed=seed,
            monitor=monitor,
            search=hunt.search,
            time_limit=hunt.clock.left,
        )
        if result.status is Status.INTERRUPTED:
            hunt.status = result.status
            break
        if _worst(result) <= hunt.cap:
            best, high = result, k
        else:
            failed = k
        if hunt.is_over():
            break
        if best is None:
            # Every number of dimensions below the points' own is worth a try.
            k, stride = min(k + stride, high - 1), 2 * stride
        else:
            k = (failed + high) // 2
    return best, high


def _worst(result: SolveResult) -> float:
    return result.history[-1].distortion if result.history else math.inf
