"""The fewest dimensions under a cap, and how few are proved not to do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.spectral import Array
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Dimensions, Problem, Result, Status, Weights
from isoproj.solvers.drive import minimax
from isoproj.solvers.settings import Settings


def fewest_dimensions(problem: Problem, settings: Settings) -> Dimensions:
    """Find few dimensions under the problem's cap, and prove how few cannot do.

    At some number of dimensions the loop goes on until a basis is under the cap, until
    that is proved impossible, or until neither side gains any more. Bisection finds the
    number, and then the largest one that the weights prove impossible.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Problem
    >>> from isoproj.solvers.dimensions import fewest_dimensions
    >>> from isoproj.solvers.settings import Settings
    >>> search = PairSearch(*prepare_pairs(np.eye(6), "directions", rotate=True))
    >>> found = fewest_dimensions(Problem(search=search, k=None, cap=0.6), Settings())
    >>> found.impossible, found.k
    (2, 3)
    """
    assert problem.cap is not None
    hunt = _Hunt(problem, settings, problem.cap)
    hunt.high = _principal_dimensions(problem.search, problem.cap)
    hunt.basis = np.eye(problem.n_dims, hunt.high)
    while hunt.high - hunt.failed > 1 and not hunt.status.advice:
        hunt.ask((hunt.failed + hunt.high) // 2)
    top = hunt.failed
    while top - hunt.impossible > 1 and not hunt.status.advice:
        middle = (hunt.impossible + top) // 2
        hunt.ask(middle)
        if hunt.impossible < middle:
            top = middle
    return Dimensions(
        k=hunt.high,
        impossible=hunt.impossible,
        proof=hunt.proof,
        basis=hunt.basis,
        status=hunt.status,
    )


def _bounds_by_dimension(search: PairSearch, dual: Weights) -> Array:
    """Return the bounds that weights prove at 1, 2, ... dimensions."""
    energies = np.linalg.eigvalsh(search.moment(dual.pairs, dual.weights))[::-1]
    return np.maximum(1.0 - np.cumsum(energies), 0.0)


@dataclass(slots=True, eq=False)
class _Hunt:
    """What is known so far about the dimensions that a cap takes.

    ``high`` suffice, by ``basis``; ``failed`` were tried in vain; ``impossible`` are
    too few, by ``proof``.
    """

    problem: Problem
    settings: Settings
    cap: float
    high: int = 0
    basis: Array | None = None
    failed: int = 0
    impossible: int = 0
    proof: Weights = field(default_factory=Weights)
    last: Result | None = None
    status: Status = Status.CONVERGED

    def ask(self, k: int) -> None:
        """Decide, as far as possible, whether ``k`` dimensions suffice."""
        self.problem.journal.begin()
        posed = replace(self.problem, k=k, cap=self.cap, start=None, checkpoint=None)
        if self.last is not None:
            posed = replace(posed, dual=self.last.dual)
        result = minimax(posed, self.settings)
        self.last = result
        if result.status.advice:
            self.status = result.status
        bounds = _bounds_by_dimension(self.problem.search, result.dual)
        proved = int((bounds > self.cap * (1.0 + 1e-9) + 1e-9).sum())
        if proved > self.impossible:
            self.impossible, self.proof = proved, result.dual
        if result.distortion <= self.cap:
            if k < self.high:
                self.high, self.basis = k, result.basis
        else:
            self.failed = max(self.failed, k, min(self.impossible, self.high - 1))


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
