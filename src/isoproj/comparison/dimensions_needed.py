"""How many dimensions a distortion bound needs: by formula, by maps, by proof."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import ortho_group
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.random_projection import johnson_lindenstrauss_min_dim

from isoproj.baselines.numax import NuMax
from isoproj.comparison.referee import score_map
from isoproj.estimators.near_isometric import NearIsometricProjection
from isoproj.numerics.arrays import Rows, as_dense, check_points, is_number, require
from isoproj.numerics.shown import Shown
from isoproj.numerics.spectral import Array


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DimensionsNeeded(Shown):
    """How many dimensions keep every squared length within ``1 +- isometry``.

    Parameters
    ----------
    n_points, n_features : int
        Shape of the data.
    max_distortion : float
        The one-sided bound: no pair loses a larger share under a projection.
    isometry : float
        The same bound two-sided, ``max_distortion / (2 - max_distortion)``.
    formula : int
        Dimensions by the Johnson-Lindenstrauss lemma, whatever the data; may be more
        than there are features.
    random : int
        Dimensions that suffice for a random subspace (median over draws), measured.
    pca : int
        Dimensions that suffice for principal components, measured.
    numax : int or None
        Dimensions of NuMax's map; None where it left the band or found no map in time.
    found : int
        Dimensions of our orthogonal projection, certified.
    necessary : int
        No orthogonal projection to fewer dimensions keeps the bound; proved.
    """

    n_points: int
    n_features: int
    max_distortion: float
    isometry: float
    formula: int
    random: int
    pca: int
    numax: int | None
    found: int
    necessary: int

    def __str__(self) -> str:
        rows = [
            ("Johnson-Lindenstrauss formula", f"{self.formula:,}"),
            ("random subspace, measured", f"{self.random:,}"),
            ("PCA, measured", f"{self.pca:,}"),
            ("NuMax, measured", "none" if self.numax is None else f"{self.numax:,}"),
            ("isoproj, certified", f"{self.found:,}"),
            ("proved necessary for projections", f"{self.necessary:,}"),
        ]
        head = (
            f"{self.n_points:,} points, {self.n_features:,} features: dimensions that "
            f"keep squared lengths within 1 +- {self.isometry:.4f}\n"
            f"(a projection under which no pair loses more than "
            f"{self.max_distortion:.4f}, scaled)"
        )
        return "\n".join([head, *(f"{name:<34}{k:>8}" for name, k in rows)])


def johnson_lindenstrauss_comparison(
    X: ArrayLike | Rows,
    max_distortion: float = 0.2,
    *,
    n_draws: int = 3,
    time_limit: float | None = 60.0,
    random_state: int = 0,
) -> DimensionsNeeded:
    """Compare how many dimensions a distortion bound needs by several methods.

    All methods must keep the same bound. A projection only shrinks: no pair loses more
    than ``max_distortion`` of its squared length. The Johnson-Lindenstrauss lemma and
    NuMax bound losses and gains alike. Scaled by ``1 / sqrt(1 - max_distortion / 2)``,
    such a projection keeps every squared length within
    ``1 +- max_distortion / (2 - max_distortion)``. That is the band asked of the
    formula, of NuMax, and, at the scale that suits them best, of random subspaces and
    principal components. (The band is a little easier for these
    than the bound is for our projection, because no pair need keep all its length.)

    The number proved necessary holds for orthogonal projections. NuMax's maps are not
    orthogonal: they may stretch directions that no pair has, and so may need fewer
    dimensions.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The points; all their pairs count.
    max_distortion : float
        Largest share of squared length that a pair may lose, between 0 and 1.
    n_draws : int
        Number of random subspaces, of which the median is taken.
    time_limit : float or None
        Seconds for NuMax, and again for our projection.
    random_state : int
        Decides the draws and the solvers' random starts.

    Returns
    -------
    DimensionsNeeded
        Prints as a table.

    Raises
    ------
    ValueError
        If ``max_distortion`` is not between 0 and 1, or the data are not usable.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import johnson_lindenstrauss_comparison
    >>> X = np.random.default_rng(0).normal(size=(20, 8))
    >>> needed = johnson_lindenstrauss_comparison(X, 0.5)
    >>> needed.necessary <= needed.found < needed.formula
    True
    """
    _check(max_distortion, n_draws)
    rows = check_points(X)
    isometry = max_distortion / (2.0 - max_distortion)
    ours = NearIsometricProjection(
        max_distortion=max_distortion, time_limit=time_limit, random_state=random_state
    ).fit(rows)
    draws = [
        # The first rows of a random orthogonal matrix span a random subspace.
        _fewest(rows, isometry, ortho_group.rvs(rows.shape[1], random_state=seed))
        for seed in range(random_state, random_state + n_draws)
    ]
    return DimensionsNeeded(
        n_points=int(rows.shape[0]),
        n_features=int(rows.shape[1]),
        max_distortion=float(max_distortion),
        isometry=isometry,
        formula=int(johnson_lindenstrauss_min_dim(rows.shape[0], eps=isometry)),
        random=int(np.median(draws)),
        pca=_fewest(rows, isometry, PCA().fit(as_dense(rows)).components_),
        numax=_numax(rows, isometry, time_limit, random_state),
        found=ours.n_components_,
        necessary=ours.n_components_lower_bound_,
    )


def _check(max_distortion: float, n_draws: int) -> None:
    """Raise unless the bound and the number of draws are usable."""
    fits, what = is_number(max_distortion), "be a number between 0 and 1"
    fits = fits and 0.0 < max_distortion < 1.0
    about = "It is the share of squared length that a pair may lose."
    require(fits, "max_distortion", max_distortion, what, about)
    require(n_draws >= 1, "n_draws", n_draws, "be a whole number above 0", "Use 3.")


def _fewest(rows: Rows, isometry: float, axes: Array) -> int:
    """Return how many leading axes keep the band, by bisection."""
    low, high = 0, int(axes.shape[0])
    while high - low > 1:
        middle = (low + high) // 2
        suffices = score_map(rows, axes[:middle]).isometry <= isometry
        low, high = (low, middle) if suffices else (middle, high)
    return high


def _numax(
    rows: Rows, isometry: float, time_limit: float | None, random_state: int
) -> int | None:
    """Return the dimensions of NuMax's map, None where it leaves the band."""
    with warnings.catch_warnings():
        # A map that ran out of time is judged by where its pairs end.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model = NuMax(isometry, time_limit=time_limit, random_state=random_state)
        model.fit(rows)
    # How far outside the band a pair of NuMax's map may end.
    inside = max(model.distortion_, model.stretch_) <= isometry + 1e-6
    return int(model.n_components_) if inside else None
