"""Fair PCA with every pair a group: multiplicative weights, then rank reduction.

Every pair is a "group" whose share kept is ``x^T P x``; the least favoured group is to
do best. Multiplicative weights answer weights on the pairs with the top eigenvectors of
their moment, and average the answers on the fantope. Rank reduction then walks to a
vertex of the face on which no tight pair changes.
"""

from __future__ import annotations

import math

import numpy as np
import scipy.linalg
import scipy.special

from isoproj.baselines.base import Baseline, Best, FoundMap, Task, proof_by
from isoproj.baselines.fantope import FractionalProjection
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.directions import normalised
from isoproj.pairs.moments import DualProblem
from isoproj.solvers.api import Clock, Status

# Eigenvalues this close to 0 or 1, and shares this close to the least, count as equal.
_INTEGRAL = 1e-9


class FairPCA(Baseline):
    """Fair PCA with every pair a group: the pair that keeps least keeps most.

    Multiplicative weights on the fantope run until the duality gap is small. Then come
    the rank reduction over tight pairs of Tantipongpipat et al. and the leading
    eigenvectors. The best of the rounded average and all iterates is returned; Samadi
    et al. return the better of the average and the last iterate.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    rate : float, default=3.0
        Learning rate of the weights; beyond about 10 they swing without settling.
    max_iter : int, default=500
        Most rounds of weights.
    tol : float, default=1e-3
        Relative duality gap at which to stop.
    pairs, time_limit, random_state, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    lower_bound_ : float
        No projection to as many dimensions has a smaller distortion; certified from
        the weights.
    relaxed_ : float
        Distortion of the fractional projection before rounding, as found.
    n_fractional_ : int
        Its eigenvalues strictly between 0 and 1 after rank reduction.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    SDPProjection : The same relaxation by semidefinite programming.
    SequentialFairPCA : One component at a time, so that answers are nested.
    StablePCA : The same relaxation by mirror-prox.

    References
    ----------
    Samadi et al. 2018.

    Tantipongpipat et al. 2019. arXiv 1902.11281.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import FairPCA
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = FairPCA(n_components=3, rate=0.5, tol=0.2, random_state=0).fit(X)
    >>> model.lower_bound_ <= model.distortion_
    True
    """

    rate: float = 3.0
    max_iter: int = 500
    tol: float = 1e-3

    def _search(self, task: Task) -> FoundMap:
        problem = task.dense_problem(type(self).__name__, self._k)
        n, d = problem.n_pairs, problem.coordinates.shape[1]
        total_kept, total_weights, total = np.zeros(n), np.zeros(n), np.zeros((d, d))
        best, dual = Best(np.empty((d, 0))), Best(np.full(n, 1.0 / n))
        for n_rounds in range(1, int(self.max_iter) + 1):
            weights = scipy.special.softmax(-self.rate * total_kept)
            lower, basis = problem.dual(weights)
            kept = problem.retained(basis)
            total += basis @ basis.T
            total_kept += kept
            total_weights += weights
            distortion = 1.0 - float(kept.min())
            best.see(basis, distortion)
            # Costs are to fall, so dual values are negated.
            dual.see(weights, -lower)
            if n_rounds % 10 == 0:
                # The average of the weights often proves more than any one of them.
                average = total_weights / n_rounds
                dual.see(average, -problem.dual(average)[0])
            relaxed = 1.0 - float(total_kept.min()) / n_rounds
            bound = -dual.cost
            task.tell(n_rounds, distortion, bound, relaxed=relaxed)
            is_solved = relaxed - bound <= self.tol * bound
            if is_solved or task.clock.is_over:
                break
        status = Status.CONVERGED if is_solved else task.status(Status.MAX_ITER)
        reduced = reduce_rank(problem, total / n_rounds, clock=task.clock)
        rounded = FractionalProjection.of(reduced)
        basis = rounded.leading(self._k)
        best.see(basis, 1.0 - float(problem.retained(basis).min()))
        inside = (rounded.values > 1e-6) & (rounded.values < 1.0 - 1e-6)
        return FoundMap(
            columns=best.item,
            n_iter=n_rounds,
            status=status,
            proof=proof_by(problem, dual.item),
            extras={
                "relaxed_": 1.0 - float(problem.retained(rounded.root).min()),
                "n_fractional_": int(inside.sum()),
            },
        )


def reduce_rank(problem: DualProblem, relaxed: Array, *, clock: Clock) -> Array:
    """Return a matrix of the fantope of lower rank whose worst pair keeps as much.

    With ``P = Q1 S Q1^T + Q2 Q2^T``, ``S`` holding the eigenvalues strictly between 0
    and 1, any symmetric change of ``S`` that is orthogonal to the identity and to all
    tight pairs leaves trace and worst pair as they are. One exists while the number of
    tight pairs plus one is below ``s (s + 1) / 2``. It is followed until an eigenvalue
    reaches 0 or 1, or another pair becomes tight.
    """
    # A step removes an eigenvalue or adds a tight pair, so that few are needed.
    for _ in range(1000):
        if clock.is_over:
            break
        fractional = FractionalProjection.of(relaxed)
        kept = problem.retained(fractional.root)
        slack = kept - kept.min()
        tight = np.flatnonzero(slack <= _INTEGRAL)
        values = fractional.values
        inside = (values > _INTEGRAL) & (values < 1.0 - _INTEGRAL)
        frame, shares = fractional.vectors[:, inside], values[inside]
        if tight.size + 1 >= shares.size * (shares.size + 1) // 2:
            break
        move = _free_move(problem, frame, shares, tight)
        moved = relaxed + _reach(shares, move) * frame @ move @ frame.T
        lost = kept - problem.retained(FractionalProjection.of(moved).root)
        lost[tight] = 0.0
        # The step ends before another pair keeps less than those that are tight.
        is_short = lost > slack
        share = (slack[is_short] / lost[is_short]).min(initial=1.0)
        relaxed = relaxed + share * (moved - relaxed)
    return relaxed


def _free_move(
    problem: DualProblem, frame: Array, shares: Array, tight: Indices
) -> Array:
    """Return a symmetric change that alters neither the trace nor any tight pair."""
    size = shares.size
    rows, columns = np.triu_indices(size)
    # Off-diagonal entries count twice in an inner product of symmetric matrices.
    root = np.where(rows == columns, 1.0, math.sqrt(2.0))
    first, second = problem.pairs(tight).T
    gaps = problem.coordinates[first] - problem.coordinates[second]
    images = normalised(gaps) @ frame
    forms = images[:, rows] * images[:, columns] * root
    normals = np.vstack([rows == columns, forms]).T
    # Pushing apart what is above and below one half drives eigenvalues to 0 and 1.
    wish = np.where(rows == columns, (shares - 0.5)[rows], 0.0)
    wish += 1e-6 * np.random.default_rng(0).normal(size=wish.size)
    free = wish - normals @ np.linalg.lstsq(normals, wish, rcond=None)[0]
    move = np.zeros((size, size))
    move[rows, columns] = move[columns, rows] = free / root
    return move


def _reach(shares: Array, move: Array) -> float:
    """Return the largest ``t`` for which ``S + t move`` lies between 0 and I."""
    fall = -scipy.linalg.eigvalsh(move, np.diag(shares))[0]
    rise = scipy.linalg.eigvalsh(move, np.diag(1.0 - shares))[-1]
    return 1.0 / float(max(fall, rise))
