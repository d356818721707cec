"""NuMax: the fewest dimensions for a given two-sided tolerance.

``min tr P`` over ``P >= 0`` with ``|x^T P x - 1| <= delta`` for every direction ``x``.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import field, replace

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from isoproj.baselines.base import Baseline, FoundMap, Task, check_fraction
from isoproj.baselines.isometry import (
    Splitting,
    balanced,
    matrix_root,
    outside_band,
    union,
)
from isoproj.numerics.arrays import require
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import PairRule, label_codes
from isoproj.solvers.api import Clock, Status

# The band is narrowed by this share while solving, so that all pairs end inside it.
_MARGIN = 2e-3
# Pairs drawn for the first working set, pairs at either end that a look at all pairs
# returns, and the most working sets.
_N_START, _N_ENDS, _MAX_ROUNDS = 500, 500, 50


class NuMax(Baseline):
    """NuMax: a near-isometry of few dimensions for a tolerance ``delta``.

    NuMax finds the least trace of ``P`` with ``|x^T P x - 1| <= delta`` for all pair
    directions, by alternating directions with column generation. The number of
    dimensions is an output. The map is not orthonormal: it may stretch. The formulas
    are those of the code that the authors published, with two changes: the inner least
    squares are solved exactly instead of by ten steps of conjugate gradients, and the
    band is narrowed by 0.2 per cent while solving, so that all pairs end inside.

    Parameters
    ----------
    delta : float, default=0.4
        Every squared length is to stay within ``1 +- delta`` of itself.
    n_components : int or None, default=None
        None leaves the dimension to ``delta``. With a number, ``fit`` searches by
        bisection for the least ``delta`` that this number of dimensions reaches. Where
        no ``delta`` is reached, the leading rows are kept, scaled so that the largest
        loss equals the largest gain, with a warning.
    labelled : bool, default=False
        Whether ``fit`` takes class labels: pairs of one class may then shrink freely
        and pairs of two classes may grow freely.
    max_iter : int, default=1000
        Most alternating steps on one working set.
    tol : float, default=1e-4
        Relative residual at which a working set counts as solved.
    random_state : int, RandomState instance or None, default=None
        Draws the first working set.
    pairs, time_limit, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        The map; its rows are orthogonal, not of length 1.
    delta_ : float
        The tolerance solved for; NaN where ``n_components`` is out of reach.
    n_working_ : int
        Pairs in the last working set.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    NILEPro : Least deviation from an isometry, of given dimension.
    FroMax : Least norm within a band, of given dimension.

    References
    ----------
    Hegde, Sankaranarayanan, Yin and Baraniuk. IEEE TSP 63, 2015.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import NuMax
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = NuMax(delta=0.3, random_state=0).fit(X)
    >>> max(model.distortion_, model.stretch_) <= 0.3
    True
    """

    _keeps_span = False

    delta: float = field(default=0.4, kw_only=False)
    n_components: int | None = None
    labelled: bool = False
    max_iter: int = 1000
    tol: float = 1e-4

    def _check_parameters(self) -> None:
        check_fraction("delta", self.delta)

    def _search(self, task: Task) -> FoundMap:
        pool = task.pool(self._labels(task))

        def solve(delta: float) -> FoundMap:
            return self._solve(task, pool, delta)

        if self.n_components is None:
            return solve(float(self.delta))
        found = _least_delta(solve, self._k, task.clock)
        return (
            found if found.columns.shape[1] <= self._k else _cut(task, found, self._k)
        )

    def _solve(self, task: Task, pool: PairSearch, delta: float) -> FoundMap:
        """Return the map of least trace that keeps every pair within ``delta``.

        Pairs outside the working set that leave the band join, pairs well inside leave,
        until the band holds for all pairs.
        """
        rng = np.random.default_rng(task.generator.randint(2**31))
        pairs = pool.decode(pool.sample(_N_START, rng))
        splitting, tol = Splitting(pool, pairs, np.eye(pool.n_dims)), self.tol
        for number in range(_MAX_ROUNDS):
            factor = self._least_trace(splitting, delta, tol, task.clock)
            ends = pool.extremes(factor, n_low=_N_ENDS, n_high=_N_ENDS)
            distortion = 1.0 - float(ends.low[0]) if ends.low.size else 0.0
            task.tell(number, distortion, n_working=len(splitting.pairs))
            outside = outside_band(ends, delta)
            if not len(outside) or task.clock.is_over:
                break
            if len(union(splitting.pairs, outside)) == len(splitting.pairs):
                # All of them are known: what is missing is accuracy.
                tol = max(tol / 4.0, 1e-9)
            tight = splitting.pairs[_are_tight(splitting, delta)]
            splitting.take(union(tight, outside))
        is_within = not len(outside)
        return FoundMap(
            columns=factor,
            is_orthonormal=False,
            n_iter=splitting.n_iter,
            status=Status.CONVERGED if is_within else task.status(Status.MAX_ITER),
            extras={"delta_": delta, "n_working_": len(splitting.pairs)},
        )

    def _least_trace(
        self, splitting: Splitting, delta: float, tol: float, clock: Clock
    ) -> Array:
        """Return the root of the matrix of least trace on the working set."""
        delta = delta * (1.0 - _MARGIN)
        low, high = np.full((2, len(splitting.pairs)), [[1.0 - delta], [1.0 + delta]])
        if splitting.pool.labels is not None:
            is_same = np.equal(*splitting.pool.labels[splitting.pairs].T)
            low[is_same], high[~is_same] = -np.inf, np.inf
        # Alternating directions converge with steps below the golden ratio.
        splitting.alternate(
            lambda matrix: soft_threshold(matrix, 1.0),
            lambda values: np.clip(values, low, high),
            max_iter=int(self.max_iter),
            tol=tol,
            clock=clock,
            step=1.6,
        )
        return matrix_root(splitting.simple)

    def _labels(self, task: Task) -> Indices | None:
        """Return class numbers of all points, or None without labels."""
        if not self.labelled:
            return None
        what = "hold class labels when labelled=True"
        require(task.labels is not None, "y", None, what, "Pass y, or labelled=False.")
        rule = PairRule("labels", labels=task.labels)
        codes = label_codes(rule, int(task.rows.shape[0]))
        if task.points.n_points > codes.size:
            # The origin, the partner of every row taken as a direction.
            codes = np.append(codes, -1)
        return codes


def _are_tight(splitting: Splitting, delta: float) -> NDArray[np.bool_]:
    """Return which pairs are near the band's edge or have a multiplier."""
    off = np.abs(splitting.values - 1.0)
    near = np.abs(off - delta) < delta / 100.0
    return np.asarray(near | (np.abs(splitting.values_dual) > 1e-9))


