"""A pool of pairs to solve on while a search of all pairs takes long.

A solver searches dozens of times. Where one search takes seconds it solves on a pool
of pairs instead, and a search of all pairs then brings the pairs that the pool lacked.
Both sides end when nothing is missing: weights on pairs of the pool prove a bound for
all pairs, and what a basis loses is measured on all of them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import PairKind, PairSet
from isoproj.solvers.descent.working_set import spread

__all__ = ["Pool"]

# Random pairs to begin with, and the most that one search may add.
_RANDOM = 4_000
_MOST = 20_000
# Pairs this close to the worst one of the pool will matter soon.
_NEAR = 0.02


@dataclass(slots=True, eq=False)
class Pool:
    """Some pairs of a search of all pairs.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    codes : ndarray of shape (m,)
        Those in the pool, sorted.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.solvers.pool import Pool
    >>> points, pairs = prepare_pairs(np.eye(4), rotate=True)
    >>> pool = Pool(PairSearch(points, pairs), np.array([1]))
    >>> overall = pool.enlarge(np.eye(3, 1), 0.0)
    >>> pool.codes.size > 1
    True
    """

    search: PairSearch
    codes: Indices

    @staticmethod
    def begin(search: PairSearch, basis: Array, rng: np.random.Generator) -> Pool:
        """Return a pool of random pairs and of those that lose most under a basis."""
        codes = search.sample(_RANDOM, rng)
        return Pool(search, np.union1d(codes, search.lowest(basis, _MOST).codes))

    def inside(self) -> PairSearch:
        """Return a search of the pool alone, with the same codes."""
        listed = self.search.decode(self.codes)
        pairs = PairSet(PairKind.LISTED, listed, listed.shape[0], 0)
        return PairSearch(self.search.points, pairs)

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
        level = 1.0 - distortion + _NEAR
        found = self.search.weakest(factor, level, most=4 * _MOST)
        fresh = found.codes[~np.isin(found.codes, self.codes)]
        chosen = spread(fresh, self.search.points.n_points, _MOST)
        self.codes = np.union1d(self.codes, chosen)
        return max(distortion, 1.0 - float(found.retained[0]))
