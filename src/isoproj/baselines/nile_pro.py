"""NILE-Pro: the nearest two-sided isometry of a given dimension, reconstructed."""

from __future__ import annotations

import numpy as np

from isoproj.baselines.base import Baseline, FoundMap, Task
from isoproj.baselines.fixed_rank import STEPS_PER_ROUND, FixedRankSearch
from isoproj.baselines.isometry import Splitting, matrix_root, outside_band, union
from isoproj.numerics.spectral import Array
from isoproj.pairs.oracle import Extremes
from isoproj.solvers.dual_ascent import project_on_simplex


class NILEPro(Baseline):
    """NILE-Pro: the map to ``k`` dimensions that is nearest to an isometry.

    It minimises the largest deviation ``|x^T P x - 1|`` over all pair directions. The
    map is not orthonormal; it is scaled so that its largest loss equals its largest
    gain. Only the abstract of Luo et al. was available. It names the objective,
    alternating directions and a Moreau decomposition. The splitting, the rank
    constraint as a projection, the start at principal components, the growing working
    set and the penalty are ours.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    penalty : float, default=0.2
        Penalty of the alternating directions, above 0.
    max_iter : int, default=500
        Most alternating steps.
    pairs, time_limit, random_state, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        The map; its rows are orthogonal, not of length 1.
    n_working_ : int
        Pairs in the last working set.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    FroMax : Least norm within a band, of given dimension.
    NuMax : Fewest dimensions for a given band.

    References
    ----------
    Luo, Shapiro, Shi, Yang and Zhu. arXiv 1601.00062.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import NILEPro
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = NILEPro(n_components=3).fit(X)
    >>> bool(np.isclose(model.distortion_, model.stretch_))
    True
    """

    penalty: float = 0.2
    max_iter: int = 500

    def _search(self, task: Task) -> FoundMap:
        return _FixedRank(task, self._k, self.penalty).search(int(self.max_iter))


class _FixedRank(FixedRankSearch):
    """Least ``max |x^T P x - 1|`` over ``P`` of rank k, by alternating directions."""

    def __init__(self, task: Task, k: int, penalty: float) -> None:
        super().__init__(task, k)
        self.k, self.penalty = k, penalty
        start = self.best.item @ self.best.item.T
        self.splitting = Splitting(self.pool, self.pairs, start)

    def propose(self) -> Array:
        """Return the root of the matrix after some steps on the working set."""
        self.splitting.alternate(
            lambda matrix: rank_limit(matrix, self.k),
            lambda values: largest_deviation_prox(values, 1.0 / self.penalty),
            max_iter=STEPS_PER_ROUND,
            tol=1e-6,
            clock=self.task.clock,
            step=1.0,
        )
        self.n_iter = self.splitting.n_iter
        return matrix_root(self.splitting.simple, rank=self.k)

    def respond(self, ends: Extremes) -> None:
        """Take in the pairs outside the band of the working set."""
        band = float(np.abs(self.splitting.values - 1.0).max())
        # Pairs well inside the band pull least; beyond a size they make room.
        pull = np.abs(self.splitting.values_dual)
        pulling = np.argsort(-pull)[:1000]
        self.pairs = union(self.pairs[pulling], outside_band(ends, band))
        self.splitting.take(self.pairs)


def rank_limit(matrix: Array, k: int) -> Array:
    """Return the nearest semidefinite matrix of rank at most ``k``."""
    root = matrix_root(matrix, rank=min(k, matrix.shape[0]))
    return np.asarray(root @ root.T)


def largest_deviation_prox(values: Array, amount: float) -> Array:
    """Return the proximal point of ``amount * max |q - 1|``.

    By Moreau's decomposition it is ``values`` minus the projection of ``values - 1`` on
    the l1 ball of radius ``amount``.
    """
    deviation = values - 1.0
    sizes = np.abs(deviation)
    if sizes.sum() <= amount:
        return np.ones_like(values)
    inside = amount * project_on_simplex(sizes / amount)
    return np.asarray(values - np.sign(deviation) * inside)
