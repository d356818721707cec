"""Descent on subspaces and on flags: limited-memory BFGS with a retraction."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.solvers.api import UNLIMITED, Clock
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import Merit, Objective, OnRows, Ray, Real, tangent

# Sufficient decrease of a line search.
_DECREASE = 1e-4


@dataclass
class Memory:
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
        """Return the inverse Hessian times ``gradient`` (two-loop recursion)."""
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

    def step(self, basis: Real, gradient: Real) -> Real:
        """Return a tangent descent direction."""
        if self.pairs:
            # Old pairs are not transported: projecting the result alone is enough.
            step = -tangent(basis, self.apply(gradient))
            if float(np.vdot(step, gradient)) < 0.0:
                return step
            self.pairs.clear()
        # A small gradient is the difference of larger things: not tangent by itself.
        gradient = tangent(basis, gradient)
        return gradient * (-0.1 / max(float(np.linalg.norm(gradient)), 0.1))


def minimise(
    objective: Objective,
    basis: Real,
    *,
    steps: int,
    least: float,
    clock: Clock = UNLIMITED,
    memory: Memory | None = None,
) -> tuple[Real, int]:
    """Return the basis after limited-memory BFGS, and the number of steps.

    It ends when five steps gain less than five times ``least``, and begins no step once
    the clock is over.
    """
    state = objective.at(basis)
    memory = Memory() if memory is None else memory
    values = [state.value]
    rounding = max(1e-12, 4.0 * float(np.finfo(state.gradient.dtype).eps))
    for _ in range(steps):
        if clock.is_over or float(np.linalg.norm(state.gradient)) < rounding:
            break
        step = memory.step(state.basis, state.gradient)
        ray = objective.along(state, step)
        slope = float(np.vdot(state.gradient, step))
        time = _wolfe(ray, objective.flatten, state.value, slope)
        if time is None:
            if not memory.pairs:
                break
            memory.pairs.clear()
            continue
        before, state = state, ray.arrive(time)
        memory.add(
            tangent(state.basis, time * step),
            state.gradient - tangent(state.basis, before.gradient),
        )
        values.append(state.value)
        if len(values) > 5 and values[-6] - state.value < 5.0 * least:
            break
    return state.basis, len(values) - 1


def _wolfe(ray: Ray, flatten: float, value: float, slope: float) -> float | None:
    """Return the time of a weak Wolfe point, None without decrease."""
    low, high, time = 0.0, np.inf, min(1.0, ray.end)
    slope_low, slope_high = slope, 0.0
    best: tuple[float, float] | None = None
    for _ in range(12):
        trial, trial_slope = ray.at(time)
        if trial > value + _DECREASE * time * slope or not np.isfinite(trial):
            high, slope_high = time, trial_slope
        else:
            if best is None or trial < best[1]:
                best = time, trial
            if abs(trial_slope) <= flatten * abs(slope):
                break
            if trial_slope < 0.0:
                low, slope_low = time, trial_slope
            else:
                high, slope_high = time, trial_slope
        if np.isinf(high):
            if time >= ray.end:
                break
            time = min(3.0 * time, ray.end)
        else:
            # The zero of the interpolated slope, kept well inside the bracket.
            fraction = 0.5
            if slope_high > 0.0 > slope_low:
                fraction = -slope_low / (slope_high - slope_low)
            time = low + min(max(fraction, 0.1), 0.9) * (high - low)
    return None if best is None else best[0]


def descend(
    secants: Secants,
    basis: Array,
    temperature: float,
    merit: Merit,
    settings: Settings,
    clock: Clock = UNLIMITED,
) -> tuple[Array, float]:
    """Minimise the smoothed merit of some rows; return the basis and the work.

    Rows out of reach of the worst sit out. After every burst of steps they are looked
    at: those that have come within reach join, and the descent goes on. A burst that
    they have led astray is made again with all rows.

    The basis is orthonormal, in float64, and the start itself if none is better.
    """
    single = temperature > 100.0 * float(np.finfo(np.float32).eps)
    rows = secants.astype(np.float32) if single else secants
    whole, n_pairs = OnRows(rows, merit, temperature), len(rows)
    best = moved = basis.astype(rows.dtype)
    moved = shaken(best, 0.1 * temperature)
    lost = 1.0 - merit.retained(rows.images(best))
    value, work = merit.smoothed(lost, n_pairs, temperature)[0], 0.0
    kept = np.zeros(n_pairs, dtype=bool)
    memory, left = Memory(), settings.steps
    while left > 0:
        excess = merit.excesses(lost[:n_pairs]).max(axis=1)
        kept |= excess > excess.max() - 2.0 * settings.reach * temperature
        some = rows if kept.all() else rows.take(np.flatnonzero(kept))
        burst = OnRows(some, merit, temperature)
        moved, n_steps = minimise(
            burst,
            moved,
            steps=min(left, 30),
            least=settings.gain * temperature,
            clock=clock,
            memory=memory,
        )
        lost = 1.0 - merit.retained(rows.images(moved))
        work += 2.0 * n_steps * burst.work(basis.shape[1]) + whole.work(basis.shape[1])
        moved_value = merit.smoothed(lost, n_pairs, temperature)[0]
        if moved_value < value:
            best, value = moved, moved_value
        excess = merit.excesses(lost[:n_pairs]).max(axis=1)
        missed = (excess > excess.max() - 4.0 * temperature) & ~kept
        if missed.any() and best is not moved:
            # Led astray by rows that sat out: once more, with all of them.
            kept[:] = True
            moved, memory = best, Memory()
            continue
        left -= max(n_steps, 1)
        if not missed.any() and n_steps < 30:
            break
    if best.dtype == np.float64 and best is basis:
        return basis, work
    return orthonormal(best.astype(np.float64)), work


def shaken(basis: Real, size: float) -> Real:
    """Return the basis moved a little at random, always alike.

    A direction orthogonal to the subspace has the largest loss and no gradient: an
    exactly aligned start is a saddle point that descent alone would not leave.
    """
    noise = np.random.default_rng(0).standard_normal(basis.shape)
    noise *= size / np.sqrt(basis.shape[0])
    return orthonormal(basis + noise.astype(basis.dtype))


def random_basis(
    secants: Secants, merit: Merit, shape: tuple[int, ...], rng: np.random.Generator
) -> Array:
    """Return the best of 200 random bases, told apart by some of the rows.

    The merit is that of one subspace. Where dimensions are few, so many bases come near
    everything there is.
    """
    many = np.linalg.qr(rng.standard_normal((200, *shape)))[0]
    some = secants.take(np.arange(0, len(secants), 1 + len(secants) // 1_000))
    images = some.images(np.hstack(list(many))).reshape(-1, len(many), shape[-1])
    lost = 1.0 - np.einsum("lbk,lbk->lb", images, images)
    values = merit.excesses(lost[: len(some), :, None])[:, :, 0].max(axis=0)
    if merit.prices is not None:
        values = np.maximum(values, 0.0)
        values += merit.prices[0] * lost[len(some) :].sum(axis=0)
    return np.asarray(many[int(np.argmin(values))])
