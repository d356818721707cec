"""Descent on the Grassmannian: the smoothed worst loss, at falling temperature.

The loss of a subspace with orthonormal basis ``V`` on a unit direction ``x`` is
``1 - |V^T x|^2``. The maximum of the goal's functions is replaced by a log-sum-exp,
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

from isoproj.pairs.directions import Secants
from isoproj.solvers.descent.merit import Goal, Worst

__all__ = ["Curve", "Real", "descend", "losses", "random_starts", "soft_maximum"]

# Hot stages run in single precision; results are always float64.
Real = NDArray[Any]

# Weights below exp(-_REACH) are dropped from a smoothed gradient.
_REACH = 20.0
# Rows this far (plus _REACH temperatures) below the worst sit a stage out.
_MARGIN = 0.02
# Moves at one temperature, at most, until none is blind.
_ATTEMPTS = 3
# Random bases of which the best are starts.
_MANY = 200
# Tangent of the largest angle by which one step may turn the subspace. Further out,
# rounding spoils the basis, and a basis longer than 1 seems to lose less than it does.
_FARTHEST = 10.0


def losses(images: Real) -> Real:
    """Return the losses of directions whose images ``V^T x`` are the rows.

    Parameters
    ----------
    images : ndarray of shape (m, k)
        One image a row.

    Returns
    -------
    ndarray of shape (m,)
        ``1 - |V^T x|^2``.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.descent.grassmann import losses
    >>> losses(np.array([[0.5, 0.5]])).tolist()
    [0.5]
    """
    return np.asarray(1.0 - np.einsum("ij,ij->i", images, images))


def soft_maximum(values: Real, temperature: float) -> tuple[float, Real]:
    """Return the log-sum-exp maximum and its gradient, weights on the simplex.

    Parameters
    ----------
    values : ndarray of shape (m,)
        What to take the maximum of.
    temperature : float
        The smoothing; the result is at most ``temperature * log(m)`` too large.

    Returns
    -------
    value : float
        The smoothed maximum.
    weights : ndarray of shape (m,)
        Its gradient.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.descent.grassmann import soft_maximum
    >>> soft_maximum(np.zeros(4), 1.0)[1].tolist()
    [0.25, 0.25, 0.25, 0.25]
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
    cut = weights.max() * np.exp(-_REACH)
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


def _smoothed(goal: Goal, values: Real, temperature: float) -> tuple[float, Real]:
    """Return the smoothed goal and its gradient, a weight for every row."""
    value, shares = soft_maximum(goal.values(values), temperature)
    return value, goal.weights(shares)


def _search(
    curve: Curve, goal: Goal, temperature: float, value: float, slope: float
) -> tuple[float, float, Real] | None:
    """Find a time of sufficient decrease and flattened slope (weak Wolfe).

    Trial points are cheap, so the slope condition is tighter than usual.

    Returns
    -------
    time, value, losses, or None when no decrease was found
    """
    low, high, time = 0.0, np.inf, min(1.0, curve.end)
    slope_low = slope
    best: tuple[float, float, Real] | None = None
    for _ in range(12):
        trial_losses, speeds = curve.losses(time)
        trial, weights = _smoothed(goal, trial_losses, temperature)
        trial_slope = float(weights @ speeds)
        if trial > value + 1e-4 * time * slope or not np.isfinite(trial):
            high, slope_high = time, trial_slope
        else:
            if best is None or trial < best[1]:
                best = time, trial, trial_losses
            if abs(trial_slope) <= 0.3 * abs(slope):
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
class _Memory:
    """The limited-memory inverse Hessian: pairs of steps and gradient changes."""

    size: int = 12
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


