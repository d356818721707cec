"""One data set under one cap after another: solved, certified, or refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isoproj.engines.base import Engine
from isoproj.estimators.base import (
    monitor_of,
    shipped_components,
)
from isoproj.estimators.certified import everything
from isoproj.exceptions import InfeasibleError
from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet
from isoproj.proof.bounds import certify, certify_guarantee
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective, objective_matrix
from isoproj.solvers.api import Clock, SolveResult, Status, Step
from isoproj.solvers.guaranteed import (
    GuaranteedResult,
    guaranteed,
    principal_basis,
)
from isoproj.solvers.minimax import minimax
from isoproj.solvers.relaxation.path import Relaxation

__all__ = ["Answer", "CappedProblem"]

_NO_PAIRS = np.empty((0, 2), dtype=np.intp)


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
                centred = self.points.storage.empty(coordinates.shape)
                np.subtract(coordinates, coordinates.mean(axis=0), out=centred)
                coordinates = centred
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
        basis = principal_basis(self.matrix, k)
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

    def bounds(
        self, k: int, basis: Array, pairs: Indices, weights: Array
    ) -> Certificate:
        """Certify a basis, and the bound that dual weights on pairs prove."""
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
            certificate = self.bounds(k, basis, best.pairs, best.weights)
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
        certificate = self.bounds(k, best.basis, best.pairs, best.weights)
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
