"""The fantope relaxation by general conic solvers, on a growing working set.

``max t`` subject to ``x^T P x >= t`` for every direction, ``0 <= P <= I`` and
``tr P = k``: one linear row per pair and two semidefinite cones, in the form both SCS
and Clarabel take. Only pairs that are violated join the programme. Whatever a solver
returns, also when its time is up, is moved to the nearest matrix of the fantope and to
the nearest weights of the simplex, so that both bounds can be judged.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.baselines.fantope import project_on_fantope
from isoproj.baselines.isometry import matrix_root
from isoproj.numerics.spectral import Array, Indices, top_eigenpairs
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Clock, Monitor, Status, Step

__all__ = ["ConicProgramme", "Relaxed", "conic_programme", "solve_conic"]

_MOST_ADDED = 400
_ROUNDS = 40
# A relaxed distortion below this is none.
_NOTHING = 1e-8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Relaxed:
    """A matrix of the fantope with dual weights, as found; nothing is proved of it.

    Parameters
    ----------
    matrix : ndarray of shape (n_dims, n_dims)
        In the fantope.
    pairs : ndarray of shape (m, 2)
        Support of the weights.
    weights : ndarray of shape (m,)
        Nonnegative.
    status : Status
        Why the solver stopped.
    n_iter : int
        Its own iterations, all working sets together.
    """

    matrix: Array
    pairs: Indices
    weights: Array
    status: Status
    n_iter: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ConicProgramme:
    """``min c^T x`` subject to ``b - A x`` in a product of cones, in SCS's form.

    Parameters
    ----------
    matrix : sparse matrix
        ``A``, rows ordered: equality, nonnegative, two semidefinite cones.
    bound, cost : ndarray
        ``b`` and ``c``.
    n_pairs, n_dims : int
        Nonnegative rows, and the order of the semidefinite cones.
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
    """Return the relaxation over the given directions.

    Parameters
    ----------
    directions : ndarray of shape (m, n_dims)
        Unit rows.
    k : int
        Trace of the matrix.

    Returns
    -------
    ConicProgramme
        With the scaled lower triangle of ``P`` and ``t`` as unknowns.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.conic import conic_programme
    >>> conic_programme(np.eye(3), 2).matrix.shape
    (16, 7)
    """
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


def solve_conic(
    pool: PairSearch,
    k: int,
    backend: str,
    *,
    tol: float = 1e-4,
    clock: Clock,
    time_left: float | None = None,
    monitor: Monitor | None = None,
) -> Relaxed:
    """Solve the relaxation with SCS or Clarabel.

    Parameters
    ----------
    pool : PairSearch
        The pairs.
    k : int
        Target dimension.
    backend : {"scs", "clarabel"}
        Which solver; both come with ``isoproj[sdp]``.
    tol : float
        Relative gap between the relaxed value over all pairs and the dual value at
        which to stop.
    clock : Clock
        Tells when time is over.
    time_left : float or None
        Seconds given to the solver in all.
    monitor : callable or None
        Called after every working set.

    Returns
    -------
    Relaxed
        The best of all working sets.

    Raises
    ------
    ImportError
        If the solver is not installed.

    Examples
    --------
    >>> import numpy as np
    >>> import pytest
    >>> scs = pytest.importorskip("scs")
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.baselines.conic import solve_conic
    >>> from isoproj.pairs.oracle import PairSearch
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> found = solve_conic(PairSearch(points, pairs), 2, "scs", clock=Clock(None))
    >>> round(float(found.matrix.trace()), 6)
    2.0
    """
    library = _library(backend)
    run = _run_scs if backend == "scs" else _run_clarabel
    basis = top_eigenpairs(pool.uniform_moment(), k)[1]
    ends = pool.extremes(basis, n_low=max(_MOST_ADDED, 4 * pool.n_dims))
    best = _Best(pool, k, basis @ basis.T, 1.0 - float(ends.low[0]), ends.low_pairs)
    working, accuracy, n_iter, status = ends.low_pairs, 0.1 * tol, 0, Status.MAX_ITER
    for number in range(_ROUNDS):
        left = None if time_left is None else max(time_left - clock.seconds, 0.01)
        programme = conic_programme(pool.directions(working), k)
        solution, weights, steps = run(library, programme, accuracy, left)
        n_iter += steps
        ends = best.see(programme.unpack(solution, k), working, weights)
        if monitor is not None:
            monitor(best.step(number, clock, working.shape[0]))
        if best.gap <= tol:
            status = Status.CONVERGED
            break
        if clock.is_over:
            status = Status.TIME_LIMIT
            break
        violated = ends.low_pairs[ends.low < 1.0 - best.lower - tol / 10.0]
        grown = np.unique(np.concatenate([working, violated]), axis=0)
        if grown.shape[0] == working.shape[0]:
            # Nothing is missing: the solver was not accurate enough.
            accuracy /= 10.0
        working = grown
    return Relaxed(
        matrix=best.matrix,
        pairs=best.pairs,
        weights=best.weights,
        status=status,
        n_iter=n_iter,
    )


