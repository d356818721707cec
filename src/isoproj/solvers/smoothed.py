"""What local search minimises: the worst excess over targets, smoothed.

A subspace with orthonormal basis ``V`` loses ``1 - |V^T x|^2`` of a unit direction
``x``. The maximum over pairs is replaced by a log-sum-exp at some temperature
(`Merit`). It is evaluated on a table of directions (`OnRows`), where a whole line
search costs one product, or on all pairs at once (`OnAllPairs`), where every trial
point costs as much as a step. Trial points move along a curve of orthonormal bases
(`Curve`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.pairs.rows import share, shared_images
from isoproj.pairs.smoothed import SmoothedWorst

# Single or double precision.
Real = NDArray[Any]

# Tangents of the largest angles by which a step may turn the subspace: where trials are
# cheap, and where each costs as much as a step. Further out, rounding spoils the basis.
_TURNS = (10.0, 2.0)
# Multiplications that take as long as the calls of an evaluation.
_CALLS = 1e6


def losses(images: Real) -> Real:
    """Return ``1 - |V^T x|^2`` for images ``V^T x``, one a row."""
    return np.asarray(1.0 - np.einsum("ij,ij->i", images, images))


def soft_maximum(values: Real, temperature: float) -> tuple[float, Real]:
    """Return the log-sum-exp maximum and its gradient, weights on the simplex.

    The maximum is at most ``temperature * log(m)`` too large.
    """
    top = float(values.max())
    # Numbers next to the smallest are slow, and exp(-60) is nothing beside 1.
    weights = np.exp(np.maximum((values - top) / temperature, -60.0))
    total = float(weights.sum())
    return top + temperature * float(np.log(total)), np.asarray(weights / total)


def tangent(basis: Real, matrix: Real) -> Real:
    """Return the part of ``matrix`` that keeps the columns of ``basis`` orthonormal."""
    inner = basis.T @ matrix
    return np.asarray(matrix - basis @ (0.5 * (inner + inner.T)))


@dataclass(frozen=True, slots=True, eq=False)
class Merit:
    """The functions of a basis whose maximum is to be small.

    A pair that loses ``l`` under the first ``ks[p]`` columns has the excess
    ``slopes[p] * l - offsets[p]``. With prices, excess counts above 0 only, and what
    the columns keep of an objective is subtracted at its price: an exact penalty.

    Parameters
    ----------
    ks : tuple of int
        Numbers of columns, ascending; several make the basis a flag.
    slopes, offsets : ndarray of shape (n_prefixes,)
        What an excess is.
    prices : ndarray of shape (n_prefixes,) or None
        Weights of the objective, whose rows follow those of the pairs.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.smoothed import Merit
    >>> Merit.worst(2).excesses(np.array([[0.5], [0.25]])).ravel().tolist()
    [0.5, 0.25]
    """

    ks: tuple[int, ...]
    slopes: Array
    offsets: Array
    prices: Array | None = None

    @staticmethod
    def worst(k: int) -> Merit:
        """Return the merit that is the worst loss itself."""
        return Merit((k,), np.ones(1), np.zeros(1))

    @staticmethod
    def capped(k: int, cap: float, price: float) -> Merit:
        """Return the exact penalty for an objective under a cap."""
        return Merit((k,), np.ones(1), np.full(1, cap), np.full(1, price))

    @property
    def is_flag(self) -> bool:
        """Whether columns matter, and not their span alone."""
        return len(self.ks) > 1

    @property
    def cap(self) -> float:
        """Loss that pairs are held to by the whole basis; infinite where none is."""
        if self.prices is None:
            return math.inf
        return float(self.offsets[-1] / self.slopes[-1])

    def retained(self, images: Real) -> Real:
        """Return the squared length that each prefix keeps, shape (m, n_prefixes)."""
        if not self.is_flag:
            return np.asarray(np.einsum("ij,ij->i", images, images)[:, None])
        starts = [0, *self.ks[:-1]]
        return np.cumsum(np.add.reduceat(images**2, starts, axis=1), axis=1)

    def excesses(self, lost: Real) -> Real:
        """Return the excess of losses, one column a prefix."""
        kind = lost.dtype.type
        return np.asarray(lost * self.slopes.astype(kind) - self.offsets.astype(kind))

    def worst_excess(self, distortions: Sequence[float] | Array) -> float:
        """Return the largest excess, for the distortion of every prefix."""
        return float(self.excesses(np.asarray(distortions, dtype=float)).max())

    def smoothed(
        self, lost: Real, n_pairs: int, temperature: float
    ) -> tuple[float, Real]:
        """Return the smoothed merit, and its derivatives by the losses of all rows."""
        excesses = self.excesses(lost[:n_pairs])
        flat = excesses.ravel()
        if self.prices is not None:
            flat = np.append(flat, flat.dtype.type(0.0))
        value, shares = soft_maximum(flat, temperature)
        rates = np.empty_like(lost)
        rates[:n_pairs] = shares[: excesses.size].reshape(excesses.shape)
        rates[:n_pairs] *= self.slopes.astype(rates.dtype)
        if self.prices is not None:
            rates[n_pairs:] = self.prices
            value += float(self.prices @ lost[n_pairs:].sum(axis=0, dtype=float))
        return value, rates


class Curve:
    """Orthonormal bases along a tangent step from one of them.

    For a subspace, ``V(t) = (V + t S) (I + t^2 S^T S)^(-1/2)``. For a flag, the Q
    factor of ``V + t S``, which keeps every prefix.
    """

    def __init__(self, basis: Real, step: Real, *, is_flag: bool = False) -> None:
        self.basis, self.step, self.is_flag = basis, step, is_flag
        # For small matrices the wrapper of scipy takes longer than the work.
        squares, self.rotation = np.linalg.eigh(step.T @ step)
        self.squares = np.maximum(squares, 0.0)

    def end(self, turn: float) -> float:
        """Return the time at which the largest angle has this tangent."""
        return turn / max(math.sqrt(float(self.squares[-1])), 1e-30)

    def factor(self, time: float) -> Real:
        """Return ``F`` with ``V(time) = (V + time S) F``, for a subspace.

        One step of Newton's iteration for the polar factor keeps rounding from adding
        up: descent would find a basis that is too long, and make it longer.
        """
        shrink = 1.0 / np.sqrt(1.0 + time**2 * self.squares)
        polar = (self.rotation * shrink) @ self.rotation.T
        moved = (self.basis + self.basis.dtype.type(time) * self.step) @ polar
        mend = 0.5 * (3.0 * np.eye(len(polar), dtype=polar.dtype) - moved.T @ moved)
        return np.asarray(polar @ mend)

    def at(self, time: float) -> Real:
        """Return the basis at a time."""
        moved = self.basis + self.basis.dtype.type(time) * self.step
        if self.is_flag:
            return orthonormal(moved).astype(moved.dtype, copy=False)
        return np.asarray(moved @ self.factor(time))

    def velocity(self, basis: Real, time: float) -> Real:
        """Return how the basis at a time moves; inside its span nothing changes."""
        if self.is_flag:
            # With ``V + t S = Q R``, the derivative of Q; only its part inside the span
            # is lost by taking the tangent part of ``S R^-1``.
            pulled = self.step @ np.linalg.inv(
                basis.T @ (self.basis + time * self.step)
            )
            inner = basis.T @ pulled
            turned = np.tril(inner, -1)
            return np.asarray(pulled - basis @ (inner - turned + turned.T))
        shrink = 1.0 / np.sqrt(1.0 + time**2 * self.squares)
        return np.asarray((self.step @ (self.rotation * shrink)) @ self.rotation.T)


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """A basis with the objective's value and tangent gradient there.

    ``images`` are those of the rows, where the objective has rows.
    """

    basis: Real
    value: float
    gradient: Real
    images: Real | None = None


class Ray(Protocol):
    """An objective along the curve of one step."""

    @property
    def end(self) -> float:
        """The latest time worth a trial."""

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope."""

    def arrive(self, time: float) -> State:
        """Return the state at a time that ``at`` was asked about."""


