"""The fewest dimensions under a cap: found from above, proved from below.

The relaxation's value falls with ``k``, and one set of dual weights bounds the
distortion at every ``k`` at once. So bisection on the relaxation, warm-started from one
``k`` to the next, finds where a cap stops being provably impossible; from there the
dimension goes up until local search finds a basis under the cap, and down again in
between.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Dimensions, Problem, Status, Weights
from isoproj.solvers.minimax import minimax
from isoproj.solvers.relaxation.matrices import moment_of
from isoproj.solvers.relaxation.path import solve_relaxation
from isoproj.solvers.relaxation.problem import LargestFloor, Relaxation
from isoproj.solvers.settings import Settings

__all__ = ["bounds_by_dimension", "fewest_dimensions"]


@single_blas_thread
def fewest_dimensions(problem: Problem, settings: Settings | None = None) -> Dimensions:
    """Find few dimensions under the problem's cap, and prove how few cannot do.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Problem
    >>> from isoproj.solvers.dimensions import fewest_dimensions
    >>> search = PairSearch(*prepare_pairs(np.eye(6), "directions", rotate=True))
    >>> found = fewest_dimensions(Problem(search=search, k=None, cap=0.6))
    >>> found.impossible, found.k
    (2, 3)
    """
    settings = Settings() if settings is None else settings
    assert problem.cap is not None
    hunt = _Hunt(problem, settings, problem.cap)
    principal = _principal_dimensions(problem.search, problem.cap)
    low, high = 0, principal
    while high - low > 1:
        middle = (low + high) // 2
        if hunt.allows(middle):
            high = middle
        else:
            low = max(middle, hunt.impossible)
        if hunt.is_over():
            break
    basis, k = hunt.climb(max(high, hunt.impossible + 1))
    if principal < k:
        # A search that ends early must not be worse than what was known before it.
        basis, k = np.eye(problem.n_dims, principal), principal
    codes, weights = hunt.proof
    return Dimensions(
        k=k,
        impossible=hunt.impossible,
        proof=Weights(problem.search.decode(codes), weights),
        basis=basis,
        status=hunt.status,
    )


def bounds_by_dimension(search: PairSearch, relaxation: Relaxation) -> Array:
    """Return the bounds that weights prove at 0, 1, 2, ... dimensions."""
    rows = search.directions(relaxation.codes)
    energies = np.linalg.eigvalsh(moment_of(rows, relaxation.weights))[::-1]
    return np.maximum(1.0 - np.concatenate([[0.0], np.cumsum(energies)]), 0.0)


@dataclass(slots=True, eq=False)
class _Hunt:
    """What is known so far about the dimensions that a cap takes."""

    problem: Problem
    settings: Settings
    cap: float
    impossible: int = 0
    proof: tuple[Indices, Array] = field(
        default_factory=lambda: (np.empty(0, dtype=np.intp), np.empty(0))
    )
    nearest: dict[int, Relaxation] = field(default_factory=dict)
    status: Status = Status.CONVERGED

    def is_over(self) -> bool:
        """Return whether time is up, and remember it."""
        if self.problem.journal.clock.is_over:
            self.status = Status.TIME_LIMIT
        return self.status is Status.TIME_LIMIT

    def allows(self, k: int) -> bool:
        """Solve the relaxation at ``k``; return whether it allows the cap."""
        warm = None
        if self.nearest:
            warm = self.nearest[min(self.nearest, key=lambda other: abs(other - k))]
        clock, clear = self.problem.journal.clock, self.settings.curve.clear
        relaxation = solve_relaxation(
            self.problem.search,
            LargestFloor(k, warm),
            tol=self.problem.tol,
            # Proved impossible is proved, however wide the gap still is.
            enough=1.0 - self.cap - clear,
            callback=lambda _, best: best.relaxed <= self.cap or clock.is_over,
            settings=self.settings.relaxation,
        )
        self.nearest[k] = relaxation
        bounds = bounds_by_dimension(self.problem.search, relaxation)
        proved = int((bounds[1:] > self.cap + clear).sum())
        if proved > self.impossible:
            self.impossible = proved
            self.proof = relaxation.codes, relaxation.weights
        return k > self.impossible

    def climb(self, first: int) -> tuple[Array | None, int]:
        """Go up from the first dimension not ruled out until one is under the cap."""
        best: Array | None = None
        failed, k, stride = first - 1, first, 1
        high = self.problem.n_dims
        while failed + 1 < high:
            self.problem.journal.begin()
            result = minimax(
                replace(
                    self.problem,
                    k=k,
                    tol=self.settings.curve.coarse * self.problem.tol,
                    start=None if best is None else best[:, :k],
                    known=None,
                    checkpoint=None,
                ),
                self.settings,
            )
            if result.status is Status.INTERRUPTED:
                self.status = result.status
                break
            if result.distortion <= self.cap:
                best, high = result.basis, k
            else:
                failed = k
            if self.is_over():
                break
            if best is None:
                # Every number of dimensions below the points' own is worth a try.
                k, stride = min(k + stride, high - 1), 2 * stride
            else:
                k = (failed + high) // 2
        return best, high


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
