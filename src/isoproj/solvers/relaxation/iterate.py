"""A primal-dual iterate of the relaxation, and how its working sets grow.

Only a few hundred directions and a low-dimensional subspace carry the optimum.
Directions enter the working set when their slack falls to the scale of the current
barrier; a direction that was dropped once and came back stays. The subspace that
carries ``P`` is enlarged with the occupied eigenvectors of the full moment matrix that
stick out of it, and sheds idle directions only after the barrier has fallen. Every row
is dropped at most once, so the working set settles.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, Indices, top_eigenpairs, top_eigenvalue_sum
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.relaxation.matrices import (
    block_diagonal,
    congruence,
    filling,
    moment_of,
    onto_fantope,
    quadratic,
    trace_product,
)
from isoproj.solvers.settings import RelaxationSettings

__all__ = ["Iterate"]


@dataclass
class Iterate:
    """Primal-dual iterate on the working rows and the working subspace.

    Maximised is the floor ``t`` under all rows; or, with an objective ``C`` and a
    ceiling for ``t``, ``<C, P> + mass * t``: once ``mass`` exceeds the sum of the
    multipliers, ``t`` reaches its ceiling and what is left is the most of ``<C, P>``
    above a floor.
    """

    settings: RelaxationSettings
    k: int
    basis: Array
    projector: Array
    lower_dual: Array
    upper_dual: Array
    level: float
    codes: Indices
    rows: Array
    weights: Array
    slacks: Array
    t: float
    dropped: Indices = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    shrunk: float = np.inf  # barrier at the last shrinking of the subspace
    objective: Array | None = None
    ceiling: float = np.inf
    mass: float = 1.0  # what the weights and the spare one sum to
    spare: float = 0.0  # weight of the ceiling

    def __post_init__(self) -> None:
        self._settle(self.basis)

    def _settle(self, basis: Array) -> None:
        self.basis = basis
        self.images = self.rows @ basis
        self.drift = None
        if self.objective is not None:
            self.drift = congruence(basis, self.objective)

    @property
    def barrier(self) -> float:
        """Mean complementarity product of all blocks."""
        width = len(self.projector)
        total = (
            trace_product(self.projector, self.lower_dual)
            + np.trace(self.upper_dual)
            - trace_product(self.projector, self.upper_dual)
            + self.slacks @ self.weights
        )
        count = 2 * width + len(self.weights)
        if self.spare:
            return float(total + self.room * self.spare) / (count + 1)
        return float(total) / count

    @property
    def room(self) -> float:
        """Distance of t from its ceiling."""
        return self.ceiling - self.t

    def factor(self) -> Array:
        """Return a factor of the feasible P nearest to the iterate."""
        occupations, vectors = np.linalg.eigh(self.projector)
        occupations = onto_fantope(occupations, self.k)
        result: Array = self.basis @ (vectors * np.sqrt(occupations))
        return result

    def energy(self, *, restricted: bool) -> float:
        """Return the dual matrix's top-k sum, in the subspace or in the whole space."""
        return top_eigenvalue_sum(
            self.inner_moment() if restricted else self.moment(), self.k
        )

    def moment(self) -> Array:
        """Return the dual matrix: objective plus weighted moment of the rows."""
        return _sum(moment_of(self.rows, self.weights), self.objective)

    def inner_moment(self) -> Array:
        """Return the dual matrix restricted to the subspace."""
        return _sum(moment_of(self.images, self.weights), self.drift)

    def _moment_in(self, columns: Array) -> Array:
        """Return the dual matrix restricted to other columns."""
        drift = None
        if self.objective is not None:
            drift = congruence(columns, self.objective)
        return _sum(moment_of(self.rows @ columns, self.weights), drift)

    def grow(self, search: PairSearch, dense: bool) -> None:
        """Adapt the subspace and exchange working rows.

        The cheap search for missing directions can overlook eigenvectors that are
        decoupled from the subspace; ``dense`` asks for a complete one.
        """
        if len(self.basis) > self.settings.full_dimension:
            self._shrink_subspace()
            self._enlarge_subspace(dense)
        factor = self.basis @ np.linalg.cholesky(self.projector)
        self._exchange_rows(search, factor)

    def _threshold(self) -> float:
        """Return the occupation that matters at the current barrier."""
        return self.settings.missing * min(
            1.0, 100 * self.barrier * len(self.projector)
        )

    def _shrink_subspace(self) -> None:
        """Drop the subspace directions that P hardly occupies."""
        if (
            self.barrier > self.settings.shrink * self.shrunk
        ):  # no dropping and adding in turns
            return
        self.shrunk = self.barrier
        occupations, vectors = np.linalg.eigh(self.projector)
        keep = occupations > self.settings.idle * self._threshold()
        keep[-self.k - 1 :] = True
        if keep.all():
            return
        vectors = vectors[:, keep]
        self.projector = np.diag(onto_fantope(occupations[keep], self.k))
        self.lower_dual = congruence(vectors, self.lower_dual)
        self.upper_dual = congruence(vectors, self.upper_dual)
        self._move_basis(self.basis @ vectors)

    def _enlarge_subspace(self, dense: bool) -> None:
        """Add the occupied eigenvectors of the full moment outside the subspace."""
        spare = len(self.basis) - len(self.projector)
        if spare == 0:
            return
        energies, outside = self._outside_vectors(dense)
        occupations = filling(energies, self.level, self.barrier)
        outside = outside * np.sqrt(occupations)
        sizes, turn = np.linalg.eigh(outside.T @ outside)  # ascending
        count = int(np.sum(sizes > self._threshold()))
        count = min(count, 8 + self.k // 2, spare)
        if count > 0:
            fresh = outside @ turn[:, -count:]
            fresh /= np.sqrt(sizes[-count:])
            fresh = fresh - self.basis @ (self.basis.T @ fresh)
            self._append(np.linalg.qr(fresh)[0])

    def _outside_vectors(self, dense: bool) -> tuple[Array, Array]:
        """Return top eigenvalues and the parts of their vectors off the subspace.

        The cheap variant takes Ritz vectors from one Krylov step.
        """
        basis, (dimension, width) = self.basis, self.basis.shape
        if dense or 2 * width >= dimension:
            count = min(width + 10, dimension)
            energies, vectors = top_eigenpairs(self.moment(), count)
            return energies, vectors - basis @ (basis.T @ vectors)
        image = self.rows.T @ (self.weights[:, None] * self.images)
        if self.objective is not None:
            image += self.objective @ basis
        fresh = np.linalg.qr(image - basis @ (basis.T @ image))[0]
        moment = self._moment_in(np.hstack([basis, fresh]))
        energies, vectors = np.linalg.eigh(moment)
        return energies[width:], fresh @ vectors[width:, width:]

    def _append(self, fresh: Array) -> None:
        """Append subspace directions at their central occupation."""
        barrier = self.barrier
        energies, turn = np.linalg.eigh(self._moment_in(fresh))
        fresh = fresh @ turn
        occupations = filling(energies, self.level, barrier)
        occupations = np.minimum(occupations, 0.1)
        scale = (self.k - occupations.sum()) / self.k  # keeps the trace
        self.projector = block_diagonal(self.projector * scale, occupations)
        self.lower_dual = block_diagonal(self.lower_dual, barrier / occupations)
        self.upper_dual = block_diagonal(self.upper_dual, barrier / (1 - occupations))
        self._move_basis(np.hstack([self.basis, fresh]))

    def _move_basis(self, basis: Array) -> None:
        """Change the basis of P and lower t where the new P costs slack."""
        self._settle(basis)
        values = quadratic(self.images, self.projector)
        shift = max(0.0, self.t - float((values - 0.3 * self.slacks).min()))
        self.t -= shift
        self.slacks = values - self.t

    def _exchange_rows(self, search: PairSearch, factor: Array) -> None:
        """Add rows near the boundary and drop the idle ones."""
        barrier = self.barrier
        width = len(self.projector)
        unit = barrier  # slack of a row that carries all weight
        if self.objective is not None:
            unit /= max(1.0, float(self.weights.sum()))
        scale = self.settings.rows_per_dimension * width * unit
        # An optimum needs no more rows than P has entries. Where isotropic data make
        # all pairs tight at once, further ones come only if they are violated.
        plenty = self.codes.size > width * (width + 1)
        level = self.t + (0.0 if plenty else self.settings.near * scale)
        found = search.weakest(
            factor, level, most=self.codes.size + self.settings.spare_pairs
        )
        fresh = ~np.isin(found.codes, self.codes) & (found.retained < level)
        codes, rows = self._unlike(
            search, found.codes[fresh], max(width, self.settings.fewest_rows)
        )
        slack = found.retained[np.isin(found.codes, codes)] - self.t
        busy = self.weights * scale > self.settings.idle_weight * barrier
        busy |= self.slacks < self.settings.far * scale
        # A row that was dropped once and came back stays.
        busy |= np.isin(self.codes, self.dropped)
        # Where no pair matters at all, the nearest stays: there is no empty system.
        busy[np.argmin(self.slacks)] |= not codes.size
        if not codes.size and busy.all():
            return
        self.dropped = distinct(self.dropped, self.codes[~busy])
        if codes.size:
            # Lower t instead of accepting violated rows; however many come at once,
            # they bring no more weight than the others have.
            least = max(0.3 * scale, codes.size * unit)
            shift = max(0.0, least - float(slack.min()))
            self.t -= shift
            self.slacks = self.slacks + shift
            slack = slack + shift
        self.codes = np.concatenate([self.codes[busy], codes])
        self.rows = np.vstack([self.rows[busy], rows])
        self.images = np.vstack([self.images[busy], rows @ self.basis])
        self.slacks = np.concatenate([self.slacks[busy], slack])
        self.weights = np.concatenate([self.weights[busy], barrier / slack])

    def _unlike(
        self, search: PairSearch, codes: Indices, count: int
    ) -> tuple[Indices, Array]:
        """Return the first ``count`` pairs not parallel to a row already there.

        Points on lines and grids have many parallel pairs; one of them stands for
        all, and the others would only crowd out what is new.
        """
        taken, rows = np.empty(0, dtype=np.intp), np.empty((0, self.rows.shape[1]))
        for start in range(0, codes.size, 4 * count):
            chunk = codes[start : start + 4 * count]
            fresh = search.directions(chunk)
            others = np.vstack([self.rows, rows])
            new = np.abs(fresh @ others.T).max(axis=1) < 1.0 - self.settings.parallel
            twins = np.triu(np.abs(fresh @ fresh.T) >= 1.0 - self.settings.parallel, 1)
            new &= ~twins.any(axis=0)
            taken = np.concatenate([taken, chunk[new]])
            rows = np.vstack([rows, fresh[new]])
            if taken.size >= count:
                break
        return taken[:count], rows[:count]


def _sum(moment: Array, objective: Array | None) -> Array:
    return moment if objective is None else moment + objective
