"""What every linear projection of ours shares: the scikit-learn contract."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import estimator_html_repr
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

import isoproj
from isoproj.numerics.arrays import (
    Rows,
    as_rows,
    check_memory_limit,
    check_real,
    checked_rows,
    is_number,
    is_sparse,
    is_whole,
    like,
    on_host,
    require,
)
from isoproj.numerics.progress import LOGGER, Notice, Step, watching
from isoproj.numerics.shown import renewed_line
from isoproj.numerics.spectral import (
    Array,
    Fitted,
    Foreign,
    Map,
    canonical_signs,
    contraction,
    orthonormal,
)
from isoproj.numerics.storage import Storage, row_slices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.points import Points
from isoproj.pairs.rows import times
from isoproj.pairs.rule import LABELLED, PairRule

if TYPE_CHECKING:
    from isoproj import Report

try:
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:
    CallbackSupportMixin = object


class CallbackSupport(CallbackSupportMixin):
    """The mixin of scikit-learn, whose older versions have none."""


class LinearProjection(
    ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator, ABC
):
    """A linear map to fewer dimensions; subclasses decide which one ``fit`` finds."""

    components_: NDArray[Any]
    n_features_in_: int
    feature_names_in_: NDArray[Any]

    @abstractmethod
    def fit(self, X: ArrayLike | Rows, y: object = None) -> Self:
        """Learn ``components_``."""

    def transform(self, X: ArrayLike | Rows) -> NDArray[Any]:
        """Project: ``X @ components_.T``, nothing else.

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
        return like(self._projected(X), X)

    def inverse_transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the points of the learnt subspace with the given coordinates.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Projected points.

        Returns
        -------
        ndarray of shape (n_samples, n_features_in_)
            ``X @ components_``.
        """
        return like(self._lifted(X), X)

    def _lifted(self, X: ArrayLike) -> NDArray[Any]:
        """Return ``X @ components_`` as an ndarray."""
        check_is_fitted(self)
        projected: NDArray[Any] = check_array(
            on_host(X), dtype=[np.float64, np.float32]
        )
        k, width = self.components_.shape[0], projected.shape[1]
        what = f"have n_components_={k} columns"
        require(width == k, "X", width, what, "Pass what transform returned.")
        return np.asarray(projected @ self.components_)

    def score(self, X: ArrayLike | Rows, y: Foreign = None) -> float:
        """Return minus the distortion of the worst pair in ``X``; larger is better.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Any points, seen in ``fit`` or not.
        y : array-like of shape (n_samples,) or None
            Class labels where ``pairs`` goes by labels; ignored otherwise.

        Returns
        -------
        float
            At most 0, exact over the pairs of ``X`` that ``pairs`` names; over all of
            them where it is a list, or labels are not given.
        """
        from isoproj.proof.audit import audit

        check_is_fitted(self)
        storage = self._storage()
        rows = self._validated(X, reset=False, storage=storage)
        rule = self._pair_rule(y).elsewhere(y)
        result = audit(
            rows,
            self.components_,
            orientation="rows",
            pairs=rule,
            n_worst=1,
            spread=False,
            memory_limit=storage.room,
        )
        return -max(0.0, result.distortion)

    def _pair_rule(self, y: Foreign = None) -> PairRule:
        """Return which pairs count, as the parameters say it."""
        names = ("pairs", "n_neighbors", "min_distance", "include_norms")
        rule = PairRule(**{n: getattr(self, n) for n in names if hasattr(self, n)})
        rule.check()
        return replace(rule, labels=y) if rule.kind in LABELLED else rule

    def report(self, X: ArrayLike | Rows | None = None, **options: Any) -> Report:  # noqa: ANN401
        """Report what a certified projection does to the points it was fitted on.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features) or None
            The points of ``fit``; without them only what the model states is told.
        **options
            As ``isoproj.report`` takes them: ``heldout``, ``labels``, ``image_shape``
            and others.

        Returns
        -------
        Report
            With ``to_dict``, ``json``, ``markdown``, ``html`` and ``save``; notebooks
            show it.

        Raises
        ------
        ValueError
            If the estimator has no certificate, or an option does not fit.
        """
        check_is_fitted(self)
        # The package's front door, because documents lie above estimators.
        return isoproj.report(self, X, **options)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:  # noqa: ANN401
        bundle: dict[str, str] = super()._repr_mimebundle_(**kwargs)
        return {**bundle, "text/html": self._repr_html_()}

    def _repr_html_(self) -> str:
        """Show notebooks the certificate once there is one, else the parameters."""
        if hasattr(self, "certificate_"):
            with contextlib.suppress(ImportError):
                return self.report()._repr_html_()
        return str(estimator_html_repr(self))

    def __sklearn_tags__(self) -> Foreign:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def _projected(self, X: ArrayLike | Rows) -> NDArray[Any]:
        """Project to an array, whatever container ``set_output`` asks for."""
        check_is_fitted(self)
        rows = self._validated(X, reset=False)
        with np.errstate(over="ignore", invalid="ignore"):
            images = images_of(rows, self.components_)
            total = images.sum()
        # A finite sum proves every image finite.
        if not np.isfinite(total) and not np.isfinite(images).all():
            row = int(np.flatnonzero(~np.isfinite(images).all(axis=1))[0])
            msg = (
                f"X must have rows whose images are numbers of {images.dtype}; that of "
                f"row {row} is too long. Divide X by a number; no ratio changes."
            )
            raise ValueError(msg)
        return images

    def _storage(self) -> Storage:
        """Return where arrays as large as the data go."""
        limit = getattr(self, "memory_limit", math.inf)
        check_memory_limit(limit)
        return Storage(limit, is_shared=getattr(self, "engine", None) is not None)

    def _validated(
        self, X: ArrayLike | Rows, *, reset: bool, storage: Storage | None = None
    ) -> Rows:
        X = on_host(X)
        check_real(X)
        storage = storage or self._storage()
        rows = validate_data(
            self,
            as_rows(X, storage),
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        # Tables become arrays whose columns lie in one piece.
        return checked_rows(as_rows(rows, storage))


def images_of(rows: Rows, components: NDArray[Any]) -> NDArray[Any]:
    """Return ``rows @ components.T``, slice by slice where rows are dense."""
    if is_sparse(rows):
        product: NDArray[Any] = safe_sparse_dot(rows, components.T, dense_output=True)
        return product
    kind = np.result_type(rows.dtype, components.dtype)
    images = np.empty((rows.shape[0], components.shape[0]), dtype=kind)
    for chunk in row_slices(rows):
        np.matmul(rows[chunk], components.T, out=images[chunk])
    return images


@single_blas_thread
def shipped_components(
    points: Points, basis: Array, rows: Rows, k: int, cuts: Sequence[int] = ()
) -> Map:
    """Return the rows that users get: canonical order and signs, data's precision.

    Columns before and after a cut are not mixed, so that the spans up to the cuts stay.
    """
    projected = times(points.coordinates, basis, points.storage)
    ordered = basis.copy()
    inside = [cut for cut in cuts if cut < basis.shape[1]]
    for first, last in pairwise([0, *inside, basis.shape[1]]):
        block = projected[:, first:last]
        _, order = np.linalg.eigh(block.T @ block)
        ordered[:, first:last] = basis[:, first:last] @ order[:, ::-1]
    columns = points.frame.lift(ordered)
    if columns.shape[1] < k:
        columns = _completed(columns, k)
    return contraction(canonical_signs(columns.T), rows.dtype)


def _completed(columns: Array, k: int) -> Array:
    """Return ``k`` orthonormal columns that begin with the given ones."""
    n_features, have = columns.shape
    # Random directions are almost surely independent of the columns; twice is enough
    # to be orthogonal to them to the last digit.
    extra = np.random.default_rng(0).standard_normal((n_features, k - have))
    for _ in range(2):
        extra = orthonormal(extra)
        extra -= columns @ (columns.T @ extra)
    return np.hstack([columns, orthonormal(extra)])


def check_count(k: object, n_features: int) -> None:
    """Raise unless ``k`` is a number of dimensions to project to."""
    if not is_whole(k):
        # PCA of scikit-learn takes a share here.
        is_share = is_number(k) and 0.0 < k < 1.0
        msg = f"n_components must be an integer; got {k!r}. Pass a number like 20" + (
            "; NearIsometricProjection(max_distortion=0.2) finds the fewest dimensions "
            "under which no pair loses more than a fifth."
            if is_share
            else "."
        )
        raise ValueError(msg)
    what, advice = f"be between 1 and {n_features=}", "Choose a value in that range."
    require(1 <= k <= n_features, "n_components", int(k), what, advice)


def check_positive(name: str, value: float | None, *, integral: bool) -> None:
    """Raise unless an optional limit is None or a positive number."""
    is_kind, what = (
        (is_whole, "a whole number") if integral else (is_number, "a number of seconds")
    )
    fits = value is None or (is_kind(value) and value > 0)
    require(fits, name, value, f"be {what} above 0, or None", "Use None.")


def checked_gap(tol: float) -> float:
    """Return the gap to solve for, at least 1e-9; raise ValueError for no such number.

    Solvers that aim below their rounding stall early and return a looser bound.
    """
    fits = is_number(tol) and 0.0 < tol < math.inf
    require(fits, "tol", tol, "be a number above 0", "Use 1e-3.")
    # Solvers cannot close a relative gap further in float64.
    return max(float(tol), 1e-9)


@contextmanager
def telling(name: str, verbose: int) -> Iterator[None]:
    """Log the begin and the end of a fit; if verbose, show its present step."""
    start, last = time.monotonic(), ""

    def listen(step: Step) -> None:
        nonlocal last
        last = f", {step.bounds}"
        if show is not None:
            show(f"[{name}] {step.line()}")

    def note(notice: Notice) -> None:
        if verbose:
            sys.stderr.write(f"[{name}] {notice.text}\n")

    LOGGER.info("%s: begins", name)
    end = "ends"
    try:
        renewed = renewed_line() if verbose else nullcontext()
        with renewed as show, watching(listen, Step), watching(note, Notice):
            yield
    except BaseException as error:
        end = f"fails with {type(error).__name__}"
        raise
    finally:
        LOGGER.info("%s: %s, %.1f s%s", name, end, time.monotonic() - start, last)


@contextmanager
def calling_back(estimator: Fitted, X: Foreign, y: Foreign) -> Iterator[None]:
    """Call an estimator's callbacks at begin and end of a fit and after each step.

    A callback that returns True after a step stops the fit as Ctrl-C does: the best of
    both sides is returned.
    """
    if not hasattr(estimator, "set_callbacks"):
        yield
        return
    given = {"estimator": estimator, "X": X, "y": y}
    try:
        fit = estimator._init_callback_context(max_subtasks=None)
        fit.call_on_fit_task_begin(**given)

        def listen(_: Step) -> None:
            step = fit.subcontext(task_name="step").call_on_fit_task_begin(**given)
            if step.call_on_fit_task_end(**given):
                raise KeyboardInterrupt

        if getattr(estimator, "_skl_callbacks", None):
            with watching(listen, Step):
                yield
        else:
            yield
        fit.call_on_fit_task_end(**given, reconstruction_attributes={})
    finally:
        # Decorating ``fit`` itself would put a frame between it and its caller, and
        # warnings would name the wrong line.
        with_callbacks(_nothing)(estimator)


def _nothing(_: object) -> None:
    """Do nothing, so that only the callbacks are torn down."""
