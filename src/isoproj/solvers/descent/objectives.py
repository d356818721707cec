"""Smooth functions of a subspace: the merit of some rows, or of all pairs.

The loss of a subspace with orthonormal basis ``V`` on a unit direction ``x`` is
``1 - |V^T x|^2``. The maximum of the merit's functions is replaced by a log-sum-exp.
Trial points move along ``V(t) = (V + t S) (I + t^2 S^T S)^(-1/2)`` with ``S``
horizontal, so all losses on the curve follow from ``E V`` and ``E S``: for some rows, a
whole line search costs one product with the directions ``E``, a gradient one more with
their transpose, and the gradient needs only the rows whose weight is not negligible.
For all pairs, every trial point costs value and gradient (``pairs.smoothed``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array
from isoproj.pairs.directions import Secants
from isoproj.pairs.smoothed import SmoothedWorst, Softened
from isoproj.solvers.descent.merit import Merit

__all__ = [
    "Curve",
    "Objective",
    "OnAllPairs",
    "OnRows",
    "Ray",
    "Real",
    "State",
    "horizontal",
    "losses",
    "smoothed",
    "soft_maximum",
]

# Hot stages run in single precision; results are always float64.
Real = NDArray[Any]

# Tangent of the largest angle by which one step may turn the subspace. Further out,
# rounding spoils the basis, and a basis longer than 1 seems to lose less than it does.
_FARTHEST = 10.0
# The same where every trial costs as much as a step.
_TURN = 2.0
# Weights below exp(-20) of the largest are dropped from a smoothed gradient.
_NEGLIGIBLE = float(np.exp(-20.0))


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


def horizontal(basis: Real, matrix: Real) -> Real:
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
        # For small matrices the wrapper of scipy takes longer than the work.
        squares, rotation = np.linalg.eigh(step.T @ step)
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

    def velocity(self, time: float) -> Real:
        """Return the horizontal velocity at `time`; motion inside is left out."""
        shrink = 1.0 / np.sqrt(1.0 + time**2 * self.squares)
        return np.asarray((self.step @ (self.rotation * shrink)) @ self.rotation.T)

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


def smoothed(merit: Merit, values: Real, temperature: float) -> tuple[float, Real]:
    """Return the smoothed merit and its gradient, a weight for every row."""
    value, shares = soft_maximum(merit.values(values), temperature)
    return value, merit.weights(shares)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A basis with the objective's value and horizontal gradient there."""

    basis: Real
    value: float
    gradient: Real


class Ray(Protocol):
    """An objective along the curve of one step."""

    @property
    def end(self) -> float:
        """The latest time at which the curve is known well."""

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope."""

    def arrive(self, time: float) -> State:
        """Return the state at a time that ``at`` was asked about."""


class Objective(Protocol):
    """A smooth function of a subspace."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""

    @property
    def flatten(self) -> float:
        """Share of the first slope that may be left at the end of a line search."""

    def at(self, basis: Real) -> State:
        """Return the state at a basis."""

    def along(self, state: State, step: Real) -> Ray:
        """Return the objective along a horizontal step from a state."""


@dataclass(frozen=True, slots=True, eq=False)
class _RowState(State):
    """A state that also has the images of the rows."""

    images: Real


@dataclass(frozen=True, slots=True, eq=False)
class OnRows:
    """The smoothed merit of some rows: a whole line search costs one product."""

    secants: Secants
    merit: Merit
    temperature: float
    # Trial points are cheap, so the slope may flatten more than usual.
    flatten: float = 0.3

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.secants.dtype

    def at(self, basis: Real) -> _RowState:
        """Return the state at a basis."""
        return self.state(basis, self.secants.images(basis), None)

    def state(self, basis: Real, images: Real, values: Real | None) -> _RowState:
        """Return the state at a basis whose images, and perhaps losses, are known."""
        values = losses(images) if values is None else values
        value, weights = smoothed(self.merit, values, self.temperature)
        gradient = _gradient(self.secants, basis, images, weights)
        return _RowState(basis, value, gradient, images)

    def along(self, state: State, step: Real) -> _RowRay:
        """Return the objective along a horizontal step."""
        assert isinstance(state, _RowState)
        curve = Curve(state.images, self.secants.images(step), step)
        return _RowRay(self, state, curve)


