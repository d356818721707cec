"""Secant-avoidance projection: the peer with our own objective."""

from __future__ import annotations

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task, check_choice, check_fraction
from isoproj.baselines.secant_avoidance_solver import avoid_secants
from isoproj.estimators.base import check_positive
from isoproj.numerics.spectral import Array
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock

__all__ = ["SecantAvoidance"]


class SecantAvoidance(Baseline):
    """SAP: turn the basis, a little at a time, towards the pair it keeps least of.

    After Kvinge, Farnell, Kirby and Peterson (arXiv 1807.03425), with the constants of
    their published code; the best basis met is kept.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    step : float, default=0.05
        Share of the lost part mixed into the basis each time, the authors' alpha.
    init : {"pca", "random"}, default="pca"
        Where to start.
    max_iter : int, default=200
        Number of turns; each looks at all pairs.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs count.
    time_limit : float or None, default=None
        Seconds after which the best so far is returned.
    random_state : int, RandomState instance or None, default=None
        Decides the start where it is random.
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
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import PCAProjection, SecantAvoidance
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> sap = SecantAvoidance(n_components=3).fit(X)
    >>> sap.distortion_ <= PCAProjection(n_components=3).fit(X).distortion_
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        step: float = 0.05,
        init: str = "pca",
        max_iter: int = 200,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.step = step
        self.init = init
        self.max_iter = max_iter
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice("init", self.init, ("pca", "random"))
        check_fraction("step", self.step)
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        basis, n_iter, status = avoid_secants(
            PairSearch(task.points, task.pairs),
            self._start(task),
            step=self.step,
            max_iter=int(self.max_iter),
            clock=Clock(self.time_limit),
            monitor=task.monitor,
        )
        return Found(columns=basis, n_iter=n_iter, status=status)

    def _start(self, task: Task) -> Array:
        k = int(self.n_components or 1)
        if self.init == "random":
            normal = task.generator.normal(size=(task.points.n_dims, k))
            return np.asarray(scipy.linalg.qr(normal, mode="economic")[0])
        return task.principal_axes(k)
