"""Fair PCA with every pair a group: multiplicative weights, then rank reduction.

Every pair is a "group" whose share kept is ``x^T P x``; the least favoured group is to
do best. Multiplicative weights answer weights on the pairs with the top eigenvectors of
their moment, and average the answers on the fantope. Rank reduction then walks to a
vertex of the face on which no tight pair changes.
"""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass

import numpy as np

from isoproj.baselines.base import Baseline, Found, Task
from isoproj.baselines.fantope import FractionalProjection
from isoproj.baselines.game import Game, Standing, kept_by, weights_of
from isoproj.baselines.rounds import Best
from isoproj.estimators.base import check_positive
from isoproj.estimators.descriptions import described_by
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.moments import DualProblem
from isoproj.solvers.api import Clock

# Eigenvalues this close to 0 or 1, and shares this close to the least, count as equal.
_INTEGRAL = 1e-9
# Rounds between two looks at the average of the weights.
_AVERAGE_EVERY = 10


@described_by(Baseline)
@dataclass(eq=False, repr=False)
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

    _: KW_ONLY
    rate: float = 3.0
    max_iter: int = 500
    tol: float = 1e-3

    def _check_parameters(self) -> None:
        check_positive("max_iter", self.max_iter, integral=True)

    def _search(self, task: Task) -> Found:
        problem = task.dense_problem(type(self).__name__, self._k)
        game = _Game(problem, rate=self.rate)
        status = game.play(max_iter=int(self.max_iter), tol=self.tol, clock=task.clock)
        reduced = reduce_rank(problem, game.average, clock=task.clock)
        rounded = FractionalProjection.of(reduced)
        basis = rounded.leading(self._k)
        game.basis.see(basis, 1.0 - float(problem.retained(basis).min()))
        inside = (rounded.values > 1e-6) & (rounded.values < 1.0 - 1e-6)
        return Found(
            columns=game.basis.item,
            n_iter=game.n_rounds,
            status=status,
            **game.proof,
            extras={
                "relaxed_": 1.0 - float(problem.retained(rounded.root).min()),
                "n_fractional_": int(inside.sum()),
            },
        )


class _Game(Game):
    """Multiplicative weights on the pairs against the bases that answer them."""

    def __init__(self, problem: DualProblem, *, rate: float) -> None:
        super().__init__(problem, rate=rate)
        n, d = problem.n_pairs, problem.coordinates.shape[1]
        self.logs, self.total_kept = np.zeros(n), np.zeros(n)
        self.total = np.zeros((d, d))
        self.basis = Best(np.empty((d, 0)))
        self.distortion = 1.0

    @property
    def average(self) -> Array:
        """The average of the answers, a matrix of the fantope."""
        return self.total / self.n_rounds

    def _round(self) -> None:
        """Answer the weights, and multiply them by what the answer leaves."""
        weights = weights_of(self.logs)
        lower, basis = self.problem.dual(weights)
        kept = self.problem.retained(basis)
        self.n_rounds += 1
        self.total += basis @ basis.T
        self.total_kept += kept
        self.total_weights += weights
        self.logs -= self.rate * kept
        self.distortion = 1.0 - float(kept.min())
        self.basis.see(basis, self.distortion)
        self.weights.see(weights, -lower)
        if self.n_rounds % _AVERAGE_EVERY == 0:
            # The average of the weights often proves more than any one of them.
            average = self.total_weights / self.n_rounds
            self.weights.see(average, -self.problem.dual(average)[0])

    def _look(self) -> Standing:
        relaxed = 1.0 - float(self.total_kept.min()) / self.n_rounds
        return Standing(self.distortion, relaxed)


def reduce_rank(
    problem: DualProblem, relaxed: Array, *, clock: Clock, max_iter: int = 1000
) -> Array:
    """Return a matrix of the fantope of lower rank whose worst pair keeps as much.

    With ``P = Q1 S Q1^T + Q2 Q2^T``, ``S`` holding the eigenvalues strictly between 0
    and 1, any symmetric change of ``S`` that is orthogonal to the identity and to all
    tight pairs leaves trace and worst pair as they are. One exists while the number of
    tight pairs plus one is below ``s (s + 1) / 2``. It is followed until an eigenvalue
    reaches 0 or 1, or another pair becomes tight.
    """
    if clock.is_over:
        return relaxed
    floor = float(kept_by(problem, relaxed).min())
    for _ in range(max_iter):
        values, vectors = np.linalg.eigh(relaxed)
        inside = (values > _INTEGRAL) & (values < 1.0 - _INTEGRAL)
        frame, shares = vectors[:, inside], values[inside]
        kept = kept_by(problem, relaxed)
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
            _until_tight(kept - floor, _kept_change(problem, frame, move), tight),
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


def _kept_change(problem: DualProblem, frame: Array, move: Array) -> Array:
    """Return by how much a move changes the share that every pair keeps."""
    values, vectors = np.linalg.eigh(move)
    root = (frame @ vectors) * np.sqrt(np.abs(values))
    up = problem.retained(root[:, values > 0.0])
    down = problem.retained(root[:, values < 0.0])
    return np.asarray(up - down)


def _free_move(
    problem: DualProblem, frame: Array, shares: Array, tight: Indices
) -> Array | None:
    """Return a symmetric change that alters neither the trace nor any tight pair."""
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
    """Return the largest ``t`` for which ``S + t move`` lies between 0 and I."""
    low = move / np.sqrt(np.outer(shares, shares))
    high = move / np.sqrt(np.outer(1.0 - shares, 1.0 - shares))
    fall = -float(np.linalg.eigvalsh(low)[0])
    rise = float(np.linalg.eigvalsh(high)[-1])
    steepest = max(fall, rise)
    return 1.0 / steepest if steepest > 0.0 else math.inf


def _until_tight(slack: Array, change: Array, tight: Indices) -> float:
    """Return the largest step before another pair becomes tight."""
    falling = change < 0.0
    falling[tight] = False
    if not falling.any():
        return math.inf
    return float((slack[falling] / -change[falling]).min())