def _stage(
    secants: Secants,
    goal: Goal,
    basis: Real,
    temperature: float,
    max_iter: int,
    tolerance: float,
) -> Real:
    """Minimise the smoothed maximum at one temperature."""
    images = secants.images(basis)
    value, weights = _smoothed(goal, losses(images), temperature)
    gradient = _gradient(secants, basis, images, weights)
    memory = _Memory()
    history = [value]
    rounding = max(1e-12, 4.0 * float(np.finfo(gradient.dtype).eps))
    for _ in range(max_iter):
        if float(np.linalg.norm(gradient)) < rounding:
            break
        step = _step(memory, basis, gradient)
        slope = float(np.vdot(gradient, step))
        curve = Curve(images, secants.images(step), step)
        found = _search(curve, goal, temperature, value, slope)
        if found is None:
            if not memory.pairs:
                break
            memory = _Memory()
            continue
        time, value, values = found
        basis, images = curve.arrive(basis, time)
        _, weights = _smoothed(goal, values, temperature)
        previous = _horizontal(basis, gradient)
        gradient = _gradient(secants, basis, images, weights)
        memory.add(_horizontal(basis, time * step), gradient - previous)
        history.append(value)
        if len(history) > 5 and history[-6] - value < 5.0 * tolerance * temperature:
            break
    return _orthonormal(basis)


def _step(memory: _Memory, basis: Real, gradient: Real) -> Real:
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
    basis: Real,
    temperature: float,
    *,
    goal: Goal | None = None,
    max_iter: int = 60,
    tolerance: float = 0.01,
) -> Real:
    """Minimise the smoothed goal at one temperature from a given start.

    Rows far from the worst are left out and checked afterwards: one of them may have
    become the worst, and then the move was blind and is made again with it.

    Parameters
    ----------
    secants : Secants
        Working set; its precision is the working precision.
    basis : ndarray of shape (n_dims, k)
        Orthonormal start.
    temperature : float
        Of the log-sum-exp.
    goal : Goal or None
        What to minimise; None means the worst loss.
    max_iter : int
        Most steps.
    tolerance : float
        Stop when a step gains less than this multiple of the temperature.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal basis, no worse than the start.
    """
    start: Real = basis.astype(secants.dtype)
    if start.shape[0] <= start.shape[1]:
        return start
    goal = Worst() if goal is None else goal
    count = len(secants)
    values = losses(secants.images(start))
    value = _smoothed(goal, values, temperature)[0]
    values = goal.values(values)
    moved = _shaken(start, 0.1 * temperature)
    reach = _REACH * temperature + _MARGIN
    kept = values[:count] > values.max() - reach
    best = start
    for attempt in range(_ATTEMPTS):
        some = secants if kept.all() else secants.take(np.flatnonzero(kept))
        moved = _stage(some, goal, moved, temperature, max_iter, tolerance)
        values = losses(secants.images(moved))
        moved_value = _smoothed(goal, values, temperature)[0]
        values = goal.values(values)
        if moved_value < value:
            best, value = moved, moved_value
        missed = (values[:count] > values.max() - 4.0 * temperature) & ~kept
        if not missed.any():
            break
        kept |= values[:count] > values.max() - reach
        # Where one blind move follows another, the last looks at every row.
        kept |= attempt == _ATTEMPTS - 2
        moved = best
    return best


def random_starts(
    secants: Secants,
    goal: Goal | None,
    shape: tuple[int, ...],
    count: int,
    rng: np.random.Generator,
) -> list[Real]:
    """Return random bases to descend from, half of them the best of many.

    Where dimensions are few, the many come near everything there is.

    Parameters
    ----------
    secants : Secants
        Working set.
    goal : Goal or None
        What is to be small; None means the worst loss.
    shape : tuple of int
        ``(n_dims, k)``.
    count : int
        How many to return.
    rng : Generator
        What draws them.

    Returns
    -------
    list of ndarray of shape (n_dims, k)
        Orthonormal, the best first.
    """
    if not count:
        return []
    goal = Worst() if goal is None else goal
    many = [_orthonormal(rng.standard_normal(shape)) for _ in range(max(count, _MANY))]
    values = [goal.values(losses(secants.images(one))).max() for one in many]
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
