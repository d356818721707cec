"""Random maps, which do not depend on the data."""

from __future__ import annotations

import numpy as np
from sklearn.random_projection import (
    GaussianRandomProjection,
    SparseRandomProjection,
)

from isoproj.baselines.base import Baseline, FoundMap, Task
from isoproj.baselines.isometry import balanced
from isoproj.numerics.arrays import as_dense, check_choice
from isoproj.numerics.spectral import Array, orthonormal


class RandomProjection(Baseline):
    """Random linear map of the feature space, orthonormal unless told otherwise.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    kind : {"orthonormal", "gaussian", "sparse"}, default="orthonormal"
        A uniformly random subspace; independent normal entries of variance
        ``1/n_components``; or scikit-learn's sparse signs of density
        ``1/sqrt(n_features)``. The last two stretch some pairs: see ``stretch_``.
    rescale : bool, default=False
        Whether to scale the map so that its largest loss equals its largest gain,
        which no other scale improves on two-sidedly.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs are judged.
    time_limit : float or None, default=None
        Not used: the method takes a single step.
    random_state : int, RandomState instance or None, default=None
        Decides the draw.
    verbose : int, default=0
        Not used: there is no progress to show.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        The map.
    distortion_, stretch_, worst_pairs_, n_iter_, n_components_, n_features_in_
        As for every baseline.

    See Also
    --------
    PCAProjection : The directions of most variance.
    Adagio : Principal components and random signs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.baselines import RandomProjection
    >>> X = np.random.default_rng(0).normal(size=(20, 6))
    >>> model = RandomProjection(n_components=3, random_state=0).fit(X)
    >>> bool(np.allclose(model.components_ @ model.components_.T, np.eye(3)))
    True
    """

    _keeps_span = False

    kind: str = "orthonormal"
    rescale: bool = False

    def _check_parameters(self) -> None:
        check_choice("kind", self.kind, ("orthonormal", "gaussian", "sparse"))

    def _search(self, task: Task) -> FoundMap:
        columns = self._draw(int(task.rows.shape[1]), task.generator)
        is_orthonormal = self.kind == "orthonormal"
        if self.rescale:
            in_span = task.points.frame.coordinates_of(columns)
            ends = task.pool().extremes(in_span, n_low=1, n_high=1)
            columns, _ = balanced(columns, ends)
            is_orthonormal = False
        return FoundMap(columns=columns, is_orthonormal=is_orthonormal, in_span=False)

    def _draw(self, n_features: int, generator: np.random.RandomState) -> Array:
        """Return a random map as columns of shape (n_features, k)."""
        if self.kind == "orthonormal":
            # The signs make the subspace's basis uniform too, not only the subspace.
            return orthonormal(generator.normal(size=(n_features, self._k)))
        gaussian = self.kind == "gaussian"
        draw = GaussianRandomProjection if gaussian else SparseRandomProjection
        model = draw(n_components=self._k, random_state=generator)
        rows = as_dense(model.fit(np.zeros((1, n_features))).components_)
        return np.asarray(rows, dtype=np.float64).T
