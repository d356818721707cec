"""StablePCA with every pair a source: mirror-prox on the fantope, then rounding."""

from __future__ import annotations

import math

import numpy as np
from scipy.special import softmax

from isoproj.baselines.base import Baseline, Best, FoundMap, Task, proof_by
from isoproj.baselines.fantope import FractionalProjection
from isoproj.numerics.spectral import Array
from isoproj.solvers.api import Status
from isoproj.solvers.fantope import nearest_in_fantope

# Rounds between two looks at the averages.
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
    verbose : int, default=0
        1 shows the present step in a line that is renewed; in logs, a line for each.
    pairs, time_limit, random_state
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    lower_bound_ : float
        No projection to as many dimensions has a smaller distortion; certified from
        the weights.
    relaxed_ : float
        Distortion of the fractional projection before rounding, as found.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

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

    rate: float = 1.0
    max_iter: int = 500
    tol: float = 1e-3

    def _search(self, task: Task) -> FoundMap:
        k, problem = self._k, task.dense_problem(type(self).__name__, self._k)
        n, d = problem.n_pairs, problem.coordinates.shape[1]
        total_kept, total_weights, total = np.zeros(n), np.zeros(n), np.zeros((d, d))
        best, dual = Best(np.empty((d, 0))), Best(np.full(n, 1.0 / n))
        # The current matrix is the product of the factor with its transpose.
        factor = np.eye(d) * math.sqrt(min(1.0, k / d))

        def stepped(weights: Array) -> Array:
            """Return the factor after a step along the weighted moment."""
            matrix = factor @ factor.T + self.rate * problem.moment(weights)
            return nearest_in_fantope(matrix, k)

        for n_rounds in range(1, int(self.max_iter) + 1):
            # A step from the current point, with the gradients found at a trial step.
            trial = stepped(softmax(-self.rate * total_kept))
            trial_kept = total_kept + problem.retained(factor)
            trial_weights = softmax(-self.rate * trial_kept)
            factor = stepped(trial_weights)
            total_kept += problem.retained(trial)
            total += trial @ trial.T
            total_weights += trial_weights
            is_last = n_rounds == self.max_iter or task.clock.is_over
            if n_rounds % _LOOK_EVERY and not is_last:
                continue
            average = FractionalProjection.of(total / n_rounds)
            relaxed = 1.0 - float(problem.retained(average.root).min())
            basis = average.leading(k)
            distortion = 1.0 - float(problem.retained(basis).min())
            best.see(basis, distortion)
            weights = total_weights / n_rounds
            # Costs are to fall, so dual values are negated.
            dual.see(weights, -problem.dual(weights)[0])
            bound = -dual.cost
            task.tell(n_rounds, distortion, bound, relaxed=relaxed)
            is_solved = relaxed - bound <= self.tol * bound
            if is_solved or task.clock.is_over:
                break
        return FoundMap(
            columns=best.item,
            n_iter=n_rounds,
            status=Status.CONVERGED if is_solved else task.status(Status.MAX_ITER),
            proof=proof_by(problem, dual.item),
            extras={"relaxed_": relaxed},
        )
