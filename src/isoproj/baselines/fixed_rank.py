"""What NILE-Pro and FroMax share: a search for a near-isometry of given dimension."""

from __future__ import annotations

from abc import ABC, abstractmethod

from isoproj.baselines.base import Best, FoundMap, Task
from isoproj.baselines.isometry import balanced, union
from isoproj.numerics.spectral import Array, top_eigenpairs
from isoproj.pairs.oracle import Extremes
from isoproj.solvers.api import Status

# Alternating steps between two looks at all pairs.
STEPS_PER_ROUND = 25
# Pairs at either end that a look at all pairs returns.
_N_ENDS = 300
# Rounds without a better map after which the search is over.
_PATIENCE = 6


class FixedRankSearch(ABC):
    """Rounds that start at the principal directions of all pairs.

    A round proposes a map, sees what it does to all pairs, and takes pairs that it
    treats worst into the working set, ``pairs``. Neither problem is convex, so the map
    nearest to an isometry is kept, scaled so that its largest loss equals its largest
    gain.
    """

    def __init__(self, task: Task, k: int) -> None:
        self.task, self.pool, self.n_iter = task, task.pool(), 0
        basis = top_eigenpairs(self.pool.uniform_moment(), k)[1]
        ends = self.pool.extremes(basis, n_low=2 * _N_ENDS, n_high=_N_ENDS)
        self.nearest = Best(basis)
        self.nearest.see(*balanced(basis, ends))
        self.pairs = union(ends.low_pairs, ends.high_pairs)

    @abstractmethod
    def propose(self) -> Array:
        """Return a map of shape (n_dims, k) after some steps on the working set."""

    @abstractmethod
    def respond(self, ends: Extremes) -> None:
        """Take in pairs that a map treats worst."""

    @property
    def best(self) -> Best[Array]:
        """The map to return."""
        return self.nearest

    def judge(self, factor: Array, ends: Extremes) -> None:
        """Keep the map if it is the best so far."""
        self.nearest.see(*balanced(factor, ends))

    def search(self, max_iter: int) -> FoundMap:
        """Take at most about ``max_iter`` alternating steps and return the best map."""
        for number in range(max(1, max_iter // STEPS_PER_ROUND)):
            factor = self.propose()
            ends = self.pool.extremes(factor, n_low=_N_ENDS, n_high=_N_ENDS)
            self.judge(factor, ends)
            self.task.tell(number, self.nearest.cost, n_working=len(self.pairs))
            if self.best.stale >= _PATIENCE or self.task.clock.is_over:
                break
            self.respond(ends)
        return FoundMap(
            columns=self.best.item,
            is_orthonormal=False,
            n_iter=self.n_iter,
            status=self.task.status(Status.COMPLETED),
            extras={"n_working_": len(self.pairs)},
        )
