"""The transformer whose worst pair loses least."""

from __future__ import annotations

import math
import os
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.validation import check_is_fitted

from isoproj.estimators.base import telling
from isoproj.estimators.certified import CertifiedProjection
from isoproj.estimators.geometry import Geometry, dense_problem
from isoproj.numerics.arrays import (
    Rows,
    check_choice,
    check_map,
    is_whole,
    like,
    require,
)
from isoproj.numerics.spectral import Array
from isoproj.pairs.points import Points
from isoproj.pairs.rows import stacked
from isoproj.pairs.rule import PairKind, PairRule, PairSet
from isoproj.pairs.worst_pairs import find_worst
from isoproj.proof.bounds import certify_hull, data_fingerprint, thinned
from isoproj.proof.certificate import Certificate
from isoproj.solvers.api import Journal, Problem, Result, Weights


@dataclass(eq=False, repr=False)
class NearIsometricProjection(CertifiedProjection):
    """Orthogonal projection whose worst pair of points loses least, with proof.

    ``fit`` looks for the projection to ``n_components`` dimensions that minimises the
    distortion: the largest share of squared length that any pair of points loses.
    It reports what the worst pair really loses, over all pairs, and a lower bound that
    no projection to as many dimensions can beat. The guarantee is for the points it
    was fitted on; on others, measure with ``audit`` or ``score``.

    Parameters
    ----------
    n_components : int or None, default=None
        Number of dimensions to keep. None means the fewest found for which no pair
        loses more than ``max_distortion``. If that is None too, it is 2, as many as a
        picture shows: scikit-learn needs estimators that fit without parameters.
    max_distortion : float or None, default=None
        Largest allowed loss of any pair. Give this or ``n_components``.
    solver : {"minimax", "dual_ascent"}, default="minimax"
        ``"minimax"`` solves both sides: the relaxation for the bound, local search
        for the projection. ``"dual_ascent"`` is Algorithm 1 of Sheth, Garg and
        Dasgupta.
    pairs : str or array-like of shape (n_pairs, 2), default="all"
        Which pairs count: every pair of rows (``"all"``); every row as a direction of
        its own (``"directions"``); every point with its nearest ones
        (``"neighbors"``, or ``"approximate-neighbors"`` by pynndescent); rows of
        different classes (``"labels"``) or of the same (``"within-labels"``), with
        ``y`` given to ``fit``; every query with every other row (``"queries"``, where
        ``y`` says which rows are queries); or the pairs listed. ``"sample"`` is for
        sizes where all pairs cannot be walked over: the fit sees a random sample, and
        the certificate tells, from a fresh one, what share of all pairs may lose more.
    n_neighbors : int, default=10
        Neighbours of each point with ``pairs="neighbors"``. Copies of a point are not
        its neighbours.
    min_distance : float, default=0.0
        Pairs closer than this do not count; ``certificate_.n_close`` says how many
        were left out. The pairs that stay are listed: at most 20 million.
    include_norms : bool, default=False
        Whether every row counts as a pair with the origin, too, so that lengths, inner
        products and cosines are preserved as well as distances.
    scale : {"balanced"} or None, default=None
        ``"balanced"`` makes ``transform`` multiply by
        ``1 / sqrt(1 - distortion_ / 2)``, so that squared lengths stay within
        ``1 +- isometry_`` of themselves: two-sided, as Johnson-Lindenstrauss and NuMax
        count. ``components_`` and the certificate are those of the projection itself.
    tol : float, default=1e-2
        Gap between distortion and lower bound, relative to the bound, at which
        ``"minimax"`` stops. It stops above this gap if neither the projection nor the
        bound improves any more. Less than 1e-9 means 1e-9.
    n_restarts : int or None, default=None
        Random starts of the local search of ``"minimax"``, after the one that the bound
        gives. None means as many as a fixed amount of work allows: dozens for small
        data, none for large data.
    warm_start : bool, default=False
        Whether ``"minimax"`` also starts from the projection of the last ``fit``, even
        if that had another number of dimensions or other rows.
    init : array-like of shape (m, n_features) or None, default=None
        Rows of a further start, for example the components of another method.
    max_iter : int or None, default=None
        Most iterations; None means the solver's own default (120 for the paper's).
    time_limit : float or None, default=None
        Seconds after which the best certified answer so far is returned. Where that is
        too little to walk over all pairs once, ``distortion_`` is over a random sample
        of them: ``certificate_.pair_kind`` is then ``"sample"``, and a warning and the
        certificate say with 95 % confidence what share of all pairs may lose more.
    random_state : int, RandomState instance or None, default=None
        Decides the samples and random starts of ``"minimax"``; ``"dual_ascent"`` draws
        none.
    verbose : int, default=0
        1 shows the present step in a line that is renewed; in logs, a line for each.
    checkpoint : path-like or None, default=None
        File in which ``"minimax"`` keeps its state after every round, written whole or
        not at all. A fit that was killed goes on from there when started again, with
        the same result as if nothing had happened.
    memory_limit : float, default=2e9
        Bytes that arrays as large as ``X``, and distances that ``"minimax"`` would need
        again, may take in memory. Arrays that go beyond lie in scratch files in the
        folder for temporary files. Where distances do not fit, most pairs are ruled out
        from a few coordinates instead.
    engine : Engine or None, default=None
        Where pairs are looked at: ``DaskEngine(client)`` for a cluster; None means
        threads of this process. The result does not depend on it.
    heldout : float, int or None, default=None
        Rows to hold out of the fit, as a share or a number, drawn by ``random_state``.
        What their pairs lose is then told by ``heldout_``.
    nested : sequence of int or None, default=None
        Prefixes: ascending numbers of dimensions below ``n_components``. The first rows
        of ``components_``, as many as each of them says, are then good projections
        themselves, each with its own certificate in ``certificates_``: store
        ``transform(X)[:, :k]`` and choose ``k`` later.
    nested_weights : sequence of float or None, default=None
        How much each prefix and, last, all rows matter; None means alike. The largest
        of ``weight * (distortion - alone) / (alone * (1 - alone))`` is made small,
        where ``alone`` is the distortion of a separate fit, and ``1 - alone`` counts as
        5 % where it is less: twice the weight, half the price of being nested.

    Attributes
    ----------
    scale_ : float
        What ``transform`` multiplies by; 1 unless ``scale="balanced"``.
    isometry_ : float
        ``distortion_ / (2 - distortion_)``, the two-sided constant of the balanced
        projection.
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows, in the precision of the data, ordered by the variance they
        carry; with ``nested``, within every block between two prefixes.
    distortion_ : float
        Largest loss over all pairs that count; exact, unless ``time_limit`` left no
        time for all of them.
    lower_bound_ : float
        No projection to as many dimensions has a smaller distortion.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    certificate_ : Certificate
        Components, sparse dual weights and bounds; save, load, verify.
    certificates_ : dict of int to Certificate
        The certificate of every prefix of ``nested`` and of all rows, by number of
        dimensions.
    status_ : Status
        Why the solver stopped.
    history_ : tuple of Step
        Distortion and lower bound per iteration.
    n_iter_ : int
        Iterations run.
    n_components_ : int
        Number of dimensions kept.
    n_components_lower_bound_ : int
        Where ``max_distortion`` was given: fewer dimensions cannot meet it, as proved.
    updated_ : {"kept", "refined"}
        After ``update``: whether the projection stayed as it was.
    heldout_ : Heldout or None
        Where ``heldout`` was given: what the projection does to pairs of rows held out,
        and to their pairs with fitted rows. The certificate is over the fitted rows
        ``heldout_.training`` alone, and numbers them from 0. Models that were loaded or
        updated have None.
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where the data had any.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from isoproj import NearIsometricProjection
    >>> X = load_wine().data
    >>> model = NearIsometricProjection(n_components=2, random_state=0).fit(X)
    >>> model.lower_bound_ <= model.distortion_
    True
    >>> model.transform(X).shape
    (178, 2)
    """

    _: KW_ONLY
    solver: str = "minimax"
    scale: str | None = None
    n_restarts: int | None = None
    warm_start: bool = False
    init: ArrayLike | None = None
    checkpoint: str | os.PathLike[str] | None = None

    def transform(self, X: ArrayLike | Rows) -> NDArray[Any]:
        """Project: ``X @ components_.T * scale_``.

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
        projected *= projected.dtype.type(self.scale_)
        return like(projected, X)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the learnt subspace with the given coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Projected points.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            ``X @ components_ / scale_``.
        """
        points = self._lifted(X)
        points /= points.dtype.type(self.scale_)
        return like(points, X)

    def _adopt(self, certificate: Certificate) -> None:
        super()._adopt(certificate)
        # Squared lengths keep between 1 - distortion and 1 of themselves; this puts
        # the middle of that range at 1.
        middle = 1.0 - self.distortion_ / 2.0
        self.scale_ = 1.0 if self.scale is None else 1.0 / math.sqrt(middle)
        self.isometry_ = self.distortion_ / (2.0 - self.distortion_)

    def update(self, X_new: ArrayLike | Rows, X: ArrayLike | Rows) -> Self:
        """Take in new points, at little cost where they change nothing.

        The stored projection and proof are checked on all points first. Only if the new
        ones lose more than the worst pair so far does the solver go on, from where it
        was, until the gap is again what it was, give or take ``tol``. The lower bound
        is worked on only where a better projection does not suffice for that.
        ``updated_`` says which of the two happened.

        Parameters
        ----------
        X_new : array-like or sparse matrix of shape (n_new, n_features)
            Points that were not fitted.
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The points of ``fit``, which are not stored.

        Returns
        -------
        NearIsometricProjection
            The same estimator, certified on ``X`` followed by ``X_new``.

        Raises
        ------
        ValueError
            If ``X`` is not the data of ``fit``, or the pairs were listed.
        """
        check_is_fitted(self)
        journal = self._journal()
        storage = self._storage()
        last = self.certificate_
        which = last.pairs.described(last.pair_kind)
        if which != PairKind.ALL or self.solver != "minimax" or last.prefixes:
            msg = (
                "update needs pairs='all', solver='minimax' and nested=None; got "
                f"{which!r}, {self.solver!r} and {self.nested!r}. Fit again instead."
            )
            raise ValueError(msg)
        old = self._validated(X, reset=False, storage=storage)
        new = self._validated(X_new, reset=False, storage=storage)
        if data_fingerprint(old) != last.fingerprint:
            msg = (
                "X must be the data of the last fit or update; its fingerprint differs."
                " Pass the rows in the same order."
            )
            raise ValueError(msg)
        geometry = Geometry.prepare(
            stacked(old, new, storage),
            PairRule.of("all"),
            storage=storage,
            engine=self.engine,
        )
        with telling(type(self).__name__, self.verbose):
            self._take_in(geometry, journal, last)
        if self.updated_ == "refined":
            self._warn(geometry)
        else:
            geometry.warn_of_rounding(self.certificate_, stacklevel=2)
        return self

    def _take_in(self, geometry: Geometry, journal: Journal, last: Certificate) -> None:
        """Certify the projection on more points; refine it if a new pair loses more.

        A gap as wide as before, give or take ``tol``, is enough.
        """
        points, components, k = geometry.points, last.components, last.n_components
        dual = Weights(last.weighted_pairs, last.weights)
        exact = components.astype(np.float64)
        found = find_worst(points, geometry.pairs, exact, n_worst=1, engine=self.engine)
        self.updated_, result = "kept", None
        # New points that lose this much more than the worst pair so far are rounding.
        if found.worst_losses[0] > last.distortion + 1e-7:
            from isoproj.solvers.solve import solve

            problem = self._problem(geometry, journal, 0)
            result = solve(
                replace(
                    problem,
                    k=k,
                    tol=last.optimality_gap + problem.tol,
                    start=points.frame.coordinates_of(exact.T),
                    dual=dual,
                    checkpoint=None,
                )
            )
            components, dual = geometry.components(result.basis, k), result.dual
            self.updated_ = "refined"
        certificate = geometry.certify(components, dual)
        if last.hull is not None:
            axes, pairs = last.hull.hull_axes, last.hull.hull_pairs
            certificate = certify_hull(points, certificate, axes, pairs)
        # The old rows are still there, so the proof about fewer dimensions still holds.
        self._adopt(replace(certificate, exclusion=last.exclusion))
        if result is not None:
            self._adopt_solve(result)

    def _check_parameters(self, n_features: int) -> None:
        super()._check_parameters(n_features)
        check_choice("solver", self.solver, ("minimax", "dual_ascent"))
        check_choice("scale", self.scale, ("balanced", None))
        if self.max_distortion is not None and (
            self.n_components is not None or self.solver != "minimax"
        ):
            msg = (
                "max_distortion needs solver='minimax' and no n_components; got "
                f"solver={self.solver!r} and n_components={self.n_components!r}. Leave "
                "n_components out, or use GuaranteedPCA, which takes both."
            )
            raise ValueError(msg)
        n = self.n_restarts
        what = "be a whole number, 0 or more, or None"
        fits = n is None or (is_whole(n) and n >= 0)
        require(fits, "n_restarts", n, what, "Use None.")
        if self.init is not None:
            check_map(self.init, n_features)
        place = self.checkpoint
        fits = isinstance(place, str | os.PathLike | None)
        require(fits, "checkpoint", place, "be a path or None", "Use None.")
        if self.nested is not None:
            self._check_alone("solver", "minimax")
            for name in ("init", "checkpoint"):
                self._check_alone(name, None)
            self._check_alone("warm_start", False)
        warm = self.warm_start
        fits = isinstance(warm, bool | int | np.integer)
        require(fits, "warm_start", warm, "be True or False", "Use False.")

    def _problem(self, geometry: Geometry, journal: Journal, seed: int) -> Problem:
        problem = super()._problem(geometry, journal, seed)
        k, points = problem.k, geometry.points
        if k is None and problem.cap is None:
            k = 2
        last = getattr(self, "certificate_", None) if self.warm_start else None
        checkpoint = None
        if self.checkpoint is not None:
            identity = {
                "data": data_fingerprint(geometry.rows),
                "n_pairs": geometry.pairs.n_pairs,
                "pairs": geometry.pairs.fingerprint,
                "n_components": k,
                "tol": problem.tol,
                "random_state": seed,
            }
            from isoproj.solvers.checkpoint import Checkpoint

            checkpoint = Checkpoint(self.checkpoint, identity)
        return replace(
            problem,
            k=k,
            n_restarts=self.n_restarts,
            start=self._start(points, k, last),
            dual=_still_valid(points, geometry.pairs, last),
            checkpoint=checkpoint,
        )

    def _objective(self) -> None:
        return None

    def _solved(self, geometry: Geometry, problem: Problem) -> Result:
        """Ask the solver, or run the paper's algorithm."""
        k = problem.k
        if self.solver == "minimax" or k is None or k >= problem.n_dims:
            return super()._solved(geometry, problem)
        from isoproj.solvers.dual_ascent import dual_ascent

        max_iter = 120 if self.max_iter is None else int(self.max_iter)
        method = "solver='dual_ascent'"
        posed = dense_problem(geometry.points, geometry.pairs, k, method)
        result = dual_ascent(posed, max_iter=max_iter, clock=problem.journal.clock)
        dual = Weights(*thinned(result.dual.pairs, result.dual.weights))
        return replace(result, dual=dual)

    def _start(
        self, points: Points, k: int | None, last: Certificate | None
    ) -> Array | None:
        """Return the basis to start from besides the solver's own, if any."""
        if k is None:
            return None
        rows = [] if last is None else [last.components.astype(np.float64)]
        if self.init is not None:
            rows.append(check_map(self.init, points.rows.shape[1]))
        rows = [row for row in rows if row.shape[1] == points.rows.shape[1]]
        if not rows:
            return None
        inside = points.frame.coordinates_of(np.vstack(rows).T)
        # Directions of widest spread make up the number where rows are too few.
        return np.hstack([inside, np.eye(points.n_dims, k)])[:, :k]


def _still_valid(
    points: Points, counting: PairSet, last: Certificate | None
) -> Weights:
    """Return the weights of the last proof on pairs that count on the new rows too."""
    if last is None:
        return Weights()
    is_valid = (last.weighted_pairs < points.n_points).all(axis=1)
    pairs, weights = last.weighted_pairs[is_valid], last.weights[is_valid]
    is_valid = points.are_distinct(pairs) & counting.holds(pairs, points.n_points)
    pairs, weights = pairs[is_valid], weights[is_valid]
    return Weights(pairs, weights / weights.sum()) if weights.size else Weights()
