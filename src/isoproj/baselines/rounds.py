"""The loop of methods that look at all pairs once a round, and the best they met."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np

from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import Extremes, PairSearch
from isoproj.solvers.api import Clock, Status

_Item = TypeVar("_Item")
# A cost that falls by less than this share is no progress.
_PROGRESS = 1e-4


@dataclass(slots=True, eq=False)
class Best(Generic[_Item]):
    """The item of least cost so far; ``stale`` counts looks since the last progress."""

    item: _Item
    cost: float = math.inf
    stale: int = 0

    def see(self, item: _Item, cost: float) -> None:
        """Keep the item if it costs less than the best so far."""
        self.stale += 1
        if cost < self.cost:
            if cost < self.cost * (1.0 - _PROGRESS):
                self.stale = 0
            self.item, self.cost = item, cost


class Rounds(ABC):
    """A method that proposes a map, sees what it does to all pairs, and responds.

    Methods with a working set solve on a few pairs, look at all of them, and take in
    those that the map treats worst. ``distortion``, ``lower`` and ``relaxed`` are told
    after every round.
    """

    n_low: int
    n_high: int
    pairs: Indices = np.empty((0, 2), dtype=np.intp)
    distortion: float = math.nan
    lower: float = 0.0
    relaxed: float = math.nan

    @abstractmethod
    def propose(self) -> Array:
        """Return a map of shape (n_dims, s)."""

    @abstractmethod
    def judge(self, factor: Array, ends: Extremes) -> Status | None:
        """Record what the map does; return a status when the search is over."""

    @abstractmethod
    def respond(self, ends: Extremes) -> None:
        """Prepare the next round."""

    def run(
        self,
        pool: PairSearch,
        *,
        max_rounds: int,
        clock: Clock,
        exhausted: Status,
    ) -> Status:
        """Run the rounds; ``exhausted`` is the status when ``max_rounds`` are used up.

        The clock is read after every round, so there is always one round.
        """
        for number in range(max_rounds):
            factor = self.propose()
            ends = pool.extremes(factor, n_low=self.n_low, n_high=self.n_high)
            status = self.judge(factor, ends)
            step = Step(
                iteration=number,
                distortion=self.distortion,
                lower_bound=self.lower,
                seconds=clock.seconds,
                relaxed=self.relaxed,
                n_working=self.pairs.shape[0],
            )
            tell(step)
            if status is not None:
                return status
            if number + 1 < max_rounds:
                if clock.is_over:
                    return Status.TIME_LIMIT
                self.respond(ends)
        return exhausted


def union(first: Indices, second: Indices) -> Indices:
    """Return the union of two lists of pairs, sorted."""
    return np.unique(np.concatenate([first, second]), axis=0)
