"""StablePCA with every pair a source: mirror-prox on the fantope, then rounding."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task
from isoproj.baselines.fantope import FractionalProjection, project_on_fantope
from isoproj.baselines.rounds import Best
from isoproj.estimators.base import check_positive
from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array
from isoproj.pairs.moments import Problem
from isoproj.solvers.api import Clock, Status

__all__ = ["StablePCA"]

# Rounds between two measurements of the averages.
_LOOK_EVERY = 10


class StablePCA(Baseline):
    """StablePCA with every pair a source: the source that keeps least keeps most.

    A reconstruction from the paper's description, not its code: mirror-prox looks for
    the saddle point of what weighted pairs keep, with Euclidean steps on the fantope
    and entropic steps on the weights. The leading eigenvectors of the averaged matrix
    are returned, and the best averaged weights prove the bound. Sources of the paper
    are groups of observations; here each is one direction.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    rate : float, default=1.0
        Length of the steps on both sides.
    max_iter : int, default=500
        Most rounds; each takes two gradients.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs count.
    time_limit : float or None, default=None
        Seconds after which the best so far is returned.
    random_state : int, RandomState instance or None, default=None
        Not used: nothing is random.
    verbose : int, default=0
        1 writes a line per look at the averages to standard error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_ : float
        Largest share of squared length that a pair loses; exact.
    stretch_ : float
        Largest share of squared length that a pair gains: 0 for a projection.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    lower_bound_ : float
        No projection to as many dimensions has a smaller distortion; certified from
        the weights.
    relaxed_ : float
        Distortion of the fractional projection before rounding, as found.
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    See Also
    --------
    FairPCA : The same relaxation by multiplicative weights.
    SDPProjection : The same relaxation by semidefinite programming.

    References
    ----------
    StablePCA. arXiv 2505.00940.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import StablePCA
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = StablePCA(n_components=3, tol=0.2).fit(X)
    >>> model.lower_bound_ <= model.distortion_
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        rate: float = 1.0,
        max_iter: int = 500,
        tol: float = 1e-3,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            pairs=pairs,
            time_limit=time_limit,
            random_state=random_state,
            verbose=verbose,
        )
        self.rate = rate
        self.max_iter = max_iter
        self.tol = tol

    def _check_parameters(self) -> None:
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        problem = task.dense_problem(type(self).__name__, self._k)
        saddle = _Saddle(problem, self._k, rate=self.rate)
        status = saddle.run(
            max_iter=int(self.max_iter),
            tol=self.tol,
            clock=task.clock,
        )
        support = np.flatnonzero(saddle.weights.item)
        return Found(
            columns=saddle.basis.item,
            n_iter=saddle.n_rounds,
            status=status,
            weighted_pairs=problem.pairs(support),
            weights=saddle.weights.item[support],
            extras={"relaxed_": saddle.relaxed},
        )


class _Saddle:
    """Mirror-prox between a matrix of the fantope and weights on the pairs."""

    def __init__(self, problem: Problem, k: int, *, rate: float) -> None:
        n, d = problem.n_pairs, problem.coordinates.shape[1]
        self.problem, self.k, self.rate, self.n_rounds = problem, k, rate, 0
        self.matrix = np.eye(d) * min(1.0, k / d)
        self.logs = np.zeros(n)
        self.total, self.total_weights = np.zeros((d, d)), np.zeros(n)
        self.relaxed = 1.0
        self.basis = Best(np.empty((d, 0)))
        self.weights = Best(np.full(n, 1.0 / n))

    def run(self, *, max_iter: int, tol: float, clock: Clock) -> Status:
        """Run until the averages are within ``tol`` of each other."""
        for iteration in range(1, max_iter + 1):
            self._round()
            is_last = iteration == max_iter or clock.is_over
            if iteration % _LOOK_EVERY and not is_last:
                continue
            lower, distortion = self._look()
            tell(
                Step(
                    iteration=iteration,
                    distortion=distortion,
                    lower_bound=lower,
                    seconds=clock.seconds,
                    relaxed=self.relaxed,
                )
            )
            if self.relaxed - lower <= tol * lower:
                return Status.CONVERGED
            if clock.is_over:
                return Status.TIME_LIMIT
        return Status.MAX_ITER

    def _round(self) -> None:
        """Step from the current point with the gradients found at a trial step."""
        trial = self._moved(_normalised(self.logs))
        trial_weights = _normalised(self.logs - self.rate * self._kept(self.matrix))
        self.matrix = self._moved(trial_weights)
        self.logs -= self.rate * self._kept(trial)
        self.n_rounds += 1
        self.total += trial
        self.total_weights += trial_weights

    def _moved(self, weights: Array) -> Array:
        """Return the current matrix after a step along the weighted moment."""
        moment = self.problem.moment(weights)
        return project_on_fantope(self.matrix + self.rate * moment, self.k)

    def _kept(self, matrix: Array) -> Array:
        """Return the share that every pair keeps under a matrix of the fantope."""
        return self.problem.retained(FractionalProjection.of(matrix).root)

    def _look(self) -> tuple[float, float]:
        """Measure the averages; return the best lower bound and the distortion."""
        average = FractionalProjection.of(self.total / self.n_rounds)
        self.relaxed = 1.0 - float(self.problem.retained(average.root).min())
        basis = average.leading(self.k)
        distortion = 1.0 - float(self.problem.retained(basis).min())
        self.basis.see(basis, distortion)
        weights = self.total_weights / self.n_rounds
        self.weights.see(weights, -self.problem.dual(weights)[0])
        return -self.weights.cost, distortion


def _normalised(logs: Array) -> Array:
    """Return weights with the given logarithms, scaled to sum 1."""
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())
