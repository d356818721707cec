"""Games between weights on the pairs and projections that answer them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import numpy as np

from isoproj.baselines.fantope import FractionalProjection
from isoproj.baselines.rounds import Best
from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array
from isoproj.pairs.moments import DualProblem
from isoproj.solvers.api import Clock, Status


class Standing(NamedTuple):
    """The distortion of an answer, and the value of the average answer."""

    distortion: float
    relaxed: float


class Game(ABC):
    """Rounds whose average answer approaches the best dual value of the weights."""

    # Rounds between two looks at the averages.
    look_every: ClassVar[int] = 1
    # Whether the dual value bounds the distortion of every projection.
    is_bound: ClassVar[bool] = True

    def __init__(self, problem: DualProblem, *, rate: float) -> None:
        n = problem.n_pairs
        self.problem, self.rate, self.n_rounds = problem, rate, 0
        self.total_weights = np.zeros(n)
        # Dual values are negated, because the best item costs least.
        self.weights = Best(np.full(n, 1.0 / n))

    def play(
        self, *, max_iter: int, tol: float, clock: Clock, n_before: int = 0
    ) -> Status:
        """Play until the average's value is within ``tol`` of the best dual value."""
        for iteration in range(1, max_iter + 1):
            self._round()
            is_last = iteration == max_iter or clock.is_over
            if iteration % self.look_every and not is_last:
                continue
            found = self._look()
            lower = -self.weights.cost
            step = Step(
                iteration=n_before + iteration,
                distortion=found.distortion,
                lower_bound=lower if self.is_bound else 0.0,
                seconds=clock.seconds,
                relaxed=found.relaxed,
            )
            tell(step)
            if found.relaxed - lower <= tol * lower:
                return Status.CONVERGED
            if clock.is_over:
                return Status.TIME_LIMIT
        return Status.MAX_ITER

    @abstractmethod
    def _round(self) -> None:
        """Answer the weights, and change them by what the answer keeps."""

    @abstractmethod
    def _look(self) -> Standing:
        """Measure the answers so far."""

    @property
    def proof(self) -> dict[str, Any]:
        """The best weights and their pairs, as parts of what a method found."""
        support = np.flatnonzero(self.weights.item)
        return {
            "weighted_pairs": self.problem.pairs(support),
            "weights": self.weights.item[support],
        }


def weights_of(logs: Array) -> Array:
    """Return weights with the given logarithms, scaled to sum 1."""
    weights = np.exp(logs - logs.max())
    return np.asarray(weights / weights.sum())


def kept_by(problem: DualProblem, matrix: Array) -> Array:
    """Return the share that every pair keeps under a matrix of the fantope."""
    return problem.retained(FractionalProjection.of(matrix).root)