@dataclass(slots=True, eq=False)
class _RowRay:
    """The losses of some rows along a curve."""

    objective: OnRows
    state: _RowState
    curve: Curve
    _seen: dict[float, Real] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The latest time at which the curve is known well."""
        return self.curve.end

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope."""
        values, speeds = self.curve.losses(time)
        self._seen[time] = values
        merit, temperature = self.objective.merit, self.objective.temperature
        value, weights = smoothed(merit, values, temperature)
        return value, float(weights @ speeds)

    def arrive(self, time: float) -> _RowState:
        """Return the state at a time."""
        basis, images = self.curve.arrive(self.state.basis, time)
        return self.objective.state(basis, images, self._seen[time])


@dataclass(frozen=True, slots=True, eq=False)
class OnAllPairs:
    """The smoothed merit of all pairs: every trial point costs as much as a step.

    ``further`` holds the rows of an objective under a cap. Where the pairs are those of
    a sample of points, ``known`` holds others that matter.
    """

    pairs: SmoothedWorst
    merit: Merit
    temperature: float
    further: Array | None = None
    known: Secants | None = None
    flatten: float = 0.9

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.pairs.dtype

    def at(self, basis: Real) -> State:
        """Return the state at a basis."""
        found = self.pairs(basis, self.temperature)
        if self.known is not None:
            found = self._joined(found, basis)
        excess, total, share = found.worst, found.total, 1.0
        value = 0.0
        if math.isfinite(self.merit.cap):
            # One more function, the zero, which is the worst under the cap.
            excess -= self.merit.cap
            top = max(excess, 0.0)
            own = total * math.exp((excess - top) / self.temperature)
            zero = math.exp(-top / self.temperature)
            share, total, excess = own / (own + zero), own + zero, top
        value += excess + self.temperature * math.log(total)
        gradient = found.pulled * (-2.0 * share / found.total)
        if self.further is not None:
            images = self.further @ basis
            value += self.merit.price * float(losses(images).sum())
            gradient -= 2.0 * self.merit.price * (self.further.T @ images)
        return State(basis, value, horizontal(basis, gradient.astype(basis.dtype)))

    def _joined(self, found: Softened, basis: Real) -> Softened:
        """Return the sums over the pairs and those that are known besides."""
        assert self.known is not None
        images = self.known.images(basis)
        values = losses(images)
        worst = max(found.worst, float(values.max()))
        share = math.exp((found.worst - worst) / self.temperature)
        weights = np.exp((values - worst) / self.temperature)
        return Softened(
            worst,
            share * found.total + float(weights.sum()),
            share * found.pulled + self.known.pull(images * weights[:, None]),
        )

    def along(self, state: State, step: Real) -> _PairRay:
        """Return the objective along a horizontal step."""
        return _PairRay(self, state, Curve(state.basis, step, step))


@dataclass(slots=True, eq=False)
class _PairRay:
    """The merit of all pairs along a curve."""

    objective: OnAllPairs
    state: State
    curve: Curve
    _seen: dict[float, State] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The latest time worth a trial; trials are dear here."""
        return self.curve.end * (_TURN / _FARTHEST)

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope."""
        state = self.objective.at(self.curve.arrive(self.state.basis, time)[0])
        self._seen[time] = state
        # What moves inside the subspace changes nothing.
        return state.value, float(np.vdot(state.gradient, self.curve.velocity(time)))

    def arrive(self, time: float) -> State:
        """Return the state at a time."""
        return self._seen[time]
