"""What NILE-Pro and FroMax share: a search for a near-isometry of given dimension."""

from __future__ import annotations

from abc import abstractmethod

from isoproj.baselines.base import Found, Task
from isoproj.baselines.isometry import balanced, principal_start
from isoproj.baselines.rounds import Best, Rounds, union
from isoproj.numerics.spectral import Array
from isoproj.pairs.oracle import Extremes
from isoproj.solvers.api import Status

# Alternating steps between two looks at all pairs.
STEPS_PER_ROUND = 25
# Rounds without a better map after which the search is over.
_PATIENCE = 6


class FixedRankRounds(Rounds):
    """Rounds that start at the principal directions of all pairs.

    Neither problem is convex, so the map nearest to an isometry is kept, scaled so that
    its largest loss equals its largest gain. ``pairs`` is the working set.
    """

    n_low = n_high = 300

    def __init__(self, task: Task, k: int) -> None:
        self.pool, self.clock = task.pool(), task.clock
        basis, ends = principal_start(
            self.pool, k, n_low=2 * self.n_low, n_high=self.n_high
        )
        self.nearest = Best(basis)
        self.nearest.see(*balanced(basis, ends))
        self.pairs = union(ends.low_pairs, ends.high_pairs)

    @property
    @abstractmethod
    def n_iter(self) -> int:
        """Alternating steps taken."""

    @property
    def best(self) -> Best[Array]:
        """The map to return."""
        return self.nearest

    def judge(self, factor: Array, ends: Extremes) -> Status | None:
        """Keep the map if it is the best so far; stop without progress."""
        self.nearest.see(*balanced(factor, ends))
        self.distortion = self.nearest.cost
        return Status.COMPLETED if self.best.stale >= _PATIENCE else None

    def search(self, max_iter: int) -> Found:
        """Take at most about ``max_iter`` alternating steps and return the best map."""
        status = self.run(
            self.pool,
            max_rounds=max(1, max_iter // STEPS_PER_ROUND),
            clock=self.clock,
            exhausted=Status.COMPLETED,
        )
        return Found(
            columns=self.best.item,
            is_orthonormal=False,
            n_iter=self.n_iter,
            status=status,
            extras={"n_working_": self.pairs.shape[0]},
        )
