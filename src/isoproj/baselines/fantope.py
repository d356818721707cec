"""Fair PCA on the fantope: multiplicative weights, then rank reduction.

The fantope, ``0 <= P <= I`` with ``tr P = k``, is the convex hull of the projections to
``k`` dimensions. Every pair is a "group" whose share kept is ``x^T P x``; the least
favoured group is to do best. Multiplicative weights (Samadi et al. 2018, Tantipongpipat
et al. 2019) answer weights with their top eigenvectors and average the answers; rank
reduction then walks to a vertex of the face on which no tight pair changes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.moments import Problem
from isoproj.solvers.api import Clock, Monitor, Status, Step

__all__ = [
    "FantopeAverage",
    "multiplicative_weights",
    "project_on_fantope",
    "reduce_rank",
]

_INTEGRAL = 1e-9


def project_on_fantope(matrix: Array, k: int) -> Array:
    """Return the nearest matrix of the fantope.

    Eigenvalues are shifted by one amount and clipped to [0, 1] so that they sum to
    ``k``.

    Parameters
    ----------
    matrix : ndarray of shape (n_dims, n_dims)
        Symmetric.
    k : int
        Trace, at most ``n_dims``.

    Returns
    -------
    ndarray of shape (n_dims, n_dims)
        Symmetric, with eigenvalues in [0, 1] and trace ``k``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.fantope import project_on_fantope
    >>> project_on_fantope(np.diag([2.0, 0.5, 0.5]), 2).diagonal().tolist()
    [1.0, 0.5, 0.5]
    """
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    return np.asarray((vectors * _shifted(values, k)) @ vectors.T)


def _shifted(values: Array, k: int) -> Array:
    """Return ``clip(values - shift, 0, 1)`` with sum ``k``."""
    # The sum is piecewise linear in the shift: find the piece, then its root.
    knots = np.sort(np.concatenate([values, values - 1.0]))
    sums = np.array([np.clip(values - knot, 0.0, 1.0).sum() for knot in knots])
    right = int(np.searchsorted(-sums, -k))
    if right == 0:
        return np.asarray(np.clip(values - knots[0], 0.0, 1.0))
    low, high = knots[right - 1], knots[right]
    fall = sums[right - 1] - sums[right]
    part = (sums[right - 1] - k) / fall if fall > 0.0 else 0.0
    return np.asarray(np.clip(values - (low + part * (high - low)), 0.0, 1.0))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FantopeAverage:
    """What multiplicative weights found.

    Parameters
    ----------
    matrix : ndarray of shape (n_dims, n_dims)
        Average of the answers, in the fantope.
    basis : ndarray of shape (n_dims, k)
        The answer whose worst pair keeps most.
    weights : ndarray of shape (n_pairs,)
        The weights of greatest dual value met, on the simplex.
    n_iter : int
        Rounds played.
    status : Status
        Why it stopped.
    """

    matrix: Array
    basis: Array
    weights: Array
    n_iter: int
    status: Status


def multiplicative_weights(
    problem: Problem,
    *,
    rate: float = 3.0,
    max_iter: int = 500,
    tol: float = 1e-3,
    clock: Clock,
    monitor: Monitor | None = None,
) -> FantopeAverage:
    """Return a near-optimal matrix of the fantope and near-optimal dual weights.

    Parameters
    ----------
    problem : Problem
        Pairs of points and the target dimension.
    rate : float
        Weights are multiplied by ``exp(-rate * share kept)`` each round.
    max_iter : int
        Most rounds.
    tol : float
        Relative gap between the average's value and the best dual value at which to
        stop.
    clock : Clock
        Tells when time is over.
    monitor : callable or None
        Called with every ``Step``.

    Returns
    -------
    FantopeAverage
        ``CONVERGED`` when the gap was closed to ``tol``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.moments import pose
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.baselines.fantope import multiplicative_weights
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> found = multiplicative_weights(pose(points, pairs, 2), clock=Clock(None))
    >>> round(float(found.matrix.trace()), 9)
    2.0
    """
    n, d = problem.n_pairs, problem.coordinates.shape[1]
    logs, total_kept = np.zeros(n), np.zeros(n)
    total, total_weights = np.zeros((d, d)), np.zeros(n)
    best, best_weights = -math.inf, np.full(n, 1.0 / n)
    most, best_basis = -math.inf, np.empty((d, 0))
    status = Status.MAX_ITER
    for iteration in range(1, max_iter + 1):
        weights = np.exp(logs - logs.max())
        weights /= weights.sum()
        lower, basis = problem.dual(weights)
        kept = problem.retained(basis)
        total += basis @ basis.T
        total_kept += kept
        total_weights += weights
        if kept.min() > most:
            most, best_basis = float(kept.min()), basis
        if iteration % 10 == 0:
            # The average of the weights often proves more than any one of them.
            average = total_weights / iteration
            lower, weights = max(
                (lower, weights), (problem.dual(average)[0], average), key=_first
            )
        if lower > best:
            best, best_weights = lower, weights
        relaxed = 1.0 - float(total_kept.min()) / iteration
        if monitor is not None:
            monitor(
                Step(
                    iteration=iteration,
                    distortion=1.0 - float(kept.min()),
                    lower_bound=best,
                    seconds=clock.seconds,
                    relaxed=relaxed,
                )
            )
        if relaxed - best <= tol * best:
            status = Status.CONVERGED
            break
        if clock.is_over:
            status = Status.TIME_LIMIT
            break
        logs -= rate * kept
    return FantopeAverage(
        matrix=total / iteration,
        basis=best_basis,
        weights=best_weights,
        n_iter=iteration,
        status=status,
    )


def _first(pair: tuple[float, Array]) -> float:
    return pair[0]


def reduce_rank(
    problem: Problem, relaxed: Array, *, clock: Clock, max_iter: int = 1000
) -> Array:
    """Return a matrix of the fantope of lower rank whose worst pair keeps as much.

    With ``P = Q1 S Q1^T + Q2 Q2^T``, ``S`` holding the eigenvalues strictly between 0
    and 1, any symmetric change of ``S`` that is orthogonal to the identity and to all
    tight pairs leaves trace and worst pair as they are. One exists while the number of
    tight pairs plus one is below ``s (s + 1) / 2``. It is followed until an eigenvalue
    reaches 0 or 1, or another pair becomes tight.

    Parameters
    ----------
    problem : Problem
        Pairs of points.
    relaxed : ndarray of shape (n_dims, n_dims)
        Matrix of the fantope.
    clock : Clock
        Tells when time is over; the matrix so far is as good as the first.
    max_iter : int
        Most moves.

    Returns
    -------
    ndarray of shape (n_dims, n_dims)
        With at most about ``sqrt(2 m)`` eigenvalues strictly inside (0, 1) for ``m``
        tight pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.moments import pose
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.baselines.fantope import reduce_rank
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> listed = pose(points, pairs, 1)
    >>> reduced = reduce_rank(listed, np.eye(3) / 3, clock=Clock(None))
    >>> round(float(reduced.trace()), 9)
    1.0
    """
    floor = float(_kept(problem, relaxed).min())
    for _ in range(max_iter):
        values, vectors = np.linalg.eigh(relaxed)
        inside = (values > _INTEGRAL) & (values < 1.0 - _INTEGRAL)
        frame, shares = vectors[:, inside], values[inside]
        kept = _kept(problem, relaxed)
        tight = np.flatnonzero(kept <= floor + _INTEGRAL)
        size = shares.size
        if tight.size + 1 >= size * (size + 1) // 2 or clock.is_over:
            break
        move = _free_move(problem, frame, shares, tight)
        if move is None:
            break
        change = frame @ move @ frame.T
        length = min(
            _reach(shares, move),
            _patience(kept - floor, _kept_change(problem, frame, move), tight),
        )
        if not math.isfinite(length):
            break
        relaxed = _tidied(relaxed + length * change)
    return relaxed


def _tidied(matrix: Array) -> Array:
    """Return the matrix with eigenvalues that reached 0 or 1 exactly there."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    values = np.where(values < _INTEGRAL, 0.0, values)
    values = np.where(values > 1.0 - _INTEGRAL, 1.0, values)
    return np.asarray((vectors * values) @ vectors.T)


