"""Secant-avoidance projection, which has our own objective.

Each step finds the most shrunk direction ``s``, rotates the basis so that the image of
``s`` lies along its first column, and mixes a little of what was lost,
``s - V V^T s``, into that column.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass

import numpy as np
import scipy.linalg

from isoproj.baselines.base import Baseline, Found, Task, check_choice, check_fraction
from isoproj.baselines.rounds import Best, Rounds
from isoproj.estimators.base import check_positive
from isoproj.estimators.descriptions import described_by
from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Status


@described_by(Baseline)
@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    step: float = 0.05
    init: str = "pca"
    max_iter: int = 200

    def _check_parameters(self) -> None:
        check_choice("init", self.init, ("pca", "random"))
        check_fraction("step", self.step)
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        pool = task.pool()
        turns = _Turns(pool, self._start(task), self.step)
        status = turns.run(
            pool,
            max_rounds=int(self.max_iter) + 1,
            clock=task.clock,
            exhausted=Status.COMPLETED,
        )
        return Found(columns=turns.best.item, n_iter=turns.n_iter, status=status)

    def _start(self, task: Task) -> Array:
        """Return the basis to start from."""
        if self.init == "random":
            normal = task.generator.normal(size=(task.points.n_dims, self._k))
            return np.asarray(scipy.linalg.qr(normal, mode="economic")[0])
        return task.principal_axes(self._k)


class _Turns(Rounds):
    """Turns of a basis, each towards the pair that the basis keeps least of."""

    n_low, n_high = 1, 0

    def __init__(self, pool: PairSearch, basis: Array, step: float) -> None:
        self.pool, self.basis, self.step = pool, basis, step
        self.best = Best(basis)
        self.n_iter = 0

    def propose(self) -> Array:
        """Return the basis."""
        return self.basis

    def judge(self, factor: Array, ends: Extremes) -> None:
        """Keep the basis if its worst pair loses least so far."""
        self.distortion = 1.0 - float(ends.low[0])
        self.best.see(factor, self.distortion)

    def respond(self, ends: Extremes) -> None:
        """Turn the basis towards its worst pair."""
        direction = self.pool.directions(ends.low_pairs)[0]
        self.basis = turn_towards(self.basis, direction, self.step)
        self.n_iter += 1


def turn_towards(basis: Array, direction: Array, step: float) -> Array:
    """Return the basis with one column mixed with what a unit direction lost.

    ``step`` is the share of the lost part in the new column. The columns stay
    orthonormal, and the direction keeps more than before.
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
