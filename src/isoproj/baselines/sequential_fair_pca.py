"""Fair PCA one component at a time, with every pair a group.

Given the components before it, each component is the direction that helps the pair
that has lost most so far. Multiplicative weights answer weights on the pairs with the
top eigenvector of their moment in the complement of those components.
"""

from __future__ import annotations

import numpy as np
import scipy.special

from isoproj.baselines.base import Baseline, Best, FoundMap, Task
from isoproj.estimators.base import check_positive
from isoproj.numerics.spectral import Array, canonical_signs, top_eigenpairs
from isoproj.pairs.moments import DualProblem
from isoproj.solvers.api import Status

# Rounds between two looks at the average answer and the average weights.
_LOOK_EVERY = 10


class SequentialFairPCA(Baseline):
    """Fair PCA one component at a time: nested subspaces, every pair a group.

    A reconstruction of the idea, not of the paper's code. Components are chosen one
    after the other; each one, orthogonal to those before it, is to leave the worst pair
    with the least loss. The first ``j`` components are therefore an answer for ``j``
    dimensions too, and a later one never changes an earlier one. For each component,
    multiplicative weights on the pairs solve the relaxation to mixtures of directions;
    the best direction met is taken, and the best weights prove how little any other
    choice of this component alone could have lost.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    rate : float, default=1.0
        Learning rate of the weights, relative to the largest share that a direction
        adds to a pair.
    max_iter : int, default=200
        Most rounds of weights for each component.
    tol : float, default=0.05
        Relative duality gap of a component's relaxation at which to go on to the next.
    time_limit : float or None, default=None
        Seconds after which the components left are the axes that keep most of all pairs
        together.
    verbose : int, default=0
        1 shows the present step in a line that is renewed; in logs, a line for each.
    pairs, random_state
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows, in the order in which they were chosen.
    losses_ : ndarray of shape (n_chosen,)
        Largest share lost with the first 1, 2, ... components, as found; shorter than
        ``n_components`` if time ran out.
    component_bounds_ : ndarray of shape (n_chosen,)
        No other choice of that component, after those before it, has a smaller loss, as
        found. The first one holds for every projection to one dimension; the others
        say nothing about other projections to as many dimensions.
    n_iter_ : int
        Rounds of all components together.
    distortion_, stretch_, worst_pairs_, status_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    FairPCA : All components at once.

    References
    ----------
    Consistent multigroup low-rank approximation. arXiv 2503.21563.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import SequentialFairPCA
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = SequentialFairPCA(n_components=3, tol=0.2, random_state=0).fit(X)
    >>> bool((np.diff(model.losses_) < 0.0).all())
    True
    """

    rate: float = 1.0
    max_iter: int = 200
    tol: float = 0.05

    def _check_parameters(self) -> None:
        check_positive("rate", self.rate, integral=False)

    def _search(self, task: Task) -> FoundMap:
        problem = task.dense_problem(type(self).__name__, 1)
        basis = np.empty((problem.coordinates.shape[1], 0))
        kept = np.zeros(problem.n_pairs)
        losses: list[float] = []
        bounds, n_rounds, status = [], 0, Status.CONVERGED
        while len(losses) < self._k and status is not Status.TIME_LIMIT:
            choice = _Choice(problem, basis, kept)
            ended = self._chosen(choice, task, n_rounds)
            status = status if ended is Status.CONVERGED else ended
            n_rounds += choice.n_rounds
            basis = np.column_stack([basis, choice.direction.item])
            kept = kept + problem.retained(choice.direction.item[:, None])
            losses.append(choice.direction.cost)
            bounds.append(-choice.weights.cost)
        if len(losses) < self._k:
            basis = _Choice(problem, basis, kept).completed(self._k)
        # Within the span the columns would be put in the order of their variances.
        columns = canonical_signs(task.points.frame.lift(basis).T).T
        return FoundMap(
            columns=columns,
            in_span=False,
            n_iter=n_rounds,
            status=status,
            extras={
                "losses_": np.array(losses),
                "component_bounds_": np.array(bounds),
            },
        )

    def _chosen(self, choice: _Choice, task: Task, n_before: int) -> Status:
        """Choose a component, and return why the search for it ended."""
        for number in range(1, int(self.max_iter) + 1):
            choice.play(self.rate)
            loss, bound = choice.direction.cost, -choice.weights.cost
            relaxed = 1.0 - float((choice.kept + choice.gains / number).min())
            # The bound is on one component after those before, so it is not told.
            task.tell(n_before + number, loss, relaxed=relaxed)
            if relaxed - bound <= self.tol * bound:
                return Status.CONVERGED
            if task.clock.is_over:
                return Status.TIME_LIMIT
        return Status.MAX_ITER


class _Choice:
    """The game for one component: weights on the pairs against single directions."""

    def __init__(self, problem: DualProblem, basis: Array, kept: Array) -> None:
        n = problem.n_pairs
        self.problem, self.basis, self.kept, self.n_rounds = problem, basis, kept, 0
        self.complement = np.linalg.qr(basis, mode="complete")[0][:, basis.shape[1] :]
        self.scale, self.gains, self.total_weights = 1e-300, np.zeros(n), np.zeros(n)
        self.total = np.zeros((self.complement.shape[1],) * 2)
        self.direction = Best(self.complement[:, 0])
        # Costs are to fall, so dual values are negated.
        self.weights = Best(np.full(n, 1.0 / n))

    def completed(self, k: int) -> Array:
        """Return ``k`` columns: those before, then the answers to equal weights."""
        moment = self._inside(self.weights.item)
        vectors = top_eigenpairs(moment, k - self.basis.shape[1])[1]
        return np.column_stack([self.basis, self.complement @ vectors])

    def play(self, rate: float) -> None:
        """Answer the weights with a direction and multiply them by what it leaves."""
        # The sums of all rounds so far, so that the weights are those of their average.
        sums = self.n_rounds * self.kept + self.gains
        weights = scipy.special.softmax(-rate / self.scale * sums)
        inside, gain = self._answer(weights)
        self.scale = max(self.scale, float(gain.max()))
        self.n_rounds += 1
        self.gains += gain
        self.total_weights += weights
        self.total += np.outer(inside, inside)
        if self.n_rounds % _LOOK_EVERY == 0:
            self._answer(self.total_weights / self.n_rounds)
            self._see(top_eigenpairs(self.total, 1)[1][:, 0])

    def _inside(self, weights: Array) -> Array:
        """Return the moment of the weighted pairs within the complement."""
        inside = self.complement.T @ self.problem.moment(weights) @ self.complement
        return np.asarray(inside)

    def _answer(self, weights: Array) -> tuple[Array, Array]:
        """Return the direction that keeps most of the weighted pairs and its gains."""
        values, vectors = top_eigenpairs(self._inside(weights), 1)
        bound = 1.0 - float(weights @ self.kept) - float(values[0])
        self.weights.see(weights, -bound)
        return vectors[:, 0], self._see(vectors[:, 0])

    def _see(self, inside: Array) -> Array:
        """Measure a direction of the complement; return what it adds to each pair."""
        direction = self.complement @ inside
        gain = self.problem.retained(direction[:, None])
        self.direction.see(direction, 1.0 - float((self.kept + gain).min()))
        return gain
