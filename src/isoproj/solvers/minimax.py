"""The default solver: both sides of the minimax problem, each by its own method.

Lower side: the fantope relaxation by an interior-point method over all pairs
(``solvers.relaxation``); its dual weights are the certificate. Upper side: local search
from the rounding of the relaxation's matrix (``solvers.descent``).

The relaxation is convex, so its gap goes to zero with work (``tol``). The gap between
basis and bound may stay open: the relaxation is not always tight, and local search
promises a local optimum only.

Where a search of all pairs takes seconds, both sides are solved on a pool of pairs that
few searches of all pairs enlarge (``solvers.pooled``).
"""

from __future__ import annotations

import numpy as np

from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.solvers.api import (
    Clock,
    Journal,
    Monitor,
    SolveResult,
    Status,
    Stopped,
)
from isoproj.solvers.checkpoint import Checkpoint
from isoproj.solvers.descent.anneal import (
    FEW,
    TEMPERATURES,
    Progress,
    anneal,
    first_set,
    polish,
    see,
)
from isoproj.solvers.descent.grassmann import random_starts
from isoproj.solvers.descent.working_set import WorkingSet, batch_size, leading
from isoproj.solvers.pooled import solve_pooled
from isoproj.solvers.relaxation.path import Relaxation, solve_relaxation

__all__ = ["minimax", "refine"]

# From a basis of nearly the same problem: warm enough to leave it, and in single
# precision (``solvers.working_set``) for as long as that will do.
_WARM_TEMPERATURES = (0.02, 0.006, 0.002, 0.0006, 0.0002, 0.0001)
# Batches of pairs known from the start there: each search that brings more is followed
# by the same move again.
_WARM_BATCHES = 3
# Few enough pairs to restart on, and dimensions at which local optima differ most.
_SOME = 150_000
_LOOSE = 7
_N_RESTARTS = 6
_CLOSER = 0.1


