"""What every baseline shares: one ``fit``, which measures the map it has found."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Generic, Self, TypeVar, dataclass_transform

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from isoproj.estimators.base import (
    LinearProjection,
    check_count,
    check_positive,
    shipped_components,
    telling,
)
from isoproj.estimators.descriptions import described_by
from isoproj.estimators.geometry import Geometry, dense_problem
from isoproj.numerics.arrays import Rows, is_number, require
from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array, contraction
from isoproj.numerics.threads import one_blas_thread
from isoproj.pairs.moments import DualProblem
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairRule, PairSet
from isoproj.proof.audit import audit
from isoproj.proof.bounds import lower_bound
from isoproj.solvers.api import Clock, Status, Weights

_Item = TypeVar("_Item")


@dataclass(slots=True, eq=False)
class Best(Generic[_Item]):
    """The item of least cost so far; ``stale`` counts looks since the last progress."""

    item: _Item
    cost: float = math.inf
    stale: int = 0

    def see(self, item: _Item, cost: float) -> None:
        """Keep the item if it costs less than the best so far."""
        self.stale += 1
        if cost < self.cost:
            # A cost that falls by less than this share is no progress.
            if cost < self.cost * (1.0 - 1e-4):
                self.stale = 0
            self.item, self.cost = item, cost


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task:
    """What a method is given: data, pairs that count, labels, randomness and limits.

    ``points`` holds the rows in the coordinates of their span.
    """

    rows: Rows
    points: Points
    pairs: PairSet
    labels: Any
    generator: np.random.RandomState
    clock: Clock

    def pool(self, labels: NDArray[np.intp] | None = None) -> PairSearch:
        """Return the pairs that count, ready to be searched for extremes."""
        return PairSearch(self.points, self.pairs, labels=labels)

    def dense_problem(self, method: str, k: int) -> DualProblem:
        """Return the problem of a method that holds a weight for every pair."""
        return dense_problem(self.points, self.pairs, k, method)

    def principal_axes(self, k: int) -> Array:
        """Return the ``k`` directions of most variance, as columns in the span."""
        # PCA's default solver approximates at random for larger data.
        coordinates = self.points.coordinates
        tall = coordinates.shape[0] > coordinates.shape[1]
        analysis = PCA(k, svd_solver="covariance_eigh" if tall else "full")
        return np.asarray(analysis.fit(coordinates).components_.T)

    def tell(
        self,
        number: int,
        distortion: float,
        lower: float = 0.0,
        **more: Any,  # noqa: ANN401 - further fields of a step
    ) -> None:
        """Tell whoever listens what a round of the search has found."""
        step = Step(
            iteration=number,
            distortion=distortion,
            lower_bound=lower,
            seconds=self.clock.seconds,
            **more,
        )
        tell(step)

    def status(self, otherwise: Status) -> Status:
        """Return why a search ends: ``TIME_LIMIT`` if the clock is over."""
        return Status.TIME_LIMIT if self.clock.is_over else otherwise


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FoundMap:
    """The map that a method found, before it is measured.

    ``columns`` has shape (n_dims, k) in the span, or (n_features, k) with
    ``in_span=False``. From the dual weights of ``proof``, where there are some, a lower
    bound is certified. ``extras`` holds further fitted attributes by name.
    """

    columns: Array
    is_orthonormal: bool = True
    in_span: bool = True
    n_iter: int = 1
    status: Status = Status.COMPLETED
    proof: Weights | None = None
    extras: dict[str, Any] = field(default_factory=dict)


def proof_by(problem: DualProblem, weights: Array) -> Weights:
    """Return the weights that are not zero, and their pairs."""
    support = np.flatnonzero(weights)
    return Weights(problem.pairs(support), weights[support])


@dataclass_transform(kw_only_default=True)
@dataclass(eq=False, repr=False)
class Baseline(LinearProjection):
    """A linear map found by another method and measured by our exact scan.

    Parameters
    ----------
    n_components : int, default=2
        Number of dimensions to keep.
    pairs : {"all", "directions"} or array-like of shape (n_pairs, 2), default="all"
        Which pairs count.
    time_limit : float or None, default=None
        Seconds after which the best so far is returned.
    random_state : int, RandomState instance or None, default=None
        Not used: nothing is random.
    verbose : int, default=0
        1 shows the present step in a line that is renewed; in logs, a line for each.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows.
    distortion_ : float
        Largest share of squared length that a pair loses; exact.
    stretch_ : float
        Largest share of squared length that a pair gains; exact, 0 for a projection.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    status_ : Status
        Why the search stopped.
    n_iter_, n_components_, n_features_in_ : int
        Iterations, dimensions kept, features seen.
    """

    n_components: int | None = 2
    _: KW_ONLY
    pairs: str | ArrayLike = "all"
    time_limit: float | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0

    # Methods that search the span of the points have nothing to do when all of it fits.
    _keeps_span: ClassVar[bool] = True

    def __init_subclass__(cls, **options: Any) -> None:  # noqa: ANN401
        """Make the fields of a method parameters, and complete its docstring."""
        super().__init_subclass__(**options)
        dataclass(eq=False, repr=False, kw_only=True)(cls)
        described_by(Baseline)(cls)

    def fit(self, X: ArrayLike | Rows, y: object = None) -> Self:
        """Find the map and measure what it does to every pair that counts.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The points.
        y : array-like of shape (n_samples,) or None
            Class labels for the methods that say so; ignored by the others.

        Returns
        -------
        Baseline
            The fitted estimator.

        Raises
        ------
        ValueError
            If the data or a parameter is unusable; the message says how to mend it.
        """
        rows = self._validated(X, reset=True)
        if self.n_components is not None:
            check_count(self.n_components, rows.shape[1])
        check_positive("time_limit", self.time_limit, integral=False)
        check_positive("max_iter", getattr(self, "max_iter", None), integral=True)
        self._check_parameters()
        clock = Clock(self.time_limit)
        geometry = Geometry.prepare(rows, PairRule.of(self.pairs))
        task = Task(
            rows=rows,
            points=geometry.points,
            pairs=geometry.pairs,
            labels=y,
            generator=check_random_state(self.random_state),
            clock=clock,
        )
        with telling(type(self).__name__, self.verbose):
            with one_blas_thread():
                found = self._keep_span(task) or self._search(task)
            self._adopt(task, found)
        if found.status.advice:
            self._warn_of_status(found.status)
        return self

    @abstractmethod
    def _search(self, task: Task) -> FoundMap:
        """Run the method."""

    def _check_parameters(self) -> None:
        """Raise if a parameter of the method itself is unusable."""

    @property
    def _k(self) -> int:
        """Number of dimensions asked for."""
        return int(self.n_components or 1)

    def _keep_span(self, task: Task) -> FoundMap | None:
        """Return the whole span where it fits into the dimensions asked for."""
        k = self.n_components
        if not self._keeps_span or k is None or k < task.points.n_dims:
            return None
        return FoundMap(columns=np.eye(task.points.n_dims), n_iter=0)

    def _adopt(self, task: Task, found: FoundMap) -> None:
        """Measure the map and set the fitted attributes."""
        self.components_ = _components(task, found, self.n_components)
        judged = audit(
            task.rows, self.components_, orientation="rows", pairs=self.pairs
        )
        self.distortion_ = max(0.0, judged.distortion)
        self.stretch_ = judged.stretch
        self.worst_pairs_ = judged.worst_pairs
        self.n_components_ = int(self.components_.shape[0])
        self.n_iter_ = found.n_iter
        self.status_ = found.status
        if found.proof is not None:
            pairs, weights = found.proof.pairs, found.proof.weights
            self.lower_bound_ = lower_bound(task.points, pairs, weights, self._k)
        for name, value in found.extras.items():
            setattr(self, name, value)

    def _warn_of_status(self, status: Status) -> None:
        """Warn that the search stopped early, with the numbers measured."""
        msg = (
            f"Stopped early ({status}) at distortion {self.distortion_:.4f}, stretch "
            f"{self.stretch_:.4f}, both as measured. {status.advice}"
        )
        warnings.warn(msg, ConvergenceWarning, stacklevel=3)


def _components(task: Task, found: FoundMap, k: int | None) -> NDArray[Any]:
    """Return the rows that users get, in the precision of the data."""
    columns, dtype = found.columns, task.rows.dtype
    if found.is_orthonormal:
        if found.in_span:
            wanted = max(columns.shape[1], k or 1)
            return shipped_components(task.points, columns, task.rows, wanted)
        return contraction(columns.T, dtype)
    if found.in_span:
        # Lifting keeps orthonormal columns only, so the rest is lifted beside it.
        q, r = scipy.linalg.qr(columns, mode="economic", check_finite=False)
        columns = task.points.frame.lift(np.asarray(q, dtype=np.float64)) @ r
    return np.ascontiguousarray(columns.T, dtype=dtype)


def check_fraction(name: str, value: object) -> None:
    """Raise unless a number lies strictly between 0 and 1."""
    fits = is_number(value) and 0.0 < float(value) < 1.0
    require(fits, name, value, "lie between 0 and 1", "Try 0.4.")
