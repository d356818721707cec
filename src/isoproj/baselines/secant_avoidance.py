"""Secant-avoidance projection, which has our own objective.

Each step finds the most shrunk direction ``s``, rotates the basis so that the image of
``s`` lies along its first column, and mixes a little of what was lost,
``s - V V^T s``, into that column.
"""

from __future__ import annotations

import numpy as np

from isoproj.baselines.base import Baseline, Best, FoundMap, Task, check_fraction
from isoproj.numerics.arrays import check_choice
from isoproj.numerics.spectral import Array, orthonormal
from isoproj.solvers.api import Status


class SecantAvoidance(Baseline):
    """Secant avoidance (SAP): turn the basis step by step towards its worst pair.

    The constants are those of the code that the authors published. The best basis met
    is kept.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    step : float, default=0.05
        Share of the lost part mixed into the basis each time, the authors' alpha.
    init : {"pca", "random"}, default="pca"
        Where to start.
    max_iter : int, default=200
        Number of turns; each looks at all pairs.
    random_state : int, RandomState instance or None, default=None
        Decides the start with ``init="random"``.
    pairs, time_limit, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    PCAProjection : The default start.

    References
    ----------
    Kvinge, Farnell, Kirby and Peterson. arXiv 1807.03425.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import PCAProjection, SecantAvoidance
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> sap = SecantAvoidance(n_components=3).fit(X)
    >>> sap.distortion_ <= PCAProjection(n_components=3).fit(X).distortion_
    True
    """

    step: float = 0.05
    init: str = "pca"
    max_iter: int = 200

    def _check_parameters(self) -> None:
        check_choice("init", self.init, ("pca", "random"))
        check_fraction("step", self.step)

    def _search(self, task: Task) -> FoundMap:
        pool, basis = task.pool(), self._start(task)
        best = Best(basis)
        for n_turns in range(int(self.max_iter) + 1):
            ends = pool.extremes(basis, n_low=1)
            distortion = 1.0 - float(ends.low[0])
            best.see(basis, distortion)
            task.tell(n_turns, distortion)
            if task.clock.is_over:
                break
            direction = pool.directions(ends.low_pairs)[0]
            basis = turn_towards(basis, direction, self.step)
        status = task.status(Status.COMPLETED)
        return FoundMap(columns=best.item, n_iter=n_turns, status=status)

    def _start(self, task: Task) -> Array:
        """Return the basis to start from."""
        if self.init == "random":
            size = (task.points.n_dims, self._k)
            return orthonormal(task.generator.normal(size=size))
        return task.principal_axes(self._k)


def turn_towards(basis: Array, direction: Array, step: float) -> Array:
    """Return the basis with one column mixed with what a unit direction lost.

    ``step`` is the share of the lost part in the new column. The columns stay
    orthonormal, and the direction keeps more than before.
    """
    image = basis.T @ direction
    kept = basis @ image
    # A basis of the same span, whose first column is along the image.
    turned = basis @ np.linalg.qr(image[:, None], mode="complete")[0]
    turned[:, 0] = (1.0 - step) * kept + step * (direction - kept)
    return orthonormal(turned)
