"""Secant-avoidance projection: turn the basis towards the pair it keeps least of.

Kvinge, Farnell, Kirby and Peterson (arXiv 1807.03425). Each step finds the most
shrunk direction ``s``, rotates the basis so that the image of ``s`` lies along its
first column, and mixes a little of what was lost, ``s - V V^T s``, into that column.
"""

from __future__ import annotations

import numpy as np

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock, Monitor, Status, Step

__all__ = ["avoid_secants", "turn_towards"]


def turn_towards(basis: Array, direction: Array, step: float) -> Array:
    """Return the basis with one column mixed with what a direction lost.

    Parameters
    ----------
    basis : ndarray of shape (n_dims, k)
        Orthonormal columns.
    direction : ndarray of shape (n_dims,)
        Unit direction.
    step : float
        Share of the lost part in the new column, between 0 and 1.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal columns; the direction keeps more than before.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.secant_avoidance_solver import turn_towards
    >>> turned = turn_towards(np.eye(2)[:, :1], np.array([0.6, 0.8]), 0.5)
    >>> bool(np.allclose(abs(turned.ravel()), [0.6, 0.8]))
    True
    """
    image = basis.T @ direction
    kept = basis @ image
    mixed = (1.0 - step) * kept + step * (direction - kept)
    size = float(np.linalg.norm(mixed))
    if size == 0.0:
        return basis
    if not image.any():
        image = np.eye(basis.shape[1])[0]
    # A reflection that sends the first axis along the image turns the basis in place.
    axis = image / np.linalg.norm(image)
    flip = axis.copy()
    flip[0] += 1.0 if axis[0] >= 0.0 else -1.0
    flip /= np.linalg.norm(flip)
    turned = basis - 2.0 * np.outer(basis @ flip, flip)
    turned[:, 0] = mixed / size
    return orthonormal(turned)


def avoid_secants(
    pool: PairSearch,
    basis: Array,
    *,
    step: float = 0.05,
    max_iter: int = 200,
    clock: Clock,
    monitor: Monitor | None = None,
) -> tuple[Array, int, Status]:
    """Return the best basis met while turning towards the worst pair.

    Parameters
    ----------
    pool : PairSearch
        The pairs; each step looks at all of them.
    basis : ndarray of shape (n_dims, k)
        Where to start.
    step : float
        The authors' ``alpha``.
    max_iter : int
        Number of steps.
    clock : Clock
        Tells when time is over.
    monitor : callable or None
        Called with every ``Step``.

    Returns
    -------
    basis : ndarray of shape (n_dims, k)
        The one whose worst pair keeps most.
    n_iter : int
        Steps taken.
    status : Status
        Why it stopped.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.baselines.secant_avoidance_solver import avoid_secants
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> avoid_secants(PairSearch(points, pairs), np.eye(3)[:, :2], clock=Clock(None))[1]
    200
    """
    best, kept = basis, -1.0
    for iteration in range(max_iter + 1):
        ends = pool.extremes(basis, n_low=1)
        worst = float(ends.low[0])
        if worst > kept:
            best, kept = basis, worst
        if monitor is not None:
            monitor(
                Step(
                    iteration=iteration,
                    distortion=1.0 - worst,
                    lower_bound=0.0,
                    seconds=clock.seconds,
                )
            )
        if iteration == max_iter:
            break
        if clock.is_over:
            return best, iteration, Status.TIME_LIMIT
        basis = turn_towards(basis, pool.directions(ends.low_pairs)[0], step)
    return best, max_iter, Status.COMPLETED