def _kept(problem: Problem, matrix: Array) -> Array:
    values, vectors = np.linalg.eigh(matrix)
    return problem.retained(vectors * np.sqrt(np.maximum(values, 0.0)))


def _kept_change(problem: Problem, frame: Array, move: Array) -> Array:
    """Return what a move changes for every pair, as a difference of two maps."""
    values, vectors = np.linalg.eigh(move)
    root = (frame @ vectors) * np.sqrt(np.abs(values))
    up = problem.retained(root[:, values > 0.0])
    down = problem.retained(root[:, values < 0.0])
    return np.asarray(up - down)


def _free_move(
    problem: Problem, frame: Array, shares: Array, tight: Indices
) -> Array | None:
    """Return a symmetric change that no tight pair and not the trace notices."""
    size = shares.size
    rows, columns = np.triu_indices(size)
    # Off-diagonal entries count twice in an inner product of symmetric matrices.
    root = np.where(rows == columns, 1.0, math.sqrt(2.0))
    pairs = problem.pairs(tight)
    gaps = problem.coordinates[pairs[:, 0]] - problem.coordinates[pairs[:, 1]]
    gaps /= np.linalg.norm(gaps, axis=1)[:, None]
    images = gaps @ frame
    normals = np.vstack(
        [(rows == columns).astype(np.float64), images[:, rows] * images[:, columns]]
    )
    normals[1:] *= root
    basis = np.linalg.qr(normals.T)[0]
    # Pushing apart what is above and below one half drives eigenvalues to 0 and 1.
    wish = np.where(rows == columns, (shares - 0.5)[rows], 0.0)
    spread = np.random.default_rng(0).normal(size=wish.size)
    for start in (wish + 1e-6 * spread, spread):
        free = start.copy()
        for _ in range(2):
            free -= basis @ (basis.T @ free)
        if np.linalg.norm(free) > 1e-7 * np.linalg.norm(start):
            move = np.zeros((size, size))
            move[rows, columns] = free / root
            return np.asarray(move + np.triu(move, 1).T)
    return None


def _reach(shares: Array, move: Array) -> float:
    """Return how far ``S + t move`` stays between 0 and I."""
    low = move / np.sqrt(np.outer(shares, shares))
    high = move / np.sqrt(np.outer(1.0 - shares, 1.0 - shares))
    fall = -float(np.linalg.eigvalsh(low)[0])
    rise = float(np.linalg.eigvalsh(high)[-1])
    steepest = max(fall, rise)
    return 1.0 / steepest if steepest > 0.0 else math.inf


def _patience(slack: Array, change: Array, tight: Indices) -> float:
    """Return how far until a pair that is not tight becomes so."""
    falling = change < 0.0
    falling[tight] = False
    if not falling.any():
        return math.inf
    return float((slack[falling] / -change[falling]).min())
