"""The relaxation by projected gradients, where thousands of pairs are tight.

The smoothed worst loss of a matrix ``P`` of the fantope ::

    f(P) = mu log sum_l u_l exp((1 - x_l' P x_l) / mu)

is convex and smooth, and its gradient is ``-M(w)`` for weights ``w_l`` that are dual
weights. They become the next ``u``: this is the exponential method of multipliers, a
proximal point method on the dual that converges for any fixed ``mu`` as the inner
problems are solved (Tseng and Bertsekas, 1993), so ``mu`` need not go to zero.

The inner problems are solved by spectral projected gradients (Birgin, Martinez and
Raydan, 2000): steps of the length of Barzilai and Borwein, projected onto the fantope,
with a line search that lets the value rise for a while; on a convex function they
converge to a minimum. The projection changes eigenvalues alone, so directions fill up
and empty at once, where a factor of ``P`` would crawl. A step costs two products with
the directions and an eigenproblem, however many pairs are tight. Where dimensions are
many, ``P`` lives in a subspace, which takes in leading eigenvectors of ``M(w)``; where
that is too small, the bound is valid and a little looser.

Every round gives a bound and a relaxed value. The last digits are for the
interior-point method (``relaxation.path``), whose step costs the cube of the number of
tight pairs.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import n_threads, threaded_list
from isoproj.pairs.directions import Secants
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.descent.objectives import Real
from isoproj.solvers.relaxation.matrices import (
    central_occupations,
    moment_of,
    nearest_occupations,
    spectral,
    symmetric,
    trace_product,
)
from isoproj.solvers.relaxation.problem import Relaxation
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
# Longest step before projection, and the shortest.
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
    weights : ndarray of shape (m,)
        Multipliers of the pairs, on the simplex.
    """

    search: PairSearch
    k: int
    codes: Indices
    space: Array
    occupations: Array
    settings: MultiplierSettings
    weights: Array = field(init=False)
    n_rounds: int = 0
    _step: float = 1.0
    _lower: float = 0.0
    _n_idle: int = 0

    def __post_init__(self) -> None:
        self.weights = np.full(self.codes.size, 1.0 / self.codes.size)

    @staticmethod
    def begin(
        search: PairSearch, k: int, codes: Indices, settings: MultiplierSettings
    ) -> Multipliers:
        """Start from the principal directions of random pairs, softly filled."""
        rng = np.random.default_rng(0)
        sampled = search.sample(settings.n_sampled, rng)
        moment = _moment(search, sampled, np.full(sampled.size, 1.0 / sampled.size))
        energies, vectors = np.linalg.eigh(moment)
        width = min(len(energies), settings.most_columns(k))
        filled = central_occupations(energies[-width:], k, settings.first_barrier)[0]
        space = vectors[:, -width:]
        return Multipliers(search, k, np.unique(codes), space, filled, settings)

    @property
    def factor(self) -> Array:
        """Matrix whose product with its transpose is ``P``."""
        is_filled = self.occupations > _EMPTY
        return self.space[:, is_filled] * np.sqrt(self.occupations[is_filled])

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

    def saw(self, lower: float, distortion: float) -> None:
        """Compare the best bound with that of the last round."""
        gained = lower - self._lower
        is_gain = gained > self.settings.stalled * (distortion - lower)
        is_first = self.n_rounds <= self.settings.first_rounds
        self._n_idle = 0 if is_gain or is_first else self._n_idle + 1
        self._lower = lower

    def round(self, scale: float) -> Relaxation:
        """Minimise once, take in overlooked pairs, and return both sides.

        ``scale`` is the size of losses that matter; smoothing is a share of it.
        """
        settings, search = self.settings, self.search
        smoothing = scale * settings.smoothing
        secants = Secants(search.coordinates, search.decode(self.codes))
        dtype = np.float32 if smoothing > settings.single else np.float64
        rows = secants.astype(dtype).images(self.space.astype(dtype))
        inner = _Smoothed(rows, self.k, smoothing, self.weights)
        found, self._step = inner.minimise(
            np.diag(self.occupations), self._step, settings
        )
        self.occupations, turn = np.linalg.eigh(found.matrix)
        self.occupations = nearest_occupations(self.occupations, self.k)
        self.space = self.space @ turn
        factor = self.factor
        level = 1.0 - found.worst + smoothing + settings.near * scale
        weakest = search.weakest(factor, level, most=4 * settings.batch)
        value = float(weakest.retained[0])
        relaxation = self._bound(found.weights, factor, value)
        fresh = weakest.codes[~np.isin(weakest.codes, self.codes)][: settings.batch]
        self._take_in(fresh, found.weights)
        self.n_rounds += 1
        return relaxation

    def _bound(self, weights: Array, factor: Array, value: float) -> Relaxation:
        """Return the bound of some weights; take in directions that matter to them."""
        heavy = weights > _NEGLIGIBLE * weights.max()
        codes, own = self.codes[heavy], weights[heavy] / weights[heavy].sum()
        moment = _moment(self.search, codes, own)
        energies = np.linalg.eigvalsh(moment)
        self._enlarge(moment, float(energies[-self.k]))
        upper = float(energies[-self.k :].sum())
        return Relaxation(codes, own, factor, upper, value, is_closed=False)

    def _enlarge(self, moment: Array, level: float) -> None:
        """Replace empty columns by the directions outside that matter most."""
        n_dims, width = self.space.shape
        if width == n_dims:
            return
        is_filled = self.occupations > _EMPTY
        filled = self.space[:, is_filled]
        outside = np.linalg.qr(filled, mode="complete")[0][:, filled.shape[1] :]
        energies, turn = np.linalg.eigh(outside.T @ moment @ outside)
        room = self.settings.most_columns(self.k) - filled.shape[1]
        matters = energies > self.settings.leading * level
        matters[: max(0, energies.size - max(room, 0))] = False
        fresh = outside @ turn[:, matters]
        self.space = np.hstack([filled, fresh])
        self.occupations = np.append(
            self.occupations[is_filled], np.zeros(fresh.shape[1])
        )

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
    _offset: Array = field(init=False)

    def __post_init__(self) -> None:
        self._offset = np.log(np.maximum(self.prior, 1e-300))

    def at(self, matrix: Array) -> _State:
        """Return the state at a matrix; minus its moment is the gradient."""
        losses = self._losses(matrix)
        exponents = losses / self.smoothing + self._offset
        top = float(exponents.max())
        weights = np.exp(exponents - top)
        total = float(weights.sum())
        weights /= total
        value = self.smoothing * (top + math.log(total))
        moment = self._moment(weights)
        return _State(matrix, value, float(losses.max()), weights, moment)

    def _losses(self, matrix: Array) -> Array:
        """Return ``1 - x' P x`` for every row."""
        rows, kept = self.rows, np.empty(len(self.rows))
        single = matrix.astype(rows.dtype)

        def visit(start: int) -> None:
            chunk = slice(start, start + _CHUNK)
            images = rows[chunk] @ single
            kept[chunk] = np.einsum("ij,ij->i", images, rows[chunk])

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
        self, matrix: Array, step: float, settings: MultiplierSettings
    ) -> tuple[_State, float]:
        """Return the state after projected gradients, and the next step's length."""
        state = self.at(matrix)
        values = deque([state.value], maxlen=settings.memory)
        for _ in range(settings.steps):
            target = self._projected(state.matrix + step * state.moment)
            move = target - state.matrix
            slope = -trace_product(state.moment, move)
            if slope > -settings.tolerance * self.smoothing:
                break
            moved = self._decreased(state, move, slope, max(values))
            change = moved.matrix - state.matrix
            curvature = trace_product(change, state.moment - moved.moment)
            if curvature > 0.0:
                step = trace_product(change, change) / curvature
            else:
                step = 2.0 * step
            step = min(max(step, _STEPS[0]), _STEPS[1])
            state = moved
            values.append(state.value)
        return state, step

    def _projected(self, matrix: Array) -> Array:
        """Return the nearest matrix of the fantope."""
        values, vectors = np.linalg.eigh(symmetric(matrix))
        return spectral(vectors, nearest_occupations(values, self.k))

    def _decreased(
        self, state: _State, move: Array, slope: float, highest: float
    ) -> _State:
        """Return the first state along a move that is well below ``highest``."""
        time = 1.0
        while True:
            moved = self.at(state.matrix + time * move)
            is_lower = moved.value <= highest + _DECREASE * time * slope
            if is_lower or time < _SHORTEST:
                return moved
            # The minimum of the parabola through what is known, kept well inside.
            rise = moved.value - state.value - time * slope
            time *= min(max(-0.5 * time * slope / max(rise, 1e-300), 0.1), 0.5)
