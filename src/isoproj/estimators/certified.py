"""What every projection with a certificate shares: its claims and its file."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from isoproj.engines.base import Engine, chosen
from isoproj.estimators.base import (
    CallbackSupport,
    LinearProjection,
    calling_back,
    check_count,
    check_positive,
    checked_gap,
    telling,
)
from isoproj.estimators.geometry import Geometry
from isoproj.exceptions import FormatError
from isoproj.numerics.arrays import Rows, check_memory_limit, is_number, require
from isoproj.numerics.container import Tensors, read_container, write_container
from isoproj.numerics.interrupts import stoppable
from isoproj.numerics.rounding import at_least, at_most
from isoproj.numerics.spectral import Foreign
from isoproj.pairs.rule import LABELLED, PairKind
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective
from isoproj.solvers.api import (
    Clock,
    Journal,
    Problem,
    Result,
    Status,
    history_of_table,
    history_table,
)

if TYPE_CHECKING:
    from isoproj.proof.heldout import Heldout
    from isoproj.proof.verify import CheckedClaim

# A distortion below this is rounding.
_NOTHING = 1e-9


@dataclass(eq=False, repr=False)
class CertifiedProjection(CallbackSupport, LinearProjection):
    """A projection with the proof of what it loses; both are saved together."""

    n_components: int | None = None
    _: KW_ONLY
    max_distortion: float | None = None
    pairs: str | ArrayLike = "all"
    n_neighbors: int = 10
    min_distance: float = 0.0
    include_norms: bool = False
    tol: float = 1e-2
    max_iter: int | None = None
    time_limit: float | None = None
    random_state: int | np.random.RandomState | None = None
    verbose: int = 0
    memory_limit: float = 2e9
    engine: Engine | None = None
    heldout: float | None = None
    nested: Sequence[int] | None = None
    nested_weights: Sequence[float] | None = None

    def fit(self, X: ArrayLike | Rows, y: object = None) -> Self:
        """Learn the projection and certify it.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            The points. They need not fit in memory: a mapped file (``numpy.load`` with
            ``mmap_mode="r"``) is read where it is, an array of Dask, HDF5 or Zarr
            slice by slice.
        y : array-like of shape (n_samples,) or None
            Class labels where ``pairs`` goes by labels; ignored otherwise.

        Returns
        -------
        CertifiedProjection
            The fitted estimator.

        Raises
        ------
        InfeasibleError
            If ``GuaranteedPCA`` was given a cap under which no projection exists, with
            the proof, or under which none was found.
        ValueError
            If the data or a parameter is unusable; the message says how to mend it.
        """
        journal = self._journal()
        with telling(type(self).__name__, self.verbose), calling_back(self, X, y):
            # Seeds every random choice: the split, the sample of pairs, the starts.
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            storage = self._storage()
            given = self._validated(X, reset=True, storage=storage)
            self._check_parameters(given.shape[1])
            n_scans = 1 if self.nested is None else 1 + len(self.nested)
            rows, rule, split = given, self._pair_rule(y), None
            if self.heldout is not None:
                from isoproj.proof.heldout import measure_heldout, split_rows

                split = split_rows(given.shape[0], self.heldout, rule, seed)
                rows, rule = given[split.training], rule.of_rows(split.training)
                # Measuring them costs about as much as so many scans of the others.
                n_scans += 10
            geometry = Geometry.prepare(
                rows, rule, seed=seed, storage=storage, engine=self.engine
            )
            k = self.n_components
            geometry.tell_before(k)
            geometry, journal.clock = geometry.sharing(journal.clock, k, n_scans)
            with stoppable(geometry.stopping_words) as stop:
                geometry = replace(geometry, stop=stop)
                problem = self._problem(geometry, journal, seed)
                result, certificate = self._found(geometry, problem)
            self._adopt(certificate)
            self._adopt_solve(result)
            self._measure(rows)
            if split is not None:
                self.heldout_: Heldout | None = measure_heldout(
                    given,
                    split,
                    certificate.components,
                    self._pair_rule(y),
                    distortion=certificate.distortion,
                    engine=self.engine,
                )
            self._warn(geometry)
        return self

    def _found(
        self, geometry: Geometry, problem: Problem
    ) -> tuple[Result, Certificate]:
        """Solve and certify, with prefixes where they are asked for."""
        objective = self._objective()
        if self.nested is not None:
            from isoproj.estimators.nested import fit_nested

            prefixes = [int(k) for k in self.nested]
            return fit_nested(
                geometry, problem, prefixes, self.nested_weights, objective
            )
        with geometry.stop.solving():
            result = self._solved(geometry, problem)
        k = problem.k or result.basis.shape[1]
        certificate = geometry.certified(
            result.known,
            lambda over: over.certify_result(result, k, objective, problem.cap),
        )
        return result, certificate

    def _solved(self, geometry: Geometry, problem: Problem) -> Result:
        """Ask the solver."""
        from isoproj.solvers.solve import solve

        del geometry
        return solve(problem)

    @abstractmethod
    def _objective(self) -> Objective | None:
        """Return what is kept under a cap, None where nothing is."""

    def _measure(self, rows: Rows) -> None:
        """Compute further attributes from the rows fitted."""

    def _journal(self) -> Journal:
        """Start the clock of a fit and return its journal."""
        check_positive("time_limit", self.time_limit, integral=False)
        check_positive("max_iter", self.max_iter, integral=True)
        return Journal(Clock(self.time_limit), self.max_iter)

    def _problem(self, geometry: Geometry, journal: Journal, seed: int) -> Problem:
        """Return the problem that the parameters pose."""
        cap = self.max_distortion
        return Problem(
            search=geometry.search,
            k=None if self.n_components is None else int(self.n_components),
            cap=None if cap is None else float(cap),
            tol=checked_gap(self.tol),
            journal=journal,
            seed=seed,
            rounding=geometry.rounding,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one file, without pickle, whole or not at all.

        Parameters
        ----------
        path : path-like
            Where to; by convention ``*.isoproj``.
        """
        check_is_fitted(self)
        scalars, tensors = self.certificate_.parts()
        names = getattr(self, "feature_names_in_", None)
        header = {
            "certificate": scalars,
            "estimator": type(self).__name__,
            "parameters": {
                name: _plain(name, value)
                for name, value in self.get_params(deep=False).items()
            },
            "fitted": {
                "status": self.status_.value,
                "n_iter": self.n_iter_,
                "feature_names": None if names is None else [str(n) for n in names],
            },
        }
        history = {"history": history_table(self.history_)}
        write_container(path, header, {**tensors, **history, **self._further()})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a fitted model back; its bits are those that were saved.

        Parameters
        ----------
        path : path-like
            Where from.

        Returns
        -------
        CertifiedProjection
            Fitted, with its history where the file has one.

        Raises
        ------
        FormatError
            If the file is not a saved model of this class or was changed.
        """
        header, tensors = read_container(path)
        if header.get("estimator") != cls.__name__:
            msg = (
                f"{path} must hold a {cls.__name__}; it holds "
                f"{header.get('estimator') or 'a bare certificate'!r}. "
                "Load it with that class."
            )
            raise FormatError(msg)
        certificate = Certificate.from_parts(header.get("certificate", {}), tensors)
        try:
            parameters: dict[str, Any] = {
                name: tuple(value) if isinstance(value, list) else value
                for name, value in dict(header["parameters"]).items()
                # A file from elsewhere must not say where a later fit writes.
                if name != "checkpoint"
            }
            model = cls(**parameters)
            fitted = header["fitted"]
            model.status_ = Status(fitted["status"])
            model.n_iter_ = int(fitted["n_iter"])
            names = _checked_names(fitted["feature_names"], certificate.n_features)
            model.history_ = history_of_table(tensors.get("history", history_table(())))
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            msg = f"{path} must hold a whole model; it lacks {error}. Save it again."
            raise FormatError(msg) from None
        try:
            model._check_parameters(certificate.n_features)
        except ValueError as error:
            msg = f"{path} must hold parameters that fit its class: {error}"
            raise FormatError(msg) from None
        if [p.n_components for p in certificate.prefixes] != list(model.nested or ()):
            msg = (
                f"{path} must hold a certificate for each of nested={model.nested!r}; "
                "it does not. Save it again."
            )
            raise FormatError(msg)
        if certificate.pair_kind is PairKind.LISTED and model.pairs == "all":
            model.pairs = certificate.pairs.pairs
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        model._adopt(certificate)
        model._restore(tensors)
        return model

    def __sklearn_tags__(self) -> Foreign:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = isinstance(self.pairs, str) and (
            self.pairs in LABELLED
        )
        return tags

    def _further_claims(self, rows: Rows) -> list[CheckedClaim]:
        """Recompute what the model states besides its certificate; see ``verify``."""
        del rows
        return []

    def _further(self) -> dict[str, NDArray[Any]]:
        """Return further arrays that the file of a subclass holds."""
        return {}

    def _restore(self, tensors: Tensors) -> None:
        """Restore the arrays that ``_further`` returned."""

    def _check_parameters(self, n_features: int) -> None:
        """Raise unless the parameters are usable."""
        if self.n_components is not None:
            check_count(self.n_components, n_features)
        cap = self.max_distortion
        require(
            cap is None or (is_number(cap) and 0.0 < cap <= 1.0),
            "max_distortion",
            cap,
            "be a number above 0, at most 1, or None",
            "It is the share of squared length that a pair may lose.",
        )
        checked_gap(self.tol)
        if self.nested is None:
            given, what = self.nested_weights, "be None without nested"
            require(given is None, "nested_weights", given, what, "Pass nested, too.")
        else:
            from isoproj.estimators.nested import check_nested

            check_nested(self.nested, self.nested_weights, self.n_components)
            self._check_alone("max_distortion", None)
        chosen(self.engine)
        check_memory_limit(self.memory_limit)
        told = self.verbose
        fits = isinstance(told, bool | int | np.integer)
        require(fits, "verbose", told, "be a whole number", "Use 0 or 1.")

    def _check_alone(self, name: str, usual: object) -> None:
        """Raise ValueError if a parameter that excludes ``nested`` has been set."""
        value = getattr(self, name)
        if value is not usual and (usual is None or value != usual):
            msg = (
                f"nested cannot be combined with {name}; got both. "
                f"Use {name}={usual!r}, or leave nested out."
            )
            raise ValueError(msg)

    def _adopt(self, certificate: Certificate) -> None:
        self.certificate_ = certificate
        self.certificates_ = certificate.by_dimension
        self.heldout_ = None
        self.components_ = certificate.components
        self.distortion_ = certificate.distortion
        self.lower_bound_ = certificate.lower_bound
        self.worst_pairs_ = certificate.worst_pairs
        self.n_components_ = certificate.n_components
        self.n_features_in_ = certificate.n_features
        if self.n_components is None and self.max_distortion is not None:
            exclusion, excluded = certificate.exclusion, 0
            # The proof is for its own cap, and so for every smaller one.
            if exclusion is not None and exclusion.cap >= self.max_distortion:
                excluded = exclusion.n_components
            self.n_components_lower_bound_ = excluded + 1

    def _adopt_solve(self, result: Result) -> None:
        """Store the status, the history and the number of rounds of the solver."""
        self.status_ = result.status
        if self.distortion_ <= _NOTHING:
            # The scan found that nothing is lost, whatever the solver says.
            self.status_ = Status.OPTIMAL
        if result.dimensions is not None and result.dimensions.status.advice:
            self.status_ = result.dimensions.status
        if self._is_cut_short:
            self.status_ = Status.TIME_LIMIT
        self.history_ = result.history
        # A fit without a history counts as one round.
        self.n_iter_ = result.history[-1].iteration if result.history else 1

    @property
    def _is_cut_short(self) -> bool:
        """Whether time was short of a walk over all pairs that the user asked for."""
        asked = isinstance(self.pairs, str) and self.pairs == PairKind.SAMPLED
        return self.certificate_.pair_kind is PairKind.SAMPLED and not asked

    def _warn(self, geometry: Geometry) -> None:
        """Warn if nothing is lost, if rounding loses more, or of an early stop."""
        if not self._is_cut_short:
            geometry.warn_of_rounding(self.certificate_, stacklevel=3)
        k, n_dims = self.n_components_, geometry.points.n_dims
        if k > n_dims and self.distortion_ <= _NOTHING:
            msg = (
                f"The points span only {n_dims} dimensions, so that "
                f"n_components={k} loses nothing (distortion 0); "
                f"n_components={n_dims} would do."
            )
            warnings.warn(msg, UserWarning, stacklevel=3)
        if self.status_.advice:
            sampled = self.certificate_.sampled_words
            over = f" over a sample alone ({sampled})" if self._is_cut_short else ""
            msg = (
                f"Stopped early ({self.status_}) at distortion "
                f"{at_most(self.distortion_)}{over}, lower bound "
                f"{at_least(self.lower_bound_)}; both hold. {self.status_.advice}"
            )
            warnings.warn(msg, ConvergenceWarning, stacklevel=3)


def _checked_names(names: Any, n_features: int) -> list[str] | None:  # noqa: ANN401
    """Return the feature names of a file; raise ValueError unless they are texts."""
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    if names is not None and not (fits and len(names) == n_features):
        msg = f"a list of {n_features} feature names"
        raise ValueError(msg)
    return names  # type: ignore[no-any-return]


def _plain(name: str, value: Foreign) -> Foreign:
    """Return a constructor parameter as a value that JSON can hold, else None."""
    if isinstance(value, np.generic):
        return value.item()
    if name == "pairs" and not isinstance(value, str):
        return "all"  # The list itself is an array of the file.
    if name.startswith("nested") and value is not None:
        return np.asarray(value).tolist()
    # A path of this machine says nothing elsewhere.
    is_plain = isinstance(value, bool | int | float | str) and name != "checkpoint"
    return value if is_plain else None
