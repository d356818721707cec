"""NuMax: the least trace whose quadratic forms stay in a band, by column generation.

``min tr P`` over ``P >= 0`` with ``|x^T P x - 1| <= delta`` for every direction ``x``
(Hegde, Sankaranarayanan, Yin and Baraniuk, 2015). A working set of pairs is solved by
alternating directions; pairs outside it that leave the band join, pairs well inside
leave, until the band holds for all pairs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isoproj.baselines.isometry import (
    Fit,
    IsometryState,
    alternate,
    clip_to_band,
    matrix_root,
    soft_threshold,
    start_state,
)
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Clock, Monitor, Status, Step

__all__ = ["NearIsometry", "joined", "solve_numax"]

# The band is narrowed by this share while solving, so that all pairs end inside it.
_MARGIN = 2e-3
_MOST_ADDED = 500


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NearIsometry:
    """A map ``F`` with ``|F^T x|^2`` near 1, as found; nothing is proved of it.

    Parameters
    ----------
    factor : ndarray of shape (n_dims, rank)
        The map.
    n_iter : int
        Alternating steps taken.
    n_working : int
        Pairs in the last working set.
    status : Status
        Why the search stopped.
    """

    factor: Array
    n_iter: int
    n_working: int
    status: Status


def joined(first: Indices, second: Indices) -> Indices:
    """Return the union of two lists of pairs, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.numax_solver import joined
    >>> joined(np.array([[0, 1]]), np.array([[0, 1], [0, 2]])).tolist()
    [[0, 1], [0, 2]]
    """
    return np.unique(np.concatenate([first, second]), axis=0)


def solve_numax(
    pool: PairSearch,
    delta: float,
    *,
    generator: np.random.RandomState,
    tol: float = 1e-4,
    max_iter: int = 1000,
    max_rounds: int = 50,
    n_start: int = 500,
    clock: Clock,
    monitor: Monitor | None = None,
) -> NearIsometry:
    """Return the map of least nuclear norm that keeps every pair in the band.

    Parameters
    ----------
    pool : PairSearch
        The pairs; with labels, pairs of one class are bounded from above only and
        pairs of two classes from below only.
    delta : float
        Half the width of the band around 1, in squared length.
    generator : RandomState
        Draws the first working set.
    tol : float
        Relative residual at which a working set counts as solved.
    max_iter : int
        Most alternating steps per working set.
    max_rounds : int
        Most working sets.
    n_start : int
        Pairs drawn for the first working set.
    clock : Clock
        Tells when time is over.
    monitor : callable or None
        Called after every working set.

    Returns
    -------
    NearIsometry
        ``CONVERGED`` when the band holds for all pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.baselines.numax_solver import solve_numax
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> found = solve_numax(PairSearch(points, pairs), 0.3, clock=Clock(None),
    ...                     generator=np.random.RandomState(0))
    >>> str(found.status)
    'converged'
    """
    inner = delta * (1.0 - _MARGIN)
    rng = np.random.default_rng(generator.randint(2**31))
    drawn = pool.decode(pool.sample(n_start, rng))
    state = start_state(pool, drawn, np.eye(pool.n_dims))
    status = Status.MAX_ITER
    for number in range(max_rounds):
        _solve_working_set(pool, state, inner, max_iter, tol, clock)
        factor = matrix_root(state.simple)
        ends = pool.extremes(factor, n_low=_MOST_ADDED, n_high=_MOST_ADDED)
        if monitor is not None:
            monitor(_step(number, ends, clock, state))
        if clock.is_over:
            status = Status.TIME_LIMIT
            break
        outside = joined(
            ends.low_pairs[ends.low < 1.0 - delta],
            ends.high_pairs[ends.high > 1.0 + delta],
        )
        if outside.shape[0] == 0:
            status = Status.CONVERGED
            break
        if joined(state.pairs, outside).shape[0] == state.pairs.shape[0]:
            # All of them are known: what is missing is accuracy.
            tol = max(tol / 4.0, 1e-9)
        known = joined(state.pairs[_is_tight(state, delta)], outside)
        state = state.on(known, pool.points.n_points, pool.directions(known))
    return NearIsometry(
        factor=factor,
        n_iter=state.n_iter,
        n_working=state.pairs.shape[0],
        status=status,
    )


def _solve_working_set(
    pool: PairSearch,
    state: IsometryState,
    delta: float,
    max_iter: int,
    tol: float,
    clock: Clock,
) -> None:
    signs = None
    if pool.labels is not None:
        same = pool.labels[state.pairs[:, 0]] == pool.labels[state.pairs[:, 1]]
        signs = np.where(same, 1.0, -1.0)
    alternate(
        state,
        Fit(pool.directions(state.pairs)),
        lambda matrix: soft_threshold(matrix, 1.0),
        lambda values: clip_to_band(values, delta, signs),
        max_iter=max_iter,
        tol=tol,
        clock=clock,
    )


def _is_tight(state: IsometryState, delta: float) -> Indices:
    """Return the pairs that hold the solution: near the band's edge, or pulling."""
    near = np.abs(np.abs(state.values - 1.0) - delta) < delta / 100.0
    return np.flatnonzero(near | (np.abs(state.values_dual) > 1e-9))


def _step(number: int, ends: Extremes, clock: Clock, state: IsometryState) -> Step:
    return Step(
        iteration=number,
        distortion=1.0 - float(ends.low[0]) if ends.low.size else 0.0,
        lower_bound=0.0,
        seconds=clock.seconds,
        n_working=state.pairs.shape[0],
    )
