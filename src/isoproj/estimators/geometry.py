"""A data set ready to be solved and certified: its points, its pairs, its oracle."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from isoproj.engines.base import Engine
from isoproj.estimators.base import shipped_components
from isoproj.exceptions import DuplicatePointsWarning
from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Array
from isoproj.numerics.storage import Storage
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairRule, PairSet, prepare_pairs
from isoproj.proof.bounds import Map, certify, certify_hull
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective, objective_matrix
from isoproj.solvers.api import Subspace, Weights

__all__ = ["Geometry"]


@dataclass(frozen=True, eq=False)
class Geometry:
    """What a fit works on.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_rows, n_features)
        The data as validated.
    points : Points
        The data in their span.
    pairs : PairSet
        The pairs that count.
    memory_limit : float
        Bytes that distances which are needed again may take.
    engine : Engine or None
        Where walks over pairs run.
    """

    rows: Rows
    points: Points
    pairs: PairSet
    memory_limit: float = 2e9
    engine: Engine | None = None

    @staticmethod
    def prepare(
        rows: Rows,
        rule: PairRule,
        *,
        seed: int = 0,
        storage: Storage | None = None,
        memory_limit: float = 2e9,
        engine: Engine | None = None,
    ) -> Geometry:
        """Return the geometry of some rows; warn of rows that repeat."""
        points, pairs = prepare_pairs(
            rows, rule, rotate=True, seed=seed, storage=storage
        )
        if pairs.n_identical:
            msg = (
                f"{points.n_copies} points repeat another exactly; "
                f"{pairs.n_identical} pairs of identical points have no direction and "
                "do not count."
            )
            warnings.warn(msg, DuplicatePointsWarning, stacklevel=3)
        return Geometry(rows, points, pairs, memory_limit, engine)

    @cached_property
    def search(self) -> PairSearch:
        """The oracle that solvers ask."""
        return PairSearch(
            self.points,
            self.pairs,
            memory_limit=self.memory_limit,
            engine=self.engine,
        )

    @property
    def rounding(self) -> float:
        """By how much the data's precision may raise a distortion."""
        return 16.0 * float(np.finfo(self.rows.dtype).eps)

    def objective_matrix(self, objective: Objective) -> Array:
        """Return the matrix of an objective in span coordinates, trace 1."""
        coordinates = self.points.coordinates
        if objective is Objective.VARIANCE:
            coordinates = coordinates[: self.rows.shape[0]]
            centred = self.points.storage.empty(coordinates.shape)
            np.subtract(coordinates, coordinates.mean(axis=0), out=centred)
            coordinates = centred
        return objective_matrix(
            coordinates, objective, self.pairs, self.points.first_copy
        )

    def components(self, basis: Array, k: int, cuts: Sequence[int] = ()) -> Map:
        """Return the matrix that users get for a basis; cuts end its prefixes."""
        return shipped_components(self.points, basis, self.rows, k, cuts)

    def certify(
        self,
        components: Map,
        dual: Weights,
        hull: Subspace | None = None,
        *,
        spectral: bool = False,
    ) -> Certificate:
        """Return the certificate of components and of what proves its lower bound."""
        certificate = certify(
            self.points,
            self.pairs,
            components,
            dual.pairs,
            dual.weights,
            n_rows=self.rows.shape[0],
            spectral=spectral,
            engine=self.engine,
        )
        if hull is None:
            return certificate
        axes = np.ascontiguousarray(self.points.frame.lift(hull.axes).T)
        return certify_hull(self.points, certificate, axes, hull.pairs)
