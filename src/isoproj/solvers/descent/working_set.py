"""The pairs that local search sees, grown by searches of all pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.spectral import Array, Indices, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.descent.grassmann import descend, losses
from isoproj.solvers.descent.merit import Goal

__all__ = [
    "SMALL_BASIS",
    "WorkingSet",
    "batch_size",
    "cooled",
    "leading",
    "spread",
]

_LARGEST_SET = 40_000
# A programme on the tight pairs (``solvers.tight``) costs their number squared times
# the size of a basis; on bases larger than this it is hardly worth it.
SMALL_BASIS = 9_000
# Temperatures above these run loosely, and in single precision.
_HOT = 0.002
_SINGLE = 0.0005


@dataclass(slots=True, eq=False)
class WorkingSet:
    """Some pairs of a search, as directions.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    codes : ndarray of shape (m,)
        The ones to begin with.
    further : ndarray of shape (q, n_dims) or None
        Rows of an objective that follow the pairs' directions.
    limit : int
        Most pairs; the ones that lose least make room.
    """

    search: PairSearch
    codes: Indices
    further: Array | None = None
    limit: int = _LARGEST_SET
    secants: Secants = field(init=False)

    def __post_init__(self) -> None:
        pairs = self.search.decode(self.codes)
        self.secants = Secants(self.search.coordinates, pairs, self.further)

    def grow(
        self, basis: Array, slack: float, count: int, *, cap: float = math.inf
    ) -> tuple[float, float]:
        """Add pairs worse than the worst one known, less ``slack``.

        Parameters
        ----------
        basis : ndarray of shape (n_dims, k)
            Decides what pairs lose.
        slack : float
            How far below the worst loss, or the cap, pairs are of interest.
        count : int
            Most pairs to add.
        cap : float
            Pairs near this loss are wanted too, should the worst be above it.

        Returns
        -------
        excess : float
            How much the worst pair overall exceeds the worst one known before.
        distortion : float
            Of the basis over all pairs.
        """
        known = losses(self.secants.images(basis))[: self.codes.size]
        worst = float(known.max())
        level = 1.0 - min(worst, cap) + slack
        found = self.search.weakest(basis, level, most=8 * count)
        overall = max(worst, 1.0 - float(found.retained[0]))
        fresh = ~np.isin(found.codes, self.codes)
        codes = spread(found.codes[fresh], self.search.points.n_points, count)
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


def batch_size(k: int) -> int:
    """Return how many pairs a search should add at once.

    Small ``k`` leave more pairs near the worst. A set too small to hold them makes the
    search go round in circles, and pairs are cheap beside the points they join.

    Parameters
    ----------
    k : int
        Target dimension.

    Returns
    -------
    int
        Between 2000 and 4000.

    Examples
    --------
    >>> from isoproj.solvers.descent.working_set import batch_size
    >>> batch_size(5), batch_size(40)
    (4000, 2000)
    """
    return min(4000, max(2000, 20_000 // k))


def cooled(
    secants: Secants,
    basis: Array,
    temperature: float,
    goal: Goal | None = None,
    *,
    loosely: bool = False,
) -> Array:
    """Return the basis after descent at one temperature, as exactly as it deserves."""
    hot = loosely or temperature > _HOT
    moved = descend(
        secants.astype(np.float32) if temperature > _SINGLE else secants,
        basis,
        temperature,
        goal=goal,
        max_iter=40 if hot else 100,
        tolerance=0.01 if hot else 0.002,
    )
    return orthonormal(moved.astype(np.float64))


def leading(factor: Array, k: int) -> Array:
    """Return the top ``k`` eigenvectors of ``factor @ factor.T``."""
    left = np.linalg.svd(factor, full_matrices=False)[0]
    if left.shape[1] < k:
        return orthonormal(np.hstack([left, np.eye(left.shape[0], k - left.shape[1])]))
    return left[:, :k]
