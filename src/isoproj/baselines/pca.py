"""Principal components of the points, or of their pairwise directions."""

from __future__ import annotations

from isoproj.baselines.base import Baseline, FoundMap, Task
from isoproj.numerics.arrays import check_choice
from isoproj.numerics.spectral import top_eigenpairs


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
    distortion_, stretch_, worst_pairs_, n_iter_, n_components_, n_features_in_
        As for every baseline.

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

    of: str = "points"

    def _check_parameters(self) -> None:
        check_choice("of", self.of, ("points", "directions"))

    def _search(self, task: Task) -> FoundMap:
        k = self._k
        if self.of == "directions":
            moment = task.pool().uniform_moment()
            return FoundMap(columns=top_eigenpairs(moment, k)[1])
        return FoundMap(columns=task.principal_axes(k))