class Objective(Protocol):
    """A smooth function of a basis."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""

    @property
    def flatten(self) -> float:
        """Share of the first slope that may be left at the end of a line search."""

    def work(self, k: int) -> float:
        """Return the multiplications that an evaluation takes."""

    def at(self, basis: Real) -> State:
        """Return the state at a basis."""

    def along(self, state: State, step: Real) -> Ray:
        """Return the objective along a tangent step from a state."""


@dataclass(frozen=True, slots=True, eq=False)
class OnRows:
    """The smoothed merit of some directions, followed by the rows of an objective."""

    secants: Secants
    merit: Merit
    temperature: float

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.secants.dtype

    @property
    def flatten(self) -> float:
        """Share of the first slope that may be left at the end of a line search."""
        # Where trial points are cheap, the slope may flatten more than usual.
        return 0.5 if self.merit.is_flag else 0.3

    def work(self, k: int) -> float:
        """Return the multiplications that an evaluation takes."""
        return k * (8.0 * len(self.secants) + 4.0 * self.secants.n_entries) + _CALLS

    def at(self, basis: Real) -> State:
        """Return the state at a basis."""
        images = self.secants.images(basis)
        return self.state(basis, images, 1.0 - self.merit.retained(images))

    def state(self, basis: Real, images: Real, lost: Real) -> State:
        """Return the state at a basis whose images and losses are known."""
        merit = self.merit
        value, rates = merit.smoothed(lost, len(self.secants), self.temperature)
        if merit.is_flag:
            # A column is part of all prefixes from its own block on.
            of_blocks = np.cumsum(rates[:, ::-1], axis=1)[:, ::-1]
            rates = np.repeat(of_blocks, np.diff([0, *merit.ks]), axis=1)
        pulled = self.secants.pull(images * rates)
        return State(basis, value, tangent(basis, -2.0 * pulled), images)

    def along(self, state: State, step: Real) -> Ray:
        """Return the objective along a tangent step."""
        curve = Curve(state.basis, step, is_flag=self.merit.is_flag)
        if self.merit.is_flag:
            return _TrialRay(self, state, curve)
        return _RowRay(self, state, curve)


class _RowRay:
    """The losses of some rows along a curve of subspaces.

    With ``E V`` and ``E S`` turned to the axes of ``S^T S``, all losses at a time are
    sums over these axes.
    """

    def __init__(self, objective: OnRows, state: State, curve: Curve) -> None:
        assert state.images is not None
        self.objective, self.curve, self.end = objective, curve, curve.end(_TURNS[0])
        self.images = state.images
        self.velocities = objective.secants.images(curve.step)
        self.quadratic = np.empty((3, *self.images.shape), self.images.dtype)

        def fill(part: slice) -> None:
            start = self.images[part] @ curve.rotation
            speed = self.velocities[part] @ curve.rotation
            np.square(start, out=self.quadratic[0, part])
            np.multiply(start, 2.0 * speed, out=self.quadratic[1, part])
            np.square(speed, out=self.quadratic[2, part])

        share(fill, self.images)
        self.seen: dict[float, Real] = {}

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope."""
        shrink = 1.0 / (1.0 + time**2 * self.curve.squares)
        slopes = -2.0 * time * self.curve.squares * shrink**2
        sizes = np.stack([shrink, slopes], axis=1)
        flat = self.quadratic.reshape(-1, len(shrink))
        table = shared_images(flat, sizes.astype(flat.dtype))
        constant, linear, square = table.reshape(3, len(self.images), 2)
        energy = constant + time * (linear + time * square)
        speeds = -(linear[:, 0] + 2.0 * time * square[:, 0] + energy[:, 1])
        self.seen[time] = 1.0 - energy[:, :1]
        value, rates = self.objective.merit.smoothed(
            self.seen[time], len(self.objective.secants), self.objective.temperature
        )
        return value, float(rates[:, 0] @ speeds)

    def arrive(self, time: float) -> State:
        """Return the state at a time."""
        images, factor = np.empty_like(self.images), self.curve.factor(time)

        def fill(part: slice) -> None:
            moved = self.images[part] + time * self.velocities[part]
            np.matmul(moved, factor, out=images[part])

        share(fill, images)
        return self.objective.state(self.curve.at(time), images, self.seen[time])


