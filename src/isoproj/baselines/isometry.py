"""Two-sided near-isometries by alternating directions: NuMax and its successors.

All of them look for a matrix ``P = F F^T`` whose quadratic forms ``x^T P x`` stay near
1 for every unit direction ``x``, and split it three ways: a matrix that is simple
(``P``), one that fits (``L``), and the forms themselves (``q = A(L)``). The fit is a
least-squares problem in ``n_dims^2`` unknowns, solved exactly through the Gram matrix
``(x_i . x_j)^2`` of the working set, which is factorised once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.directions import quadratic_values
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.solvers.api import Clock

__all__ = [
    "Fit",
    "IsometryState",
    "alternate",
    "best_scale",
    "clip_to_band",
    "largest_deviation_prox",
    "matrix_root",
    "rank_limit",
    "soft_threshold",
    "start_state",
]

MatrixProx = Callable[[Array], Array]
ValuesProx = Callable[[Array], Array]


def best_scale(points: Points, pairs: PairSet, factor: Array) -> float:
    """Return the factor that makes a map's largest loss equal its largest gain.

    With squared-length ratios between ``a`` and ``b`` it is ``sqrt(2 / (a + b))``,
    and the two-sided constant becomes ``(b - a) / (b + a)``.

    Parameters
    ----------
    points : Points
        Geometry in span coordinates.
    pairs : PairSet
        The pairs that count.
    factor : ndarray of shape (n_dims, k)
        The map in span coordinates.

    Returns
    -------
    float
        Positive; 1 for a map that keeps nothing at all.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.baselines.isometry import best_scale
    >>> points, pairs = prepare_pairs(np.eye(3), rotate=False)
    >>> round(best_scale(points, pairs, 2.0 * np.eye(3)), 12)
    0.5
    """
    ends = PairSearch(points, pairs).extremes(factor, n_low=1, n_high=1)
    total = float(ends.low[0] + ends.high[0])
    return float(np.sqrt(2.0 / total)) if total > 0.0 else 1.0


def matrix_root(matrix: Array, *, rank: int | None = None) -> Array:
    """Return ``F`` with ``F F^T`` the positive part of ``matrix``, widest first.

    Parameters
    ----------
    matrix : ndarray of shape (n_dims, n_dims)
        Symmetric.
    rank : int or None
        How many columns to return; None means one per positive eigenvalue.

    Returns
    -------
    ndarray of shape (n_dims, rank)
        Orthogonal columns; at least one.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.isometry import matrix_root
    >>> abs(matrix_root(np.diag([4.0, 0.0]))).tolist()
    [[2.0], [0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    values, vectors = values[::-1], vectors[:, ::-1]
    if rank is None:
        # Rounding of an eigenvalue that a threshold has set to zero is no direction.
        floor = values.size * float(np.finfo(np.float64).eps) * max(values[0], 0.0)
        rank = max(1, int(np.count_nonzero(values > floor)))
    return np.asarray(vectors[:, :rank] * np.sqrt(np.maximum(values[:rank], 0.0)))


def soft_threshold(matrix: Array, amount: float) -> Array:
    """Return the proximal point of ``amount * trace`` over semidefinite matrices.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.isometry import soft_threshold
    >>> soft_threshold(np.diag([3.0, 1.0]), 2.0).tolist()
    [[1.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    kept = values > amount
    return np.asarray((vectors[:, kept] * (values[kept] - amount)) @ vectors[:, kept].T)


def rank_limit(matrix: Array, k: int) -> Array:
    """Return the nearest semidefinite matrix of rank at most ``k``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.isometry import rank_limit
    >>> rank_limit(np.diag([4.0, 1.0, -2.0]), 1).diagonal().tolist()
    [4.0, 0.0, 0.0]
    """
    root = matrix_root(matrix, rank=min(k, matrix.shape[0]))
    return np.asarray(root @ root.T)


def clip_to_band(values: Array, delta: float, signs: Array | None) -> Array:
    """Return the nearest forms within the band around 1, one-sided where signed.

    Parameters
    ----------
    values : ndarray of shape (m,)
        Quadratic forms.
    delta : float
        Half the width of the band.
    signs : ndarray of shape (m,) or None
        +1 bounds a form from above only, -1 from below only; None bounds both sides.

    Returns
    -------
    ndarray of shape (m,)
        The projections.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.isometry import clip_to_band
    >>> clip_to_band(np.array([0.25, 3.0]), 0.5, None).tolist()
    [0.5, 1.5]
    >>> clip_to_band(np.array([0.25, 3.0]), 0.5, np.array([1.0, -1.0])).tolist()
    [0.25, 3.0]
    """
    if signs is None:
        return np.asarray(1.0 + np.clip(values - 1.0, -delta, delta))
    return np.asarray(1.0 + signs * np.minimum(delta, signs * (values - 1.0)))


def largest_deviation_prox(values: Array, amount: float) -> Array:
    """Return the proximal point of ``amount * max |q - 1|``.

    By Moreau's decomposition it is ``1 + v`` minus the projection of ``v = values - 1``
    on the l1 ball of radius ``amount``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.isometry import largest_deviation_prox
    >>> largest_deviation_prox(np.array([1.0, 3.0, 0.0]), 0.5).tolist()
    [1.0, 2.5, 0.0]
    """
    deviation = values - 1.0
    sizes = np.abs(deviation)
    if sizes.sum() <= amount:
        return np.ones_like(values)
    descending = np.sort(sizes)[::-1]
    levels = (np.cumsum(descending) - amount) / np.arange(1, sizes.size + 1)
    level = float(levels[np.flatnonzero(descending > levels)[-1]])
    return np.asarray(1.0 + np.sign(deviation) * np.minimum(sizes, level))


class Fit:
    """Least squares for the matrix that fits forms and stays near another.

    Parameters
    ----------
    directions : ndarray of shape (m, n_dims)
        Unit rows.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines.isometry import Fit
    >>> fit = Fit(np.array([[1.0, 0.0]]))
    >>> fit.solve(np.zeros((2, 2)), np.ones(1)).round(9).tolist()
    [[0.5, 0.0], [0.0, 0.0]]
    """

    def __init__(self, directions: Array) -> None:
        self.directions = directions
        gram = directions @ directions.T
        gram *= gram
        gram[np.diag_indices_from(gram)] += 1.0
        self._factor = scipy.linalg.cho_factor(gram, check_finite=False)

    def solve(self, base: Array, target: Array) -> Array:
        """Return ``argmin |A(L) - target|^2 + |L - base|^2``."""
        short = target - quadratic_values(self.directions, base)
        pull = scipy.linalg.cho_solve(self._factor, short, check_finite=False)
        return np.asarray(base + (self.directions.T * pull) @ self.directions)


@dataclass(slots=True, eq=False)
class IsometryState:
    """Where an alternating solve stands; a later working set goes on from it.

    Parameters
    ----------
    pairs : ndarray of shape (m, 2)
        Working set.
    simple, fitted, matrix_dual : ndarray of shape (n_dims, n_dims)
        ``P``, ``L`` and the multiplier of ``P = L``.
    values, values_dual : ndarray of shape (m,)
        ``q`` and the multiplier of ``q = A(L)``.
    n_iter : int
        Steps taken so far.
    """

    pairs: Indices
    simple: Array
    fitted: Array
    matrix_dual: Array
    values: Array
    values_dual: Array
    n_iter: int = 0

    def on(self, pairs: Indices, n_points: int, directions: Array) -> IsometryState:
        """Return the state on another working set; new pairs start without a pull."""
        old = self.pairs[:, 0] * n_points + self.pairs[:, 1]
        new = pairs[:, 0] * n_points + pairs[:, 1]
        order = np.argsort(old)
        where = np.minimum(np.searchsorted(old, new, sorter=order), old.size - 1)
        known = old[order[where]] == new
        values = quadratic_values(directions, self.fitted)
        duals = np.where(known, self.values_dual[order[where]], 0.0)
        values = np.where(known, self.values[order[where]], values)
        return IsometryState(
            pairs,
            self.simple,
            self.fitted,
            self.matrix_dual,
            values,
            duals,
            self.n_iter,
        )


def start_state(pool: PairSearch, pairs: Indices, matrix: Array) -> IsometryState:
    """Return a state that starts from a matrix, without any pull yet.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.baselines.isometry import start_state
    >>> points, pairs = prepare_pairs(np.eye(3), rotate=True)
    >>> start_state(PairSearch(points, pairs), np.array([[0, 1]]), np.eye(2)).n_iter
    0
    """
    values = quadratic_values(pool.directions(pairs), matrix)
    return IsometryState(
        pairs, matrix, matrix, np.zeros_like(matrix), values, np.zeros_like(values)
    )


def alternate(
    state: IsometryState,
    fit: Fit,
    matrix_prox: MatrixProx,
    values_prox: ValuesProx,
    *,
    max_iter: int,
    tol: float,
    clock: Clock,
    step: float = 1.6,
) -> bool:
    """Run the alternating directions on one working set, changing ``state``.

    Parameters
    ----------
    state : IsometryState
        Where to start; changed.
    fit : Fit
        Least squares over the working set.
    matrix_prox, values_prox : callable
        Proximal maps of what is asked of the matrix and of the forms.
    max_iter : int
        Most steps.
    tol : float
        Relative size of both residuals ``P - L`` and ``q - A(L)`` at which to stop.
    clock : Clock
        Tells when time is over.
    step : float
        Multiplier step, below 1.618.

    Returns
    -------
    bool
        Whether ``tol`` was reached.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.api import Clock
    >>> from isoproj.baselines.isometry import Fit, IsometryState, alternate
    >>> none, zeros = np.zeros((1, 2), int), np.zeros((3, 1, 1))
    >>> state = IsometryState(none, *zeros, *np.zeros((2, 1)))
    >>> alternate(state, Fit(np.eye(1)), lambda m: m, lambda v: np.ones(1),
    ...           max_iter=100, tol=1e-6, clock=Clock(None))
    True
    >>> round(float(state.simple[0, 0]), 4)
    1.0
    """
    for iteration in range(1, max_iter + 1):
        state.simple = matrix_prox(state.fitted - state.matrix_dual)
        forms = quadratic_values(fit.directions, state.fitted)
        state.values = values_prox(forms + state.values_dual)
        state.fitted = fit.solve(
            state.simple + state.matrix_dual, state.values - state.values_dual
        )
        forms = quadratic_values(fit.directions, state.fitted)
        state.matrix_dual = state.matrix_dual - step * (state.fitted - state.simple)
        state.values_dual = state.values_dual - step * (state.values - forms)
        state.n_iter += 1
        if iteration % 5 == 0 or iteration == max_iter:
            apart = max(_apart(state.simple, state.fitted), _apart(state.values, forms))
            if apart < tol:
                return True
            if clock.is_over:
                return False
    return False


def _apart(first: Array, second: Array) -> float:
    """Return the distance of two arrays relative to their mean size."""
    size = float(np.linalg.norm(first) + np.linalg.norm(second))
    return 2.0 * float(np.linalg.norm(first - second)) / size if size > 0.0 else 0.0
