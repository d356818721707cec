"""The lower side: the relaxation over the fantope, by multipliers.

The fantope ``0 <= P <= I, tr P = k`` is the convex hull of the projections. The
smoothed worst loss of a matrix ``P`` in it ::

    f(P) = mu log sum_l u_l exp((1 - x_l' P x_l) / mu)

is convex and smooth, and its gradient is ``-M(w)`` for weights ``w_l``. These are dual
weights: they bound what any projection loses. They become the next ``u``, which makes
the rounds the exponential method of multipliers, a proximal point method on the dual
that converges for any fixed ``mu`` (Tseng and Bertsekas, 1993). A round that ends far
from its minimum is made again with a larger ``mu``.

A round is solved by spectral projected gradients (Birgin, Martinez and Raydan, 2000).
The projection onto the fantope changes eigenvalues alone. Where dimensions are many,
``P`` lives in a subspace, which takes in leading eigenvectors of ``M(w)``; where that
is too small, the bound is valid and a little looser.

With an objective ``A`` under a cap (`Goal`), ``-<A, P>`` and a price times the smoothed
excess over the cap take the place of the smoothed loss. The penalty is exact once the
price is above the sum of all multipliers, so it is raised while the zero function has
next to no weight.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

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
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import UNLIMITED, Clock
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Real

# Pairs whose directions are multiplied at once.
_CHUNK = 2048
# Weights below this share of the largest do not enter a moment; pairs with less than
# this share of the mean weight leave the working pairs; no pair has less than this.
_NEGLIGIBLE, _IDLE, _LEAST = 1e-8, 1e-2, 1e-4
# Occupations below this are none.
_EMPTY = 1e-9
# Rounds in a row without a gain that end the method.
_STUCK = 6


def nearest_occupations(values: Array, k: int) -> Array:
    """Return the occupations in [0, 1] with sum k that are nearest to values.

    These are the values less a level, clipped. Their sum is a piecewise linear function
    of the level, with breaks where a value is clipped.
    """
    breaks = np.sort(np.concatenate([values - 1.0, values]))
    sums = np.clip(values - breaks[:, None], 0.0, 1.0).sum(axis=1)
    after = min(max(int(np.searchsorted(-sums, -k)), 1), len(breaks) - 1)
    drop = sums[after - 1] - sums[after]
    share = (sums[after - 1] - k) / drop if drop > 0.0 else 0.0
    level = breaks[after - 1] + share * (breaks[after] - breaks[after - 1])
    return np.asarray(np.clip(values - level, 0.0, 1.0))


def nearest_in_fantope(matrix: Array, k: int) -> Array:
    """Return ``F``, for which ``F F'`` is the nearest matrix of the fantope."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2.0)
    occupations = nearest_occupations(values, k)
    is_filled = occupations > 0.0
    return np.asarray(vectors[:, is_filled] * np.sqrt(occupations[is_filled]))


def leading(factor: Array, k: int) -> Array:
    """Return the top ``k`` eigenvectors of ``factor @ factor.T``."""
    left = np.linalg.svd(factor, full_matrices=False)[0]
    if left.shape[1] < k:
        return orthonormal(np.hstack([left, np.eye(left.shape[0], k - left.shape[1])]))
    return left[:, :k]


@dataclass(frozen=True, slots=True, eq=False)
class Relaxation:
    """Both sides of a relaxation's optimum.

    Parameters
    ----------
    codes : ndarray of shape (m,)
        Pairs that carry weight, as ``PairSearch`` codes.
    weights : ndarray of shape (m,)
        Their positive weights; on the simplex without an objective.
    factor : ndarray of shape (n_dims, s)
        ``P = factor @ factor.T``: eigenvalues in [0, 1], trace k.
    upper : float
        Dual value of the weights: the maximum is not larger, up to rounding.
    value : float
        Value of a feasible matrix, to the accuracy of the search.
    """

    codes: Indices
    weights: Array
    factor: Array
    upper: float
    value: float

    @property
    def lower(self) -> float:
        """Bound on the distortion, without an objective."""
        return 1.0 - self.upper

    @property
    def relaxed(self) -> float:
        """What the worst pair loses under ``P``, without an objective."""
        return 1.0 - self.value


@dataclass(frozen=True, slots=True, eq=False)
class Goal:
    """An objective to keep most of under a cap.

    Parameters
    ----------
    objective : ndarray of shape (n_dims, n_dims)
        Positive semidefinite, trace 1.
    cap : float
        What no pair may lose more than.
    anchor : ndarray of shape (n_dims, s)
        Factor of a matrix under the cap.
    anchor_floor : float
        What the weakest pair keeps under that.
    """

    objective: Array
    cap: float
    anchor: Array
    anchor_floor: float

    def pulled(self, factor: Array, least: float) -> float:
        """Return what a matrix keeps once it is pulled to the anchor, under the cap.

        ``least`` is what the weakest pair keeps under the matrix.
        """
        value = self._kept(factor)
        floor = 1.0 - self.cap
        if least >= floor:
            return value
        room = max(self.anchor_floor - least, 1e-12)
        pull = min(1.0, (floor - least) / room)
        return value + pull * (self._kept(self.anchor) - value)

    def _kept(self, factor: Array) -> float:
        """Return the share of the objective that a matrix keeps."""
        return float(np.vdot(factor, self.objective @ factor))