@dataclass(frozen=True, slots=True, eq=False)
class _TrialRay:
    """An objective along a curve, where every trial is a whole evaluation."""

    objective: Objective
    state: State
    curve: Curve
    seen: dict[float, State] = field(default_factory=dict)

    @property
    def end(self) -> float:
        """The latest time worth a trial."""
        return self.curve.end(_TURNS[1])

    def at(self, time: float) -> tuple[float, float]:
        """Return value and slope."""
        state = self.objective.at(self.curve.at(time))
        self.seen[time] = state
        velocity = self.curve.velocity(state.basis, time)
        return state.value, float(np.vdot(state.gradient, velocity))

    def arrive(self, time: float) -> State:
        """Return the state at a time."""
        return self.seen[time]


@dataclass(frozen=True, slots=True, eq=False)
class OnAllPairs:
    """The smoothed merit of one subspace on all pairs.

    ``further`` holds the rows of an objective under a cap.
    """

    pairs: SmoothedWorst
    merit: Merit
    temperature: float
    n_pairs: int
    further: Array | None = None
    flatten: float = 0.9

    @property
    def dtype(self) -> np.dtype[Any]:
        """Working precision."""
        return self.pairs.dtype

    def work(self, k: int) -> float:
        """Return the multiplications that an evaluation takes."""
        return 3.0 * self.n_pairs * (k + 8) + _CALLS

    def at(self, basis: Real) -> State:
        """Return the state at a basis."""
        found = self.pairs(basis, self.temperature)
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
        if self.further is not None and self.merit.prices is not None:
            images, price = self.further @ basis, float(self.merit.prices[0])
            value += price * float(losses(images).sum())
            gradient -= 2.0 * price * (self.further.T @ images)
        return State(basis, value, tangent(basis, gradient.astype(basis.dtype)))

    def along(self, state: State, step: Real) -> Ray:
        """Return the objective along a tangent step."""
        return _TrialRay(self, state, Curve(state.basis, step))
