"""FroMax and NILE-Pro: near-isometries of a given dimension, reconstructed."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task, check_fraction
from isoproj.baselines.low_rank import solve_fromax, solve_nilepro
from isoproj.baselines.numax_solver import NearIsometry
from isoproj.estimators.base import check_positive
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock

__all__ = ["FroMax", "NILEPro"]


class NILEPro(Baseline):
    """NILE-Pro: the map of ``k`` dimensions nearest to an isometry, two-sidedly.

    Reconstructed: of Luo, Shapiro, Shi, Yang and Zhu (arXiv 1601.00062) only the
    abstract was at hand. It names the objective, the least largest deviation
    ``|x^T P x - 1|`` over semidefinite matrices, alternating directions, and a Moreau
    decomposition; the splitting, the rank constraint as a projection, the start at
    principal components, the growing working set and the penalty are ours. The map
    is scaled so that its largest loss equals its largest gain. Not orthonormal.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    penalty : float, default=0.2
        Of the alternating directions.
    max_iter : int, default=500
        Most alternating steps.
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
        The map; its rows are orthogonal, not of length 1.
    distortion_ : float
        What the worst of all pairs that count loses; exact.
    stretch_ : float
        What the most stretched pair gains.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    n_working_ : int
        Pairs in the last working set.
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import NILEPro
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = NILEPro(n_components=3).fit(X)
    >>> bool(np.isclose(model.distortion_, model.stretch_))
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        penalty: float = 0.2,
        max_iter: int = 500,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.penalty = penalty
        self.max_iter = max_iter
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        return _as_found(
            solve_nilepro(
                PairSearch(task.points, task.pairs),
                int(self.n_components or 1),
                penalty=self.penalty,
                max_iter=int(self.max_iter),
                clock=Clock(self.time_limit),
                monitor=task.monitor,
            )
        )


class FroMax(Baseline):
    """FroMax: the map of least Frobenius norm that stays within a tolerance.

    Reconstructed: of Luo, Shapiro, Shi, Yang and Zhu (arXiv 1601.00062) only the
    abstract was at hand. It names Frobenius norm minimisation, a factorisation "as in
    non-negative matrix factorisation", and alternating directions; the ridge steps,
    the start at principal components and the working set are ours. Not orthonormal.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    delta : float, default=0.4
        Every squared length is to stay within ``1 +- delta`` of itself. Where as few
        dimensions cannot reach it, the nearest map met is returned, scaled so that
        its largest loss equals its largest gain.
    penalty : float, default=1.0
        Of the alternating directions.
    max_iter : int, default=300
        Most alternating steps.
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
        The map.
    distortion_ : float
        What the worst of all pairs that count loses; exact.
    stretch_ : float
        What the most stretched pair gains.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    n_working_ : int
        Pairs in the last working set.
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import FroMax
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> FroMax(n_components=5, delta=0.4).fit(X).distortion_ < 0.45
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        delta: float = 0.4,
        penalty: float = 1.0,
        max_iter: int = 300,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.delta = delta
        self.penalty = penalty
        self.max_iter = max_iter
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_fraction("delta", self.delta)
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        return _as_found(
            solve_fromax(
                PairSearch(task.points, task.pairs),
                int(self.n_components or 1),
                float(self.delta),
                penalty=self.penalty,
                max_iter=int(self.max_iter),
                clock=Clock(self.time_limit),
                monitor=task.monitor,
            )
        )


def _as_found(found: NearIsometry) -> Found:
    return Found(
        columns=found.factor,
        is_orthonormal=False,
        n_iter=found.n_iter,
        status=found.status,
        extras={"n_working_": found.n_working},
    )
