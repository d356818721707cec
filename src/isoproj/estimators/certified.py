"""What every projection with a certificate shares: its claims and its file."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
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
from isoproj.numerics.arrays import Rows, check_memory_limit, is_number
from isoproj.numerics.container import Tensors, read_container, write_container
from isoproj.numerics.interrupts import stoppable
from isoproj.numerics.progress import Step
from isoproj.numerics.spectral import Indices
from isoproj.pairs.rule import LABELLED, PairKind, label_codes
from isoproj.proof.bounds import certify_exclusion
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
    from isoproj.proof.heldout import Heldout, Split
    from isoproj.proof.verify import CheckedClaim

__all__ = ["CertifiedProjection"]

# A distortion below this is rounding.
_NOTHING = 1e-9
# What measuring held-out rows costs, in searches for the worst pair of the others.
_HELDOUT_SCANS = 10


class CertifiedProjection(CallbackSupport, LinearProjection):
    """A projection with the proof of what it loses; both are saved together."""

    n_components: int | None
    max_distortion: float | None
    pairs: str | ArrayLike
    n_neighbors: int
    min_distance: float
    include_norms: bool
    tol: float
    max_iter: int | None
    time_limit: float | None
    random_state: int | np.random.RandomState | None
    verbose: int
    memory_limit: float
    engine: Engine | None
    heldout: float | None
    nested: Sequence[int] | None
    nested_weights: Sequence[float] | None

    certificate_: Certificate
    certificates_: dict[int, Certificate]
    distortion_: float
    lower_bound_: float
    worst_pairs_: Indices
    n_components_: int
    status_: Status
    history_: tuple[Step, ...]
    n_iter_: int
    n_components_lower_bound_: int
    heldout_: Heldout | None

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
        last = getattr(self, "certificate_", None)
        with (
            telling(type(self).__name__, self.verbose),
            calling_back(self, X, y),
        ):
            seed = self._seed()
            storage = self._storage()
            given = self._validated(X, reset=True, storage=storage)
            self._check_parameters(given.shape[1])
            split = self._split(given, y, seed)
            rows, labels = given, y
            if split is not None:
                from isoproj.proof.heldout import fitted_part

                rows, labels = fitted_part(given, y, split)
            geometry = Geometry.prepare(
                rows,
                self._pair_rule(labels),
                seed=seed,
                storage=storage,
                memory_limit=float(self.memory_limit),
                engine=self.engine,
            )
            geometry.tell_before(self.n_components)
            geometry, journal.clock = self._shared(geometry, journal.clock, split)
            with stoppable(geometry.stopping_words) as stop:
                geometry = replace(geometry, stop=stop)
                result, certificate = self._found(geometry, journal, seed, last)
            if result.dimensions is not None and result.dimensions.impossible:
                assert self.max_distortion is not None
                proof = result.dimensions.proof
                exclusion = certify_exclusion(
                    geometry.points,
                    float(self.max_distortion),
                    proof.pairs,
                    proof.weights,
                )
                certificate = replace(certificate, exclusion=exclusion)
            self._adopt(certificate)
            self._adopt_solve(result)
            self._measure(rows)
            self._measure_heldout(given, y, split)
            self._warn(geometry)
        return self

    def _found(
        self,
        geometry: Geometry,
        journal: Journal,
        seed: int,
        last: Certificate | None,
    ) -> tuple[Result, Certificate]:
        """Solve and certify, with prefixes where they are asked for."""
        if self.nested is None:
            with geometry.stop.solving():
                result = self._solved(geometry, journal, seed, last)
            certificate = geometry.certified(
                result.known, lambda over: self._certified(over, result)
            )
            return result, certificate
        from isoproj.estimators.nested import fit_nested

        return fit_nested(
            geometry,
            self._problem(geometry, journal, seed),
            [int(k) for k in self.nested],
            self.nested_weights,
            self._objective(),
        )

    def _shared(
        self, geometry: Geometry, clock: Clock, split: Split | None
    ) -> tuple[Geometry, Clock]:
        """Return the geometry and the solver's clock, which share the time there is."""
        n_scans = 1 + len(self.nested or ())
        if split is not None:
            # Pairs with rows held out are listed, sorted and walked over twice.
            n_scans += _HELDOUT_SCANS
        return geometry.sharing(clock, self.n_components, n_scans)

    @abstractmethod
    def _solved(
        self,
        geometry: Geometry,
        journal: Journal,
        seed: int,
        last: Certificate | None,
    ) -> Result:
        """Solve; ``last`` is the certificate of an earlier fit."""

    @abstractmethod
    def _certified(self, geometry: Geometry, result: Result) -> Certificate:
        """Certify what the solver claims."""

    @abstractmethod
    def _check_parameters(self, n_features: int) -> None:
        """Raise unless the parameters are usable."""

    def _objective(self) -> Objective | None:
        """Return what is kept under a cap, None where nothing is."""
        return None

    def _measure(self, rows: Rows) -> None:
        """Compute further attributes from the rows fitted."""

    def _journal(self) -> Journal:
        """Start the clock of a fit and return its journal."""
        check_positive("time_limit", self.time_limit, integral=False)
        check_positive("max_iter", self.max_iter, integral=True)
        journal = Journal(Clock(self.time_limit))
        if self.max_iter is not None:
            journal.max_iter = int(self.max_iter)
        return journal

    def _seed(self) -> int:
        """Return the seed of every draw: split, sample of pairs, random starts."""
        return int(check_random_state(self.random_state).randint(2**31 - 1))

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
            "parameters": _plain(self.get_params(deep=False)),
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
            model = cls(**_restored(header["parameters"]))
            if hasattr(model, "checkpoint"):
                # A file from elsewhere must not say where a later fit writes.
                model.checkpoint = None
            fitted = header["fitted"]
            model.status_ = Status(fitted["status"])
            model.n_iter_ = int(fitted["n_iter"])
            names = _checked_names(fitted["feature_names"], certificate.n_features)
            table = tensors.get("history", history_table(()))
            model.history_ = history_of_table(table)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            msg = f"{path} must hold a whole model; it lacks {error}. Save it again."
            raise FormatError(msg) from None
        try:
            model._check_parameters(certificate.n_features)
        except ValueError as error:
            msg = f"{path} must hold parameters that fit its class: {error}"
            raise FormatError(msg) from None
        _check_prefixes(path, certificate, model.nested)
        listed = certificate.listed_pairs
        is_listed = certificate.pair_kind is PairKind.LISTED
        if listed is not None and is_listed and model.pairs == "all":
            model.pairs = listed
        if names is not None:
            model.feature_names_in_ = np.asarray(names, dtype=object)
        model._adopt(certificate)
        model._restore(tensors)
        return model

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - scikit-learn's own type
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

    def _split(self, rows: Rows, y: Any, seed: int) -> Split | None:  # noqa: ANN401
        """Return which rows to fit and which to hold out, if any."""
        if self.heldout is None:
            return None
        from isoproj.proof.heldout import split_rows

        rule = self._pair_rule(y)
        if rule.kind in LABELLED:
            label_codes(rule, int(rows.shape[0]))
        return split_rows(int(rows.shape[0]), self.heldout, rule, seed)

    def _measure_heldout(
        self,
        rows: Rows,
        y: Any,  # noqa: ANN401
        split: Split | None,
    ) -> None:
        """Measure what the projection does to the points that were held out."""
        self.heldout_ = None
        if split is not None:
            from isoproj.proof.heldout import measure_heldout

            self.heldout_ = measure_heldout(
                rows,
                split,
                self.components_,
                self._pair_rule(y),
                distortion=self.distortion_,
                engine=self.engine,
            )

    def _check_shared(self, n_features: int) -> None:
        if self.n_components is not None:
            check_count(self.n_components, n_features)
        cap: object = self.max_distortion
        if cap is not None and not (is_number(cap) and 0.0 < cap <= 1.0):
            msg = (
                f"max_distortion must be a number above 0, at most 1, or None; got "
                f"{cap!r}. It is the share of squared length that a pair may lose."
            )
            raise ValueError(msg)
        checked_gap(self.tol)
        if self.nested is None and self.nested_weights is not None:
            msg = (
                f"nested_weights needs nested; got {self.nested_weights!r} and None. "
                "Pass nested, or leave nested_weights out."
            )
            raise ValueError(msg)
        if self.nested is not None:
            from isoproj.estimators.nested import check_nested

            check_nested(self.nested, self.nested_weights, self.n_components)
            self._check_alone("max_distortion", None)
        chosen(self.engine)
        check_memory_limit(self.memory_limit)
        if not isinstance(self.verbose, bool | int | np.integer):
            msg = f"verbose must be a whole number; got {self.verbose!r}. Use 0 or 1."
            raise ValueError(msg)  # noqa: TRY004 - scikit-learn's convention

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
        exclusion = certificate.exclusion
        if self.n_components is None and self.max_distortion is not None:
            excluded = 0
            # The proof is for its own cap, and so for every smaller one.
            if exclusion is not None and exclusion.cap >= self.max_distortion:
                excluded = exclusion.n_components
            self.n_components_lower_bound_ = excluded + 1

    def _adopt_solve(self, result: Result) -> None:
        """Store the status, the history and the number of rounds of the solver."""
        self.status_ = result.status
        if self.distortion_ <= _NOTHING:
            # Whatever the solver says: the scan has seen that nothing is lost.
            self.status_ = Status.OPTIMAL
        if result.dimensions is not None and result.dimensions.status.advice:
            self.status_ = result.dimensions.status
        if self._is_cut_short:
            self.status_ = Status.TIME_LIMIT
        self.history_ = result.history
        # A fit that had nothing to iterate on has looked at its answer once.
        self.n_iter_ = result.history[-1].iteration if result.history else 1

    @property
    def _is_cut_short(self) -> bool:
        """Whether time was short of a walk over all pairs that the user asked for."""
        asked = isinstance(self.pairs, str) and self.pairs == PairKind.SAMPLED
        return self.certificate_.pair_kind is PairKind.SAMPLED and not asked

    def _sampled_words(self) -> str:
        """Return what a distortion over a sample stands for, where time was short."""
        if not self._is_cut_short:
            return ""
        return f" over a sample alone ({self.certificate_.sampled_words})"

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
            msg = (
                f"Stopped early ({self.status_}) at distortion "
                f"{self.distortion_:.4f}{self._sampled_words()}, lower bound "
                f"{self.lower_bound_:.4f}; both hold. {self.status_.advice}"
            )
            warnings.warn(msg, ConvergenceWarning, stacklevel=3)


