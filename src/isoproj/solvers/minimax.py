"""The default solver: both sides from the first moment on, then each in turn.

Every round tells both sides (``solvers.sides``), and whenever a solve is stopped it
returns the best of each. A search from the principal axes comes first, then the bound,
then, where they are cheap or pay, searches from the rounding of the bound's matrix and
from further starts. All of them stop at a temperature that tells them apart; the best
goes on to the end.

A solve is content when the gap between both sides is ``tol``. Beyond that the lower
side goes on only while its own gap is more than a tenth of the open one, and while its
rounds promise to close a twentieth of that: the relaxation is convex, so its own gap
goes to zero with work, but it is not always tight, and local search promises a local
optimum only.

Where a search of all pairs takes seconds, both sides are solved on a pool of pairs
(``solvers.pooled``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isoproj.numerics.spectral import orthonormal
from isoproj.numerics.threads import single_blas_thread
from isoproj.solvers.api import Problem, Result, Status, Stopped
from isoproj.solvers.descent.working_set import leading
from isoproj.solvers.pooled import solve_on_pool
from isoproj.solvers.relaxation.problem import Relaxation
from isoproj.solvers.settings import Settings
from isoproj.solvers.sides import COARSE, FIRST_SAMPLE, Bounds, Sides

__all__ = ["minimax", "refine"]


@single_blas_thread
def minimax(problem: Problem, settings: Settings | None = None) -> Result:
    """Find a basis and dual weights whose values are close together.

    Returns
    -------
    Result
        ``OPTIMAL`` if the two sides meet (within ``tol`` where the k-th eigenvalue of
        the dual matrix stands clear of the next), ``CONVERGED`` if the solver gap
        closed and local search ended, ``STALLED`` if the relaxation stopped improving
        before, else the limit that stopped it.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Problem
    >>> from isoproj.solvers.minimax import minimax
    >>> search = PairSearch(*prepare_pairs(np.eye(6), rotate=True))
    >>> result = minimax(Problem(search=search, k=2))
    >>> result.distortion >= result.lower
    True
    """
    settings = Settings() if settings is None else settings
    if problem.tol >= COARSE:
        settings = replace(settings, descent=settings.descent.coarse())
    search, k = problem.search, problem.k
    assert k is not None
    rng = np.random.default_rng(problem.seed)
    codes = search.sample(FIRST_SAMPLE, rng)
    bounds = Bounds(
        journal=problem.journal,
        settings=settings.descent,
        basis=np.eye(problem.n_dims, k),
        codes=codes,
        weights=np.full(codes.size, 1.0 / codes.size),
    )
    solve = Sides(problem, settings, bounds, rng)
    try:
        if problem.checkpoint is not None or (
            search.is_slow and search.n_pairs > settings.descent.few_pairs
        ):
            solve_on_pool(solve)
        else:
            solve.on_all_pairs()
        status = bounds.status(search, k, problem.tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return bounds.result(search, status)


@single_blas_thread
def refine(
    problem: Problem,
    last: Result,
    gap: float,
    settings: Settings | None = None,
) -> Result:
    """Go on from a solution of nearly the same problem until its gap is back.

    Dual weights bound the problem with more pairs as they are, so the basis comes
    first: from where it was, warm enough to leave it. Where that does not bring the gap
    back, the relaxation goes on from the weights; where the old basis was no place to
    start from, the search begins anew.

    Parameters
    ----------
    problem : Problem
        The points as they are now.
    last : Result
        What was found before.
    gap : float
        Relative gap between both sides that is good enough, up to ``tol``.
    settings : Settings or None
        Tuning figures.
    """
    settings = Settings() if settings is None else settings
    search, tol = problem.search, problem.tol
    start = orthonormal(last.basis)
    k = start.shape[1]
    codes = search.encode(np.sort(last.dual.pairs, axis=1))
    bounds = Bounds(
        journal=problem.journal,
        settings=settings.descent,
        basis=start,
        codes=codes,
        weights=last.dual.weights,
        lower=last.lower,
        enough=gap + tol,
    )
    solve = Sides(problem, settings, bounds, np.random.default_rng(problem.seed))
    try:
        bounds.measure(search, start)
        solve.warm(start, codes)
        status = Status.CONVERGED
        if not bounds.is_content:
            warm = Relaxation(codes, last.dual.weights, start, 1.0, 0.0)
            relaxation = solve.lower(warm)
            if not bounds.is_content:
                start = leading(relaxation.factor, k)
                known = solve.first_set(search, start, relaxation.codes)
                solve.descend(known, start)
                solve.polish(solve.cool(known), bounds)
            status = bounds.status(search, k, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return bounds.result(search, status)
