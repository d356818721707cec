"""The relaxation by descent on a factor, where thousands of pairs are tight.

Any ``P`` of the fantope with rank ``s`` and eigenvalues below 1 is
``P = Z (tau I + Z'Z)^-1 Z'`` for some ``Z`` of shape (n_dims, s), with ``tau`` chosen
so that the trace is ``k``. Nothing constrains ``Z``, so the smoothed worst loss ::

    mu log sum_l u_l exp((1 - x_l' P x_l) / mu)

is minimised by limited-memory BFGS, at the cost of two products with the directions a
step, however many pairs are tight. The weights ``w_l`` of its gradient are dual
weights. They become the next ``u``: this is the exponential method of multipliers, a
proximal point method on the dual that converges for any fixed ``mu`` as the inner
problems are solved (Tseng and Bertsekas, 1993), so ``mu`` need not go to zero. A factor
of full rank has no spurious local minima; the rank here is that of the optimum and some
more columns, which are refreshed from the leading eigenvectors of ``M(w)``. Where that
is too few, the bound is valid and a little looser.

Every round gives a bound and a relaxed value. Accuracy beyond a few tenths of a per
cent is for the interior-point method (``relaxation.path``), whose step costs the cube
of the number of tight pairs.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import brentq

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.descent.objectives import Real
from isoproj.solvers.relaxation.matrices import central_occupations, moment_of
from isoproj.solvers.relaxation.problem import Relaxation
from isoproj.solvers.settings import LiftSettings

__all__ = ["Lift"]

# Occupations are kept this far from 0 and 1 when a factor is rebuilt.
_ROOM = 1e-3
# Gradients shorter than this are rounding.
_FLAT = 1e-9
# Pairs whose directions are in memory at once.
_CHUNK = 2048
# Weights below this share of the largest do not enter a moment.
_NEGLIGIBLE = 1e-8


@dataclass(slots=True, eq=False)
class Lift:
    """The relaxation's state between two rounds.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    k : int
        Target dimension.
    codes : ndarray of shape (m,)
        Working pairs, sorted.
    factor : ndarray of shape (n_dims, s)
        The matrix is ``factor @ factor.T``, of trace k.
    settings : LiftSettings
        Tuning figures.
    weights : ndarray of shape (m,)
        Multipliers of the pairs, on the simplex.
    """

    search: PairSearch
    k: int
    codes: Indices
    factor: Array
    settings: LiftSettings
    weights: Array = field(init=False)
    n_rounds: int = 0
    _smoothing: float = 0.0
    _lower: float = 0.0
    _n_idle: int = 0
    _kept: deque[tuple[Indices, Array, Array]] = field(init=False)

    def __post_init__(self) -> None:
        self.weights = np.full(self.codes.size, 1.0 / self.codes.size)
        self._kept = deque(maxlen=self.settings.n_averaged)

    @staticmethod
    def begin(
        search: PairSearch, basis: Array, codes: Indices, settings: LiftSettings
    ) -> Lift:
        """Start from a basis: its span is nearly full, further directions are open."""
        n_dims, k = basis.shape
        width = min(n_dims, k + settings.spare_columns)
        rng = np.random.default_rng(0)
        sampled = search.sample(settings.n_sampled, rng)
        moment = _moment(search, sampled, np.full(sampled.size, 1.0 / sampled.size))
        energies, vectors = np.linalg.eigh(moment)
        filled = central_occupations(energies[-width:], k, settings.first_barrier)[0]
        return Lift(
            search,
            k,
            np.unique(codes),
            vectors[:, -width:] * np.sqrt(filled),
            settings,
        )

    @property
    def perplexity(self) -> float:
        """Effective number of pairs that carry weight."""
        weights = self.weights[self.weights > 0.0]
        return float(np.exp(-(weights @ np.log(weights))))

    @property
    def is_over(self) -> bool:
        """Whether rounds are used up, or the last ones gained nothing."""
        settings = self.settings
        is_idle = self._n_idle >= settings.patience
        return is_idle or self.n_rounds >= settings.max_rounds

    def saw(self, lower: float) -> None:
        """Compare the best bound with that of the last round; hot rounds are free."""
        is_gain = lower > self._lower * (1.0 + self.settings.stalled)
        is_hot = self.n_rounds <= self.settings.hot_rounds
        self._n_idle = 0 if is_gain or is_hot else self._n_idle + 1
        self._lower = lower

    def round(self, scale: float) -> list[Relaxation]:
        """Minimise once, take in overlooked pairs; return bounds, the best one first.

        ``scale`` is the size of losses that matter; smoothing is a share of it.
        """
        settings, search = self.settings, self.search
        hot = self.n_rounds < settings.hot_rounds
        self._smoothing = scale * (
            settings.smoothing if hot else settings.cold_smoothing
        )
        secants = Secants(search.coordinates, search.decode(self.codes))
        inner = _Smoothed(
            secants.astype(np.float32), self.k, self._smoothing, self.weights
        )
        found = inner.minimise(_factor_to_free(self.factor), settings)
        factor, weights, worst = inner.solution(found)
        level = 1.0 - worst + self._smoothing + settings.near
        weakest = search.weakest(factor, level, most=4 * settings.batch)
        relaxations = self._bounds(weights, factor, float(weakest.retained[0]))
        fresh = weakest.codes[~np.isin(weakest.codes, self.codes)][: settings.batch]
        self._take_in(fresh, weights)
        self.n_rounds += 1
        return relaxations

    def _bounds(self, weights: Array, factor: Array, value: float) -> list[Relaxation]:
        """Return the bound of these weights and of their mean with the last ones."""
        settings = self.settings
        heavy = weights > _NEGLIGIBLE * weights.max()
        codes, own = self.codes[heavy], weights[heavy] / weights[heavy].sum()
        moment = _moment(self.search, codes, own)
        energies, vectors = np.linalg.eigh(moment)
        self.factor = self._refreshed(factor, energies, vectors)
        self._kept.append((codes, own, moment))
        upper = float(energies[-self.k :].sum())
        found = [Relaxation(codes, own, factor, upper, value, is_closed=False)]
        if len(self._kept) > 1 and self.n_rounds >= settings.hot_rounds:
            mean = np.mean([each[2] for each in self._kept], axis=0)
            upper = float(np.linalg.eigvalsh(mean)[-self.k :].sum())
            if upper < found[0].upper:
                codes, own = self._averaged()
                best = Relaxation(codes, own, factor, upper, value, is_closed=False)
                found.insert(0, best)
        return found

    def _averaged(self) -> tuple[Indices, Array]:
        """Return the mean of the weights of the last rounds."""
        codes = np.unique(np.concatenate([each[0] for each in self._kept]))
        weights = np.zeros(codes.size)
        for own, values, _ in self._kept:
            weights[np.searchsorted(codes, own)] += values
        return codes, np.asarray(weights / weights.sum())

    def _refreshed(self, factor: Array, energies: Array, vectors: Array) -> Array:
        """Drop idle columns; add eigenvectors of the moment that stick out."""
        left, sizes, _ = np.linalg.svd(factor, full_matrices=False)
        filled = sizes**2
        busy = filled > self.settings.idle
        # The trace needs more columns than k: each of them holds less than 1.
        busy[: self.k + 1] = True
        left, filled = left[:, busy], filled[busy]
        level = 0.5 * float(energies[-self.k] + energies[-self.k - 1])
        leading = vectors[:, energies > self.settings.leading * level]
        outside = leading - left @ (left.T @ leading)
        fresh, lengths, _ = np.linalg.svd(outside, full_matrices=False)
        room = max(
            0, min(len(energies), self.settings.most_columns(self.k)) - busy.sum()
        )
        fresh = fresh[:, lengths > 0.3][:, :room]
        columns = np.hstack([left, fresh])
        filled = np.append(filled, np.full(fresh.shape[1], self.settings.fresh))
        return np.asarray(columns * np.sqrt(np.clip(filled, 0.0, 1.0)))

    def _take_in(self, fresh: Indices, weights: Array) -> None:
        """Add pairs with a small weight; drop the lightest where there are too many."""
        codes = np.concatenate([self.codes, fresh])
        least = 1.0 / codes.size
        values = np.concatenate([weights, np.full(fresh.size, least)])
        values = np.maximum(values, self.settings.least_weight * least)
        if codes.size > self.settings.largest_set:
            order = np.argsort(-values, kind="stable")[: self.settings.largest_set]
            codes, values = codes[order], values[order]
        order = np.argsort(codes)
        self.codes, self.weights = codes[order], values[order] / values.sum()


def _moment(search: PairSearch, codes: Indices, weights: Array) -> Array:
    """Return ``M(w)``, some pairs at a time."""
    moment = np.zeros((search.points.n_dims, search.points.n_dims))
    for start in range(0, codes.size, _CHUNK):
        chunk = slice(start, start + _CHUNK)
        moment += moment_of(search.directions(codes[chunk]), weights[chunk])
    return moment


def _factor_to_free(factor: Array) -> Real:
    """Return a ``Z`` whose matrix is that of a factor, columns orthogonal."""
    left, sizes, _ = np.linalg.svd(factor, full_matrices=False)
    filled = np.clip(sizes**2, _ROOM, 1.0 - _ROOM)
    return np.asarray(left * np.sqrt(filled / (1.0 - filled)), dtype=np.float32)


def _shift(squares: Array, k: int) -> float:
    """Return ``tau`` with ``sum squares / (tau + squares) = k``."""
    top = float(squares[-1])

    def excess(tau: float) -> float:
        return float((squares / (tau + squares)).sum()) - k

    return float(brentq(excess, 1e-14 * top, 1e10 * top, xtol=1e-14 * top, rtol=1e-12))


@dataclass(slots=True, eq=False)
class _Smoothed:
    """The smoothed worst loss as a function of ``Z``."""

    secants: Secants
    k: int
    smoothing: float
    prior: Array
    _offset: Array = field(init=False)

    def __post_init__(self) -> None:
        self._offset = np.log(np.maximum(self.prior, 1e-300))

    def __call__(self, free: Real) -> tuple[float, Real]:
        """Return the value at ``Z`` and its gradient."""
        squares, turn, tau, images, losses = self._images(free)
        value, weights = self._softened(losses)
        inverse = 1.0 / (tau + squares)
        turned = free @ turn.astype(free.dtype)
        pulled = images * weights.astype(free.dtype)[:, None]
        inner = (images.T @ pulled).astype(np.float64)
        # The derivative of tau keeps the trace.
        trace = float((inverse**2) @ np.diag(inner)) / float((inverse**2) @ squares)
        gradient = self.secants.pull(pulled) * inverse
        gradient -= turned @ (inverse[:, None] * inner * inverse)
        gradient -= tau * trace * turned * inverse**2
        return value, np.asarray(-2.0 * gradient @ turn.T, dtype=free.dtype)

    def _images(self, free: Real) -> tuple[Array, Array, float, Real, Array]:
        """Return the spectrum of ``Z``, and images and losses of all directions."""
        squares, turn = np.linalg.eigh((free.T @ free).astype(np.float64))
        squares = np.maximum(squares, 1e-12 * squares[-1])
        tau = _shift(squares, self.k)
        images = self.secants.images(free @ turn.astype(free.dtype))
        kept = (images * images) @ (1.0 / (tau + squares)).astype(free.dtype)
        return squares, turn, tau, images, 1.0 - kept.astype(np.float64)

    def _softened(self, losses: Array) -> tuple[float, Array]:
        """Return the smoothed maximum and its weights."""
        exponents = losses / self.smoothing + self._offset
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        return self.smoothing * (top + math.log(total)), weights / total

    def minimise(self, free: Real, settings: LiftSettings) -> Real:
        """Return ``Z`` after limited-memory BFGS."""
        value, gradient = self(free)
        memory: deque[tuple[Real, Real, float]] = deque(maxlen=settings.memory)
        history = [value]
        for _ in range(settings.steps):
            if float(np.linalg.norm(gradient)) < _FLAT:
                break
            move = _quasi_newton(memory, gradient, float(np.linalg.norm(free)))
            slope = float(np.vdot(gradient, move))
            if slope >= 0.0:
                memory.clear()
                move = _quasi_newton(memory, gradient, float(np.linalg.norm(free)))
                slope = float(np.vdot(gradient, move))
            found = self._decreased(free, move, value, slope)
            if found is None:
                if not memory:
                    break
                memory.clear()
                continue
            moved, value, ahead = found
            step, change = moved - free, ahead - gradient
            curvature = float(np.vdot(step, change))
            squares = float(np.vdot(change, change))
            if squares > 0.0 and curvature > 1e-12 * squares:
                memory.append((step, change, 1.0 / curvature))
            free, gradient = moved, ahead
            history.append(value)
            gained = history[-6] - value if len(history) > 5 else math.inf
            if gained < 5.0 * settings.tolerance * self.smoothing:
                break
        return free

    def _decreased(
        self, free: Real, move: Real, value: float, slope: float
    ) -> tuple[Real, float, Real] | None:
        """Return the first point of sufficient decrease along a move."""
        time = 1.0
        for _ in range(8):
            moved = free + free.dtype.type(time) * move
            ahead, gradient = self(moved)
            if ahead <= value + 1e-4 * time * slope:
                return moved, ahead, gradient
            time *= 0.4
        return None

    def solution(self, free: Real) -> tuple[Array, Array, float]:
        """Return the factor of trace k, the dual weights and the worst loss."""
        squares, turn, tau, _, losses = self._images(free)
        factor = (free @ turn) / np.sqrt(tau + squares)
        return np.asarray(factor), self._softened(losses)[1], float(losses.max())


def _quasi_newton(
    memory: deque[tuple[Real, Real, float]], gradient: Real, size: float
) -> Real:
    """Return minus the inverse Hessian times the gradient; a short step without one."""
    move = gradient.copy()
    if not memory:
        length = max(float(np.linalg.norm(move)), 1e-30)
        return np.asarray(move * gradient.dtype.type(-0.1 * size / length))
    coefficients = []
    for step, change, inverse in reversed(memory):
        coefficients.append(inverse * float(np.vdot(step, move)))
        move -= coefficients[-1] * change
    _, change, inverse = memory[-1]
    move /= inverse * float(np.vdot(change, change))
    for step, change, inverse in memory:
        move += (coefficients.pop() - inverse * float(np.vdot(change, move))) * step
    return -move
