"""PCA with a floor under every distance."""

from __future__ import annotations

import math
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.sparsefuncs import mean_variance_axis

from isoproj.estimators.base import images_of
from isoproj.estimators.certified import CertifiedProjection
from isoproj.estimators.descriptions import described_by
from isoproj.estimators.geometry import Geometry
from isoproj.estimators.near_isometric import NearIsometricProjection
from isoproj.exceptions import FormatError
from isoproj.numerics.arrays import Rows, is_number, is_sparse, like, require
from isoproj.numerics.container import Tensors
from isoproj.numerics.spectral import EPS
from isoproj.numerics.storage import row_slices
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective
from isoproj.proof.verify import CheckedClaim
from isoproj.solvers.api import Journal, Problem

# Relative rounding of a projected row, generously.
_DIGITS = 1e-12
# Attributes that are arrays of the file, without their underscore.
_STORED = "mean", "explained_variance", "explained_variance_ratio", "singular_values"


@described_by(NearIsometricProjection)
@dataclass(eq=False, repr=False)
class GuaranteedPCA(CertifiedProjection):
    """Keep the most variance under a cap on the loss of every pair of points.

    PCA keeps the most variance and may crush single pairs of points. This keeps the
    most variance among the projections under which no pair loses more than
    ``max_distortion`` of its squared length: usually almost all of PCA's. It reports
    what is kept, what the worst pair loses, and a bound on what any projection with
    the same guarantee can keep. The guarantee is for the points it was fitted on.

    Parameters
    ----------
    n_components : int or None, default=2
        Number of dimensions to keep. None means the fewest found for which no pair
        loses more than ``max_distortion``.
    max_distortion : float or None, default=None
        The cap: largest allowed loss of any pair, as a share of its squared length.
        None means ``1 + slack`` times the least that is found possible.
    slack : float, default=0.05
        How far the cap is above the least possible distortion found.
    objective : {"variance", "distortion"}, default="variance"
        Keep the most variance, as PCA does, or lose the least on average over the
        pairs that count.
    tol : float, default=1e-2
        Relative gap at which each of the two searches stops: the one for the least
        loss, which sets the cap, and the one for the most variance under it. Less than
        1e-9 means 1e-9.
    max_iter : int or None, default=None
        Most rounds of each of the two searches; None means their own default.
    random_state : int, RandomState instance or None, default=None
        Decides the samples and random starts.
    verbose : int, default=0
        1 shows the present step in a line that is renewed; in logs, a line for each.
    memory_limit : float, default=2e9
        Bytes that arrays as large as ``X``, and distances that are needed again, may
        take in memory. Arrays that go beyond lie in scratch files in the folder for
        temporary files.
    nested : sequence of int or None, default=None
        Prefixes: ascending numbers of dimensions below ``n_components``, as for
        `NearIsometricProjection`. The cap of a prefix is ``1 + slack`` times the least
        that is found possible for it in a nest.
    pairs, n_neighbors, min_distance, include_norms, time_limit, engine, heldout
        As for `NearIsometricProjection`.
    nested_weights
        As for `NearIsometricProjection`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows, in the precision of the data, ordered by the variance they
        carry; with ``nested``, within every block between two prefixes.
    mean_ : ndarray of shape (n_features_in_,)
        Mean of the rows, which ``transform`` subtracts.
    explained_variance_ : ndarray of shape (n_components_,)
        Variance along each component.
    explained_variance_ratio_ : ndarray of shape (n_components_,)
        The same as shares of the total variance.
    singular_values_ : ndarray of shape (n_components_,)
        Lengths of the columns of the transformed data.
    max_distortion_ : float
        The cap, given or found.
    kept_ : float
        Share of the objective that is kept.
    kept_bound_ : float
        No projection to as many dimensions under the cap keeps more.
    distortion_ : float
        Largest loss over all pairs that count; exact, at most the cap.
    n_components_lower_bound_ : int
        Where ``n_components`` is None: fewer dimensions cannot meet the cap, as proved.
    certificate_ : Certificate
        All of these claims with their proof; save, load, verify.
    certificates_ : dict of int to Certificate
        The certificate of every prefix of ``nested`` and of all rows, by number of
        dimensions.
    history_ : tuple of Step
        Values and bounds per round.
    n_iter_ : int
        Rounds run.
    lower_bound_, worst_pairs_, status_, n_components_
        As for `NearIsometricProjection`.
    heldout_, n_features_in_, feature_names_in_
        As for `NearIsometricProjection`.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from isoproj import GuaranteedPCA
    >>> X = load_wine().data
    >>> model = GuaranteedPCA(n_components=3, random_state=0).fit(X)
    >>> model.distortion_ <= model.max_distortion_
    True
    >>> model.kept_ <= model.kept_bound_
    True
    """

    n_components: int | None = 2
    _: KW_ONLY
    slack: float = 0.05
    objective: str = "variance"

    def _problem(self, geometry: Geometry, journal: Journal, seed: int) -> Problem:
        return replace(
            super()._problem(geometry, journal, seed),
            objective=geometry.objective_matrix(self._objective()),
            slack=float(self.slack),
        )

    def _objective(self) -> Objective:
        return Objective(self.objective)

    def transform(self, X: ArrayLike | Rows) -> NDArray[Any]:
        """Project as PCA does: ``(X - mean_) @ components_.T``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Points with the features seen in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Their projections; a torch tensor, or another array of the array-API
            standard, gives an array of its own library on its own device.
        """
        projected = self._projected(X)
        centre = self.mean_.astype(np.float64) @ self.components_.T.astype(np.float64)
        projected -= centre.astype(projected.dtype)
        return like(projected, X)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the learnt affine subspace with given coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Projected points.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            ``X @ components_ + mean_``.
        """
        return like(np.asarray(self._lifted(X) + self.mean_), X)

    def _check_parameters(self, n_features: int) -> None:
        fits = self.n_components is not None or self.max_distortion is not None
        what, advice = "be given where n_components is None", "Pass one of them."
        require(fits, "max_distortion", None, what, advice)
        super()._check_parameters(n_features)
        fits = is_number(self.slack) and 0.0 <= self.slack < math.inf
        require(fits, "slack", self.slack, "be a number, 0 or more", "Use 0.05.")
        self._objective()

    def _adopt(self, certificate: Certificate) -> None:
        guarantee = certificate.guarantee
        if guarantee is None:
            msg = "a GuaranteedPCA must have a guarantee; it has none. Save it again."
            raise FormatError(msg)
        super()._adopt(certificate)
        self.max_distortion_ = guarantee.cap
        self.kept_ = guarantee.kept
        self.kept_bound_ = guarantee.kept_bound

    def _measure(self, rows: Rows) -> None:
        """Compute the attributes that PCA has."""
        components = self.components_.astype(np.float64)
        images = images_of(rows, components)
        ddof = max(rows.shape[0] - 1, 1)
        scale = rows.shape[0] / ddof
        if is_sparse(rows):
            mean, spread = mean_variance_axis(rows, axis=0)
        else:
            mean = rows.mean(axis=0, dtype=np.float64)
            spread = np.zeros(rows.shape[1])
            for chunk in row_slices(rows):
                with np.errstate(over="ignore"):
                    spread += np.square(rows[chunk] - mean).sum(axis=0)
            spread /= rows.shape[0]
        self.mean_ = np.asarray(mean, dtype=rows.dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            variance = np.asarray(images.var(axis=0, dtype=np.float64)) * scale
        self.explained_variance_ = variance
        total = float(np.sum(spread, dtype=np.float64)) * scale
        if not math.isfinite(total):
            msg = (
                "X must be small enough for its variance to be a float64 number; it "
                "overflows. Divide X by a power of ten."
            )
            raise ValueError(msg)
        self._total_variance = total
        # Rows that are all the same have no variance to share out.
        self.explained_variance_ratio_ = variance / total if total else 0.0 * variance
        self.singular_values_ = np.sqrt(variance * ddof)

    def _further_claims(self, rows: Rows) -> list[CheckedClaim]:
        """Recompute mean and variances, which ``transform`` and exports use."""
        fresh = type(self)()
        fresh.components_ = self.components_
        fresh._measure(rows)
        n_rows = int(rows.shape[0])
        size = float(np.abs(rows.data if is_sparse(rows) else rows).max(initial=0.0))
        shift = float(np.abs(self.mean_.astype(np.float64) - fresh.mean_).max())
        rounding = 64.0 * float(np.finfo(self.mean_.dtype).eps) + n_rows * EPS
        # Images are rounded at the size of the rows, which may lie far from 0.
        found, blur = fresh.explained_variance_, _DIGITS * size
        allowed = 1e-6 * found + blur * np.sqrt(found) + blur**2
        total, singular = fresh._total_variance, self.singular_values_
        stated = {
            "variances": self.explained_variance_,
            "ratios": self.explained_variance_ratio_ * total,
            "singular values": singular * np.abs(singular) / max(n_rows - 1, 1),
        }
        wrong = [
            name
            for name, values in stated.items()
            if not (np.abs(values - found) <= allowed).all()
        ]
        return [
            CheckedClaim(
                "mean that transform subtracts",
                f"within {rounding * size:.1e} of the data's",
                f"off by {shift:.1e}",
                holds=shift <= rounding * size,
            ),
            CheckedClaim(
                "explained variances",
                f"{float(self.explained_variance_.sum()):.9g} in all",
                f"{', '.join(wrong)} differ" if wrong else f"{found.sum():.9g} in all",
                holds=not wrong,
            ),
        ]

    def _further(self) -> dict[str, NDArray[Any]]:
        return {name: getattr(self, f"{name}_") for name in _STORED}

    def _restore(self, tensors: Tensors) -> None:
        for name in _STORED:
            shape = (self.n_features_in_ if name == "mean" else self.n_components_,)
            tensor = tensors.get(name, np.empty(0))
            fits = tensor.shape == shape and tensor.dtype.kind == "f"
            if not (fits and np.isfinite(tensor).all()):
                msg = f"a GuaranteedPCA must have finite {name!r} of shape {shape}."
                raise FormatError(msg)
            setattr(self, f"{name}_", np.array(tensor))
