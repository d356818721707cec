"""Principal components of the points, or of their pairwise directions."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline, Found, Task, check_choice
from isoproj.numerics.spectral import top_eigenpairs

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
        Not used: the method takes a single step.
    random_state : int, RandomState instance or None, default=None
        Not used: nothing is random.
    verbose : int, default=0
        Not used: there is no progress to show.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_ : float
        Largest share of squared length that a pair loses; exact.
    stretch_ : float
        Largest share of squared length that a pair gains: 0 for a projection.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.

    See Also
    --------
    GuaranteedPCA : Most variance under a bound on the worst pair.
    RandomProjection : A map that does not depend on the data.

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
        super().__init__(
            n_components,
            pairs=pairs,
            time_limit=time_limit,
            random_state=random_state,
            verbose=verbose,
        )
        self.of = of

    def _check_parameters(self) -> None:
        check_choice("of", self.of, ("points", "directions"))

    def _search(self, task: Task) -> Found:
        k = self._k
        if self.of == "directions":
            moment = task.pool().uniform_moment()
            return Found(columns=top_eigenpairs(moment, k)[1])
        return Found(columns=task.principal_axes(k))
