"""Fair PCA with every pair a group: multiplicative weights on the fantope."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task
from isoproj.baselines.fantope import multiplicative_weights, reduce_rank
from isoproj.baselines.rounding import leading_basis
from isoproj.estimators.base import check_positive
from isoproj.pairs.moments import pose
from isoproj.solvers.api import Clock

__all__ = ["FairPCA"]

# One weight per pair beyond this is no longer a small working set.
_LARGEST_DENSE = 20_000_000


class FairPCA(Baseline):
    """Fair PCA: the least favoured pair, each pair a group, is to keep most.

    Multiplicative weights on the fantope (Samadi et al. 2018; Tantipongpipat et al.
    2019, arXiv 1902.11281), stopped by the duality gap; then the latter's rank
    reduction over tight pairs, and the leading eigenvectors. The best of the rounded
    average and all iterates is returned (the former: of the average and the last).

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    rate : float, default=3.0
        Learning rate of the weights; beyond about 10 they swing without settling.
    max_iter : int, default=500
        Most rounds of weights.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs count.
    time_limit : float or None, default=None
        Seconds after which the best so far is returned.
    random_state : int, RandomState instance or None, default=None
        Accepted as by every estimator; nothing is drawn.
    verbose : int, default=0
        1 writes a line per iteration to standard error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_ : float
        What the worst of all pairs that count loses; exact.
    stretch_ : float
        What the most stretched pair gains: 0 for a projection.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    lower_bound_ : float
        No projection to as many dimensions has a smaller distortion; certified from
        the weights.
    relaxed_ : float
        Distortion of the fractional projection before rounding, as found.
    n_fractional_ : int
        Its eigenvalues strictly between 0 and 1 after rank reduction.
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import FairPCA
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = FairPCA(n_components=3, rate=0.5, tol=0.2).fit(X)
    >>> model.lower_bound_ <= model.distortion_
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        rate: float = 3.0,
        max_iter: int = 500,
        tol: float = 1e-3,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.rate = rate
        self.max_iter = max_iter
        self.tol = tol
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        if task.pairs.n_pairs > _LARGEST_DENSE:
            msg = (
                f"FairPCA holds a weight per pair, at most {_LARGEST_DENSE:,}; got "
                f"{task.pairs.n_pairs:,}. Fit a sample of the rows."
            )
            raise ValueError(msg)
        k, clock = int(self.n_components or 1), Clock(self.time_limit)
        problem = pose(task.points, task.pairs, k)
        found = multiplicative_weights(
            problem,
            rate=self.rate,
            max_iter=int(self.max_iter),
            tol=self.tol,
            clock=clock,
            monitor=task.monitor,
        )
        reduced = reduce_rank(problem, found.matrix, clock=clock)
        bases = (leading_basis(reduced, k), found.basis)
        basis = max(bases, key=lambda columns: problem.retained(columns).min())
        values, vectors = np.linalg.eigh(reduced)
        kept = problem.retained(vectors * np.sqrt(np.maximum(values, 0.0)))
        support = np.flatnonzero(found.weights)
        return Found(
            columns=basis,
            n_iter=found.n_iter,
            status=found.status,
            weighted_pairs=problem.pairs(support),
            weights=found.weights[support],
            extras={
                "relaxed_": 1.0 - float(kept.min()),
                "n_fractional_": int(((values > 1e-6) & (values < 1 - 1e-6)).sum()),
            },
        )
