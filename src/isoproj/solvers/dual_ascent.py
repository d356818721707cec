"""The paper's Algorithms 1 and 2: projected supergradient ascent on the dual.

From ``w = 1/n``, ``T`` times: take the top-k eigenvectors ``V`` of ``M(w)``, move
``w`` by ``eta`` times the supergradient ``-|V^T x|^2`` and project back on the simplex.
The basis with the least distortion among all iterates is kept, and at the end compared
with that of the average iterate. ``g`` is concave but not differentiable where the k-th
and (k+1)-th eigenvalues meet, which is where optima are, so this is supergradient
ascent with the usual rate: after ``T`` steps of ``eta = sqrt(2 / (n T))`` the average
dual value is within ``sqrt(2 n / T)`` of the optimum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.moments import DualProblem
from isoproj.solvers.api import Clock, Result, Status, Weights


def project_on_simplex(values: Array) -> Array:
    """Return the point of the probability simplex nearest to ``values``.

    Algorithm 2 of the paper with the index ``rho`` as Wang and Carreira-Perpinan
    define it: the largest ``j`` with ``s_j + (1 - sum_{i<=j} s_i) / j > 0`` in
    descending order ``s``. Costs a sort.

    Parameters
    ----------
    values : ndarray of shape (n,)
        Any real numbers.

    Returns
    -------
    ndarray of shape (n,)
        Nonnegative, summing to 1.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.dual_ascent import project_on_simplex
    >>> project_on_simplex(np.array([1.5, 1.0, -3.0])).tolist()
    [0.75, 0.25, 0.0]
    """
    # Adding a constant changes nothing; without it large values would absorb the 1.
    values = values - values.max()
    descending = np.sort(values)[::-1]
    shifts = (1.0 - np.cumsum(descending)) / np.arange(1, values.size + 1)
    rho = int(np.flatnonzero(descending + shifts > 0.0)[-1])
    return np.asarray(np.maximum(values + shifts[rho], 0.0))


@dataclass(slots=True, eq=False)
class _BestIterates:
    """The best of each kind seen so far; NumPy arrays are replaced, never changed."""

    distortion: float = math.inf
    basis: Array = field(default_factory=lambda: np.empty((0, 0)))
    lower: float = -math.inf
    weights: Array = field(default_factory=lambda: np.empty(0))

    def see(
        self, distortion: float, basis: Array, lower: float, weights: Array
    ) -> None:
        if distortion < self.distortion:
            self.distortion, self.basis = distortion, basis
        if lower > self.lower:
            self.lower, self.weights = lower, weights


@single_blas_thread
def dual_ascent(
    problem: DualProblem, *, max_iter: int = 120, clock: Clock | None = None
) -> Result:
    """Run the paper's algorithm.

    Parameters
    ----------
    problem : DualProblem
        Pairs of points and the target dimension.
    max_iter : int
        The paper's ``T``; the step size follows from it.
    clock : Clock or None
        When to stop with the best so far.

    Returns
    -------
    Result
        The basis of least distortion and the weights of greatest dual value; the
        history holds (distortion, dual value) of ``w_0 ... w_T``, and ``average``
        those of the mean of ``w_1 ... w_T``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.moments import pose
    >>> from isoproj.solvers.dual_ascent import dual_ascent
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> len(dual_ascent(pose(points, pairs, 2), max_iter=5).history)
    6
    """
    ascent = _Ascent(problem, Clock(None) if clock is None else clock)
    status = Status.COMPLETED
    average: Step | None = None
    try:
        if not ascent.run(max_iter):
            status = Status.TIME_LIMIT
        if len(ascent.history) > 1:
            average = ascent.seen(ascent.total / (len(ascent.history) - 1))[0]
    except KeyboardInterrupt:
        if not ascent.history:
            raise
        status = Status.INTERRUPTED
    best = ascent.best
    support = np.flatnonzero(best.weights)
    return Result(
        basis=best.basis,
        dual=Weights(problem.pairs(support), best.weights[support]),
        status=status,
        distortion=best.distortion,
        lower=best.lower,
        history=tuple(ascent.history),
        average=average,
    )


@dataclass(slots=True, eq=False)
class _Ascent:
    """The iterates so far."""

    problem: DualProblem
    clock: Clock
    best: _BestIterates = field(default_factory=lambda: _BestIterates())
    history: list[Step] = field(default_factory=list)
    total: Array = field(default_factory=lambda: np.zeros(0))

    def run(self, max_iter: int) -> bool:
        """Take all steps; return False if time ran out before."""
        n = self.problem.n_pairs
        rate = math.sqrt(2.0 / (n * max_iter))
        weights = np.full(n, 1.0 / n)
        self.total = np.zeros(n)
        for iteration in range(max_iter + 1):
            step, retained = self.seen(weights)
            self.history.append(step)
            tell(step)
            if iteration > 0:
                self.total += weights
            if self.clock.is_over and iteration < max_iter:
                return False
            weights = project_on_simplex(weights - rate * retained)
        return True

    def seen(self, weights: Array) -> tuple[Step, Array]:
        """Return the values of some weights, and what pairs keep under their basis."""
        lower, basis = self.problem.dual(weights)
        retained = self.problem.retained(basis)
        distortion = 1.0 - float(retained.min())
        self.best.see(distortion, basis, lower, weights)
        step = Step(
            iteration=len(self.history),
            distortion=distortion,
            lower_bound=lower,
            seconds=self.clock.seconds,
            n_working=int(np.count_nonzero(weights)),
        )
        return step, retained
