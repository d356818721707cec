"""The paper's algorithm under its own name."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj.baselines.base import Baseline
from isoproj.estimators.descriptions import described_by
from isoproj.estimators.near_isometric import NearIsometricProjection


@described_by(Baseline)
class DualAscent(NearIsometricProjection):
    """The paper's Algorithm 1: ``NearIsometricProjection(solver="dual_ascent")``.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    max_iter : int or None, default=None
        The paper's ``T``; None means its 120.
    pairs, time_limit, random_state, verbose
        As for every baseline.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows. All further attributes are those of
        ``NearIsometricProjection``.

    See Also
    --------
    NearIsometricProjection : The same estimator with the default solver.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import DualAscent
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = DualAscent(n_components=3, random_state=0).fit(X)
    >>> model.n_iter_
    120
    """

    def __init__(
        self,
        n_components: int = 2,
        *,
        pairs: str | ArrayLike = "all",
        max_iter: int | None = None,
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            n_components,
            solver="dual_ascent",
            pairs=pairs,
            max_iter=max_iter,
            time_limit=time_limit,
            random_state=random_state,
            verbose=verbose,
        )
