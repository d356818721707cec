"""The semidefinite relaxation of Grant, Hegde and Indyk, and its roundings."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task, check_choice
from isoproj.baselines.conic import Relaxed, solve_conic
from isoproj.baselines.isometry import matrix_root
from isoproj.baselines.rounding import (
    binned_basis,
    deterministic_factor,
    heavy_basis,
    leading_basis,
    sampled_basis,
)
from isoproj.estimators.base import check_positive
from isoproj.numerics.spectral import Array
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.solvers.api import Clock, Monitor, Status, Step
from isoproj.solvers.relaxation.path import solve_relaxation

__all__ = ["SDPProjection"]

_ROUNDINGS = ("deterministic", "randomized", "binned", "bicriteria")
_SOLVERS = ("relaxation", "scs", "clarabel")
# A relaxed distortion below this is none.
_NOTHING = 1e-8


class SDPProjection(Baseline):
    """SDP+DR and SDP+RR: solve the semidefinite relaxation, then round it.

    The relaxation of Grant, Hegde and Indyk (GlobalSIP 2013), ``max min x^T P x`` over
    ``0 <= P <= I`` with ``tr P = k``. Their text was not at hand. Reconstructed: the
    programme itself, the deterministic rounding (leading eigenvectors) and the
    bi-criteria variant follow from what is reported of them, with guarantees proved
    anew; their randomised rounding is unknown, and two stand in for it: sampling of
    eigenvectors with ``E[V V^T] = P``, and the binned rounding of Varadarajan,
    Venkatesh, Ye and Zhang, which is within ``O(log n_pairs)`` of the optimum.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    rounding : {"deterministic", "randomized", "binned", "bicriteria"}, \
default="deterministic"
        How the relaxed matrix becomes a projection. ``"bicriteria"`` keeps more than
        ``n_components`` dimensions for a distortion within ``1 + slack`` of the bound.
    solver : {"relaxation", "scs", "clarabel"}, default="relaxation"
        Ours, or a general conic solver from ``isoproj[sdp]``.
    n_rounds : int, default=100
        Draws of the random roundings; the best is kept.
    slack : float, default=1.0
        For ``"bicriteria"``: at most ``(1 + 1/slack) * n_components`` dimensions.
    tol : float, default=1e-4
        Relative gap at which the relaxation counts as solved.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs count.
    time_limit : float or None, default=None
        Seconds after which the best so far is rounded and returned.
    random_state : int, RandomState instance or None, default=None
        Decides the draws of the random roundings.
    verbose : int, default=0
        1 writes a line per iteration to standard error.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_ : float
        What the worst of all pairs that count loses; exact.
    lower_bound_ : float
        No projection to ``n_components`` dimensions has a smaller distortion;
        certified from the dual weights.
    relaxed_ : float
        Distortion of the relaxed matrix, as found.
    rounding_factor_ : float
        ``1 / (1 - lambda_{k+1}(P))``: deterministic rounding loses at most this factor.
    stretch_ : float
        What the most stretched pair gains: 0 for a projection.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    status_ : Status
        Why the relaxation's solver stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import SDPProjection
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = SDPProjection(n_components=3).fit(X)
    >>> model.distortion_ <= model.rounding_factor_ * model.relaxed_ + 1e-9
    True
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        rounding: str = "deterministic",
        solver: str = "relaxation",
        n_rounds: int = 100,
        slack: float = 1.0,
        tol: float = 1e-4,
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.rounding = rounding
        self.solver = solver
        self.n_rounds = n_rounds
        self.slack = slack
        self.tol = tol
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice("rounding", self.rounding, _ROUNDINGS)
        check_choice("solver", self.solver, _SOLVERS)
        check_positive("n_rounds", self.n_rounds, integral=True)
        if not self.slack > 0.0:
            msg = f"slack must be above 0; got {self.slack!r}. Try 1.0."
            raise ValueError(msg)

    def _search(self, task: Task) -> Found:
        k = int(self.n_components or 1)
        relaxed = _relaxed_matrix(
            task.points,
            task.pairs,
            k,
            self.solver,
            tol=self.tol,
            time_limit=self.time_limit,
            monitor=task.monitor,
        )
        pool = PairSearch(task.points, task.pairs)
        ends = pool.extremes(matrix_root(relaxed.matrix), n_low=1)
        return Found(
            columns=self._rounded(relaxed.matrix, k, pool, task.generator),
            n_iter=relaxed.n_iter,
            status=relaxed.status,
            weighted_pairs=relaxed.pairs,
            weights=relaxed.weights,
            extras={
                "relaxed_": 1.0 - float(ends.low[0]),
                "rounding_factor_": deterministic_factor(relaxed.matrix, k),
            },
        )

    def _rounded(
        self, matrix: Array, k: int, pool: PairSearch, generator: np.random.RandomState
    ) -> Array:
        if self.rounding == "deterministic":
            return leading_basis(matrix, k)
        if self.rounding == "bicriteria":
            return heavy_basis(matrix, float(self.slack))
        draw = sampled_basis if self.rounding == "randomized" else binned_basis
        bases = (draw(matrix, k, generator) for _ in range(int(self.n_rounds)))
        return max(bases, key=lambda basis: float(pool.extremes(basis, n_low=1).low[0]))


def _relaxed_matrix(
    points: Points,
    pairs: PairSet,
    k: int,
    solver: str,
    *,
    tol: float,
    time_limit: float | None,
    monitor: Monitor | None,
) -> Relaxed:
    """Return the relaxation's optimum by the solver asked for."""
    clock = Clock(time_limit)
    if solver != "relaxation":
        return solve_conic(
            PairSearch(points, pairs),
            k,
            solver,
            tol=tol,
            clock=clock,
            time_left=time_limit,
            monitor=monitor,
        )
    search = PairSearch(points, pairs)

    def watch(iteration: int, lower: float, relaxed: float) -> bool:
        if monitor is not None:
            monitor(
                Step(
                    iteration=iteration,
                    distortion=relaxed,
                    lower_bound=lower,
                    seconds=clock.seconds,
                    relaxed=relaxed,
                )
            )
        return clock.is_over

    found = solve_relaxation(search, k, tol=tol, callback=watch)
    gap = found.relaxed - found.lower
    if gap <= tol * found.lower * (1 + 1e-9) or found.relaxed <= _NOTHING:
        status = Status.CONVERGED
    else:
        status = Status.TIME_LIMIT if clock.is_over else Status.MAX_ITER
    return Relaxed(
        matrix=found.factor @ found.factor.T,
        pairs=search.decode(found.codes),
        weights=found.weights,
        status=status,
        n_iter=found.n_iter,
    )
