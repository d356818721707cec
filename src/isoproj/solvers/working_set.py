"""The pairs that local search sees, grown by searches of all pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import losses


@dataclass(slots=True, eq=False)
class WorkingSet:
    """Some pairs of a search, as directions.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    codes : ndarray of shape (m,)
        The pairs to begin with.
    settings : Settings
        How many pairs join at once, and how many there may be.
    further : ndarray of shape (q, n_dims) or None
        Rows of an objective that follow the pairs' directions.
    """

    search: PairSearch
    codes: Indices
    settings: Settings
    further: Array | None = None
    secants: Secants = field(init=False)
    # The basis of the last search if all pairs within reach of its worst are here.
    complete_at: Array | None = None

    def __post_init__(self) -> None:
        pairs = self.search.decode(self.codes)
        self.secants = Secants(self.search.coordinates, pairs, self.further)

    @staticmethod
    def begin(
        search: PairSearch,
        known: Indices,
        settings: Settings,
        rng: np.random.Generator,
        further: Array | None = None,
    ) -> WorkingSet:
        """Return known pairs and random ones."""
        # The bad pairs of one basis alone would mislead the hot stages, whose smoothed
        # maximum is close to an average over all pairs.
        sample = search.sample(settings.batch // 2, rng)
        return WorkingSet(search, distinct(known, sample), settings, further)

    @property
    def size(self) -> int:
        """Number of pairs."""
        return int(self.codes.size)

    def few(self, k: int) -> int:
        """Return how many listed pairs are cheaper than all pairs at once."""
        if self.search.is_large:
            return self.settings.most_pairs // 2
        if not self.search.has_smoothed:
            return 0
        # A pair of a list costs as much as about 8 k pairs of all at once.
        most = self.search.n_pairs // (8 * k)
        return min(self.settings.most_pairs, most)

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
        kept: Array | None = None,
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
        reach : float
            How far below it all pairs are added if a list of them is cheap.
        kept : ndarray of shape (n_dims, k) or None
            A basis whose worst pairs stay as well if there are too many.

        Returns
        -------
        excess : float
            How much the worst pair overall exceeds the worst one known before.
        distortion : float
            Of the basis over all pairs, as far as the search looked.
        """
        few, batch = self.few(basis.shape[1]), self.settings.batch
        known = self.losses(basis)
        worst = float(known.max())
        level = 1.0 - min(worst, cap)
        wanted = level + (max(slack, reach) if few else slack)
        most = few if self.search.is_large else max(few, 8 * batch)
        found = self.search.near(basis, wanted, most=most + 1)
        overall = max(worst, 1.0 - float(found.retained[0]))
        is_new = ~np.isin(found.codes, self.codes, assume_unique=True)
        is_listed = found.level >= wanted and found.codes.size <= few
        self.complete_at = basis if is_listed else None
        codes = found.codes[is_new]
        if self.search.is_large:
            codes = codes[:few]
        elif not is_listed:
            is_near = found.retained <= max(level + slack, float(found.retained[0]))
            codes = found.codes[is_new & is_near][:batch]
        if codes.size:
            stay = np.arange(self.codes.size)
            most = self.settings.most_pairs
            if stay.size + codes.size > most:
                if kept is not None:
                    known = np.maximum(known, self.losses(kept))
                stay = np.argsort(-known, kind="stable")[: most - codes.size]
            self.codes = np.concatenate([self.codes[stay], codes])
            self.secants = self.secants.joined(stay, self.search.decode(codes))
        return overall - worst, overall
