"""A data set ready to be solved and certified: its points, its pairs, its oracle."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeVar

import numpy as np
from scipy.spatial.distance import pdist

from isoproj.engines.base import Engine
from isoproj.estimators.base import images_of, shipped_components
from isoproj.estimators.estimate import FitEstimate
from isoproj.exceptions import DuplicatePointsWarning, InfeasibleError
from isoproj.numerics.arrays import Rows, as_dense, require
from isoproj.numerics.interrupts import Stop
from isoproj.numerics.progress import Notice, OutOfTime, ending_within, tell
from isoproj.numerics.rounding import at_least, at_most, counted
from isoproj.numerics.spectral import Array, Indices, Map
from isoproj.numerics.storage import MEMORY_LIMIT, Storage
from isoproj.pairs.estimate import scan_seconds
from isoproj.pairs.moments import DualProblem, pose
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.points import Points
from isoproj.pairs.rule import (
    PairKind,
    PairRule,
    PairSet,
    prepare_pairs,
    sampled_instead,
)
from isoproj.proof.bounds import (
    certify,
    certify_exclusion,
    certify_guarantee,
    certify_hull,
)
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective, objective_matrix
from isoproj.solvers.api import Clock, Result, Status, Subspace, Weights

# Seconds after Ctrl-C for which a walk over all pairs is worth waiting.
_PATIENCE = 60.0
# Weights of a proof under a limit. The 2,000 heaviest of 3,695 carried 97 % of the mass
# and proved 0.4862 instead of 0.4852, in a quarter of the time (200 x 5000, k = 50).
_MOST_WEIGHTS = 2000

# Most pairs for which one weight each is held.
_LARGEST_DENSE = 20_000_000
Answer = TypeVar("Answer")


@dataclass(frozen=True, eq=False)
class Geometry:
    """What a fit works on: the rows as validated, their points, the pairs that count.

    Distances that are needed again may take ``memory_limit`` bytes. Walks over pairs
    run on ``engine``. Certificates should be ready by the ``deadline``, if any.
    """

    rows: Rows
    points: Points
    pairs: PairSet
    memory_limit: float
    engine: Engine | None = None
    deadline: Clock | None = None
    stop: Stop = field(default_factory=lambda: Stop(str))

    @staticmethod
    def prepare(
        rows: Rows,
        rule: PairRule,
        *,
        seed: int = 0,
        storage: Storage | None = None,
        engine: Engine | None = None,
    ) -> Geometry:
        """Return the geometry of some rows; warn of rows that repeat."""
        points, pairs = prepare_pairs(
            rows, rule, rotate=True, seed=seed, storage=storage
        )
        if pairs.n_identical:
            n, first = int(rows.shape[0]), points.first_copy
            n_zero = int(np.isin(first[:n], first[n:]).sum())
            told = [f"{counted(n_zero, 'row')} of zeros"] if n_zero else []
            if pairs.n_identical > n_zero:
                n_same = pairs.n_identical - n_zero
                told.insert(0, f"{counted(n_same, 'pair')} of identical points")
            msg = f"Without direction, and so not counted: {', '.join(told)}."
            warnings.warn(msg, DuplicatePointsWarning, stacklevel=3)
        limit = MEMORY_LIMIT if storage is None else storage.limit
        return Geometry(rows, points, pairs, limit, engine)

    @cached_property
    def search(self) -> PairSearch:
        """The oracle that solvers ask."""
        return PairSearch(
            self.points,
            self.pairs,
            memory_limit=self.memory_limit,
            engine=self.engine,
        )

    def sharing(
        self, clock: Clock, k: int | None, n_scans: int = 1
    ) -> tuple[Geometry, Clock]:
        """Return the geometry with its deadline, and the clock of its solver.

        The solver's clock leaves time for ``n_scans`` exact searches under a map to
        ``k`` dimensions, or for a sample where these would take too much of the limit.
        """
        left = clock.left
        if left is None:
            return self, clock
        # Walks may take so much more than their estimate, besides a moment.
        needed = 0.1 + n_scans * 1.3 * self.scan_seconds(k)
        limit = clock.seconds + left
        # A certificate may come so much later than the limit.
        late = clock.until(1.05 * limit + 0.5)
        geometry = replace(self, deadline=late)
        # It takes at most this share of the time left from the solver.
        return geometry, clock.until(limit - min(needed, 0.4 * left))

    def tell_before(self, k: int | None) -> None:
        """Tell of a fit that is expected to take more than a minute."""
        estimate = FitEstimate.of(
            self.points.n_points,
            int(self.rows.shape[1]),
            self.points.n_dims if k is None else int(k),
            n_pairs=None if self.pairs.listed is None else self.pairs.n_pairs,
            memory_limit=self.memory_limit,
            engine=self.engine,
        )
        if estimate.is_long:
            others = "; ".join(each.partition(":")[0] for each in estimate.others())
            tell(Notice(f"{estimate} (rough). Instead: {others}."))

    def scan_seconds(self, k: int | None) -> float:
        """Return about how long an exact search takes, with ``k`` dimensions kept."""
        k = self.points.n_dims if k is None else k
        return scan_seconds(self.points, self.pairs, k, self.engine)

    @property
    def _seconds_left(self) -> float:
        """Seconds until a certificate should be ready; infinite where nobody waits."""
        left = math.inf if self.deadline is None else self.deadline.left or 0.0
        return min(left, _PATIENCE) if self.stop.is_asked else left

    def stopping_words(self) -> str:
        """Return what happens after Ctrl-C, and how long it takes."""
        needed, over = self.scan_seconds(None), ""
        if needed > _PATIENCE and self.pairs.listed is None:
            needed, over = 0.0, " over a sample"
        return f"Stopping; certifying{over} takes about {max(1.0, needed):.0f} s."

    def certified(
        self,
        known: Iterable[Indices],
        certify: Callable[[Geometry], Answer],
        *,
        k: int | None = None,
        n_scans: int = 1,
    ) -> Answer:
        """Certify over all pairs, or over a sample where the deadline is too close.

        The sample is of all pairs; ``known`` pairs, on which proofs rest, are in it.
        """
        left = self._seconds_left
        if math.isinf(left) or self.pairs.listed is not None:
            return certify(self)
        if n_scans * self.scan_seconds(k) < left:
            try:
                with ending_within(left):
                    return certify(self)
            except OutOfTime:
                pass
        pairs = np.concatenate([*known, self.search.decode(self.search.recent)])
        sampled = sampled_instead(
            self.points, self.pairs, pairs, int(self.rows.shape[0]), 0
        )
        return certify(replace(self, pairs=sampled))

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

    def _heaviest(self, dual: Weights) -> Weights:
        """Return the heaviest weights where time is short and features are many.

        The bound takes a matrix of as many rows as there are weights, or features if
        these are fewer.
        """
        is_few = min(dual.weights.size, int(self.rows.shape[1])) <= _MOST_WEIGHTS
        if self.deadline is None or is_few:
            return dual
        kept = np.sort(np.argsort(-dual.weights, kind="stable")[:_MOST_WEIGHTS])
        weights = dual.weights[kept]
        return Weights(dual.pairs[kept], weights / weights.sum())

    def certify(
        self,
        components: Map,
        dual: Weights,
        hull: Subspace | None = None,
        *,
        spectral: bool = False,
    ) -> Certificate:
        """Return the certificate of components and of what proves its lower bound."""
        dual = self._heaviest(dual)
        certificate = certify(
            self.points,
            self.pairs,
            components,
            dual.pairs,
            dual.weights,
            spectral=spectral,
            engine=self.engine,
        )
        if hull is None:
            return certificate
        axes = np.ascontiguousarray(self.points.frame.lift(hull.axes).T)
        return certify_hull(self.points, certificate, axes, hull.pairs)

    def certify_result(
        self,
        result: Result,
        k: int,
        objective: Objective | None = None,
        cap: float | None = None,
    ) -> Certificate:
        """Certify what a solver found in ``k`` dimensions, and all that it proves.

        With an objective, the first basis that is under the cap of the result counts. A
        ``cap`` that is given must hold to the last digit; an InfeasibleError says if it
        is impossible or was not reached. Another cap gives way to the rounding of the
        best projection found.
        """
        # It takes as long as several steps, and no bound rests on it.
        spectral = result.average is not None and result.status != Status.TIME_LIMIT
        for basis in (result.basis, *result.fallbacks):
            components = self.components(basis, k)
            certificate = self.certify(
                components, result.dual, result.hull, spectral=spectral
            )
            reached = certificate.distortion
            if objective is None or reached <= (result.cap or 0.0):
                break
        if objective is not None:
            if cap is not None and reached > cap:
                raise InfeasibleError(_refusal(certificate, cap), certificate)
            certificate = self.with_guarantee(certificate, result, objective)
        dimensions = result.dimensions
        if cap is None or dimensions is None or not dimensions.impossible:
            return certificate
        proof = dimensions.proof
        exclusion = certify_exclusion(self.points, cap, proof.pairs, proof.weights)
        return replace(certificate, exclusion=exclusion)

    def with_guarantee(
        self, certificate: Certificate, result: Result, objective: Objective
    ) -> Certificate:
        """Return the certificate with what is kept under a cap and the bound on it.

        The cap of the result gives way to what the projection loses.
        """
        guarantee = certify_guarantee(
            self.points,
            self.pairs,
            certificate,
            objective,
            max(result.cap or 0.0, certificate.distortion),
            result.multipliers.pairs,
            result.multipliers.weights,
        )
        return replace(certificate, guarantee=guarantee)

    def warn_of_rounding(self, certificate: Certificate, stacklevel: int) -> None:
        """Warn if pairs of projected points, rounded as they are returned, lose more.

        The certificate is about the matrix. Far from the origin the projected points
        are rounded by more than the distances allow.
        """
        rows = self.rows
        used = _rows_at_risk(certificate, int(rows.shape[0]))
        if used.size < 2:
            return
        points = as_dense(rows[used]).astype(np.float64)
        images = images_of(rows[used], certificate.components)
        # A power of two changes no ratio, and keeps squares from overflowing.
        power = -math.frexp(float(np.abs(points).max()))[1]
        lengths, kept = (
            pdist(np.ldexp(some.astype(np.float64), power)) for some in (points, images)
        )
        at = np.column_stack(np.triu_indices(used.size, 1))
        is_pair = self.pairs.holds(used[at], self.points.n_points) & (lengths > 0.0)
        losses = np.full(lengths.size, -np.inf)
        losses[is_pair] = 1.0 - (kept[is_pair] / lengths[is_pair]) ** 2
        losses[np.isnan(losses)] = -np.inf
        worst = int(np.argmax(losses))
        excess = float(losses[worst]) - certificate.distortion
        # Less than this, or than this share of what is kept, is not worth a warning.
        if excess > max(1e-4, 0.01 * (1.0 - certificate.distortion)):
            i, j = used[at[worst]]
            msg = (
                f"In {images.dtype} the projections of rows {i} and {j} lose "
                f"{losses[worst]:.4f} of their squared distance; "
                f"{certificate.distortion:.4f} is certified, for exact arithmetic. The "
                "rows are too far from the origin for their distances. Subtract the "
                "mean from X first"
                + (", or pass float64." if images.dtype.itemsize < 8 else ".")
            )
            warnings.warn(msg, UserWarning, stacklevel=stacklevel + 1)


def dense_problem(points: Points, pairs: PairSet, k: int, method: str) -> DualProblem:
    """Return the problem of a method that holds a weight for every pair."""
    n_pairs = pairs.n_pairs
    what = f"have at most {_LARGEST_DENSE:,} pairs, as {method} holds a weight for each"
    require(n_pairs <= _LARGEST_DENSE, "X", n_pairs, what, "Fit a sample of the rows.")
    return pose(points, pairs, k)


def _refusal(certificate: Certificate, cap: float) -> str:
    """Return why a cap is refused: it is impossible, or it was not reached."""
    k, found = certificate.n_components, at_most(certificate.distortion)
    is_sampled = certificate.pair_kind is PairKind.SAMPLED
    possible = "" if is_sampled else f"; {found} is possible"
    lower = at_least(certificate.lower_bound)
    if cap < certificate.lower_bound:
        return (
            f"max_distortion={cap:g} is impossible in {k} dimensions: every "
            f"projection loses {lower} or more of some pair, proved by the certificate "
            f"of this error{possible}. Raise max_distortion, or n_components."
        )
    return (
        f"max_distortion={cap:g} was not reached in {k} dimensions: the best "
        f"projection found loses {found} of some pair, and only losses below {lower} "
        "are proved impossible, so that it is unknown whether one exists. Raise "
        "max_distortion, or n_components."
    )


def _rows_at_risk(certificate: Certificate, n_rows: int) -> Indices:
    """Return rows of the pairs that lose most, and of those that prove the bound."""
    pairs = np.vstack([certificate.worst_pairs, certificate.weighted_pairs])
    named = pairs[(pairs < n_rows).all(axis=1)].ravel()
    first = np.sort(np.unique(named, return_index=True)[1])
    # The differences of the pairs of these rows have at most 4 million entries.
    room = 1 + math.isqrt(int(8e6 / certificate.n_features))
    return np.sort(named[first[: min(200, max(2, room))]])
