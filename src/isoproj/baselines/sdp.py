"""The semidefinite relaxation of Grant, Hegde and Indyk, and its roundings.

``max t`` subject to ``x^T P x >= t`` for every direction, ``0 <= P <= I`` and
``tr P = k``. It is solved by our own solver, or by a general conic solver, SCS or
Clarabel, on a growing working set: one linear row per pair and two semidefinite cones.
Whatever a conic solver returns, also when its time is up, is moved to the nearest
matrix of the fantope and to the nearest weights of the simplex, so that both bounds can
be measured.
"""

from __future__ import annotations

import math
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse

from isoproj.baselines.base import Baseline, Best, FoundMap, Task
from isoproj.baselines.fantope import FractionalProjection
from isoproj.baselines.isometry import union
from isoproj.estimators.base import check_positive
from isoproj.numerics.arrays import check_choice, require
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import (
    Array,
    Indices,
    top_eigenpairs,
    top_eigenvalue_sum,
)
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Status, Weights
from isoproj.solvers.fantope import Relaxation, nearest_in_fantope, solve_relaxation

# A relaxed distortion below this counts as zero.
_NOTHING = 1e-8
# Most working sets of a conic solve, and pairs that may join at once.
_MAX_ROUNDS, _N_LOW = 40, 400


class SDPProjection(Baseline):
    """SDP+DR and SDP+RR: solve the semidefinite relaxation, then round it.

    The relaxation of Grant et al. is ``max min x^T P x`` over ``0 <= P <= I`` with
    ``tr P = k``. Their text was not available. The programme, the deterministic
    rounding (leading eigenvectors) and the bi-criteria variant follow from what others
    report, with guarantees proved here. Their randomised rounding is unknown; two
    others stand in for it: sampling of eigenvectors with ``E[V V^T] = P``, and the
    binned rounding of Varadarajan et al., which is within ``O(log n_pairs)`` of the
    optimum.

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
    time_limit : float or None, default=None
        Seconds after which the best so far is rounded and returned.
    random_state : int, RandomState instance or None, default=None
        Decides the draws of the random roundings.
    pairs, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    lower_bound_ : float
        No projection to ``n_components`` dimensions has a smaller distortion;
        certified from the dual weights.
    relaxed_ : float
        Distortion of the relaxed matrix, as found.
    rounding_factor_ : float
        ``1 / (1 - lambda_{k+1}(P))``: deterministic rounding loses at most this factor.
    status_ : Status
        Why the relaxation's solver stopped.
    distortion_, stretch_, worst_pairs_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    FairPCA : The same relaxation by multiplicative weights.
    DualAscent : The dual of the relaxation by supergradient steps.

    References
    ----------
    Grant, Hegde and Indyk. GlobalSIP 2013.

    Varadarajan, Venkatesh, Ye and Zhang.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import SDPProjection
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = SDPProjection(n_components=3, random_state=0).fit(X)
    >>> model.distortion_ <= model.rounding_factor_ * model.relaxed_ + 1e-9
    True
    """

    rounding: str = "deterministic"
    solver: str = "relaxation"
    n_rounds: int = 100
    slack: float = 1.0
    tol: float = 1e-4

    def _check_parameters(self) -> None:
        roundings = ("deterministic", "randomized", "binned", "bicriteria")
        check_choice("rounding", self.rounding, roundings)
        check_choice("solver", self.solver, ("relaxation", "scs", "clarabel"))
        check_positive("n_rounds", self.n_rounds, integral=True)
        require(self.slack > 0.0, "slack", self.slack, "be above 0", "Try 1.0.")

    def _search(self, task: Task) -> FoundMap:
        pool = task.pool()
        if self.solver == "relaxation":
            relaxed = _solve_ours(task, pool, self._k, self.tol)
        else:
            relaxed = solve_conic(task, pool, self._k, self.solver, self.tol)
        fractional = FractionalProjection.of(relaxed.factor @ relaxed.factor.T)
        ends = pool.extremes(relaxed.factor, n_low=1)
        columns, is_whole = self._rounded(fractional, pool, task)
        return FoundMap(
            columns=columns,
            n_iter=relaxed.n_iter,
            status=relaxed.status if is_whole else Status.TIME_LIMIT,
            proof=relaxed.proof,
            extras={
                "relaxed_": 1.0 - float(ends.low[0]),
                "rounding_factor_": fractional.deterministic_factor(self._k),
            },
        )

    def _rounded(
        self, fractional: FractionalProjection, pool: PairSearch, task: Task
    ) -> tuple[Array, bool]:
        """Return a basis, and whether there was time for all draws."""
        if self.rounding == "deterministic":
            return fractional.leading(self._k), True
        if self.rounding == "bicriteria":
            return fractional.heavy(float(self.slack)), True
        randomized = self.rounding == "randomized"
        draw = fractional.sampled if randomized else fractional.binned
        best = Best(fractional.leading(self._k))
        for number in range(int(self.n_rounds)):
            # There is always one draw.
            if number and task.clock.is_over:
                return best.item, False
            basis = draw(self._k, task.generator)
            best.see(basis, -float(pool.extremes(basis, n_low=1).low[0]))
        return best.item, True