def soft_threshold(matrix: Array, amount: float) -> Array:
    """Return the proximal point of ``amount * trace`` over semidefinite matrices."""
    values, vectors = np.linalg.eigh(matrix)
    kept = values > amount
    return np.asarray((vectors[:, kept] * (values[kept] - amount)) @ vectors[:, kept].T)


def _least_delta(solve: Callable[[float], FoundMap], k: int, clock: Clock) -> FoundMap:
    """Return the map of the least tolerance, to about 1 %, that ``k`` columns reach.

    Where no tolerance is reached, the map has more than ``k`` columns.
    """
    # Where only the lower edge of the band binds, another delta rescales the same map.
    low, high = 0.0, 0.9
    best = solve(high)
    if best.columns.shape[1] > k:
        return best
    while high - low > 0.01 * high and not clock.is_over:
        middle = (low + high) / 2.0
        found = solve(middle)
        if found.columns.shape[1] <= k and found.status is Status.CONVERGED:
            high, best = middle, found
        else:
            low = middle
    return replace(best, status=Status.TIME_LIMIT) if clock.is_over else best


def _cut(task: Task, found: FoundMap, k: int) -> FoundMap:
    """Return the leading columns of a map that has too many."""
    rank, columns = found.columns.shape[1], found.columns[:, :k]
    columns, _ = balanced(columns, task.pool().extremes(columns, n_low=1, n_high=1))
    extras = found.extras | {"delta_": math.nan}
    found = replace(found, columns=columns, extras=extras)
    if found.status is Status.TIME_LIMIT:
        return found
    msg = (
        f"NuMax's map of least trace has {rank} dimensions at every large delta; its "
        f"leading n_components={k} are kept and miss the band. Raise n_components."
    )
    warnings.warn(msg, ConvergenceWarning, stacklevel=4)
    return replace(found, status=Status.COMPLETED)
