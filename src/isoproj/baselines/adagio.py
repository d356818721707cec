"""ADAGIO: principal components, and random signs on what they leave."""

from __future__ import annotations

import math

import numpy as np

from isoproj.baselines.base import Baseline, FoundMap, Task


class Adagio(Baseline):
    """ADAGIO: principal components, and random signs on the residual.

    ADAGIO takes ``p = max(k // 2, k - 150)`` principal components of the points and
    ``k - p`` rows of random signs ``+-1/sqrt(k - p)`` applied to the residual, by the
    formulas of the code that the authors published. The map is not orthonormal; on
    average over the signs every squared length is kept. The authors measure lengths,
    not squared lengths.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions, both blocks together.
    random_state : int, RandomState instance or None, default=None
        Decides the signs.
    pairs, time_limit, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        The principal block above the random block.
    n_principal_ : int
        Rows of the principal block.
    distortion_, stretch_, worst_pairs_, status_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    RandomProjection : Random maps alone.
    PCAProjection : Principal components alone.

    References
    ----------
    Blasiok and Tsourakakis. arXiv 1609.05388.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import Adagio
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = Adagio(n_components=4, random_state=0).fit(X)
    >>> model.n_principal_, model.components_.shape
    (2, (4, 6))
    """

    _keeps_span = False

    def _search(self, task: Task) -> FoundMap:
        k, n_features = self._k, int(task.rows.shape[1])
        p = min(max(k // 2, k - 150), task.points.n_dims)
        signs = np.where(task.generator.uniform(size=(n_features, k - p)) < 0.5, -1, 1)
        columns = signs / math.sqrt(k - p)
        if p:
            principal = task.points.frame.lift(task.principal_axes(p))
            residual = columns - principal @ (principal.T @ columns)
            columns = np.hstack([principal, residual])
        return FoundMap(
            columns=columns,
            is_orthonormal=False,
            in_span=False,
            extras={"n_principal_": p},
        )