class _Relaxed(NamedTuple):
    """The relaxation's ``P = F F^T`` and dual weights on some pairs, as found.

    ``n_iter`` counts the solver's own iterations, all working sets together.
    """

    factor: Array
    proof: Weights
    status: Status
    n_iter: int


def _solve_ours(task: Task, pool: PairSearch, k: int, tol: float) -> _Relaxed:
    """Solve the relaxation with our own solver."""

    def told(number: int, best: Relaxation) -> None:
        phase = "relaxation"
        task.tell(number, best.relaxed, best.lower, relaxed=best.relaxed, phase=phase)

    found, n_iter = solve_relaxation(pool, k, tol=tol, clock=task.clock, told=told)
    gap = found.relaxed - found.lower
    is_solved = gap <= tol * found.lower * (1 + 1e-9) or found.relaxed <= _NOTHING
    status = Status.CONVERGED if is_solved else task.status(Status.SETTLED)
    proof = Weights(pool.decode(found.codes), found.weights)
    return _Relaxed(found.factor, proof, status, n_iter)


def solve_conic(
    task: Task, pool: PairSearch, k: int, backend: str, tol: float
) -> _Relaxed:
    """Solve the relaxation with SCS or Clarabel, to a relative gap of ``tol``.

    The working set grows by the pairs that the solution of the one before violates.
    """
    library = needed(backend, extra="sdp", purpose=f"solver={backend!r}")
    run = run_scs if backend == "scs" else run_clarabel
    # SCS stacks the lower triangle of a cone column by column, Clarabel the upper one.
    order = np.triu_indices if backend == "scs" else np.tril_indices
    basis = top_eigenpairs(pool.uniform_moment(), k)[1]
    ends = pool.extremes(basis, n_low=max(_N_LOW, 4 * pool.n_dims))
    pairs, accuracy, n_iter = ends.low_pairs, 0.1 * tol, 0
    point = Best(basis, 1.0 - float(ends.low[0]))
    bound = Best(Weights(pairs, np.ones(len(pairs))), 0.0)
    status = Status.MAX_ITER
    for number in range(_MAX_ROUNDS):
        if task.clock.is_over:
            status = Status.TIME_LIMIT
            break
        directions = pool.directions(pairs)
        programme = ConicProgramme(directions, k, order(pool.n_dims))
        factor, weights, steps = run(library, programme, accuracy, task.clock.left)
        n_iter += steps
        ends = pool.extremes(factor, n_low=_N_LOW)
        point.see(factor, 1.0 - float(ends.low[0]))
        kept = top_eigenvalue_sum((directions.T * weights) @ directions, k)
        bound.see(Weights(pairs, weights), kept - 1.0)
        relaxed, lower = point.cost, -bound.cost
        task.tell(number, relaxed, lower, relaxed=relaxed, n_working=len(pairs))
        if relaxed - lower <= tol * lower or relaxed <= _NOTHING:
            status = Status.CONVERGED
            break
        violated = ends.low_pairs[ends.low < 1.0 - lower - tol / 10.0]
        grown = union(pairs, violated)
        if len(grown) == len(pairs):
            # Nothing is missing: the solver was not accurate enough.
            accuracy /= 10.0
        pairs = grown
    return _Relaxed(point.item, bound.item, status, n_iter)