@single_blas_thread
def minimax(
    points: Points,
    pairs: PairSet,
    k: int,
    *,
    tol: float = 1e-3,
    max_iter: int = 200,
    time_limit: float | None = None,
    n_restarts: int | None = None,
    start: Array | None = None,
    known_pairs: Indices | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
    search: PairSearch | None = None,
    checkpoint: Checkpoint | None = None,
) -> SolveResult:
    """Find a basis and dual weights whose values are close together.

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    pairs : PairSet
        The pairs that count.
    k : int
        Target dimension, below ``points.n_dims``.
    tol : float
        Relative solver gap (relaxed value over lower bound, minus 1) to reach.
    max_iter : int
        Most rounds.
    time_limit : float or None
        Seconds after which to stop with the best so far.
    n_restarts : int or None
        Further random starts of the local search, half of them the best of many; None
        means a few where they are cheap and the relaxation is loose (few pairs,
        small ``k``).
    start : ndarray of shape (n_dims, k) or None
        A basis to start from besides the relaxation's.
    known_pairs : ndarray of shape (m, 2) or None
        Pairs that mattered in an earlier solve.
    seed : int
        Of the samples and random starts.
    monitor : callable or None
        Called with every ``Step``.
    search : PairSearch or None
        Of these points and pairs, if one is at hand.
    checkpoint : Checkpoint or None
        Where the state is kept after every search of all pairs. A solve goes on from
        there; it works on a pool of pairs, as where distances do not fit the memory.

    Returns
    -------
    SolveResult
        ``OPTIMAL`` if the two sides meet (within ``tol`` where the k-th eigenvalue of
        the dual matrix stands clear of the next), ``CONVERGED`` if the solver gap
        closed and local search ended, else the limit that stopped it.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.minimax import minimax
    >>> points, pairs = prepare_pairs(np.eye(6), rotate=True)
    >>> result = minimax(points, pairs, 2)
    >>> bool(result.history[-1].distortion >= result.history[-1].lower_bound)
    True
    """
    clock = Clock(time_limit)
    search = PairSearch(points, pairs) if search is None else search
    rng = np.random.default_rng(seed)
    principal = np.eye(points.n_dims, k)
    codes = search.sample(1000, rng)
    progress = Progress(
        journal=Journal(clock, max_iter, monitor),
        basis=principal,
        codes=codes,
        weights=np.full(codes.size, 1.0 / codes.size),
    )
    try:
        known = np.empty(0, dtype=np.intp)
        if known_pairs is not None:
            known = search.encode(np.sort(known_pairs, axis=1))
        if checkpoint is not None or (search.is_slow and search.n_pairs > FEW):
            solve_pooled(search, start, known, tol, progress, rng, checkpoint)
        else:
            _solve_searching(search, start, known, tol, n_restarts, progress, rng)
        status = _final_status(search, progress, k, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _result(search, progress, status)


@single_blas_thread
def refine(
    search: PairSearch,
    basis: Array,
    pairs: Indices,
    weights: Array,
    lower: float,
    *,
    gap: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 200,
    time_limit: float | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> SolveResult:
    """Go on from a solution of nearly the same problem.

    Dual weights bound the problem with more pairs as they are, so that the basis comes
    first: from where it was, warm enough to leave it. Where that does not bring the gap
    back, the relaxation goes on from the weights; where the old basis was no place to
    start from, the search begins anew.

    Parameters
    ----------
    search : PairSearch
        All pairs, of the points as they are now.
    basis : ndarray of shape (n_dims, k)
        What was found before.
    pairs : ndarray of shape (m, 2)
        Support of the dual weights found before.
    weights : ndarray of shape (m,)
        Those weights.
    lower : float
        What they prove.
    gap : float
        Relative gap between both sides that is good enough, up to ``tol``.
    tol, max_iter, time_limit, seed, monitor
        As for ``minimax``.

    Returns
    -------
    SolveResult
        No worse than what was given.
    """
    start, codes = orthonormal(basis), search.encode(np.sort(pairs, axis=1))
    k = start.shape[1]
    progress = Progress(
        journal=Journal(Clock(time_limit), max_iter, monitor),
        basis=start,
        codes=codes,
        weights=weights,
        lower=lower,
    )
    enough = gap + tol
    try:
        see(search, start, progress)
        count = batch_size(k)
        lowest = search.lowest(start, _WARM_BATCHES * count).codes
        known = WorkingSet(search, np.union1d(codes, lowest))
        anneal(known, start, count, _WARM_TEMPERATURES, progress, enough)
        status = Status.CONVERGED
        if progress.gap > enough:
            warm = Relaxation(codes, weights, start, 0.0, 1.0, 0)
            relaxation = _solve_lower(search, k, tol, progress, warm)
            if progress.gap > enough:
                _solve_upper(
                    search,
                    [leading(relaxation.factor, k)],
                    progress.basis,
                    relaxation.codes,
                    progress,
                    np.random.default_rng(seed),
                )
            status = _final_status(search, progress, k, tol)
    except Stopped as stop:
        status = stop.status
    except KeyboardInterrupt:
        status = Status.INTERRUPTED
    return _result(search, progress, status)


def _result(search: PairSearch, progress: Progress, status: Status) -> SolveResult:
    return SolveResult(
        basis=progress.basis,
        pairs=search.decode(progress.codes),
        weights=progress.weights,
        status=status,
        history=tuple(progress.journal.history),
        factor=progress.factor,
    )


def _solve_searching(
    search: PairSearch,
    start: Array | None,
    known: Indices,
    tol: float,
    n_restarts: int | None,
    progress: Progress,
    rng: np.random.Generator,
) -> None:
    """Solve both sides with a search of all pairs whenever one is useful."""
    n_dims, k = progress.basis.shape
    relaxation = _solve_lower(search, k, tol, progress)
    if n_restarts is None:
        n_restarts = _N_RESTARTS if search.n_pairs <= _SOME and k <= _LOOSE else 0
    given = None if start is None else orthonormal(start)
    starts = [leading(relaxation.factor, k)]
    starts += [np.eye(n_dims, k)] if n_restarts else []
    codes = np.union1d(relaxation.codes, known)
    _solve_upper(search, starts, given, codes, progress, rng, n_restarts)


def _final_status(search: PairSearch, progress: Progress, k: int, tol: float) -> Status:
    gap = progress.distortion - progress.lower
    if gap <= 1e-6 * progress.lower + 1e-9:
        return Status.OPTIMAL
    if gap <= tol * progress.lower and _is_separated(search, progress, k, tol):
        return Status.OPTIMAL
    if progress.relaxed <= progress.lower * (1.0 + tol) + 1e-9:
        return Status.CONVERGED
    return Status.MAX_ITER


def _is_separated(search: PairSearch, progress: Progress, k: int, tol: float) -> bool:
    """Return whether the k-th eigenvalue of the dual matrix stands clear of the next.

    Then the relaxation's optimum is a projection, and the basis is that one up to the
    solver's tolerance.
    """
    rows = search.directions(progress.codes)
    values, _ = top_eigenpairs((rows.T * progress.weights) @ rows, k + 1)
    return bool(values[k - 1] - values[k] > 2.0 * tol * values[k - 1])


def _solve_lower(
    search: PairSearch,
    k: int,
    tol: float,
    progress: Progress,
    warm: Relaxation | None = None,
) -> Relaxation:
    target = _CLOSER * tol if search.n_pairs <= FEW else tol
    relaxation = solve_relaxation(
        search,
        k,
        tol=target,
        start=warm,
        callback=lambda *_: progress.journal.clock.is_over,
    )
    progress.see_relaxation(relaxation)
    see(search, leading(relaxation.factor, k), progress)
    progress.tell(relaxation.codes.size)
    return relaxation


def _solve_upper(
    search: PairSearch,
    starts: list[Array],
    given: Array | None,
    codes: Indices,
    progress: Progress,
    rng: np.random.Generator,
    n_restarts: int = 0,
) -> None:
    """Search from every start, then polish the best to a local optimum of the max."""
    known, count = first_set(search, starts[0], codes, rng)
    shape = starts[0].shape
    for start in starts + random_starts(known.secants, None, shape, n_restarts, rng):
        anneal(known, start, count, TEMPERATURES, progress)
    if given is not None:
        # A given basis is near an optimum already: heat would only lose it.
        see(search, given, progress)
        anneal(known, given, count, TEMPERATURES[-3:], progress)
    polish(known, progress.basis, count, progress)
