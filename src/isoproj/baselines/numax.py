"""NuMax: the fewest dimensions for a given two-sided tolerance."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_consistent_length, column_or_1d

from isoproj.baselines.base import Baseline, Found, Task, check_fraction
from isoproj.baselines.isometry import best_scale
from isoproj.baselines.numax_solver import NearIsometry, solve_numax
from isoproj.estimators.base import check_positive
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock, Status

__all__ = ["NuMax"]


class NuMax(Baseline):
    """NuMax: a near-isometry of few dimensions for a tolerance ``delta``.

    After Hegde, Sankaranarayanan, Yin and Baraniuk (IEEE TSP 63, 2015), from the
    formulas of their published code: the least trace of ``P`` with
    ``|x^T P x - 1| <= delta`` for all pair directions, by alternating directions
    with column generation. The rank is an output. Not orthonormal: it stretches.
    Here the inner least squares are solved exactly (theirs: ten steps of conjugate
    gradients), and the band is narrowed by 0.2 per cent so that all pairs end inside.

    Parameters
    ----------
    delta : float, default=0.4
        Every squared length is to stay within ``1 +- delta`` of itself.
    n_components : int or None, default=None
        None leaves the dimension to ``delta``. A number instead searches, by
        bisection, for the least ``delta`` that as few dimensions reach. From some
        ``delta`` on the rank falls no further; below it the leading rows are kept,
        scaled to balance loss and gain, with a warning.
    labelled : bool, default=False
        Whether ``fit`` takes class labels: pairs of one class may then shrink freely
        and pairs of two classes may grow freely.
    max_iter : int, default=1000
        Most alternating steps on one working set.
    tol : float, default=1e-4
        Relative residual at which a working set counts as solved.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs count.
    time_limit : float or None, default=None
        Seconds after which the best so far is returned.
    random_state : int, RandomState instance or None, default=None
        Draws the first working set.
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
    delta_ : float
        The tolerance solved for; NaN where ``n_components`` is out of reach.
    n_working_ : int
        Pairs in the last working set.
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import NuMax
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = NuMax(delta=0.3, random_state=0).fit(X)
    >>> max(model.distortion_, model.stretch_) <= 0.3
    True
    """

    _keeps_span = False

    def __init__(
        self,
        delta: float = 0.4,
        *,
        n_components: int | None = None,
        labelled: bool = False,
        max_iter: int = 1000,
        tol: float = 1e-4,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.delta = delta
        self.n_components = n_components
        self.labelled = labelled
        self.max_iter = max_iter
        self.tol = tol
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_fraction("delta", self.delta)
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        pool = PairSearch(task.points, task.pairs, labels=self._labels(task))
        clock = Clock(self.time_limit)

        def solve(delta: float) -> NearIsometry:
            return solve_numax(
                pool,
                delta,
                generator=task.generator,
                tol=self.tol,
                max_iter=int(self.max_iter),
                clock=clock,
                monitor=task.monitor,
            )

        if self.n_components is None:
            delta, found = float(self.delta), solve(float(self.delta))
        else:
            delta, found = _least_delta(solve, int(self.n_components), clock)
            found = _cut(task, found, int(self.n_components))
        return Found(
            columns=found.factor,
            is_orthonormal=False,
            n_iter=found.n_iter,
            status=found.status,
            extras={"delta_": delta, "n_working_": found.n_working},
        )

    def _labels(self, task: Task) -> NDArray[np.intp] | None:
        if not self.labelled:
            return None
        if task.labels is None:
            msg = (
                "y must hold class labels when labelled=True; got None. "
                "Pass y, or labelled=False."
            )
            raise ValueError(msg)
        labels = column_or_1d(task.labels)
        check_consistent_length(task.rows, labels)
        codes: NDArray[np.intp] = np.unique(labels, return_inverse=True)[1]
        if task.points.n_points > codes.size:
            # The origin, the partner of every row taken as a direction.
            codes = np.append(codes, -1)
        return codes


def _least_delta(
    solve: Callable[[float], NearIsometry], k: int, clock: Clock
) -> tuple[float, NearIsometry]:
    """Return the least tolerance, to about 1 per cent, that ``k`` dimensions reach.

    It is NaN, and the map has more than ``k`` columns, where there is none.
    """
    # Where only the lower edge of the band binds, another delta rescales the same map.
    low, high = 0.0, 0.9
    best = solve(high)
    if best.factor.shape[1] > k:
        return math.nan, best
    while high - low > 0.01 * high and not clock.is_over:
        middle = (low + high) / 2.0
        found = solve(middle)
        if found.factor.shape[1] <= k and found.status is Status.CONVERGED:
            high, best = middle, found
        else:
            low = middle
    return high, best


def _cut(task: Task, found: NearIsometry, k: int) -> NearIsometry:
    """Return the map as it is, or its leading columns where it has too many."""
    rank = found.factor.shape[1]
    if rank <= k:
        return found
    msg = (
        f"NuMax's map of least trace has {rank} dimensions at every large delta; its "
        f"leading n_components={k} are kept and miss the band. Raise n_components."
    )
    warnings.warn(msg, ConvergenceWarning, stacklevel=4)
    factor = found.factor[:, :k]
    scale = best_scale(task.points, task.pairs, factor)
    return replace(found, factor=factor * scale, status=Status.COMPLETED)
