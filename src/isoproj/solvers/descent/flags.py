"""Descent on flags: a basis whose first columns are projections of their own.

The basis ``Q`` has orthonormal columns, and prefix ``k`` is the span of its first ``k``
columns. A pair with unit direction ``x`` loses ``1 - |Q_k^T x|^2`` under prefix ``k``.
The excess of a pair over the target of a prefix is its weighted relative distance,
``weight * (loss / target - 1)``. The largest excess over all pairs and prefixes is
replaced by a log-sum-exp and minimised by limited-memory BFGS. Trial points are Q
factors, which keep every prefix. With an objective, what the prefixes keep of it counts
against what exceeds the targets, as an exact penalty.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from isoproj.numerics.spectral import Array, orthonormal
from isoproj.pairs.directions import Secants
from isoproj.solvers.descent.grassmann import Memory
from isoproj.solvers.descent.objectives import Real, soft_maximum

__all__ = ["Flag", "Stage", "descend_flag", "mean_flag"]

# Sufficient decrease, and the share of the slope that may be left.
_DECREASE = 1e-4
_FLATTEN = 0.5
_TRIALS = 10


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Flag:
    """What descent minimises: the excess of every prefix, and the price of its losses.

    Parameters
    ----------
    ks : tuple of int
        Numbers of columns of the prefixes, ascending.
    targets : ndarray of shape (n_prefixes,)
        Losses that the excess is relative to, above 0.
    weights : ndarray of shape (n_prefixes,)
        Weights of the relative excess, above 0.
    prices : ndarray of shape (n_prefixes,) or None
        Weight of what each prefix keeps of the objective, whose rows follow the pairs.
        With prices, only excess above 0 counts.
    """

    ks: tuple[int, ...]
    targets: Array
    weights: Array
    prices: Array | None = None

    def retained(self, images: Real) -> Real:
        """Return the squared length that each prefix keeps, shape (m, n_prefixes)."""
        starts = [0, *self.ks[:-1]]
        return np.cumsum(np.add.reduceat(images**2, starts, axis=1), axis=1)

    def excesses(self, losses: Array | Real) -> Real:
        """Return the weighted relative excess of losses, one column a prefix."""
        kind = losses.dtype.type
        slopes = (self.weights / self.targets).astype(kind)
        return np.asarray(losses * slopes - self.weights.astype(kind))

    def worst(self, distortions: Array) -> float:
        """Return the largest excess of the prefixes' distortions."""
        return float(self.excesses(distortions).max())

    def smoothed(
        self, images: Real, n_pairs: int, temperature: float
    ) -> tuple[float, Real]:
        """Return the smoothed merit, and how fast it falls with each row's length kept.

        The second array has shape (n_rows, n_prefixes).
        """
        retained = self.retained(images)
        excesses = self.excesses(1.0 - retained[:n_pairs])
        flat = excesses.ravel()
        if self.prices is not None:
            flat = np.append(flat, flat.dtype.type(0.0))
        value, shares = soft_maximum(flat, temperature)
        rates = np.empty_like(retained)
        slopes = (self.weights / self.targets).astype(rates.dtype)
        rates[:n_pairs] = shares[: excesses.size].reshape(excesses.shape) * slopes
        if self.prices is not None:
            rates[n_pairs:] = self.prices
            value -= float(self.prices @ retained[n_pairs:].sum(axis=0))
        return value, rates

    def gradient(
        self, secants: Secants, basis: Real, images: Real, rates: Real
    ) -> Real:
        """Return the Riemannian gradient of the smoothed merit."""
        # A column is part of all prefixes from its own block on.
        of_blocks = np.cumsum(rates[:, ::-1], axis=1)[:, ::-1]
        widths = np.diff([0, *self.ks])
        pulled = secants.pull(images * np.repeat(of_blocks, widths, axis=1))
        return _tangent(basis, -2.0 * pulled)


