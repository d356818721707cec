"""The relaxation by projected gradients, where thousands of pairs are tight.

The smoothed worst loss of a matrix ``P`` of the fantope ::

    f(P) = mu log sum_l u_l exp((1 - x_l' P x_l) / mu)

is convex and smooth, and its gradient is ``-M(w)`` for weights ``w_l`` that are dual
weights. They become the next ``u``: this is the exponential method of multipliers, a
proximal point method on the dual that converges for any fixed ``mu`` as the inner
problems are solved (Tseng and Bertsekas, 1993), so ``mu`` need not go to zero. A round
that ends far from its minimum is made again with a larger ``mu``.

The inner problems are solved by spectral projected gradients (Birgin, Martinez and
Raydan, 2000): steps of the length of Barzilai and Borwein, projected onto the fantope,
with a line search that lets the value rise for a while; on a convex function they
converge to a minimum. The projection changes eigenvalues alone, so directions fill up
and empty at once, where a factor of ``P`` would crawl. A step costs two products with
the directions and an eigenproblem, however many pairs are tight. Where dimensions are
many, ``P`` lives in a subspace, which takes in leading eigenvectors of ``M(w)``; where
that is too small, the bound is valid and a little looser.

With an objective ``A`` under a cap, ``-<A, P>`` and a price times the smoothed excess
over the cap take the place of the smoothed loss: the maximum has one function more, the
zero. The penalty is exact once the price is above the sum of all multipliers, so it is
raised while the zero has next to no weight.

The first matrix lies between the leading directions, evenly filled, and a projection
that was found: so near to this one that the worst pair loses at most about twice as
much. Every round gives a bound and a relaxed value. The last digits are for the
interior-point method (``relaxation.path``), whose step costs the cube of the number of
tight pairs.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.arrays import distinct
from isoproj.numerics.spectral import (
    Array,
    Indices,
    orthonormal,
    top_eigenpairs,
    top_eigenvalue_sum,
)
from isoproj.numerics.threads import n_threads, threaded_list
from isoproj.pairs.directions import Secants, quadratic_values
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import UNLIMITED, Clock
from isoproj.solvers.descent.objectives import Real
from isoproj.solvers.relaxation.matrices import (
    central_occupations,
    congruence,
    nearest_occupations,
    symmetric,
    trace_product,
)
from isoproj.solvers.relaxation.problem import MostKept, Relaxation
from isoproj.solvers.settings import MultiplierSettings

__all__ = ["Multipliers"]

# Pairs whose directions are multiplied at once.
_CHUNK = 2048
# Weights below this share of the largest do not enter a moment.
_NEGLIGIBLE = 1e-8
# Occupations below this are none.
_EMPTY = 1e-9
# Sufficient decrease, and the shortest step along a projected move.
_DECREASE = 1e-4
_SHORTEST = 1e-3
# Gains of rounds are expected to fall at least by this factor.
_SLOWEST = 0.7
# Rounds in a row, made again smoother, that end the method if they gain nothing.
_STUCK = 6
# Shortest step before projection, and the longest.
_STEPS = (1e-12, 1e6)


@dataclass(slots=True, eq=False)
class Multipliers:
    """The relaxation's state between two rounds.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    k : int
        Target dimension.
    codes : ndarray of shape (m,)
        Working pairs, sorted.
    space : ndarray of shape (n_dims, s)
        Orthonormal columns, in whose span the matrix lives.
    occupations : ndarray of shape (s,)
        Eigenvalues of the matrix, whose eigenvectors are the columns.
    settings : MultiplierSettings
        Tuning figures.
    goal : MostKept or None
        The objective and its floor; None means the least loss.
    spare : float
        Share of the price that no pair has; 0 without an objective.
    price : float
        What all multipliers and ``spare`` sum to.
    weights : ndarray of shape (m,)
        Multipliers of the pairs, as shares of the price.
    best : Relaxation or None
        The best of either side so far.
    """

    search: PairSearch
    k: int
    codes: Indices
    space: Array
    occupations: Array
    settings: MultiplierSettings
    goal: MostKept | None = None
    spare: float = 0.0
    price: float = 1.0
    weights: Array = field(init=False)
    best: Relaxation | None = None
    n_rounds: int = 0
    _step: float = 1.0
    _heat: float = 1.0
    _bounds: deque[float] = field(default_factory=lambda: deque(maxlen=_STUCK))
    _is_idle: bool = False
    _n_fresh: int = 0

    def __post_init__(self) -> None:
        self.weights = np.full(self.codes.size, (1.0 - self.spare) / self.codes.size)

    @staticmethod
    def begin(
        search: PairSearch,
        codes: Indices,
        basis: Array,
        settings: MultiplierSettings,
    ) -> Multipliers:
        """Start from the principal directions, softly filled, or nearer to a basis.

        Where the spectrum falls steeply, filled directions leave pairs out that the
        basis keeps, and the way back is long.
        """
        k = basis.shape[1]
        rng = np.random.default_rng(0)
        sampled = search.sample(settings.n_sampled, rng)
        moment = search.moment(sampled, np.full(sampled.size, 1.0 / sampled.size))
        energies, vectors = np.linalg.eigh(moment)
        width = min(len(energies), settings.most_columns(k))
        filled = central_occupations(energies[-width:], k, settings.first_barrier)[0]
        space = _widened(basis, moment, width)
        inside = space.T @ vectors[:, -width:]
        soft = (inside * filled) @ inside.T
        codes = distinct(codes)
        rows = search.directions(codes) @ space
        lost = 1.0 - float(quadratic_values(rows[:, :k], np.eye(k)).min())
        most = 1.0 - float(quadratic_values(rows, soft).min())
        share = max(lost, 0.0) / max(lost, most, 1e-300)
        matrix = share * soft
        matrix[np.diag_indices(k)] += 1.0 - share
        occupations, turn = np.linalg.eigh(matrix)
        occupations = nearest_occupations(occupations, k)
        return Multipliers(search, k, codes, space @ turn, occupations, settings)

    @staticmethod
    def begin_capped(
        search: PairSearch,
        goal: MostKept,
        codes: Indices,
        settings: MultiplierSettings,
    ) -> Multipliers:
        """Start from a matrix under the cap."""
        anchor, k, settings = goal.anchor, goal.k, settings.capped()
        left, sizes, _ = np.linalg.svd(anchor.factor, full_matrices=False)
        state = Multipliers(
            search,
            k,
            distinct(codes, anchor.codes),
            left,
            nearest_occupations(np.square(sizes), k),
            settings,
            goal,
            spare=settings.first_spare,
            price=settings.first_price,
        )
        moment = goal.objective + search.moment(anchor.codes, anchor.weights)
        state._enlarge(moment)
        return state

    @property
    def _cap(self) -> float:
        """What a pair may lose for nothing: nothing without an objective."""
        return 0.0 if self.goal is None else 1.0 - self.goal.floor

    @property
    def factor(self) -> Array:
        """Matrix whose product with its transpose is ``P``."""
        is_filled = self.occupations > _EMPTY
        return self.space[:, is_filled] * np.sqrt(self.occupations[is_filled])

    @property
    def perplexity(self) -> float:
        """Effective number of pairs that carry weight."""
        weights = self.weights[self.weights > 0.0] / self.weights.sum()
        return float(np.exp(-(weights @ np.log(weights))))

    @property
    def is_over(self) -> bool:
        """Whether rounds are used up, or those to come promise next to nothing."""
        return self._is_idle or self.n_rounds >= self.settings.max_rounds

    def saw(self, bound: float, other: float) -> None:
        """Judge by the best bound, and the other side, whether rounds still pay.

        Gains fall about geometrically, so the last two tell what is to come.
        """
        self._bounds.append(bound)
        if len(self._bounds) < 3 or self._is_early(other):
            return
        accuracy = self.settings.accuracy * abs(bound)
        if self._heat > 1.0:
            # A round that is made again gains nothing; so many in a row are the end.
            is_full = len(self._bounds) == _STUCK
            self._is_idle = is_full and abs(bound - self._bounds[0]) <= accuracy
            return
        first, second, third = list(self._bounds)[-3:]
        gain = abs(third - second)
        ratio = min(gain / max(abs(second - first), 1e-300), _SLOWEST)
        paying = self.settings.paying * abs(other - bound)
        enough = min(paying, accuracy)
        self._is_idle = gain * ratio / (1.0 - ratio) <= enough

    def _is_early(self, distortion: float) -> bool:
        """Return whether as many pairs as may join were overlooked by a poor matrix.

        Then the gain of one round tells little about those to come.
        """
        if self.goal is not None or self.best is None:
            return False
        is_full = self._n_fresh >= self.settings.batch
        return is_full and self.best.relaxed > distortion

    def round(self, scale: float, clock: Clock = UNLIMITED) -> Relaxation:
        """Minimise once, take in overlooked pairs, and return both sides.

        ``scale`` is the size of losses that matter; smoothing is a share of it. No step
        begins once the clock is over.
        """
        settings, search = self.settings, self.search
        smoothing = scale * self._heat * settings.smoothing_at(self.n_rounds)
        found, is_near = self._minimised(smoothing, clock)
        self.occupations, turn = np.linalg.eigh(found.matrix)
        self.occupations = nearest_occupations(self.occupations, self.k)
        self.space = self.space @ turn
        factor = self.factor
        worst = max(found.worst, self._cap)
        level = 1.0 - worst + smoothing + settings.near * scale
        weakest = search.weakest(factor, level, most=4 * settings.batch)
        least = float(weakest.retained[0])
        value = least if self.goal is None else self.goal.pulled(factor, least)
        relaxation = self._bounded(found.weights, factor, value)
        self._keep(relaxation)
        fresh = weakest.codes[~np.isin(weakest.codes, self.codes)][: settings.batch]
        self._n_fresh = fresh.size
        # Weights of a round that ended far from its minimum would lead astray: it is
        # made again, smoother.
        self._take_in(fresh, found.weights if is_near else self.weights)
        heated = self._heat * settings.heating
        self._heat = max(1.0, self._heat / 2.0) if is_near else heated
        self.n_rounds += 1
        return relaxation

    def _minimised(self, smoothing: float, clock: Clock) -> tuple[_State, bool]:
        """Return the lowest state of a round, and whether it is near the minimum."""
        secants = Secants(self.search.coordinates, self.search.decode(self.codes))
        dtype = np.float32 if smoothing > self.settings.single else np.float64
        rows = secants.astype(dtype).images(self.space.astype(dtype))
        objective = None
        if self.goal is not None:
            objective = congruence(self.space, self.goal.objective)
        inner = _Smoothed(
            rows,
            self.k,
            smoothing,
            self.weights,
            objective,
            self._cap,
            self.spare,
            self.price,
        )
        matrix = np.diag(self.occupations)
        tolerance = self.settings.tolerance_at(self.n_rounds)
        settings = replace(self.settings, tolerance=tolerance)
        found, self._step, is_near = inner.minimise(matrix, self._step, settings, clock)
        return found, is_near

    def _bounded(self, weights: Array, factor: Array, value: float) -> Relaxation:
        """Return the bound of some weights; take in directions that matter to them."""
        heavy = weights > _NEGLIGIBLE * weights.max()
        codes, own = self.codes[heavy], self.price * weights[heavy]
        floor = 0.0
        if self.goal is None:
            own /= own.sum()
            moment = self.search.moment(codes, own)
        else:
            moment = self.goal.objective + self.search.moment(codes, own)
            floor = self.goal.floor * float(own.sum())
        self._enlarge(moment)
        upper = top_eigenvalue_sum(moment, self.k) - floor
        return Relaxation(codes, own, factor, upper, value, is_closed=False)

    def _keep(self, found: Relaxation) -> None:
        """Keep the better of either side."""
        best = found if self.best is None else self.best
        if found.upper < best.upper:
            best = replace(found, factor=best.factor, value=best.value)
        if found.value > best.value:
            best = replace(best, factor=found.factor, value=found.value)
        self.best = best

    def _enlarge(self, moment: Array) -> None:
        """Replace empty columns by the directions outside that matter most.

        Weak ones are worth their column too: where the spectrum falls steeply, what
        pairs lose lies there alone.
        """
        n_dims, width = self.space.shape
        if width == n_dims:
            return
        is_filled = self.occupations > _EMPTY
        most = min(n_dims, self.settings.most_columns(self.k))
        self.space = _widened(self.space[:, is_filled], moment, most)
        n_empty = self.space.shape[1] - int(is_filled.sum())
        self.occupations = np.append(self.occupations[is_filled], np.zeros(n_empty))

    def _take_in(self, fresh: Indices, weights: Array) -> None:
        """Add pairs with a mean weight; drop those that carry next to none.

        A pair that was dropped and matters later is found again by a search of all.
        """
        codes = np.concatenate([self.codes, fresh])
        least = 1.0 / codes.size
        spare = 0.0 if self.goal is None else max(1.0 - float(weights.sum()), least)
        values = np.concatenate([weights, np.full(fresh.size, least)])
        is_heavy = values >= self.settings.idle_weight * values.mean()
        codes, values = codes[is_heavy], values[is_heavy]
        # Under a cap all pairs together may carry little; none may carry nothing.
        values = np.maximum(values, self.settings.least_weight * least)
        if codes.size > self.settings.largest_set:
            order = np.argsort(-values, kind="stable")[: self.settings.largest_set]
            codes, values = codes[order], values[order]
        if self.goal is not None and spare < self.settings.least_spare:
            # The same multipliers under a higher price; what is new is to spare.
            raised = self.settings.raised
            values, spare = values / raised, spare / raised + 1.0 - 1.0 / raised
            self.price *= raised
        order = np.argsort(codes)
        total = float(values.sum()) + spare
        self.codes, self.weights = codes[order], values[order] / total
        self.spare = spare / total


def _widened(basis: Array, moment: Array, width: int) -> Array:
    """Return a basis with the directions outside that matter most to a moment."""
    count = min(width, basis.shape[0]) - basis.shape[1]
    if count <= 0:
        return basis
    inside = moment @ basis
    outside = moment - inside @ basis.T - basis @ inside.T
    outside += basis @ (basis.T @ inside) @ basis.T
    return orthonormal(np.hstack([basis, top_eigenpairs(outside, count)[1]]))


@dataclass(frozen=True, slots=True, eq=False)
class _State:
    """A matrix of the fantope, with value, weights and moment there."""

    matrix: Array
    value: float
    worst: float
    weights: Array
    moment: Array


@dataclass(slots=True, eq=False)
class _Smoothed:
    """The smoothed worst loss of some rows."""

    rows: Real
    k: int
    smoothing: float
    prior: Array
    objective: Array | None = None
    cap: float = 0.0
    spare: float = 0.0
    price: float = 1.0
    _offset: Array = field(init=False)

    def __post_init__(self) -> None:
        self._offset = np.log(np.maximum(self.prior, 1e-300))

    def at(self, matrix: Array, factor: Array | None = None) -> _State:
        """Return the state at a matrix; minus its moment is the gradient.

        A ``factor`` whose product with its transpose is the matrix saves work.
        """
        losses = self._losses(matrix, factor)
        exponents = (losses - self.cap) / self.smoothing + self._offset
        zero = math.log(self.spare) if self.spare > 0.0 else -math.inf
        top = max(float(exponents.max()), zero)
        weights = np.exp(exponents - top)
        total = float(weights.sum()) + math.exp(zero - top)
        weights /= total
        value = self.price * self.smoothing * (top + math.log(total))
        moment = self.price * self._moment(weights)
        if self.objective is not None:
            value -= trace_product(self.objective, matrix)
            moment += self.objective
        return _State(matrix, value, float(losses.max()), weights, moment)

    def _losses(self, matrix: Array, factor: Array | None) -> Array:
        """Return ``1 - x' P x`` for every row."""
        rows, kept = self.rows, np.empty(len(self.rows))
        single = (matrix if factor is None else factor).astype(rows.dtype)

        def visit(start: int) -> None:
            chunk = slice(start, start + _CHUNK)
            images = rows[chunk] @ single
            others = rows[chunk] if factor is None else images
            kept[chunk] = np.einsum("ij,ij->i", images, others)

        threaded_list(visit, range(0, len(rows), _CHUNK), n_threads())
        return np.asarray(1.0 - kept)

    def _moment(self, weights: Array) -> Array:
        """Return ``M(w)`` inside the subspace."""
        heavy = np.flatnonzero(weights > _NEGLIGIBLE * weights.max())
        roots = np.sqrt(weights[heavy]).astype(self.rows.dtype)

        def visit(start: int) -> Real:
            chunk = slice(start, start + _CHUNK)
            some = self.rows[heavy[chunk]] * roots[chunk, None]
            return np.asarray(some.T @ some)

        parts = threaded_list(visit, range(0, heavy.size, _CHUNK), n_threads())
        return np.asarray(np.sum(parts, axis=0), dtype=np.float64)

    def minimise(
        self,
        matrix: Array,
        step: float,
        settings: MultiplierSettings,
        clock: Clock = UNLIMITED,
    ) -> tuple[_State, float, bool]:
        """Return the lowest state, the next step's length, and whether it is near.

        It is near the minimum if no move at all promises more than the smoothing.
        """
        state = best = self.at(matrix)
        values = deque([state.value], maxlen=settings.memory)
        for _ in range(settings.steps):
            if clock.is_over:
                break
            target, factor = self._projected(state.matrix + step * state.moment)
            slope = -trace_product(state.moment, target - state.matrix)
            if slope > -settings.tolerance * self.smoothing:
                break
            moved = self.at(target, factor)
            moved = self._decreased(state, moved, slope, max(values))
            change = moved.matrix - state.matrix
            curvature = trace_product(change, state.moment - moved.moment)
            if curvature > 0.0:
                step = trace_product(change, change) / curvature
            else:
                step = 2.0 * step
            step = min(max(step, _STEPS[0]), _STEPS[1])
            state = moved
            values.append(state.value)
            best = min(best, state, key=lambda each: each.value)
        most = float(np.linalg.eigvalsh(best.moment)[-self.k :].sum())
        promised = most - trace_product(best.moment, best.matrix)
        return best, step, promised <= self.price * self.smoothing

    def _projected(self, matrix: Array) -> tuple[Array, Array]:
        """Return the nearest matrix of the fantope, and its factor."""
        values, vectors = np.linalg.eigh(symmetric(matrix))
        occupations = nearest_occupations(values, self.k)
        is_filled = occupations > 0.0
        factor = vectors[:, is_filled] * np.sqrt(occupations[is_filled])
        return factor @ factor.T, factor

    def _decreased(
        self, state: _State, moved: _State, slope: float, highest: float
    ) -> _State:
        """Return the first state on the way to another that is below ``highest``."""
        move, time = moved.matrix - state.matrix, 1.0
        while moved.value > highest + _DECREASE * time * slope and time >= _SHORTEST:
            # The minimum of the parabola through what is known, kept well inside.
            rise = moved.value - state.value - time * slope
            time *= min(max(-0.5 * time * slope / max(rise, 1e-300), 0.1), 0.5)
            moved = self.at(state.matrix + time * move)
        return moved
