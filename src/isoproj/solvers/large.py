"""Column generation: solve on a pool of pairs while a search of all pairs takes long.

A solver searches dozens of times. Where one search takes seconds, it solves on a pool
of pairs instead, and a search of all pairs then brings the pairs that the pool lacked.
A side ends when nothing is missing: weights on pairs of the pool prove a bound for all
pairs, and what a basis loses is measured on all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import PairKind, PairSet
from isoproj.solvers.descent.working_set import spread
from isoproj.solvers.settings import PoolSettings

__all__ = ["Pool", "Side", "generate"]


@dataclass(slots=True, eq=False)
class Pool:
    """Some pairs of a search of all pairs.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    codes : ndarray of shape (m,)
        Those in the pool, sorted.
    settings : PoolSettings
        Tuning figures.
    """

    search: PairSearch
    codes: Indices
    settings: PoolSettings

    @staticmethod
    def begin(
        search: PairSearch,
        known: Indices,
        rng: np.random.Generator,
        settings: PoolSettings,
    ) -> Pool:
        """Return a pool of known and random pairs."""
        codes = search.sample(settings.n_random, rng)
        return Pool(search, distinct(codes, known), settings)

    def inside(self) -> PairSearch:
        """Return a search of the pool alone, with the same codes."""
        listed = self.search.decode(self.codes)
        pairs = PairSet(PairKind.LISTED, listed, listed.shape[0], 0)
        return PairSearch(self.search.points, pairs, around=self.search)

    def enlarge(self, factor: Array, distortion: float) -> float:
        """Add the pairs that lose about as much as the worst of the pool, or more.

        Parameters
        ----------
        factor : ndarray of shape (n_dims, s)
            ``|factor.T x|^2`` is what is kept of direction ``x``.
        distortion : float
            What the worst pair of the pool loses.

        Returns
        -------
        float
            What the worst of all pairs loses.
        """
        most = self.settings.most
        level = 1.0 - distortion + self.settings.near
        found = self.search.weakest(factor, level, most=4 * most)
        fresh = found.codes[~np.isin(found.codes, self.codes)]
        chosen = spread(fresh, self.search.points.n_points, most)
        self.codes = distinct(self.codes, chosen)
        return max(distortion, 1.0 - float(found.retained[0]))


class Side(Protocol):
    """One side of a problem, solved on a pool."""

    def solve(self, inside: PairSearch) -> tuple[Array, float] | None:
        """Return the answer on the pool and what its worst pair loses there."""

    def accept(self, distortion: float) -> bool:
        """Keep the answer with its loss over all pairs; return whether it is whole."""


def generate(
    pool: Pool, side: Side, rounds: range, told: Callable[[int, bool], None]
) -> bool:
    """Solve a side on the pool until no pair outside changes the answer.

    ``told`` is called after each round with its number and whether it was the last.
    """
    for number in rounds:
        answer = side.solve(pool.inside())
        if answer is None:
            break
        is_whole = side.accept(pool.enlarge(*answer))
        told(number, is_whole or number == rounds[-1])
        if is_whole:
            return True
    return False