@dataclass(slots=True, eq=False)
class Fantope:
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
    settings : Settings
        Tuning figures.
    tol : float
        Relative gap that is aimed at.
    goal : Goal or None
        The objective and its cap; None means the least loss.
    spare : float
        Share of the price that no pair has; 0 without an objective.
    price : float
        What all multipliers and ``spare`` sum to.
    weights : ndarray of shape (m,)
        Multipliers of the pairs, as shares of the price.
    best : Relaxation or None
        The best of either side so far.
    work : float
        Multiplications of the last round.
    """

    search: PairSearch
    k: int
    codes: Indices
    space: Array
    occupations: Array
    settings: Settings
    tol: float
    goal: Goal | None = None
    spare: float = 0.0
    price: float = 1.0
    weights: Array = field(default_factory=lambda: np.empty(0))
    best: Relaxation | None = None
    n_rounds: int = 0
    work: float = 0.0
    heat: float = 1.0
    step: float = 1.0
    gains: deque[float] = field(default_factory=lambda: deque(maxlen=_STUCK))
    n_fresh: int = 0

    def __post_init__(self) -> None:
        if self.weights.size != self.codes.size:
            share = (1.0 - self.spare) / self.codes.size
            self.weights = np.full(self.codes.size, share)

    @staticmethod
    def begin(
        search: PairSearch,
        codes: Indices,
        basis: Array,
        settings: Settings,
        tol: float,
    ) -> Fantope:
        """Start from the principal directions, softly filled, or nearer to a basis.

        Where the spectrum falls steeply, filled directions leave pairs out that the
        basis keeps, and the way back is long. So the matrix is a mean of both, in
        which the basis weighs the more the less it loses.
        """
        k = basis.shape[1]
        sampled = search.sample(settings.batch, np.random.default_rng(0))
        moment = search.moment(sampled, np.full(sampled.size, 1.0 / sampled.size))
        energies, vectors = np.linalg.eigh(moment)
        width = min(len(energies), k + max(settings.spare_columns, k))
        # Shares of the energies, within reach of which directions are filled softly.
        soft = nearest_occupations(
            np.log(np.maximum(energies[-width:], 1e-300)) / 4.0, k
        )
        space = _widened(basis, moment, width)
        inside = space.T @ vectors[:, -width:]
        filled = (inside * soft) @ inside.T
        rows = search.directions(codes) @ space
        lost = float(1.0 - np.einsum("ij,ij->i", rows[:, :k], rows[:, :k]).min())
        most = float(1.0 - np.einsum("ij,ij->i", rows @ filled, rows).min())
        share = max(lost, 0.0) / max(lost, most, 1e-300)
        matrix = share * filled
        matrix[np.diag_indices(k)] += 1.0 - share
        occupations, turn = np.linalg.eigh(matrix)
        occupations = nearest_occupations(occupations, k)
        codes = distinct(codes)
        return Fantope(search, k, codes, space @ turn, occupations, settings, tol)

    @staticmethod
    def begin_capped(
        search: PairSearch,
        goal: Goal,
        k: int,
        warm: Relaxation,
        settings: Settings,
        tol: float,
    ) -> Fantope:
        """Start from the anchor's matrix, with the pairs of a solution without a cap.

        Those pairs come with the weakest ones where the objective is kept best.
        """
        left, sizes, _ = np.linalg.svd(goal.anchor, full_matrices=False)
        principal = top_eigenpairs(goal.objective, k)[1]
        lowest = search.lowest(principal, settings.batch // 2).codes
        state = Fantope(
            search,
            k,
            distinct(lowest, warm.codes),
            left,
            nearest_occupations(np.square(sizes), k),
            settings,
            tol,
            goal,
            spare=0.5,
            price=2.0,
        )
        state._enlarge(goal.objective + search.moment(warm.codes, warm.weights))
        return state

    @property
    def cap(self) -> float:
        """What a pair may lose for nothing: nothing without an objective."""
        return 0.0 if self.goal is None else self.goal.cap

    @property
    def factor(self) -> Array:
        """Matrix whose product with its transpose is ``P``."""
        is_filled = self.occupations > _EMPTY
        return self.space[:, is_filled] * np.sqrt(self.occupations[is_filled])

    def has_stopped_gaining(self, bound: float, other: float) -> bool:
        """Return whether rounds to come promise next to nothing.

        Gains fall about geometrically, so the last two tell what is to come.
        """
        self.gains.append(bound)
        if len(self.gains) < 3:
            return False
        assert self.best is not None
        is_full = self.n_fresh >= self.settings.batch
        if self.goal is None and is_full and self.best.relaxed > other:
            # A poor matrix overlooks as many pairs as may join: a round's gain tells
            # little about those to come.
            return False
        enough = self.settings.accuracy * self.tol * abs(bound)
        if self.heat > 1.0:
            # A round that is made again gains nothing; so many in a row are the end.
            is_stuck = len(self.gains) == _STUCK
            return is_stuck and abs(bound - self.gains[0]) <= enough
        first, second, third = list(self.gains)[-3:]
        # One idle round may follow one that gained, and come before another.
        before = max(abs(second - first), 1e-300)
        gain = max(abs(third - second), 0.3 * before)
        ratio = min(gain / before, 0.7)
        return gain * ratio / (1.0 - ratio) <= enough

    def round(self, scale: float, clock: Clock = UNLIMITED) -> Relaxation:
        """Minimise once, take in overlooked pairs, and return both sides.

        ``scale`` is the size of losses that matter; smoothing is a share of it. No step
        begins once the clock is over.
        """
        settings, search = self.settings, self.search
        # Under a cap the first matrix is near the optimum already.
        first = 0.5 * settings.first_smoothing
        if self.goal is None:
            first = settings.first_smoothing * 0.5**self.n_rounds
        share = max(first, settings.smoothing * self.tol)
        smoothing = scale * self.heat * share
        found, is_near = self._minimised(smoothing, clock)
        self.occupations, turn = np.linalg.eigh(found.matrix)
        self.occupations = nearest_occupations(self.occupations, self.k)
        self.space = self.space @ turn
        factor = self.factor
        worst = max(found.worst, self.cap)
        level = 1.0 - worst + smoothing
        weakest = search.near(factor, level, most=4 * settings.batch)
        self.work += search.n_pairs * (factor.shape[1] + 2.0)
        least = float(weakest.retained[0])
        value = least if self.goal is None else self.goal.pulled(factor, least)
        relaxation = self._bounded(found.weights, factor, value)
        self._keep(relaxation)
        fresh = weakest.codes[~np.isin(weakest.codes, self.codes)][: settings.batch]
        self.n_fresh = fresh.size
        # Weights of a round that ended far from its minimum would lead astray: it is
        # made again, smoother.
        self._take_in(fresh, found.weights if is_near else self.weights)
        self.heat = max(1.0, self.heat / 2.0) if is_near else 4.0 * self.heat
        self.n_rounds += 1
        return relaxation

    def _minimised(self, smoothing: float, clock: Clock) -> tuple[_State, bool]:
        """Return the lowest state of a round, and whether it is near the minimum."""
        secants = Secants(self.search.coordinates, self.search.decode(self.codes))
        dtype: type[np.floating[Any]] = np.float32 if smoothing > 3e-5 else np.float64
        rows = secants.astype(dtype).images(self.space.astype(dtype))
        objective = None
        if self.goal is not None:
            objective = self.space.T @ self.goal.objective @ self.space
        inner = _Smoothed(
            rows,
            self.k,
            smoothing,
            self.weights,
            objective,
            self.cap,
            self.spare,
            self.price,
        )
        gain = self.settings.bound_gain * self.tol
        # Weights of the first rounds are not the last.
        gain = 3.0 * gain if self.goal is None and self.n_rounds < 2 else gain
        found, self.step, is_near, n_steps = inner.minimised(
            np.diag(self.occupations),
            self.step,
            int(self.settings.bound_steps / math.sqrt(self.tol)),
            gain,
            clock,
        )
        m, s = rows.shape
        self.work = n_steps * (2.0 * m * s * s + 10.0 * s**3 + 1e6)
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
            floor = (1.0 - self.cap) * float(own.sum())
        self._enlarge(moment)
        upper = top_eigenvalue_sum(moment, self.k) - floor
        return Relaxation(codes, own, factor, upper, value)

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
        most = min(n_dims, self.k + max(self.settings.spare_columns, self.k))
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
        is_heavy = values >= _IDLE * values.mean()
        codes, values = codes[is_heavy], values[is_heavy]
        # Under a cap all pairs together may carry little; none may carry nothing.
        values = np.maximum(values, _LEAST * least)
        most = self.settings.most_pairs
        if codes.size > most:
            order = np.argsort(-values, kind="stable")[:most]
            codes, values = codes[order], values[order]
        if self.goal is not None and spare < 0.1:
            # The same multipliers under a higher price; what is new is to spare.
            values, spare = values / 3.0, spare / 3.0 + 2.0 / 3.0
            self.price *= 3.0
        order = np.argsort(codes)
        total = float(values.sum()) + spare
        self.codes, self.weights = codes[order], values[order] / total
        self.spare = spare / total


def solve_relaxation(
    search: PairSearch,
    k: int,
    *,
    tol: float,
    clock: Clock = UNLIMITED,
    told: Callable[[int, Relaxation], None] | None = None,
    settings: Settings | None = None,
) -> tuple[Relaxation, int]:
    """Return both sides of the relaxation alone, and the number of rounds.

    Rounds go on until the relative gap between both sides is ``tol``, until they gain
    nothing, or until the clock is over. ``told`` sees each round.
    """
    settings = Settings() if settings is None else settings
    basis = np.eye(search.n_dims, k)
    codes = distinct(
        search.lowest(basis, settings.batch // 2).codes,
        search.sample(settings.batch // 2, np.random.default_rng(0)),
    )
    state, scale = Fantope.begin(search, codes, basis, settings, tol), 1.0
    while True:
        state.round(scale, clock)
        best = state.best
        assert best is not None
        if told is not None:
            told(state.n_rounds, best)
        scale = max(best.relaxed, 1e-9)
        gap = best.relaxed - best.lower
        is_closed = gap <= tol * best.lower or best.relaxed <= 1e-9
        # A round that closed little is made finer, until six in a row closed nothing.
        if state.gains and gap > 0.7 * state.gains[-1]:
            state.tol *= 0.5
        state.gains.append(gap)
        is_stuck = len(state.gains) == _STUCK and gap > 0.99 * state.gains[0]
        if is_closed or is_stuck or clock.is_over:
            return best, state.n_rounds


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
    """The smoothed worst loss of some rows, with or without an objective."""

    rows: Real
    k: int
    smoothing: float
    prior: Array
    objective: Array | None = None
    cap: float = 0.0
    spare: float = 0.0
    price: float = 1.0

    def at(self, matrix: Array, factor: Array | None = None) -> _State:
        """Return the state at a matrix; minus its moment is the gradient.

        A ``factor`` whose product with its transpose is the matrix saves work.
        """
        losses = self._losses(matrix, factor)
        exponents = (losses - self.cap) / self.smoothing
        exponents += np.log(np.maximum(self.prior, 1e-300))
        zero = math.log(self.spare) if self.spare > 0.0 else -math.inf
        top = max(float(exponents.max()), zero)
        weights = np.exp(exponents - top)
        total = float(weights.sum()) + math.exp(zero - top)
        weights /= total
        value = self.price * self.smoothing * (top + math.log(total))
        moment = self.price * self._moment(weights)
        if self.objective is not None:
            value -= float(np.vdot(self.objective, matrix))
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

    def minimised(
        self, matrix: Array, step: float, steps: int, gain: float, clock: Clock
    ) -> tuple[_State, float, bool, int]:
        """Return the lowest state, the next step's length, whether it is near, steps.

        It is near the minimum if no move at all promises more than the smoothing. The
        value may rise for a while: it is compared with the highest of the last eight.
        """
        state = best = self.at(matrix)
        values = deque([state.value], maxlen=8)
        n_steps = 0
        while n_steps < steps:
            n_steps += 1
            if clock.is_over:
                break
            factor = nearest_in_fantope(state.matrix + step * state.moment, self.k)
            target = factor @ factor.T
            slope = -float(np.vdot(state.moment, target - state.matrix))
            if slope > -gain * self.smoothing:
                break
            moved = self.at(target, factor)
            moved = self._decreased(state, moved, slope, max(values))
            change = moved.matrix - state.matrix
            curvature = float(np.vdot(change, state.moment - moved.moment))
            if curvature > 0.0:
                step = float(np.vdot(change, change)) / curvature
            else:
                step = 2.0 * step
            step = min(max(step, 1e-12), 1e6)
            state = moved
            values.append(state.value)
            best = min(best, state, key=lambda each: each.value)
        most = float(np.linalg.eigvalsh(best.moment)[-self.k :].sum())
        promised = most - float(np.vdot(best.moment, best.matrix))
        return best, step, promised <= self.price * self.smoothing, n_steps

    def _decreased(
        self, state: _State, moved: _State, slope: float, highest: float
    ) -> _State:
        """Return the first state on the way to another that is below ``highest``."""
        move, time = moved.matrix - state.matrix, 1.0
        while moved.value > highest + 1e-4 * time * slope and time >= 1e-3:
            # The minimum of the parabola through what is known, kept well inside.
            rise = moved.value - state.value - time * slope
            time *= min(max(-0.5 * time * slope / max(rise, 1e-300), 0.1), 0.5)
            moved = self.at(state.matrix + time * move)
        return moved
