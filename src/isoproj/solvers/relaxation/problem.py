"""The two relaxations over the fantope ``0 <= P <= I, tr P = k``.

``LargestFloor`` asks how much every pair can keep ::

    maximise t   subject to   x_l' P x_l >= t.

Its dual is ``min topk(M(w))`` over the simplex, with ``M(w) = sum_l w_l x_l x_l'`` and
``topk`` the sum of the k largest eigenvalues.

``MostKept`` asks how much of an objective ``C`` can be kept above a floor ``t`` ::

    maximise <C, P>   subject to   x_l' P x_l >= t.

Its dual is ``min topk(C + M(w)) - t sum(w)`` over ``w >= 0``. By Ky Fan's theorem every
``w`` bounds the maximum from above, and every feasible ``P`` from below, so the gap
between the two is a certificate whatever path the iteration took.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import Array, Indices, top_eigenpairs, top_eigenvalue_sum
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.relaxation.iterate import Iterate
from isoproj.solvers.relaxation.matrices import (
    central_occupations,
    congruence,
    quadratic,
    soft_minimum,
    spectral,
)
from isoproj.solvers.settings import RelaxationSettings

__all__ = ["LargestFloor", "MostKept", "Programme", "Relaxation"]

# Losses below this are rounding.
_ZERO = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """Both sides of a relaxation's optimum.

    Parameters
    ----------
    codes : ndarray of shape (m,)
        Pairs that carry weight, as ``PairSearch`` codes.
    weights : ndarray of shape (m,)
        Their positive weights; on the simplex for ``LargestFloor``.
    factor : ndarray of shape (n_dims, s)
        ``P = factor @ factor.T``: eigenvalues in [0, 1], trace k.
    upper : float
        Dual value of the weights: the maximum is not larger, up to rounding.
    value : float
        Value of a feasible matrix, to the accuracy of the search.
    n_iter : int
        Newton steps.
    is_closed : bool
        Whether the gap between both sides is what was asked for.
    """

    codes: Indices
    weights: Array
    factor: Array
    upper: float
    value: float
    n_iter: int = 0
    is_closed: bool = True

    @property
    def lower(self) -> float:
        """Bound on the distortion, for ``LargestFloor``."""
        return 1.0 - self.upper

    @property
    def relaxed(self) -> float:
        """What the worst pair loses under ``P``, for ``LargestFloor``."""
        return 1.0 - self.value


@dataclass(frozen=True, slots=True, eq=False)
class _Centre:
    """The central matrix of a moment inside a subspace, where iterates start."""

    k: int
    basis: Array
    vectors: Array
    filled: Array
    level: float
    barrier: float

    @staticmethod
    def of(
        basis: Array, vectors: Array, energies: Array, k: int, barrier: float
    ) -> _Centre:
        """Return the centre for the eigenpairs of the moment inside the subspace."""
        filled, level = central_occupations(energies, k, barrier)
        return _Centre(k, basis, vectors, filled, level, barrier)

    @property
    def factor(self) -> Array:
        """Matrix whose product with its transpose is the central one."""
        return np.asarray(self.basis @ (self.vectors * np.sqrt(self.filled)))

    def iterate(
        self,
        search: PairSearch,
        settings: RelaxationSettings,
        codes: Indices,
        ceiling: float = np.inf,
    ) -> Iterate:
        """Return the centred iterate with some pairs as rows, ``t`` below a ceiling."""
        barrier, filled, vectors = self.barrier, self.filled, self.vectors
        rows = search.directions(codes)
        values = quadratic(rows @ (self.basis @ vectors), np.diag(filled))
        t = min(soft_minimum(values, barrier), ceiling)
        return Iterate(
            settings=settings,
            k=self.k,
            basis=self.basis,
            projector=spectral(vectors, filled),
            lower_dual=spectral(vectors, barrier / filled),
            upper_dual=spectral(vectors, barrier / (1.0 - filled)),
            level=self.level,
            codes=codes,
            rows=rows,
            weights=barrier / (values - t),
            slacks=values - t,
            t=t,
        )


class Programme(ABC):
    """What is maximised over the fantope."""

    k: int

    @abstractmethod
    def attempts(self, settings: RelaxationSettings) -> Iterator[Programme]:
        """Yield the programme with one start after another."""

    @abstractmethod
    def start(self, search: PairSearch, settings: RelaxationSettings) -> Iterate:
        """Return a centred iterate to start from."""

    @abstractmethod
    def first(self, iterate: Iterate) -> Relaxation:
        """Return both sides as they are known beforehand."""

    @abstractmethod
    def upper(self, iterate: Iterate, *, restricted: bool) -> float:
        """Return the dual value of an iterate; too small where restricted."""

    @abstractmethod
    def value(self, search: PairSearch, factor: Array) -> float:
        """Return the value of the feasible matrix nearest to a given one."""

    @abstractmethod
    def gap(self, value: float, upper: float) -> float:
        """Return the relative gap between both sides."""

    @abstractmethod
    def scaled(self, weights: Array) -> Array:
        """Return the weights as the dual takes them."""

    @abstractmethod
    def prepare(self, iterate: Iterate) -> None:
        """Change what is necessary before the next step."""


@dataclass(frozen=True, slots=True, eq=False)
class LargestFloor(Programme):
    """How much every pair can keep.

    Parameters
    ----------
    k : int
        Target dimension.
    warm : Relaxation or None
        Solution of nearly the same programme to start from.
    seed : int
        Of the sample of pairs that a cold start uses.
    """

    k: int
    warm: Relaxation | None = None
    seed: int = 0

    def attempts(self, settings: RelaxationSettings) -> Iterator[LargestFloor]:
        """Yield the warm start, then cold ones from different samples."""
        yield self
        for seed in range(1, settings.attempts):
            yield LargestFloor(self.k, None, seed)

    def start(self, search: PairSearch, settings: RelaxationSettings) -> Iterate:
        """Return a centred iterate, from another solution or from a sample of pairs."""
        warm = self.warm
        moment, basis = self._subspace(search, settings)
        energies, vectors = np.linalg.eigh(congruence(basis, moment))
        barrier = settings.barrier
        if warm is not None:
            barrier = self._warm_barrier(search, basis @ vectors, energies)
        centre = _Centre.of(basis, vectors, energies, self.k, barrier)
        codes = search.lowest(centre.factor, max(2 * basis.shape[1], 20)).codes
        if warm is not None:
            busy = warm.codes[warm.weights > 1e-4 / codes.size]
            codes = distinct(codes, busy)
        iterate = centre.iterate(search, settings, codes)
        if warm is not None:
            # Weights above the central ones carry the warm start.
            known = _known_weights(warm, codes)
            iterate.weights = np.maximum(iterate.weights, known)
        iterate.weights /= iterate.weights.sum()
        return iterate

    def _subspace(
        self, search: PairSearch, settings: RelaxationSettings
    ) -> tuple[Array, Array]:
        """Return the moment to start from and the subspace to work in."""
        warm, seed = self.warm, self.seed
        if warm is None:
            # A second attempt differs from the first even where a sample holds all
            # pairs.
            size = settings.n_sampled
            if seed:
                size = max(1, min(size, search.n_pairs // 2))
            codes = search.sample(size, np.random.default_rng(seed))
            weights = np.full(codes.size, 1.0 / codes.size)
        else:
            codes, weights = warm.codes, warm.weights
        moment = search.moment(codes, weights)
        dimension = moment.shape[0]
        if dimension <= settings.full_dimension:
            return moment, np.eye(dimension)
        basis = top_eigenpairs(moment, min(dimension, self.k + 20))[1]
        if warm is not None:
            basis = _joined_span(warm.factor, basis[:, : self.k + 5])
        return moment, basis

    def _warm_barrier(
        self, search: PairSearch, vectors: Array, energies: Array
    ) -> float:
        """Return the barrier whose central P is the best one over all directions."""
        grid = 10.0 ** np.arange(-6.0, -2.9, 0.5)
        levels = []
        for barrier in grid:
            filled = central_occupations(energies, self.k, barrier)[0]
            levels.append(self.value(search, vectors * np.sqrt(filled)))
        return float(grid[int(np.argmax(levels))])

    def first(self, iterate: Iterate) -> Relaxation:
        """Return the vacuous bounds: everything or nothing is kept."""
        weights = self.scaled(iterate.weights)
        return Relaxation(iterate.codes, weights, iterate.factor(), 1.0, -np.inf)

    def upper(self, iterate: Iterate, *, restricted: bool) -> float:
        """Return the top-k sum of the iterate's moment, weights on the simplex."""
        return iterate.energy(restricted=restricted) / float(iterate.weights.sum())

    def value(self, search: PairSearch, factor: Array) -> float:
        """Return what the weakest pair keeps."""
        return float(search.weakest(factor, 0.0).retained[0])

    def gap(self, value: float, upper: float) -> float:
        """Return the gap relative to the bound on the distortion; none at no loss."""
        if value >= 1.0 - _ZERO:
            return 0.0
        if upper >= 1.0:
            return np.inf
        return (upper - value) / (1.0 - upper)

    def scaled(self, weights: Array) -> Array:
        """Return the weights on the simplex."""
        return np.asarray(weights / weights.sum())

    def prepare(self, iterate: Iterate) -> None:
        """Change nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class MostKept(Programme):
    """How much of an objective can be kept above a floor under every pair.

    The floor is elastic: ``t`` may stay below it at a price, so that pairs which enter
    late cost no feasibility and the multipliers cannot run away; the price is raised
    while it is what holds ``t`` down. A matrix that violates the floor is pulled
    towards the anchor's until it does not, which gives the value that the bound is
    compared with.

    Parameters
    ----------
    k : int
        Target dimension.
    objective : ndarray of shape (n_dims, n_dims)
        Positive semidefinite, trace 1.
    floor : float
        Share that every pair must keep.
    anchor : Relaxation
        Solution of ``LargestFloor`` for the same ``k``, whose matrix keeps the floor.
    anchor_floor : float
        What the weakest pair keeps under the anchor's matrix.
    """

    k: int
    objective: Array
    floor: float
    anchor: Relaxation
    anchor_floor: float

    @classmethod
    def of(
        cls,
        search: PairSearch,
        k: int,
        objective: Array,
        cap: float,
        anchor: Relaxation,
    ) -> MostKept:
        """Return the programme under a cap on what any pair loses."""
        least = float(search.weakest(anchor.factor, 0.0).retained[0])
        return cls(k, objective, 1.0 - cap, anchor, least)

    def attempts(self, settings: RelaxationSettings) -> Iterator[MostKept]:
        """Yield the one start there is: the anchor."""
        del settings
        yield self

    def start(self, search: PairSearch, settings: RelaxationSettings) -> Iterate:
        """Return a centred iterate whose dual is objective plus anchor's moment."""
        anchor, barrier = self.anchor, settings.barrier
        basis, moment = self._subspace(search, settings)
        energies, vectors = np.linalg.eigh(congruence(basis, moment))
        centre = _Centre.of(basis, vectors, energies, self.k, barrier)
        busy = anchor.codes[anchor.weights > 1e-3 / anchor.codes.size]
        codes = distinct(busy, search.lowest(centre.factor, 2 * basis.shape[1]).codes)
        iterate = centre.iterate(search, settings, codes, self.floor - barrier)
        return replace(
            iterate,
            objective=self.objective,
            ceiling=self.floor,
            mass=settings.first_mass,
            spare=settings.first_mass - float(iterate.weights.sum()),
        )

    def _subspace(
        self, search: PairSearch, settings: RelaxationSettings
    ) -> tuple[Array, Array]:
        """Return a subspace that holds the anchor, and the first dual matrix."""
        anchor = self.anchor
        moment = search.moment(anchor.codes, anchor.weights)
        moment += self.objective
        dimension = len(moment)
        if dimension <= settings.full_dimension:
            return np.eye(dimension), moment
        leading = top_eigenpairs(moment, min(dimension, self.k + 20))[1]
        return _joined_span(anchor.factor, leading), moment

    def first(self, iterate: Iterate) -> Relaxation:
        """Return the anchor's value, and Ky Fan's bound without multipliers."""
        anchor, none = self.anchor, iterate.codes[:0]
        upper = top_eigenvalue_sum(self.objective, self.k)
        value = self._kept(anchor.factor)
        return Relaxation(none, np.empty(0), anchor.factor, upper, value)

    def upper(self, iterate: Iterate, *, restricted: bool) -> float:
        """Return the dual value of the iterate's multipliers."""
        energy = iterate.energy(restricted=restricted)
        return energy - self.floor * float(iterate.weights.sum())

    def value(self, search: PairSearch, factor: Array) -> float:
        """Return what the matrix keeps once it is pulled to feasibility."""
        return self.pulled(factor, float(search.weakest(factor, 0.0).retained[0]))

    def pulled(self, factor: Array, least: float) -> float:
        """Return the same where it is known what the weakest pair keeps."""
        value = self._kept(factor)
        if least >= self.floor:
            return value
        room = max(self.anchor_floor - least, 1e-12)
        pull = min(1.0, (self.floor - least) / room)
        return value + pull * (self._kept(self.anchor.factor) - value)

    def gap(self, value: float, upper: float) -> float:
        """Return the gap relative to the bound."""
        return (upper - value) / upper if upper > 0.0 else 0.0

    def scaled(self, weights: Array) -> Array:
        """Return the multipliers as they are."""
        return weights

    def prepare(self, iterate: Iterate) -> None:
        """Raise the price of the floor while that is what holds ``t`` down."""
        settings = iterate.settings
        if (
            iterate.barrier < settings.low_barrier
            and iterate.spare < settings.least_spare * iterate.mass
        ):
            iterate.spare += (settings.raised - 1.0) * iterate.mass
            iterate.mass *= settings.raised

    def _kept(self, factor: Array) -> float:
        """Return the share of the objective that a matrix keeps."""
        return float(np.vdot(factor, self.objective @ factor))


def _joined_span(first: Array, second: Array) -> Array:
    """Return an orthonormal basis of the span of both sets of columns."""
    left, sizes, _ = np.linalg.svd(np.hstack([first, second]), full_matrices=False)
    return np.asarray(left[:, sizes > 1e-6])


def _known_weights(warm: Relaxation, codes: Indices) -> Array:
    """Return the weights that a solution has at some pairs, 0 where it has none."""
    order = np.argsort(warm.codes)
    at = np.searchsorted(warm.codes[order], codes)
    at = np.minimum(at, order.size - 1)
    known = warm.codes[order][at] == codes
    return np.where(known, warm.weights[order][at], 0.0)
