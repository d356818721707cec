"""FroMax: the shortest map of a given dimension within a band, reconstructed."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np
import scipy.sparse.linalg

from isoproj.baselines.base import Baseline, Found, Task, check_fraction
from isoproj.baselines.fixed_rank import STEPS_PER_ROUND, FixedRankRounds
from isoproj.baselines.isometry import clip_to_band, outside_band
from isoproj.baselines.rounds import Best
from isoproj.estimators.base import check_positive
from isoproj.estimators.descriptions import described_by
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import Extremes
from isoproj.solvers.api import Status


@described_by(Baseline)
@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    delta: float = 0.4
    penalty: float = 1.0
    max_iter: int = 300

    def _check_parameters(self) -> None:
        check_fraction("delta", self.delta)
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        factors = _Factors(task, self._k, float(self.delta), self.penalty)
        return factors.search(int(self.max_iter))


class _Factors(FixedRankRounds):
    """Least ``|F|^2 / 2`` within the band, with two copies of ``F`` as factors.

    The copies are updated in turn by ridge regression. The shortest map within the band
    (to one part in a hundred) is kept beside the nearest.
    """

    def __init__(self, task: Task, k: int, delta: float, penalty: float) -> None:
        super().__init__(task, k)
        self.delta, self.penalty, self.n_steps = delta, penalty, 0
        self.left = self.right = self.nearest.item
        self.shortest = Best(self.left)
        self.gap_dual = np.zeros_like(self.left)
        self._take(self.pairs, np.zeros(self.pairs.shape[0]))

    @property
    def n_iter(self) -> int:
        """Alternating steps taken."""
        return self.n_steps

    @property
    def best(self) -> Best[Array]:
        """The shortest map within the band; before there is one, the nearest."""
        return self.nearest if math.isinf(self.shortest.cost) else self.shortest

    def propose(self) -> Array:
        """Return the mean of both copies after some steps on the working set."""
        for _ in range(STEPS_PER_ROUND):
            self.step()
            if self.clock.is_over:
                break
        return (self.left + self.right) / 2.0

    def judge(self, factor: Array, ends: Extremes) -> Status | None:
        """Keep the map also if it is the shortest within the band."""
        off = max(1.0 - float(ends.low[0]), float(ends.high[0]) - 1.0)
        # Alternating steps approach the band's edge from outside.
        is_within = off <= self.delta * 1.01
        norm = float((factor**2).sum())
        self.shortest.see(factor, norm if is_within else math.inf)
        return super().judge(factor, ends)

    def respond(self, ends: Extremes) -> None:
        """Take in pairs outside the band; let go of those that no longer pull."""
        outside, n = outside_band(ends, self.delta), self.pool.points.n_points
        # One violation of 1e-6 is a pull; what decayed below it is not.
        pulls = np.abs(self.values_dual) > 1e-6
        held, duals = self.pairs[pulls], self.values_dual[pulls]
        fresh = ~np.isin(outside @ [n, 1], held @ [n, 1])
        self._take(
            np.concatenate([held, outside[fresh]]),
            np.concatenate([duals, np.zeros(int(fresh.sum()))]),
        )

    def _take(self, pairs: Indices, values_dual: Array) -> None:
        """Adopt a working set with its multipliers."""
        self.pairs, self.values_dual = pairs, values_dual
        self.directions = self.pool.directions(pairs)

    def step(self) -> None:
        """Update forms, both copies and the multipliers once."""
        forms = self._forms()
        values = clip_to_band(forms + self.values_dual, self.delta, None)
        target = values - self.values_dual
        self.left = self._ridge(self.right, target, self.right - self.gap_dual)
        self.right = self._ridge(self.left, target, self.left + self.gap_dual)
        self.values_dual = self.values_dual + self._forms() - values
        self.gap_dual = self.gap_dual + self.left - self.right
        self.n_steps += 1

    def _forms(self) -> Array:
        """Return ``x^T F G^T x`` for the two copies, one per pair."""
        left, right = self.directions @ self.left, self.directions @ self.right
        return np.asarray(np.einsum("ij,ij->i", left, right))

    def _ridge(self, other: Array, target: Array, near: Array) -> Array:
        """Return one copy given the other; each bears half of the squared norm."""
        images = self.directions @ other
        shrunk = near * (self.penalty / (self.penalty + 0.5))
        ridge = (self.penalty + 0.5) / self.penalty

        def spread(pull: Array) -> Array:
            return np.asarray(self.directions.T @ (pull[:, None] * images))

        def system(pull: Array) -> Array:
            forms = np.einsum("ij,ij->i", self.directions @ spread(pull), images)
            return np.asarray(forms + ridge * pull)

        m = images.shape[0]
        held = np.einsum("ij,ij->i", self.directions @ shrunk, images)
        # An inexact solve is enough: the next step starts from its result.
        pull, _ = scipy.sparse.linalg.cg(
            scipy.sparse.linalg.LinearOperator((m, m), matvec=system, dtype=float),
            target - held,
            rtol=1e-6,
            maxiter=20,
        )
        return np.asarray(shrunk + spread(pull))