def _checked_names(names: object, n_features: int) -> list[str] | None:
    """Return the feature names of a file; raise ValueError unless they are texts."""
    if names is None:
        return None
    if (
        not isinstance(names, list)
        or len(names) != n_features
        or not all(isinstance(name, str) for name in names)
    ):
        msg = f"a list of {n_features} feature names"
        raise ValueError(msg)
    return names


def _check_prefixes(
    path: str | os.PathLike[str],
    certificate: Certificate,
    nested: Sequence[int] | None,
) -> None:
    """Raise FormatError unless a file has a certificate for each prefix asked for."""
    if [part.n_components for part in certificate.prefixes] != list(nested or ()):
        msg = (
            f"{path} must hold a certificate for each of nested={nested!r}; it does "
            "not. Save it again."
        )
        raise FormatError(msg)


def _restored(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return constructor parameters of a file; lists become tuples."""
    return {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in dict(parameters).items()
    }


def _plain(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return constructor parameters as values that JSON can hold."""
    plain: dict[str, Any] = {}
    for name, value in parameters.items():
        if name == "checkpoint":
            plain[name] = None  # A path of this machine says nothing elsewhere.
        elif isinstance(value, np.generic):
            plain[name] = value.item()
        elif value is None or isinstance(value, bool | int | float | str):
            plain[name] = value
        elif name == "pairs":
            plain[name] = "all"  # The list itself is an array of the file.
        elif name.startswith("nested"):
            plain[name] = np.asarray(value).tolist()
        else:
            plain[name] = None
    return plain
