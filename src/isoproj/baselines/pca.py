"""Principal components of the points, or of their pairwise directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task, check_choice
from isoproj.numerics.spectral import top_eigenpairs
from isoproj.pairs.moments import summed_moment

__all__ = ["PCAProjection"]


class PCAProjection(Baseline):
    """Principal component analysis: best for the mean pair, blind to the worst.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    of : {"points", "directions"}, default="points"
        What is analysed: the points, by scikit-learn's ``PCA`` with an exact solver,
        or the unit directions of all pairs that count, every pair alike however short.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs are judged (and, with ``of="directions"``, analysed).
    time_limit : float or None, default=None
        Accepted as by every estimator; this one takes a single step.
    random_state : int, RandomState instance or None, default=None
        Accepted as by every estimator; nothing here is random.
    verbose : int, default=0
        Accepted as by every estimator.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_ : float
        What the worst of all pairs that count loses; exact.
    stretch_ : float
        What the most stretched pair gains: 0 for a projection.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import PCAProjection
    >>> X = np.array([[0.0, 0.0], [4.0, 0.0], [4.0, 3.0]])
    >>> round(PCAProjection(n_components=1).fit(X).distortion_, 3)
    0.752
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        of: str = "points",
        pairs: str | ArrayLike = "all",
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        self.n_components = n_components
        self.of = of
        self.pairs = pairs
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose

    def _check_parameters(self) -> None:
        check_choice("of", self.of, ("points", "directions"))

    def _search(self, task: Task) -> Found:
        k = int(self.n_components or 1)
        if self.of == "directions":
            rows, first = task.points.coordinates, task.points.first_copy
            moment = summed_moment(rows, first, task.pairs.listed)
            return Found(columns=top_eigenpairs(moment, k)[1])
        return Found(columns=task.principal_axes(k))
