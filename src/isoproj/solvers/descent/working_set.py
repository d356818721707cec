"""The pairs that local search sees, grown by searches of all pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isoproj.numerics.spectral import Array, Indices, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.descent.objectives import losses

__all__ = ["WorkingSet", "leading", "spread"]


@dataclass(slots=True, eq=False)
class WorkingSet:
    """Some pairs of a search, as directions.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    codes : ndarray of shape (m,)
        The pairs to begin with.
    further : ndarray of shape (q, n_dims) or None
        Rows of an objective that follow the pairs' directions.
    batch : int
        Most pairs that one search adds.
    limit : int
        Most pairs; those that lose least make room.
    """

    search: PairSearch
    codes: Indices
    further: Array | None = None
    batch: int = 2_000
    limit: int = 40_000
    secants: Secants = field(init=False)
    # The basis of the last search if all pairs within reach of its worst are here.
    complete_at: Array | None = None

    def __post_init__(self) -> None:
        pairs = self.search.decode(self.codes)
        self.secants = Secants(self.search.coordinates, pairs, self.further)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return int(self.codes.size)

    def pairs_alone(self, dtype: type[np.floating[Any]]) -> Secants:
        """Return the pairs without the rows of an objective, in one precision."""
        pairs = self.search.decode(self.codes)
        return Secants(self.search.coordinates, pairs).astype(dtype)

    def losses(self, basis: Array) -> Array:
        """Return what each pair of the set loses."""
        return losses(self.secants.images(basis))[: self.codes.size]

    def grow(
        self,
        basis: Array,
        slack: float,
        *,
        cap: float = math.inf,
        reach: float = 0.0,
        few: int = 0,
    ) -> tuple[float, float]:
        """Add the pairs that lose more than the worst one known, less ``slack``.

        Parameters
        ----------
        basis : ndarray of shape (n_dims, k)
            Decides what pairs lose.
        slack : float
            How far below the worst loss, or the cap, pairs are of interest.
        cap : float
            Pairs near this loss are wanted too, should the worst be above it.
        reach, few : float, int
            How far below it all pairs are added if there are at most so many.

        Returns
        -------
        excess : float
            How much the worst pair overall exceeds the worst one known before.
        distortion : float
            Of the basis over all pairs.
        """
        known = self.losses(basis)
        worst = float(known.max())
        level = 1.0 - min(worst, cap)
        wanted = level + (max(slack, reach) if few else slack)
        found = self.search.weakest(basis, wanted, most=8 * self.batch)
        overall = max(worst, 1.0 - float(found.retained[0]))
        is_new = ~np.isin(found.codes, self.codes)
        is_listed = found.level >= wanted and found.codes.size <= min(few, self.limit)
        self.complete_at = basis if is_listed else None
        codes = found.codes[is_new]
        if not is_listed:
            is_near = found.retained <= max(level + slack, float(found.retained[0]))
            codes = found.codes[is_new & is_near]
            codes = spread(codes, self.search.points.n_points, self.batch)
        if codes.size:
            kept = np.arange(self.codes.size)
            if kept.size + codes.size > self.limit:
                kept = np.argsort(-known, kind="stable")[: self.limit - codes.size]
            self.codes = np.concatenate([self.codes[kept], codes])
            self.secants = self.secants.joined(kept, self.search.decode(codes))
        return overall - worst, overall


def spread(codes: Indices, n_points: int, count: int) -> Indices:
    """Return at most ``count`` codes, first ones first, no point leading too many."""
    cap = 2 + 8 * count // n_points
    leader = codes // n_points
    order = np.argsort(leader, kind="stable")
    sorted_leader = leader[order]
    rank = np.arange(codes.size) - np.searchsorted(sorted_leader, sorted_leader)
    allowed = np.zeros(codes.size, dtype=bool)
    allowed[order[rank < cap]] = True
    return codes[allowed][:count]


def leading(factor: Array, k: int) -> Array:
    """Return the top ``k`` eigenvectors of ``factor @ factor.T``."""
    left = np.linalg.svd(factor, full_matrices=False)[0]
    if left.shape[1] < k:
        return orthonormal(np.hstack([left, np.eye(left.shape[0], k - left.shape[1])]))
    return left[:, :k]
