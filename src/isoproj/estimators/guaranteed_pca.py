"""PCA with a floor under every distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis

from isoproj._container import Tensors
from isoproj._spectral import Array, Indices
from isoproj._validation import Rows, is_sparse
from isoproj.certificate import Certificate
from isoproj.certify import certify, certify_guarantee
from isoproj.engines.base import Engine
from isoproj.estimators.base import (
    monitor_of,
    shipped_components,
    warn_of_copies,
)
from isoproj.estimators.certified import CertifiedProjection, everything
from isoproj.exceptions import FormatError, InfeasibleError
from isoproj.objective import Objective, objective_matrix
from isoproj.pairs import PairSet, prepare_pairs
from isoproj.points import Points
from isoproj.search import PairSearch
from isoproj.solvers.base import Clock, SolveResult, Status, Step
from isoproj.solvers.guaranteed import GuaranteedResult, guaranteed
from isoproj.solvers.minimax import minimax
from isoproj.solvers.relaxation import Relaxation

__all__ = ["CappedProblem", "GuaranteedPCA"]

_NO_PAIRS = np.empty((0, 2), dtype=np.intp)


class GuaranteedPCA(CertifiedProjection):
    """Most of the variance that fits under a cap on what any pair of points may lose.

    PCA keeps the most variance and may crush single pairs of points. This keeps the
    most variance among the projections under which no pair loses more than
    ``max_distortion`` of its squared length: usually almost all of PCA's. It reports
    what is kept, what the worst pair loses, and a bound on what any projection with
    the same guarantee can keep. The guarantee is for the points it was fitted on.

    Parameters
    ----------
    n_components : int or None, default=2
        Number of dimensions to keep; None, together with ``max_distortion``, means
        the fewest that are found to suffice.
    max_distortion : float or None, default=None
        The cap: what no pair may lose more than, as a share of its squared length.
        None means ``1 + slack`` times the least that is found possible.
    slack : float, default=0.05
        How far the cap is above the least possible distortion found.
    objective : {"variance", "distortion"}, default="variance"
        Keep the most variance, as PCA does, or lose the least on average over the
        pairs that count.
    pairs : str or array-like of shape (n_pairs, 2), default="all"
        Which pairs the cap is for: every pair of rows (``"all"``); every row as a
        direction of its own (``"directions"``); every point with its nearest ones
        (``"neighbors"``, or ``"approximate-neighbors"`` by pynndescent); rows of
        different classes (``"labels"``) or of the same (``"within-labels"``), with
        ``y`` given to ``fit``; or the pairs listed.
    n_neighbors : int, default=10
        Neighbours of each point with ``pairs="neighbors"``. Copies of a point are not
        its neighbours.
    min_distance : float, default=0.0
        Pairs closer than this do not count; ``certificate_.n_close`` says how many
        were left out. The pairs that stay are listed: at most 20 million.
    include_norms : bool, default=False
        Whether every row counts as a direction too, as a pair with the origin, so that
        lengths, inner products and cosines survive besides distances.
    tol : float, default=1e-3
        Relative gap at which the relaxations are content with their bounds.
    max_iter : int or None, default=None
        Most rounds of each of the two searches; None means their own default.
    time_limit : float or None, default=None
        Seconds after which the best certified answer so far is returned.
    random_state : int, RandomState instance or None, default=None
        Decides the samples and random starts.
    verbose : int, default=0
        1 writes a line per round to standard error.
    memory_limit : float, default=2e9
        Bytes that may be filled with distances that are needed again.
    engine : Engine or None, default=None
        Where pairs are looked at: ``DaskEngine(client)`` for a cluster; None means
        threads of this process. The result does not depend on it.

    Attributes
    ----------
    components_ : ndarray of shape (n_components_, n_features_in_)
        Orthonormal rows, in the precision of the data, ordered by the variance they
        carry.
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
        What the worst of all pairs that count loses; exact, at most the cap.
    lower_bound_ : float
        No projection to as many dimensions has a smaller distortion.
    n_components_lower_bound_ : int
        Where ``n_components`` is None: no fewer dimensions can be under the cap.
    worst_pairs_ : ndarray of shape (m, 2)
        Row numbers of the pairs that lose most, worst first.
    certificate_ : Certificate
        All of these claims with their proof; save, load, verify.
    status_ : Status
        Why the solver stopped.
    history_ : tuple of Step
        Values and bounds per round.
    n_iter_ : int
        Rounds run.
    n_components_ : int
        Number of dimensions kept.
    n_features_in_ : int
        Number of features seen in ``fit``.
    feature_names_in_ : ndarray of shape (n_features_in_,)
        Their names, where the data had any.

    Examples
    --------
    >>> from sklearn.datasets import load_wine
    >>> from isoproj import GuaranteedPCA
    >>> X = load_wine().data
    >>> model = GuaranteedPCA(n_components=3).fit(X)
    >>> model.distortion_ <= model.max_distortion_
    True
    >>> model.kept_ <= model.kept_bound_
    True
    """

    mean_: NDArray[Any]

    def __init__(
        self,
        n_components: int | None = 2,
        *,
        max_distortion: float | None = None,
        slack: float = 0.05,
        objective: str = "variance",
        pairs: str | ArrayLike = "all",
        n_neighbors: int = 10,
        min_distance: float = 0.0,
        include_norms: bool = False,
        tol: float = 1e-3,
        max_iter: int | None = None,
        time_limit: float | None = None,
        random_state: int | np.random.RandomState | None = None,
        verbose: int = 0,
        memory_limit: float = 2e9,
        engine: Engine | None = None,
    ) -> None:
        self.n_components = n_components
        self.max_distortion = max_distortion
        self.slack = slack
        self.objective = objective
        self.pairs = pairs
        self.n_neighbors = n_neighbors
        self.min_distance = min_distance
        self.include_norms = include_norms
        self.tol = tol
        self.max_iter = max_iter
        self.time_limit = time_limit
        self.random_state = random_state
        self.verbose = verbose
        self.memory_limit = memory_limit
        self.engine = engine

    def fit(self, X: ArrayLike | Rows, y: object = None) -> Self:
        """Learn the projection and certify it.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The points.
        y : array-like of shape (n_samples,) or None
            Class labels where ``pairs`` goes by labels; ignored otherwise.

        Returns
        -------
        GuaranteedPCA
            The fitted estimator.

        Raises
        ------
        InfeasibleError
            If no projection under ``max_distortion`` exists, with the proof, or if none
            was found, which is another thing.
        ValueError
            If the data or a parameter is unusable; the message says how to mend it.
        """
        rows = self._validated(X, reset=True)
        self._check_parameters(rows.shape[1])
        points, pairs = prepare_pairs(rows, self._pair_rule(y), rotate=True)
        warn_of_copies(points, pairs)
        problem = CappedProblem(
            points=points,
            pairs=pairs,
            rows=rows,
            objective=Objective(self.objective),
            tol=float(self.tol),
            max_iter=self.max_iter,
            clock=Clock(self.time_limit),
            seed=int(check_random_state(self.random_state).randint(2**31 - 1)),
            name=type(self).__name__,
            verbose=self.verbose,
            memory_limit=float(self.memory_limit),
            engine=self.engine,
        )
        exclusion, found, k = None, None, self.n_components
        if k is None:
            found, exclusion = self._fewest(points, problem.search, problem.seed)
            k = found.k
        known = None if found is None or found.result is None else found.result.basis
        answer = problem.answer(int(k), self.max_distortion, float(self.slack), known)
        self._adopt(replace(answer.certificate, exclusion=exclusion))
        self._measure(rows)
        self.status_ = answer.status
        if found is not None and found.status.advice:
            self.status_ = found.status
        self._warn_of_room(points)
        self.history_ = answer.history
        self.n_iter_ = max(1, len(answer.history))
        if self.status_.advice:
            self._warn_of_status()
        return self

    def transform(self, X: ArrayLike | Rows) -> NDArray[Any]:
        """Project as PCA does: ``(X - mean_) @ components_.T``.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Points with the features seen in ``fit``.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
            Their projections.
        """
        projected = self._projected(X)
        centre = self.mean_.astype(np.float64) @ self.components_.T.astype(np.float64)
        projected -= centre.astype(projected.dtype)
        return projected

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
        return np.asarray(super().inverse_transform(X) + self.mean_)

    def _check_parameters(self, n_features: int) -> None:
        if self.n_components is None and self.max_distortion is None:
            msg = (
                "n_components=None needs max_distortion; got None for both. "
                "Pass one of them."
            )
            raise ValueError(msg)
        self._check_shared(n_features)
        if not (_is_number(self.slack) and 0.0 <= self.slack < math.inf):
            msg = f"slack must be a number, 0 or more; got {self.slack!r}. Use 0.05."
            raise ValueError(msg)
        if self.objective not in tuple(Objective):
            msg = (
                "objective must be 'variance' or 'distortion'; "
                f"got {self.objective!r}. Use 'variance'."
            )
            raise ValueError(msg)

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
        images = rows @ components.T
        ddof = max(rows.shape[0] - 1, 1)
        scale = rows.shape[0] / ddof
        if is_sparse(rows):
            mean, spread = mean_variance_axis(rows, axis=0)
        else:
            mean = rows.mean(axis=0, dtype=np.float64)
            spread = rows.var(axis=0, dtype=np.float64)
        self.mean_ = np.asarray(mean, dtype=rows.dtype)
        variance = np.asarray(images.var(axis=0, dtype=np.float64)) * scale
        self.explained_variance_ = variance
        total = float(np.sum(spread, dtype=np.float64)) * scale
        self.explained_variance_ratio_ = variance / total
        self.singular_values_ = np.sqrt(variance * ddof)

    def _further(self) -> dict[str, NDArray[Any]]:
        return {
            "mean": self.mean_,
            "explained_variance": self.explained_variance_,
            "explained_variance_ratio": self.explained_variance_ratio_,
            "singular_values": self.singular_values_,
        }

    def _restore(self, tensors: Tensors) -> None:
        shapes = dict.fromkeys(
            ("explained_variance", "explained_variance_ratio", "singular_values"),
            (self.n_components_,),
        )
        for name, shape in {"mean": (self.n_features_in_,), **shapes}.items():
            tensor = tensors.get(name)
            if tensor is None or tensor.shape != shape or tensor.dtype.kind != "f":
                msg = (
                    f"a GuaranteedPCA must have {name!r} of shape {shape}. Save again."
                )
                raise FormatError(msg)
            setattr(self, f"{name}_", np.array(tensor))


@dataclass(frozen=True, slots=True, eq=False)
class Answer:
    """A certified projection and how it was found."""

    certificate: Certificate
    basis: Array
    status: Status
    history: tuple[Step, ...]


@dataclass(slots=True, eq=False, kw_only=True)
class CappedProblem:
    """One data set under one cap after another; what does not change is kept.

    Parameters
    ----------
    points, pairs
        The geometry and the pairs that count.
    rows : ndarray or CSR array
        The data as validated.
    objective : Objective
        What is to be kept.
    tol, max_iter, seed, verbose
        Of the solvers.
    clock : Clock
        Time used since the beginning, and allowed.
    name : str
        Who asks; shown in progress lines.
    memory_limit, engine
        Of the search of pairs.
    """

    points: Points
    pairs: PairSet
    rows: Rows
    objective: Objective
    tol: float
    max_iter: int | None
    clock: Clock
    seed: int
    name: str
    verbose: int
    memory_limit: float = 2e9
    engine: Engine | None = None
    _search: PairSearch | None = None
    _matrix: Array | None = None

    @property
    def search(self) -> PairSearch:
        """All pairs, prepared at first use."""
        if self._search is None:
            self._search = PairSearch(
                self.points,
                self.pairs,
                memory_limit=self.memory_limit,
                engine=self.engine,
            )
        return self._search

    @property
    def matrix(self) -> Array:
        """The objective's matrix in span coordinates, prepared at first use."""
        if self._matrix is None:
            coordinates = self.points.coordinates
            if self.objective is Objective.VARIANCE:
                coordinates = coordinates[: self.rows.shape[0]]
                coordinates = coordinates - coordinates.mean(axis=0)
            self._matrix = objective_matrix(
                coordinates, self.objective, self.pairs, self.points.first_copy
            )
        return self._matrix

    def answer(
        self, k: int, cap: float | None, slack: float, known: Array | None = None
    ) -> Answer:
        """Find the projection to ``k`` dimensions that keeps most under a cap.

        Parameters
        ----------
        k : int
            Target dimension.
        cap : float or None
            The cap; None means ``1 + slack`` times the least distortion found.
        slack : float
            How far above.
        known : ndarray of shape (n_dims, k) or None
            A basis known to be under the cap.

        Returns
        -------
        Answer
            Certified, under the cap.
        """
        if k >= self.points.n_dims:
            best = everything(self.points, self.pairs)
            basis = np.eye(self.points.n_dims)
            return self._certified(
                k, 0.0 if cap is None else cap, best, _unbounded(basis), is_given=False
            )
        if cap is not None:
            principal = self._principal(k, cap)
            if principal is not None:
                return principal
        best = self.minimax(k, known)
        starts = [best.basis] if known is None else [best.basis, known]
        given = cap is not None
        if best.status is Status.INTERRUPTED:
            # Whoever stops a fit does not want to wait for its second half.
            unsolved = _unbounded(None, best.status)
            cap = 0.0 if cap is None else cap
            return self._certified(k, cap, best, unsolved, starts, is_given=given)
        if cap is None:
            least = max(0.0, best.history[-1].distortion)
            cap = min(1.0, (1.0 + slack) * least)
        return self.under(k, cap, best, starts, is_given=given)

    def minimax(self, k: int, start: Array | None = None) -> SolveResult:
        """Find the least distortion, with its bound."""
        return minimax(
            self.points,
            self.pairs,
            k,
            tol=self.tol,
            search=self.search,
            start=start,
            **self._options(),
        )

    def under(
        self,
        k: int,
        cap: float,
        best: SolveResult,
        starts: list[Array],
        *,
        is_given: bool,
    ) -> Answer:
        """Find what keeps most under a cap, given the least distortion found.

        Parameters
        ----------
        k : int
            Target dimension.
        cap : float
            The cap.
        best : SolveResult
            Of ``minimax``.
        starts : list of ndarray
            Bases to start from; one of them should be under the cap.
        is_given : bool
            Whether the cap must hold to the last digit, or may give way to the
            rounding of the best projection found.

        Returns
        -------
        Answer
            Certified, under the cap.

        Raises
        ------
        InfeasibleError
            If a given cap is impossible, or was not reached.
        """
        last = best.history[-1]
        if is_given and cap < last.lower_bound:
            self._refuse(k, cap, best)
        anchor = Relaxation(
            best.pairs @ np.array([self.points.n_points, 1]),
            best.weights,
            best.basis if best.factor is None else best.factor,
            last.lower_bound,
            last.relaxed,
            0,
        )
        result = guaranteed(
            self.search,
            k,
            self.matrix,
            cap,
            anchor,
            starts,
            tol=self.tol,
            **self._options(),
        )
        return self._certified(k, cap, best, result, starts, is_given=is_given)

    def _principal(self, k: int, cap: float) -> Answer | None:
        """Return PCA itself if it is under the cap: then nothing keeps more."""
        sample = self.search.sample(1000, np.random.default_rng(self.seed))
        basis = np.linalg.eigh(self.matrix)[1][:, : -k - 1 : -1]
        unsolved = SolveResult(
            basis=basis,
            pairs=self.search.decode(sample),
            weights=np.full(sample.size, 1.0 / sample.size),
            status=Status.CONVERGED,
            history=(),
        )
        weakest = self.search.weakest(basis, 0.0)
        if 1.0 - float(weakest.retained[0]) > cap and cap < 1.0:
            return None
        answer = self._certified(k, cap, unsolved, _unbounded(basis), is_given=False)
        guarantee = answer.certificate.guarantee
        assert guarantee is not None
        return answer if guarantee.cap <= cap or cap >= 1.0 else None

    def _options(self) -> dict[str, Any]:
        options: dict[str, Any] = {
            "time_limit": self.clock.left,
            "seed": self.seed,
            "monitor": monitor_of(self.name, self.verbose),
        }
        if self.max_iter is not None:
            options["max_iter"] = int(self.max_iter)
        return options

    def _bounds(
        self, k: int, basis: Array, pairs: Indices, weights: Array
    ) -> Certificate:
        components = shipped_components(self.points, basis, self.rows, k)
        return certify(
            self.points,
            self.pairs,
            components,
            pairs,
            weights,
            n_rows=self.rows.shape[0],
            engine=self.engine,
        )

    def _certified(
        self,
        k: int,
        cap: float,
        best: SolveResult,
        result: GuaranteedResult,
        starts: Sequence[Array] = (),
        *,
        is_given: bool,
    ) -> Answer:
        """Certify the result; fall back to what it started from if it does not hold."""
        bases = [*starts, best.basis]
        for basis in bases if result.basis is None else [result.basis, *bases]:
            certificate = self._bounds(k, basis, best.pairs, best.weights)
            if certificate.distortion <= cap:
                break
        else:
            if is_given:
                self._refuse(k, cap, best)
            cap = certificate.distortion
        certificate = certify_guarantee(
            self.points,
            self.pairs,
            certificate,
            self.objective,
            cap,
            result.pairs,
            result.multipliers,
        )
        status = best.status if best.status.advice else result.status
        history = best.history + result.history
        return Answer(certificate, basis, status, history)

    def _refuse(self, k: int, cap: float, best: SolveResult) -> None:
        """Raise: the cap is impossible, or was not reached."""
        certificate = self._bounds(k, best.basis, best.pairs, best.weights)
        found = f"{certificate.distortion:.4f}"
        if cap < certificate.lower_bound:
            msg = (
                f"max_distortion={cap:g} is impossible in {k} dimensions: every "
                f"projection loses {certificate.lower_bound:.4f} or more of some pair, "
                f"proved by the certificate of this error; {found} is possible. Raise "
                "max_distortion, or n_components."
            )
        else:
            msg = (
                f"max_distortion={cap:g} was not reached in {k} dimensions: the best "
                f"projection found loses {found} of some pair, and only losses below "
                f"{certificate.lower_bound:.4f} are proved impossible, so that it is "
                "unknown whether one exists. Raise max_distortion, or n_components."
            )
        raise InfeasibleError(msg, certificate)


def _unbounded(
    basis: Array | None, status: Status = Status.OPTIMAL
) -> GuaranteedResult:
    """Return a basis, or none, without multipliers."""
    return GuaranteedResult(
        basis=basis,
        pairs=_NO_PAIRS,
        multipliers=np.empty(0),
        kept=1.0,
        kept_bound=1.0,
        status=status,
        history=(),
    )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)
