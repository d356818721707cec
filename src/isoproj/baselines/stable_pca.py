"""StablePCA with every pair a source: mirror-prox on the fantope, then rounding."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np

from isoproj.baselines.base import Baseline, Found, Task
from isoproj.baselines.fantope import FractionalProjection, project_on_fantope
from isoproj.baselines.game import Game, Standing, kept_by, weights_of
from isoproj.baselines.rounds import Best
from isoproj.estimators.base import check_positive
from isoproj.estimators.descriptions import described_by
from isoproj.numerics.spectral import Array
from isoproj.pairs.moments import DualProblem


@described_by(Baseline)
@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    rate: float = 1.0
    max_iter: int = 500
    tol: float = 1e-3

    def _check_parameters(self) -> None:
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        problem = task.dense_problem(type(self).__name__, self._k)
        saddle = _Saddle(problem, self._k, rate=self.rate)
        status = saddle.play(
            max_iter=int(self.max_iter), tol=self.tol, clock=task.clock
        )
        return Found(
            columns=saddle.basis.item,
            n_iter=saddle.n_rounds,
            status=status,
            **saddle.proof,
            extras={"relaxed_": saddle.relaxed},
        )


class _Saddle(Game):
    """Mirror-prox between a matrix of the fantope and weights on the pairs."""

    look_every = 10

    def __init__(self, problem: DualProblem, k: int, *, rate: float) -> None:
        super().__init__(problem, rate=rate)
        d = problem.coordinates.shape[1]
        self.k, self.relaxed = k, 1.0
        self.matrix = np.eye(d) * min(1.0, k / d)
        self.logs = np.zeros(problem.n_pairs)
        self.total = np.zeros((d, d))
        self.basis = Best(np.empty((d, 0)))

    def _round(self) -> None:
        """Step from the current point with the gradients found at a trial step."""
        trial = self._moved(weights_of(self.logs))
        trial_weights = weights_of(
            self.logs - self.rate * kept_by(self.problem, self.matrix)
        )
        self.matrix = self._moved(trial_weights)
        self.logs -= self.rate * kept_by(self.problem, trial)
        self.n_rounds += 1
        self.total += trial
        self.total_weights += trial_weights

    def _moved(self, weights: Array) -> Array:
        """Return the current matrix after a step along the weighted moment."""
        moment = self.problem.moment(weights)
        return project_on_fantope(self.matrix + self.rate * moment, self.k)

    def _look(self) -> Standing:
        average = FractionalProjection.of(self.total / self.n_rounds)
        self.relaxed = 1.0 - float(self.problem.retained(average.root).min())
        basis = average.leading(self.k)
        distortion = 1.0 - float(self.problem.retained(basis).min())
        self.basis.see(basis, distortion)
        weights = self.total_weights / self.n_rounds
        self.weights.see(weights, -self.problem.dual(weights)[0])
        return Standing(distortion, self.relaxed)
