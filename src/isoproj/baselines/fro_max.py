"""FroMax: the shortest map of a given dimension within a band, reconstructed."""

from __future__ import annotations

import math

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsqr

from isoproj.baselines.base import Baseline, Best, FoundMap, Task, check_fraction
from isoproj.baselines.fixed_rank import STEPS_PER_ROUND, FixedRankSearch
from isoproj.baselines.isometry import carried, outside_band, union
from isoproj.numerics.spectral import Array
from isoproj.pairs.oracle import Extremes


class FroMax(Baseline):
    """FroMax: the map of least Frobenius norm that stays within a tolerance.

    The map is not orthonormal. Only the abstract of Luo et al. was available. It names
    Frobenius norm minimisation, a factorisation like that of non-negative matrix
    factorisation, and alternating directions. The ridge steps, the start at principal
    components and the working set are ours.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    delta : float, default=0.4
        Every squared length is to stay within ``1 +- delta`` of itself. Where
        ``n_components`` dimensions do not reach that, the nearest map met is returned,
        scaled so that its largest loss equals its largest gain.
    penalty : float, default=1.0
        Penalty of the alternating directions, above 0.
    max_iter : int, default=300
        Most alternating steps.
    pairs, time_limit, random_state, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        The map.
    n_working_ : int
        Pairs in the last working set.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    NILEPro : Least deviation from an isometry, of given dimension.
    NuMax : Fewest dimensions for a given band.

    References
    ----------
    Luo, Shapiro, Shi, Yang and Zhu. arXiv 1601.00062.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import FroMax
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> FroMax(n_components=5, delta=0.4).fit(X).distortion_ < 0.45
    True
    """

    delta: float = 0.4
    penalty: float = 1.0
    max_iter: int = 300

    def _check_parameters(self) -> None:
        check_fraction("delta", self.delta)

    def _search(self, task: Task) -> FoundMap:
        factors = _Copies(task, self._k, float(self.delta), self.penalty)
        return factors.search(int(self.max_iter))


class _Copies(FixedRankSearch):
    """Least ``|F|^2 / 2`` within the band, with two copies of ``F`` as factors.

    The copies are updated in turn by ridge regression. The shortest map within the band
    (to one part in a hundred) is kept beside the nearest.
    """

    def __init__(self, task: Task, k: int, delta: float, penalty: float) -> None:
        super().__init__(task, k)
        self.delta, self.penalty = delta, penalty
        self.left = self.right = self.nearest.item
        self.shortest = Best(self.left)
        self.gap_dual = np.zeros_like(self.left)
        self.values_dual = np.zeros(len(self.pairs))
        self.directions = self.pool.directions(self.pairs)

    @property
    def best(self) -> Best[Array]:
        """The shortest map within the band; before there is one, the nearest."""
        return self.nearest if math.isinf(self.shortest.cost) else self.shortest

    def propose(self) -> Array:
        """Return the mean of both copies after some steps on the working set."""
        for _ in range(STEPS_PER_ROUND):
            self._step()
            if self.task.clock.is_over:
                break
        return (self.left + self.right) / 2.0

    def judge(self, factor: Array, ends: Extremes) -> None:
        """Keep the map also if it is the shortest within the band."""
        super().judge(factor, ends)
        off = max(1.0 - float(ends.low[0]), float(ends.high[0]) - 1.0)
        # Alternating steps approach the band's edge from outside.
        is_within = off <= self.delta * 1.01
        self.shortest.see(factor, float((factor**2).sum()) if is_within else math.inf)

    def respond(self, ends: Extremes) -> None:
        """Take in pairs outside the band; let go of those that no longer pull."""
        # One violation of 1e-6 is a pull; what decayed below it is not.
        pulling = self.pairs[np.abs(self.values_dual) > 1e-6]
        pairs = union(pulling, outside_band(ends, self.delta))
        self.values_dual = carried(
            self.pool, self.pairs, self.values_dual, pairs, np.zeros(len(pairs))
        )
        self.pairs, self.directions = pairs, self.pool.directions(pairs)

    def _step(self) -> None:
        """Update forms, both copies and the multipliers once."""
        forms = self._forms()
        values = np.clip(forms + self.values_dual, 1.0 - self.delta, 1.0 + self.delta)
        target = values - self.values_dual
        self.left = self._ridge(self.right, target, self.right - self.gap_dual)
        self.right = self._ridge(self.left, target, self.left + self.gap_dual)
        self.values_dual += self._forms() - values
        self.gap_dual += self.left - self.right
        self.n_iter += 1

    def _forms(self) -> Array:
        """Return ``x^T F G^T x`` for the two copies, one per pair."""
        images = (self.directions @ self.left) * (self.directions @ self.right)
        return np.asarray(images.sum(axis=1))

    def _ridge(self, other: Array, target: Array, near: Array) -> Array:
        """Return one copy given the other; each bears half of the squared norm."""
        images, ridge = self.directions @ other, 1.0 + 0.5 / self.penalty

        def forms(copy: Array) -> Array:
            own = self.directions @ copy.reshape(other.shape)
            return np.asarray((own * images).sum(axis=1))

        def spread(pull: Array) -> Array:
            return (self.directions.T @ (pull[:, None] * images)).ravel()

        # The copy is this one, shrunk for its norm, and a change. An inexact change is
        # enough: the next step starts from its result.
        shrunk = near / ridge
        shape = (len(images), other.size)
        change = lsqr(
            LinearOperator(shape, matvec=forms, rmatvec=spread, dtype=float),
            target - forms(shrunk),
            damp=math.sqrt(ridge),
            iter_lim=20,
        )[0]
        return np.asarray(shrunk + change.reshape(other.shape))
