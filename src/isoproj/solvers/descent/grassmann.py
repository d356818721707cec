"""Descent on the Grassmannian: the smoothed worst loss, at falling temperature.

The loss of a subspace with orthonormal basis ``V`` on a unit direction ``x`` is
``1 - |V^T x|^2``. The maximum of the merit's functions is replaced by a log-sum-exp,
which is minimised by limited-memory BFGS. Trial points move along
``V(t) = (V + t S) (I + t^2 S^T S)^(-1/2)`` with ``S`` horizontal, so all losses on the
curve follow from ``E V`` and ``E S``: a whole line search costs one product with the
directions ``E``, a gradient one more with their transpose, and the gradient needs only
the rows whose weight is not negligible.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.solvers.descent.merit import Merit, Worst
from isoproj.solvers.settings import DescentSettings

__all__ = [
    "Curve",
    "Memory",
    "Real",
    "descend",
    "losses",
    "random_starts",
    "soft_maximum",
]

# Hot stages run in single precision; results are always float64.
Real = NDArray[Any]

# Tangent of the largest angle by which one step may turn the subspace. Further out,
# rounding spoils the basis, and a basis longer than 1 seems to lose less than it does.
_FARTHEST = 10.0
# Weights below exp(-20) of the largest are dropped from a smoothed gradient.
_NEGLIGIBLE = float(np.exp(-20.0))
# Steps that the inverse Hessian remembers.
_MEMORY = 12
# Weak Wolfe conditions: sufficient decrease, and flattening of the slope. Trial points
# are cheap, so the second is tighter than usual.
_DECREASE = 1e-4
_FLATTEN = 0.3
_TRIALS = 12


def losses(images: Real) -> Real:
    """Return ``1 - |V^T x|^2`` for images ``V^T x``, one a row."""
    return np.asarray(1.0 - np.einsum("ij,ij->i", images, images))


def soft_maximum(values: Real, temperature: float) -> tuple[float, Real]:
    """Return the log-sum-exp maximum and its gradient, weights on the simplex.

    The maximum is at most ``temperature * log(m)`` too large.
    """
    top = float(values.max())
    weights = np.exp((values - top) / temperature)
    total = float(weights.sum())
    return top + temperature * float(np.log(total)), np.asarray(weights / total)


def _orthonormal(matrix: Real) -> Real:
    return np.asarray(scipy.linalg.qr(matrix, mode="economic", check_finite=False)[0])


def _horizontal(basis: Real, matrix: Real) -> Real:
    """Return the part of ``matrix`` orthogonal to the span of ``basis``."""
    return np.asarray(matrix - basis @ (basis.T @ matrix))


def _gradient(secants: Secants, basis: Real, images: Real, weights: Real) -> Real:
    """Return the horizontal gradient of the weighted loss."""
    cut = weights.max() * _NEGLIGIBLE
    pulled = images * np.where(weights > cut, weights, 0.0)[:, None]
    return np.asarray(2.0 * (basis @ (images.T @ pulled) - secants.pull(pulled)))


class Curve:
    """All losses along the polar retraction of one horizontal step.

    Parameters
    ----------
    images, velocities
        ``E V`` and ``E S`` for basis ``V`` and horizontal step ``S``.
    step
        The step ``S``.

    Attributes
    ----------
    end
        The latest time at which the curve is known well.
    """

    def __init__(self, images: Real, velocities: Real, step: Real) -> None:
        squares, rotation = scipy.linalg.eigh(step.T @ step, check_finite=False)
        self.step = step
        self.squares = np.maximum(squares, 0.0)
        self.end = _FARTHEST / max(math.sqrt(float(self.squares[-1])), 1e-30)
        self.rotation = rotation
        self.images = images
        self.velocities = velocities
        start, speed = images @ rotation, velocities @ rotation
        self._quadratic = np.concatenate([start**2, 2 * start * speed, speed**2])
        self._count = len(images)

    def losses(self, time: float) -> tuple[Real, Real]:
        """Return the losses at `time` and their derivatives."""
        shrink = 1.0 / (1.0 + time**2 * self.squares)
        columns = np.stack([shrink, -2.0 * time * self.squares * shrink**2], axis=1)
        table = (self._quadratic @ columns).reshape(3, self._count, 2)
        constant, linear, square = table
        energy = constant + time * (linear + time * square)
        slope = linear[:, 0] + 2.0 * time * square[:, 0] + energy[:, 1]
        return 1.0 - energy[:, 0], -slope

    def arrive(self, basis: Real, time: float) -> tuple[Real, Real]:
        """Return the basis at `time` and the images of the directions under it.

        One step of Newton's iteration for the polar factor keeps rounding from adding
        up: descent would find a basis that is too long, and make it longer.
        """
        shrink = 1.0 / np.sqrt(1.0 + time**2 * self.squares)
        polar = (self.rotation * shrink) @ self.rotation.T
        moved = (basis + time * self.step) @ polar
        mend = 0.5 * (3.0 * np.eye(len(polar), dtype=polar.dtype) - moved.T @ moved)
        return moved @ mend, (self.images + time * self.velocities) @ (polar @ mend)


def _smoothed(merit: Merit, values: Real, temperature: float) -> tuple[float, Real]:
    """Return the smoothed merit and its gradient, a weight for every row."""
    value, shares = soft_maximum(merit.values(values), temperature)
    return value, merit.weights(shares)


def _search(
    curve: Curve, merit: Merit, temperature: float, value: float, slope: float
) -> tuple[float, float, Real] | None:
    """Return time, value and losses at a weak Wolfe point, None without decrease."""
    low, high, time = 0.0, np.inf, min(1.0, curve.end)
    slope_low = slope
    best: tuple[float, float, Real] | None = None
    for _ in range(_TRIALS):
        trial_losses, speeds = curve.losses(time)
        trial, weights = _smoothed(merit, trial_losses, temperature)
        trial_slope = float(weights @ speeds)
        if trial > value + _DECREASE * time * slope or not np.isfinite(trial):
            high, slope_high = time, trial_slope
        else:
            if best is None or trial < best[1]:
                best = time, trial, trial_losses
            if abs(trial_slope) <= _FLATTEN * abs(slope):
                break
            if trial_slope < 0.0:
                low, slope_low = time, trial_slope
            else:
                high, slope_high = time, trial_slope
        if np.isinf(high):
            if time >= curve.end:
                break
            time = min(3.0 * time, curve.end)
        else:
            time = _secant(low, slope_low, high, slope_high)
    return best


def _secant(low: float, slope_low: float, high: float, slope_high: float) -> float:
    """Return the zero of the interpolated slope, kept well inside the bracket."""
    fraction = 0.5
    if slope_high > 0.0 > slope_low:
        fraction = min(max(-slope_low / (slope_high - slope_low), 0.1), 0.9)
    return low + fraction * (high - low)


@dataclass
class Memory:
    """The limited-memory inverse Hessian: pairs of steps and gradient changes."""

    size: int = _MEMORY
    pairs: deque[tuple[Real, Real, float]] = field(default_factory=deque)

    def add(self, step: Real, change: Real) -> None:
        """Store a pair unless it shows no positive curvature."""
        curvature = float(np.vdot(step, change))
        squares = float(np.vdot(change, change) + np.vdot(step, step))
        if curvature <= 1e-10 * squares:
            return
        self.pairs.append((step, change, 1.0 / curvature))
        if len(self.pairs) > self.size:
            self.pairs.popleft()

    def apply(self, gradient: Real) -> Real:
        """Return the inverse Hessian times `gradient` (two-loop recursion)."""
        image = gradient.copy()
        coefficients = []
        for step, change, inverse in reversed(self.pairs):
            coefficient = inverse * float(np.vdot(step, image))
            coefficients.append(coefficient)
            image -= coefficient * change
        if self.pairs:
            _, change, inverse = self.pairs[-1]
            image /= inverse * float(np.vdot(change, change))
        for step, change, inverse in self.pairs:
            coefficient = coefficients.pop() - inverse * float(np.vdot(change, image))
            image += coefficient * step
        return image


@dataclass(frozen=True)
class _Stage:
    """Minimisation of the smoothed merit at one temperature."""

    merit: Merit
    temperature: float
    max_iter: int
    tolerance: float

    def run(self, secants: Secants, basis: Real) -> Real:
        """Return the basis after limited-memory BFGS on some rows."""
        merit, temperature = self.merit, self.temperature
        images = secants.images(basis)
        value, weights = _smoothed(merit, losses(images), temperature)
        gradient = _gradient(secants, basis, images, weights)
        memory = Memory()
        history = [value]
        rounding = max(1e-12, 4.0 * float(np.finfo(gradient.dtype).eps))
        for _ in range(self.max_iter):
            if float(np.linalg.norm(gradient)) < rounding:
                break
            step = _step(memory, basis, gradient)
            slope = float(np.vdot(gradient, step))
            curve = Curve(images, secants.images(step), step)
            found = _search(curve, merit, temperature, value, slope)
            if found is None:
                if not memory.pairs:
                    break
                memory = Memory()
                continue
            time, value, values = found
            basis, images = curve.arrive(basis, time)
            _, weights = _smoothed(merit, values, temperature)
            previous = _horizontal(basis, gradient)
            gradient = _gradient(secants, basis, images, weights)
            memory.add(_horizontal(basis, time * step), gradient - previous)
            history.append(value)
            gained = history[-6] - value if len(history) > 5 else np.inf
            if gained < 5.0 * self.tolerance * temperature:
                break
        return _orthonormal(basis)


def _step(memory: Memory, basis: Real, gradient: Real) -> Real:
    """Return a horizontal descent direction."""
    if memory.pairs:
        # Old pairs are not transported: projecting the result alone is enough.
        step = -_horizontal(basis, memory.apply(gradient))
        if float(np.vdot(step, gradient)) < 0.0:
            return step
        memory.pairs.clear()
    # A small gradient is the difference of larger things: not horizontal by itself.
    gradient = _horizontal(basis, gradient)
    return gradient * (-0.1 / max(float(np.linalg.norm(gradient)), 0.1))


def descend(
    secants: Secants,
    basis: Array,
    temperature: float,
    *,
    merit: Merit | None = None,
    is_loose: bool = False,
    settings: DescentSettings | None = None,
) -> Array:
    """Minimise the smoothed merit at one temperature, as exactly as it deserves.

    Rows far from the worst sit out and are checked afterwards: one of them may have
    become the worst, and then the move was blind and is made again with it.

    Parameters
    ----------
    secants : Secants
        Working set.
    basis : ndarray of shape (n_dims, k)
        Orthonormal start.
    temperature : float
        Of the log-sum-exp.
    merit : Merit or None
        What to minimise; None means the worst loss.
    is_loose : bool
        Whether to stop early at any temperature; hot stages always do.
    settings : DescentSettings or None
        Tuning figures.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal basis in float64, no worse than the start.
    """
    if basis.shape[0] <= basis.shape[1]:
        return basis
    settings = DescentSettings() if settings is None else settings
    merit = Worst() if merit is None else merit
    is_hot = is_loose or temperature > settings.hot
    stage = _Stage(
        merit,
        temperature,
        settings.loose_steps if is_hot else settings.steps,
        settings.loose_tolerance if is_hot else settings.tolerance,
    )
    rows = secants.astype(np.float32) if temperature > settings.single else secants
    moved = _descended(rows, basis.astype(rows.dtype), stage, settings)
    return orthonormal(moved.astype(np.float64))


def _descended(
    secants: Secants, start: Real, stage: _Stage, settings: DescentSettings
) -> Real:
    """Run a stage until no row that sat out has become the worst."""
    merit, temperature, count = stage.merit, stage.temperature, len(secants)
    values = losses(secants.images(start))
    value = _smoothed(merit, values, temperature)[0]
    values = merit.values(values)
    moved = _shaken(start, 0.1 * temperature)
    reach = settings.reach * temperature + settings.margin
    kept = values[:count] > values.max() - reach
    best = start
    for attempt in range(settings.attempts):
        some = secants if kept.all() else secants.take(np.flatnonzero(kept))
        moved = stage.run(some, moved)
        values = losses(secants.images(moved))
        moved_value = _smoothed(merit, values, temperature)[0]
        values = merit.values(values)
        if moved_value < value:
            best, value = moved, moved_value
        missed = (values[:count] > values.max() - 4.0 * temperature) & ~kept
        if not missed.any():
            break
        kept |= values[:count] > values.max() - reach
        # Where one blind move follows another, the last looks at every row.
        kept |= attempt == settings.attempts - 2
        moved = best
    return best


def random_starts(
    secants: Secants,
    merit: Merit,
    shape: tuple[int, ...],
    count: int,
    rng: np.random.Generator,
    n_drawn: int = 200,
) -> list[Array]:
    """Return random bases to descend from, half of them the best of ``n_drawn``.

    Where dimensions are few, the many come near everything there is.
    """
    if not count:
        return []
    many = [
        _orthonormal(rng.standard_normal(shape)) for _ in range(max(count, n_drawn))
    ]
    values = [merit.values(losses(secants.images(one))).max() for one in many]
    best = np.argsort(values, kind="stable")[: (count + 1) // 2]
    return [many[i] for i in best] + many[: count - best.size]


def _shaken(basis: Real, size: float) -> Real:
    """Return ``basis`` moved a little at random.

    A direction orthogonal to the subspace has the largest loss and no gradient: an
    exactly aligned start is a saddle point that descent alone would not leave.
    """
    noise = np.random.default_rng(0).standard_normal(basis.shape)
    noise *= size / np.sqrt(basis.shape[0])
    return _orthonormal(basis + noise.astype(basis.dtype))