def mean_flag(bases: list[Array]) -> Array:
    """Return the leading eigenvectors of the sum of the projections onto some bases.

    Directions that more of the bases share come first. The bases' numbers of columns
    ascend, and the result has as many columns as the last.
    """
    left = np.linalg.svd(np.hstack(bases), full_matrices=False)[0]
    return left[:, : bases[-1].shape[1]]


def _tangent(basis: Real, matrix: Real) -> Real:
    """Return the part of ``matrix`` that keeps the columns of ``basis`` orthonormal."""
    inner = basis.T @ matrix
    return np.asarray(matrix - basis @ (0.5 * (inner + inner.T)))


def _moved(basis: Real, step: Real, time: float) -> Real:
    """Return the Q factor of a basis after a step, in the precision of the basis."""
    kind = basis.dtype.type
    return orthonormal(basis + kind(time) * step).astype(kind, copy=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Point:
    """A basis, and value and gradient of the smoothed merit there."""

    basis: Real
    value: float
    gradient: Real


@dataclass(frozen=True, slots=True, eq=False)
class Stage:
    """Minimisation of the smoothed merit at one temperature.

    Parameters
    ----------
    flag : Flag
        What to minimise.
    secants : Secants
        The pairs, followed by the rows of the objective where there is one.
    temperature : float
        Of the log-sum-exp, as a relative excess.
    max_iter : int
        Most quasi-Newton steps.
    tolerance : float
        The stage ends when a step gains less than this multiple of the temperature.
    """

    flag: Flag
    secants: Secants
    temperature: float
    max_iter: int
    tolerance: float

    def run(self, start: Real) -> Real:
        """Return the basis after limited-memory BFGS."""
        here = self._at(start)
        memory, history = Memory(), [here.value]
        for _ in range(self.max_iter):
            step = self._step(memory, here)
            there = self._search(here, step)
            if there is None:
                if not memory.pairs:
                    break
                memory = Memory()
                continue
            time, point = there
            moved = _tangent(point.basis, time * step)
            before = _tangent(point.basis, here.gradient)
            memory.add(moved, point.gradient - before)
            here = point
            history.append(here.value)
            gained = history[-6] - here.value if len(history) > 5 else np.inf
            if gained < 5.0 * self.tolerance * self.temperature:
                break
        return here.basis

    def _at(self, basis: Real) -> _Point:
        """Return the point of a basis."""
        images = self.secants.images(basis)
        value, rates = self.flag.smoothed(images, len(self.secants), self.temperature)
        gradient = self.flag.gradient(self.secants, basis, images, rates)
        return _Point(basis, value, gradient)

    def _step(self, memory: Memory, here: _Point) -> Real:
        """Return a tangent descent direction."""
        if memory.pairs:
            step = -_tangent(here.basis, memory.apply(here.gradient))
            if float(np.vdot(step, here.gradient)) < 0.0:
                return step
            memory.pairs.clear()
        length = float(np.linalg.norm(here.gradient))
        scale = here.gradient.dtype.type(-0.1 / max(length, 0.1))
        return np.asarray(here.gradient * scale)

    def _search(self, here: _Point, step: Real) -> tuple[float, _Point] | None:
        """Return a time and a point of sufficient decrease, or None without one."""
        slope = float(np.vdot(here.gradient, step))
        time, low, found = 1.0, 0.0, None
        for _ in range(_TRIALS):
            point = self._at(_moved(here.basis, step, time))
            if not point.value <= here.value + _DECREASE * time * slope:
                if found is not None:
                    break
                time = 0.5 * (low + time)
                continue
            found = time, point
            left = float(np.vdot(point.gradient, _tangent(point.basis, step)))
            if left >= _FLATTEN * slope:
                break
            low, time = time, 3.0 * time
        return found


def descend_flag(stage: Stage, basis: Array, *, is_single: bool) -> Array:
    """Run a stage from a basis, in single precision or not; return float64."""
    kind = np.float32 if is_single else np.float64
    cast = replace(stage, secants=stage.secants.astype(kind))
    return orthonormal(cast.run(basis.astype(kind)).astype(np.float64))