class ConicProgramme:
    """``min c^T x`` subject to ``b - A x`` in a product of cones.

    ``matrix`` is ``A``, ``bound`` is ``b``, ``cost`` is ``c``. The unknowns are the
    scaled entries of ``P`` in a triangle, in its order, and ``t``. The rows are one
    equality, ``n_pairs`` inequalities and two semidefinite cones of order ``n_dims``.
    """

    def __init__(
        self, directions: Array, k: int, triangle: tuple[Indices, Indices]
    ) -> None:
        self.n_pairs, self.n_dims = directions.shape
        self.k, self.triangle = k, triangle
        rows, columns = triangle
        self._scale = np.where(rows == columns, 1.0, math.sqrt(2.0))
        trace = np.where(rows == columns, 1.0, 0.0)
        forms = directions[:, rows] * directions[:, columns] * self._scale
        identity = scipy.sparse.eye_array(rows.size)
        blocks: Any = [
            [scipy.sparse.csc_array(trace[None, :]), None],
            [scipy.sparse.csc_array(-forms), np.ones((self.n_pairs, 1))],
            [-identity, None],
            [identity, None],
        ]
        self.matrix = scipy.sparse.csc_matrix(scipy.sparse.block_array(blocks))
        zeros = np.zeros(self.n_pairs + rows.size)
        self.bound = np.concatenate([[k], zeros, trace])
        self.cost = np.append(np.zeros(rows.size), -1.0)

    def nearest(self, solution: Array, duals: Array) -> tuple[Array, Array]:
        """Return the root of the nearest matrix of the fantope, and nearest weights."""
        entries = np.nan_to_num(solution[:-1]) / self._scale
        matrix = np.zeros((self.n_dims, self.n_dims))
        matrix[self.triangle] = matrix[self.triangle[::-1]] = entries
        weights = np.asarray(duals[1 : 1 + self.n_pairs], dtype=np.float64)
        weights = np.maximum(np.nan_to_num(weights, posinf=0.0), 0.0)
        weights = weights if weights.any() else np.ones(self.n_pairs)
        return nearest_in_fantope(matrix, self.k), weights / weights.sum()


def run_scs(
    library: ModuleType, programme: ConicProgramme, accuracy: float, left: float | None
) -> tuple[Array, Array, int]:
    """Return root, weights and iterations of SCS; ``left`` is in seconds."""
    solver = library.SCS(
        {"A": programme.matrix, "b": programme.bound, "c": programme.cost},
        {"z": 1, "l": programme.n_pairs, "s": [programme.n_dims] * 2},
        eps_abs=accuracy,
        eps_rel=accuracy,
        max_iters=200_000,
        time_limit_secs=0.0 if left is None else left,
        verbose=False,
    )
    found = solver.solve()
    return *programme.nearest(found["x"], found["y"]), int(found["info"]["iter"])


def run_clarabel(
    library: ModuleType, programme: ConicProgramme, accuracy: float, left: float | None
) -> tuple[Array, Array, int]:
    """Return root, weights and iterations of Clarabel; ``left`` is in seconds."""
    settings = library.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
    if left is not None:
        settings.time_limit = left
    n_unknowns = programme.cost.size
    solver = library.DefaultSolver(
        scipy.sparse.csc_matrix((n_unknowns, n_unknowns)),
        programme.cost,
        programme.matrix,
        programme.bound,
        [
            library.ZeroConeT(1),
            library.NonnegativeConeT(programme.n_pairs),
            *[library.PSDTriangleConeT(programme.n_dims)] * 2,
        ],
        settings,
    )
    found = solver.solve()
    solution, duals = np.asarray(found.x), np.asarray(found.z)
    return *programme.nearest(solution, duals), int(found.iterations)
