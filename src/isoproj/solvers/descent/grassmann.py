"""Descent on the Grassmannian: a smoothed merit, at falling temperature.

The objectives (``descent.objectives``) are minimised by limited-memory BFGS.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace

import numpy as np

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.solvers.api import UNLIMITED, Clock
from isoproj.solvers.descent.merit import Merit, Worst
from isoproj.solvers.descent.objectives import (
    Objective,
    OnRows,
    Ray,
    Real,
    horizontal,
    losses,
    smoothed,
)
from isoproj.solvers.settings import DescentSettings

__all__ = ["Memory", "Stage", "cooled", "descend", "random_starts"]

# Steps that the inverse Hessian remembers.
_MEMORY = 12
# Rows that are enough to tell random bases apart.
_TELLING = 2_000
# Weak Wolfe conditions: sufficient decrease.
_DECREASE = 1e-4
_TRIALS = 12


def _search(ray: Ray, flatten: float, value: float, slope: float) -> float | None:
    """Return the time of a weak Wolfe point, None without decrease."""
    low, high, time = 0.0, np.inf, min(1.0, ray.end)
    slope_low = slope
    best: tuple[float, float] | None = None
    for _ in range(_TRIALS):
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
            time = _secant(low, slope_low, high, slope_high)
    return None if best is None else best[0]


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


@dataclass(frozen=True, slots=True)
class Stage:
    """When minimisation at one temperature ends."""

    temperature: float
    max_iter: int
    tolerance: float
    clock: Clock = UNLIMITED

    @staticmethod
    def of(
        temperature: float,
        settings: DescentSettings,
        clock: Clock = UNLIMITED,
        *,
        is_loose: bool = False,
    ) -> Stage:
        """Return the stage that a temperature deserves; a hot one ends early.

        No step begins once the clock is over.
        """
        steps, tolerance = settings.steps, settings.tolerance
        if is_loose or temperature > settings.hot:
            steps, tolerance = settings.loose_steps, settings.loose_tolerance
        return Stage(temperature, steps, tolerance, clock)

    def run(
        self, objective: Objective, basis: Real, memory: Memory | None = None
    ) -> tuple[Real, int]:
        """Return the basis after limited-memory BFGS, and the number of steps."""
        state = objective.at(basis)
        memory = Memory() if memory is None else memory
        history = [state.value]
        rounding = max(1e-12, 4.0 * float(np.finfo(state.gradient.dtype).eps))
        for _ in range(self.max_iter):
            is_flat = float(np.linalg.norm(state.gradient)) < rounding
            if is_flat or self.clock.is_over:
                break
            step = _step(memory, state.basis, state.gradient)
            slope = float(np.vdot(state.gradient, step))
            ray = objective.along(state, step)
            time = _search(ray, objective.flatten, state.value, slope)
            if time is None:
                if not memory.pairs:
                    break
                memory.pairs.clear()
                continue
            before, state = state, ray.arrive(time)
            previous = horizontal(state.basis, before.gradient)
            memory.add(horizontal(state.basis, time * step), state.gradient - previous)
            history.append(state.value)
            gained = history[-6] - state.value if len(history) > 5 else np.inf
            if gained < 5.0 * self.tolerance * self.temperature:
                break
        return orthonormal(state.basis), len(history) - 1


def _step(memory: Memory, basis: Real, gradient: Real) -> Real:
    """Return a horizontal descent direction."""
    if memory.pairs:
        # Old pairs are not transported: projecting the result alone is enough.
        step = -horizontal(basis, memory.apply(gradient))
        if float(np.vdot(step, gradient)) < 0.0:
            return step
        memory.pairs.clear()
    # A small gradient is the difference of larger things: not horizontal by itself.
    gradient = horizontal(basis, gradient)
    return gradient * (-0.1 / max(float(np.linalg.norm(gradient)), 0.1))


def descend(
    secants: Secants,
    basis: Array,
    temperature: float,
    *,
    merit: Merit | None = None,
    settings: DescentSettings | None = None,
    stage: Stage | None = None,
) -> Array:
    """Minimise the smoothed merit at one temperature, as exactly as it deserves.

    Rows far from the worst sit out. After every burst of steps they are looked at: if
    one of them has become the worst, it joins the others, and the stage goes on.

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
    settings : DescentSettings or None
        Tuning figures.
    stage : Stage or None
        When it ends; None means as the temperature deserves.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal basis in float64, no worse than the start; the start itself if no
        better one was found.
    """
    if basis.shape[0] <= basis.shape[1]:
        return basis
    settings = DescentSettings() if settings is None else settings
    merit = Worst() if merit is None else merit
    stage = Stage.of(temperature, settings) if stage is None else stage
    rows = secants.astype(np.float32) if temperature > settings.single else secants
    objective = OnRows(rows, merit, temperature)
    start = basis.astype(rows.dtype)
    moved = _descended(objective, start, stage, settings)
    return basis if moved is start else orthonormal(moved.astype(np.float64))


def cooled(objective: Objective, basis: Array, stage: Stage) -> Array:
    """Minimise an objective that sees all pairs, from an orthonormal basis."""
    if basis.shape[0] <= basis.shape[1]:
        return basis
    start = _shaken(basis.astype(objective.dtype), 0.1 * stage.temperature)
    return orthonormal(stage.run(objective, start)[0].astype(np.float64))


def _descended(
    objective: OnRows, start: Real, stage: Stage, settings: DescentSettings
) -> Real:
    """Run a stage, in bursts, until no row that sat out has become the worst."""
    secants, merit, temperature = (
        objective.secants,
        objective.merit,
        objective.temperature,
    )
    count = len(secants)
    values = losses(secants.images(start))
    value = smoothed(merit, values, temperature)[0]
    values = merit.values(values)
    moved = _shaken(start, 0.1 * temperature)
    reach = settings.reaches(temperature)
    kept = values[:count] > values.max() - reach
    best, memory = start, Memory()
    left, n_blind = stage.max_iter, 0
    while left > 0:
        some = secants if kept.all() else secants.take(np.flatnonzero(kept))
        burst = replace(stage, max_iter=min(left, settings.burst))
        moved, n_steps = burst.run(replace(objective, secants=some), moved, memory)
        left -= n_steps
        values = losses(secants.images(moved))
        moved_value = smoothed(merit, values, temperature)[0]
        values = merit.values(values)
        if moved_value < value:
            best, value = moved, moved_value
        missed = (values[:count] > values.max() - 4.0 * temperature) & ~kept
        if not missed.any():
            if n_steps < burst.max_iter:
                break
            continue
        n_blind += 1
        kept |= values[:count] > values.max() - reach
        # Where one blind burst follows another, all further ones look at every row.
        kept |= n_blind == settings.attempts
        if best is not moved:
            moved, memory = best, Memory()
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

    Where dimensions are few, the many come near everything there is. Some of the rows
    tell them apart.
    """
    if not count:
        return []
    many = np.linalg.qr(rng.standard_normal((max(count, n_drawn), *shape)))[0]
    some = secants.take(np.arange(0, len(secants), 1 + len(secants) // _TELLING))
    images = some.images(np.hstack(list(many))).reshape(-1, len(many), shape[-1])
    lost = 1.0 - np.einsum("lbk,lbk->bl", images, images)
    values = [merit.values(each).max() for each in lost]
    best = np.argsort(values, kind="stable")[: (count + 1) // 2]
    return [*many[best], *many[: count - best.size]]


def _shaken(basis: Real, size: float) -> Real:
    """Return ``basis`` moved a little at random.

    A direction orthogonal to the subspace has the largest loss and no gradient: an
    exactly aligned start is a saddle point that descent alone would not leave.
    """
    noise = np.random.default_rng(0).standard_normal(basis.shape)
    noise *= size / np.sqrt(basis.shape[0])
    return orthonormal(basis + noise.astype(basis.dtype))
