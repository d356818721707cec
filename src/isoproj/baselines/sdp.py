"""The semidefinite relaxation of Grant, Hegde and Indyk, and its roundings.

``max t`` subject to ``x^T P x >= t`` for every direction, ``0 <= P <= I`` and
``tr P = k``. It is solved by our own solver, or by a general conic solver, SCS or
Clarabel, on a growing working set: one linear row per pair and two semidefinite cones.
Whatever a conic solver returns, also when its time is up, is moved to the nearest
matrix of the fantope and to the nearest weights of the simplex, so that both bounds can
be measured.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.baselines.base import Baseline, Found, Task, check_choice
from isoproj.baselines.fantope import FractionalProjection, project_on_fantope
from isoproj.baselines.isometry import matrix_root, principal_start
from isoproj.baselines.rounds import Best, Rounds, union
from isoproj.estimators.base import check_positive
from isoproj.estimators.descriptions import described_by
from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array, Indices, top_eigenpairs
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Clock, Status
from isoproj.solvers.fantope import Relaxation, solve_relaxation

_ROUNDINGS = ("deterministic", "randomized", "binned", "bicriteria")
_SOLVERS = ("relaxation", "scs", "clarabel")
# A relaxed distortion below this counts as zero.
_NOTHING = 1e-8
# Most working sets of a conic solve.
_MAX_ROUNDS = 40


@described_by(Baseline)
@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    rounding: str = "deterministic"
    solver: str = "relaxation"
    n_rounds: int = 100
    slack: float = 1.0
    tol: float = 1e-4

    def _check_parameters(self) -> None:
        check_choice("rounding", self.rounding, _ROUNDINGS)
        check_choice("solver", self.solver, _SOLVERS)
        check_positive("n_rounds", self.n_rounds, integral=True)
        if not self.slack > 0.0:
            msg = f"slack must be above 0; got {self.slack!r}. Try 1.0."
            raise ValueError(msg)

    def _search(self, task: Task) -> Found:
        relaxed = self._relaxed(task)
        pool = task.pool()
        fractional = FractionalProjection.of(relaxed.matrix)
        ends = pool.extremes(matrix_root(relaxed.matrix), n_low=1)
        columns, is_whole = self._rounded(fractional, pool, task)
        return Found(
            columns=columns,
            n_iter=relaxed.n_iter,
            status=relaxed.status if is_whole else Status.TIME_LIMIT,
            weighted_pairs=relaxed.pairs,
            weights=relaxed.weights,
            extras={
                "relaxed_": 1.0 - float(ends.low[0]),
                "rounding_factor_": fractional.deterministic_factor(self._k),
            },
        )

    def _relaxed(self, task: Task) -> _Relaxed:
        """Return the relaxation's optimum by the solver asked for."""
        if self.solver == "relaxation":
            return _solve_ours(task, self._k, self.tol)
        return solve_conic(
            task.pool(), self._k, self.solver, tol=self.tol, clock=task.clock
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Relaxed:
    """A matrix of the fantope and dual weights on some pairs, as a solver found them.

    ``n_iter`` counts the solver's own iterations, all working sets together.
    """

    matrix: Array
    pairs: Indices
    weights: Array
    status: Status
    n_iter: int


def _solve_ours(task: Task, k: int, tol: float) -> _Relaxed:
    """Solve the relaxation with our own solver."""
    search, clock = PairSearch(task.points, task.pairs), task.clock

    def told(iteration: int, best: Relaxation) -> None:
        step = Step(
            iteration=iteration,
            distortion=best.relaxed,
            lower_bound=best.lower,
            seconds=clock.seconds,
            relaxed=best.relaxed,
            phase="relaxation",
        )
        tell(step)

    found, n_iter = solve_relaxation(search, k, tol=tol, clock=clock, told=told)
    gap = found.relaxed - found.lower
    if gap <= tol * found.lower * (1 + 1e-9) or found.relaxed <= _NOTHING:
        status = Status.CONVERGED
    else:
        status = Status.TIME_LIMIT if clock.is_over else Status.SETTLED
    return _Relaxed(
        matrix=found.factor @ found.factor.T,
        pairs=search.decode(found.codes),
        weights=found.weights,
        status=status,
        n_iter=n_iter,
    )


def solve_conic(
    pool: PairSearch,
    k: int,
    backend: str,
    *,
    tol: float = 1e-4,
    clock: Clock,
) -> _Relaxed:
    """Solve the relaxation with SCS or Clarabel, to a relative gap of ``tol``."""
    library = _library(backend)
    run = run_scs if backend == "scs" else run_clarabel
    conic = _Conic(pool, k, tol, clock, functools.partial(run, library))
    status = Status.TIME_LIMIT
    if not clock.is_over:
        status = conic.run(
            pool,
            max_rounds=_MAX_ROUNDS,
            clock=clock,
            exhausted=Status.MAX_ITER,
        )
    pairs, weights = conic.bound.item
    return _Relaxed(
        matrix=conic.point.item,
        pairs=pairs,
        weights=weights,
        status=status,
        n_iter=conic.n_iter,
    )


# From a programme, an accuracy and the seconds left to solution, weights, iterations.
_ConicSolve = Callable[
    ["ConicProgramme", float, float | None], tuple[Array, Array, int]
]


class _Conic(Rounds):
    """The relaxation on a growing working set, each solved by a conic solver."""

    n_low, n_high = 400, 0

    def __init__(
        self, pool: PairSearch, k: int, tol: float, clock: Clock, solve: _ConicSolve
    ) -> None:
        self.pool, self.k, self.tol, self.clock = pool, k, tol, clock
        self.solve, self.accuracy, self.n_iter = solve, 0.1 * tol, 0
        n_low = max(self.n_low, 4 * pool.n_dims)
        basis, ends = principal_start(pool, k, n_low=n_low, n_high=0)
        self.pairs = ends.low_pairs
        self.point = Best(basis @ basis.T, 1.0 - float(ends.low[0]))
        self.bound = Best((self.pairs, np.ones(self.pairs.shape[0])), 0.0)

    def propose(self) -> Array:
        """Return a root of the matrix that solves the working set."""
        directions = self.pool.directions(self.pairs)
        programme = conic_programme(directions, self.k)
        solution, self.weights, steps = self.solve(
            programme, self.accuracy, self.clock.left
        )
        self.n_iter += steps
        moment = (directions.T * self.weights) @ directions
        self.kept = float(top_eigenpairs(moment, self.k)[0].sum())
        self.matrix = programme.unpack(solution, self.k)
        return matrix_root(self.matrix)

    def judge(self, factor: Array, ends: Extremes) -> Status | None:  # noqa: ARG002
        """Keep the better matrix and weights; stop when their gap is closed."""
        self.point.see(self.matrix, 1.0 - float(ends.low[0]))
        self.bound.see((self.pairs, self.weights), self.kept - 1.0)
        self.distortion = self.relaxed = self.point.cost
        self.lower = -self.bound.cost
        return Status.CONVERGED if self._gap() <= self.tol else None

    def respond(self, ends: Extremes) -> None:
        """Take in the pairs that the matrix violates."""
        violated = ends.low_pairs[ends.low < 1.0 - self.lower - self.tol / 10.0]
        grown = union(self.pairs, violated)
        if grown.shape[0] == self.pairs.shape[0]:
            # Nothing is missing: the solver was not accurate enough.
            self.accuracy /= 10.0
        self.pairs = grown

    def _gap(self) -> float:
        """Return the relative gap of both sides; 0 when nothing is lost."""
        if self.relaxed <= _NOTHING:
            return 0.0
        return self.relaxed / self.lower - 1.0 if self.lower > 0.0 else math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConicProgramme:
    """``min c^T x`` subject to ``b - A x`` in a product of cones, in SCS's form.

    ``matrix`` is ``A``, ``bound`` is ``b``, ``cost`` is ``c``. The unknowns are the
    scaled lower triangle of ``P``, and ``t``. The rows are one equality, ``n_pairs``
    inequalities and two semidefinite cones of order ``n_dims``.
    """

    matrix: Any
    bound: Array
    cost: Array
    n_pairs: int
    n_dims: int

    def unpack(self, solution: Array, k: int) -> Array:
        """Return the nearest matrix of the fantope to a solution vector."""
        matrix = np.zeros((self.n_dims, self.n_dims))
        rows, columns, scale = _triangle(self.n_dims)
        matrix[rows, columns] = solution[:-1] / scale
        matrix[columns, rows] = matrix[rows, columns]
        return project_on_fantope(matrix, k)


def _triangle(n_dims: int) -> tuple[Indices, Indices, Array]:
    """Return the lower triangle column by column, and SCS's scale of its entries."""
    columns, rows = np.triu_indices(n_dims)
    return rows, columns, np.where(rows == columns, 1.0, math.sqrt(2.0))


def conic_programme(directions: Array, k: int) -> ConicProgramme:
    """Return the relaxation over unit directions, one a row."""
    m, d = directions.shape
    rows, columns, scale = _triangle(d)
    size = rows.size
    on_diagonal = (rows == columns).astype(np.float64)
    forms = directions[:, rows] * directions[:, columns] * scale
    identity = scipy.sparse.eye_array(size)
    empty = scipy.sparse.csc_array((size, 1))
    blocks: Any = [
        [scipy.sparse.csc_array(on_diagonal[None, :]), scipy.sparse.csc_array((1, 1))],
        [scipy.sparse.csc_array(-forms), np.ones((m, 1))],
        [-identity, empty],
        [identity, empty],
    ]
    return ConicProgramme(
        matrix=scipy.sparse.csc_matrix(scipy.sparse.block_array(blocks, format="csc")),
        bound=np.concatenate([[k], np.zeros(m), np.zeros(size), on_diagonal]),
        cost=np.concatenate([np.zeros(size), [-1.0]]),
        n_pairs=m,
        n_dims=d,
    )


def _library(backend: str) -> ModuleType:
    """Return the conic solver's module; raise if it is not installed."""
    try:
        return importlib.import_module(backend)
    except ImportError:
        msg = (
            f"solver={backend!r} needs the package {backend}, which is not installed. "
            "Run: pip install 'isoproj[sdp]'."
        )
        raise ImportError(msg) from None


def _normalised(duals: NDArray[Any]) -> Array:
    """Return weights of the simplex made of a solver's multipliers."""
    weights = np.maximum(np.asarray(duals, dtype=np.float64), 0.0)
    weights[~np.isfinite(weights)] = 0.0
    total = float(weights.sum())
    return weights / total if total > 0.0 else np.full(weights.size, 1 / weights.size)


def run_scs(
    library: ModuleType, programme: ConicProgramme, accuracy: float, left: float | None
) -> tuple[Array, Array, int]:
    """Return solution, weights and iterations of SCS; ``left`` is in seconds."""
    data = {"A": programme.matrix, "b": programme.bound, "c": programme.cost}
    cone = {"z": 1, "l": programme.n_pairs, "s": [programme.n_dims] * 2}
    solver = library.SCS(
        data,
        cone,
        eps_abs=accuracy,
        eps_rel=accuracy,
        max_iters=200_000,
        time_limit_secs=0.0 if left is None else left,
        verbose=False,
    )
    found = solver.solve()
    weights = _normalised(found["y"][1 : 1 + programme.n_pairs])
    return np.asarray(np.nan_to_num(found["x"])), weights, int(found["info"]["iter"])


def run_clarabel(
    library: ModuleType, programme: ConicProgramme, accuracy: float, left: float | None
) -> tuple[Array, Array, int]:
    """Return solution, weights and iterations of Clarabel; ``left`` is in seconds."""
    settings = library.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = accuracy
    if left is not None:
        settings.time_limit = left
    order = _upper_order(programme)
    cones = [
        library.ZeroConeT(1),
        library.NonnegativeConeT(programme.n_pairs),
        library.PSDTriangleConeT(programme.n_dims),
        library.PSDTriangleConeT(programme.n_dims),
    ]
    n = programme.cost.size
    solver = library.DefaultSolver(
        scipy.sparse.csc_matrix((n, n)),
        programme.cost,
        scipy.sparse.csc_matrix(programme.matrix[order]),
        programme.bound[order],
        cones,
        settings,
    )
    found = solver.solve()
    weights = _normalised(np.asarray(found.z)[1 : 1 + programme.n_pairs])
    return np.nan_to_num(np.asarray(found.x)), weights, int(found.iterations)


def _upper_order(programme: ConicProgramme) -> Indices:
    """Return the order of rows in which each cone's upper triangle is stacked.

    Clarabel stacks the upper triangle column by column, SCS the lower.
    """
    rows, columns, _ = _triangle(programme.n_dims)
    upper = np.lexsort((columns, rows))
    head = 1 + programme.n_pairs
    return np.concatenate([np.arange(head), head + upper, head + rows.size + upper])