class _Best:
    """The best matrix and the best weights of all working sets."""

    def __init__(
        self, pool: PairSearch, k: int, matrix: Array, relaxed: float, pairs: Indices
    ) -> None:
        self.pool, self.k = pool, k
        self.matrix, self.relaxed = matrix, relaxed
        self.pairs, self.weights = pairs, np.ones(pairs.shape[0])
        self.lower = 0.0

    def see(self, matrix: Array, pairs: Indices, weights: Array) -> Extremes:
        """Judge both over all pairs; return the pairs the matrix treats worst."""
        ends = self.pool.extremes(matrix_root(matrix), n_low=_MOST_ADDED)
        relaxed = 1.0 - float(ends.low[0])
        lower = _dual_value(self.pool, pairs, weights, self.k)
        if relaxed < self.relaxed:
            self.relaxed, self.matrix = relaxed, matrix
        if lower > self.lower:
            self.lower, self.pairs, self.weights = lower, pairs, weights
        return ends

    @property
    def gap(self) -> float:
        """Relative gap between both sides; 0 when nothing is lost."""
        if self.relaxed <= _NOTHING:
            return 0.0
        return self.relaxed / self.lower - 1.0 if self.lower > 0.0 else math.inf

    def step(self, number: int, clock: Clock, n_working: int) -> Step:
        return Step(
            iteration=number,
            distortion=self.relaxed,
            lower_bound=self.lower,
            seconds=clock.seconds,
            relaxed=self.relaxed,
            n_working=n_working,
        )


def _dual_value(pool: PairSearch, pairs: Indices, weights: Array, k: int) -> float:
    directions = pool.directions(pairs)
    moment = (directions.T * weights) @ directions
    return 1.0 - float(top_eigenpairs(moment, k)[0].sum())


def _library(backend: str) -> ModuleType:
    try:
        return importlib.import_module(backend)
    except ImportError:
        msg = (
            f"solver={backend!r} needs the package {backend}, which is not installed. "
            "Run: pip install 'isoproj[sdp]'."
        )
        raise ImportError(msg) from None


def _normalised(duals: NDArray[Any]) -> Array:
    weights = np.maximum(np.asarray(duals, dtype=np.float64), 0.0)
    weights[~np.isfinite(weights)] = 0.0
    total = float(weights.sum())
    return weights / total if total > 0.0 else np.full(weights.size, 1 / weights.size)


def _run_scs(
    library: ModuleType, programme: ConicProgramme, accuracy: float, left: float | None
) -> tuple[Array, Array, int]:
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


def _run_clarabel(
    library: ModuleType, programme: ConicProgramme, accuracy: float, left: float | None
) -> tuple[Array, Array, int]:
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
    """Return the rows with each cone's lower triangle turned into the upper one.

    Clarabel stacks the upper triangle column by column, SCS the lower.
    """
    rows, columns, _ = _triangle(programme.n_dims)
    upper = np.lexsort((columns, rows))
    head = 1 + programme.n_pairs
    return np.concatenate([np.arange(head), head + upper, head + rows.size + upper])
