"""The exact finish: a true local optimum of the maximum, not of its smoothing.

Sequential quadratic programming for a minimax problem: linearise the losses of the
tight pairs, add the curvature of the weighted loss, which on the Grassmannian is
diagonal in the eigenbases of the moment ``M(w)`` inside and outside the subspace, and
solve the dual, a small quadratic programme over the simplex, by an interior-point
method. A damping of the curvature plays the trust region: it grows when a step
disappoints and falls when it keeps its promise, so that no step is accepted that makes
the worst loss larger.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.directions import Secants
from isoproj.solvers.descent.merit import Merit, Worst
from isoproj.solvers.descent.objectives import Curve, Real, losses, soft_maximum
from isoproj.solvers.settings import DescentSettings

__all__ = ["finish", "simplex_minimiser"]


def simplex_minimiser(
    gram: Array, linear: Array, *, max_iter: int = 40, tolerance: float = 1e-3
) -> Array:
    """Minimise ``w.K.w / 2 - c.w`` over the simplex by an interior-point method.

    Parameters
    ----------
    gram : ndarray of shape (m, m)
        Positive semidefinite matrix ``K``.
    linear : ndarray of shape (m,)
        The vector ``c``.
    max_iter : int
        Newton steps allowed.
    tolerance : float
        Duality gap to stop at, relative to the distance of the optimal value below
        ``max c``.

    Returns
    -------
    ndarray of shape (m,)
        The minimising weights, positive, summing to one.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.solvers.descent.sqp import simplex_minimiser
    >>> weights = simplex_minimiser(np.diag([1.0, 3.0]), np.zeros(2), tolerance=1e-9)
    >>> weights.round(6).tolist()
    [0.75, 0.25]
    """
    count = len(linear)
    weights = np.full(count, 1.0 / count)
    reduced = gram @ weights - linear
    ridge = 1e-14 * float(np.abs(np.diag(gram)).max()) + 1e-300
    level = float(reduced.min()) - 0.1 * float(np.ptp(reduced)) - 1e3 * ridge
    slacks = reduced - level
    for _ in range(max_iter):
        image = gram @ weights
        gap = float(weights @ slacks)
        decrease = float(linear.max() - weights @ linear + 0.5 * weights @ image)
        if gap <= tolerance * abs(decrease) + ridge:
            break
        newton = _Newton(gram, weights, slacks, image - linear - level - slacks, ridge)
        # Predictor, then a corrector centred by how far the predictor could go.
        move, change, rise = newton.solve(np.zeros(count))
        reach = min(_reach(weights, move), _reach(slacks, change))
        after = float((weights + reach * move) @ (slacks + reach * change))
        centre = (after / gap) ** 3 * gap / count
        move, change, rise = newton.solve(centre - move * change)
        reach = 0.995 * min(_reach(weights, move), _reach(slacks, change))
        weights = weights + reach * move
        slacks = slacks + reach * change
        level += reach * rise
    total: Array = weights / weights.sum()
    return total


class _Newton:
    """Factorised Newton system of the simplex programme's central path."""

    def __init__(
        self,
        gram: Array,
        weights: Array,
        slacks: Array,
        residual: Array,
        ridge: float,
    ) -> None:
        self.weights, self.slacks, self.residual = weights, slacks, residual
        # A transposed copy is in the column order LAPACK wants: nothing is copied
        # again, and the matrix is symmetric.
        system = gram.copy().T
        system[np.diag_indices(len(weights))] += slacks / weights + ridge
        self._factor = scipy.linalg.cho_factor(
            system, overwrite_a=True, check_finite=False
        )
        self._ones = self._solve(np.ones(len(weights)))

    def _solve(self, right: Array) -> Array:
        solution: Array = scipy.linalg.cho_solve(
            self._factor, right, check_finite=False
        )
        return solution

    def solve(self, target: Array) -> tuple[Array, Array, float]:
        """Return the change of weights, slacks and level towards products `target`."""
        free = self._solve(target / self.weights - self.slacks - self.residual)
        excess = float(self.weights.sum()) + float(free.sum()) - 1.0
        rise = -excess / float(self._ones.sum())
        move = free + rise * self._ones
        change = (target - self.slacks * move) / self.weights - self.slacks
        return move, change, rise


def _reach(values: Array, change: Array) -> float:
    """Return the largest step up to one that keeps positive `values` nonnegative."""
    falling = change < 0.0
    if not falling.any():
        return 1.0
    return min(1.0, float(np.min(-values[falling] / change[falling])))


@dataclass(frozen=True, slots=True, eq=False)
class _Model:
    """Convex quadratic model of the tight losses around one basis.

    Parameters
    ----------
    factors : ndarray of shape (m, n_dims * k)
        Flattened gradients scaled by the inverse square root of the curvature.
    scale : ndarray of shape (n_dims, k)
        That inverse square root.
    normal, rotation : ndarray
        Eigenbases of the moment outside and inside the subspace.
    gram : ndarray of shape (m, m)
        Inner products of ``factors``.
    """

    factors: Real
    scale: Array
    normal: Array
    rotation: Array
    gram: Array

    def step(self, weights: Array) -> Array:
        """Return the horizontal minimiser of the model under given multipliers."""
        sums = weights.astype(self.factors.dtype) @ self.factors
        inner = -sums.reshape(self.scale.shape) * self.scale
        return np.asarray(self.normal @ inner @ self.rotation.T)


def _model(
    secants: Secants,
    merit: Merit,
    basis: Array,
    rows: Indices,
    shares: Array,
    damping: float,
) -> _Model:
    """Build the model of the merit at ``rows``, curved as ``shares`` say."""
    has_base = bool(rows.size) and int(rows[-1]) == len(secants)
    n_pairs = rows.size - has_base
    directions = secants.explicit(rows[:n_pairs])
    weights = shares[:n_pairs]
    if secants.further is not None:
        directions = np.vstack([directions, secants.further])
        weights = np.append(weights, np.full(len(secants.further), merit.price))
    images = directions @ basis
    normals = directions - images @ basis.T
    inside, rotation = scipy.linalg.eigh((images.T * weights) @ images)
    outside, normal = scipy.linalg.eigh((normals.T * weights) @ normals)
    # The null vectors of the outside moment that span the subspace itself carry no
    # normal component, so keeping them is harmless.
    curvature = 2.0 * (inside[None, :] - outside[:, None])
    scale = 1.0 / np.sqrt(np.maximum(curvature, 0.0) + damping)
    # This table is the bulk of the work, and single precision is enough for a step.
    left = (normals @ normal).astype(np.float32)
    right = (images @ rotation).astype(np.float32)
    factors = np.zeros((rows.size, *scale.shape), dtype=np.float32)
    np.multiply(
        left[:n_pairs, :, None], right[:n_pairs, None, :], out=factors[:n_pairs]
    )
    if secants.further is not None:
        factors += merit.price * (left[n_pairs:].T @ right[n_pairs:])
    factors *= (-2.0 * scale).astype(np.float32)
    flat = factors.reshape(rows.size, -1)
    gram = (flat @ flat.T).astype(np.float64)
    # Neither rounding nor parallel pairs may make the Gram matrix indefinite.
    gram[np.diag_indices(gram.shape[0])] += 2e-6 * gram.diagonal().max()
    return _Model(flat, scale, normal, rotation, gram)


def _worst(values: Array, rows: Indices, limit: int) -> Indices:
    """Return those of the rows with the largest values, at most ``limit`` of them."""
    return np.sort(rows[np.argpartition(values[rows], -limit)[-limit:]])


def finish(
    secants: Secants,
    basis: Array,
    *,
    merit: Merit | None = None,
    max_iter: int = 12,
    settings: DescentSettings | None = None,
) -> Array:
    """Refine a basis towards a local minimiser of the merit itself, not smoothed.

    Parameters
    ----------
    secants : Secants
        Working set in float64.
    basis : ndarray of shape (n_dims, k)
        Orthonormal start near a local minimiser.
    merit : Merit or None
        What to minimise; None means the worst loss.
    max_iter : int
        Most quadratic programmes.
    settings : DescentSettings or None
        Tuning figures.

    Returns
    -------
    ndarray of shape (n_dims, k)
        Orthonormal basis, no worse than the start.
    """
    if basis.shape[0] <= basis.shape[1]:
        return basis
    settings = DescentSettings() if settings is None else settings
    merit = Worst() if merit is None else merit
    raw = losses(secants.images(basis))
    values = merit.values(raw)
    weights = soft_maximum(values, 0.05 * settings.band)[1]
    kept = float(np.mean(1.0 - raw[: len(secants)]))
    damping = 0.3 * max(kept, 1e-3) / basis.shape[1]
    for _ in range(max_iter):
        rows = np.flatnonzero(values >= values.max() - settings.band)
        if rows.size > settings.programme_rows:
            if not settings.is_partial:
                break
            rows = _worst(values, rows, settings.programme_rows)
        local = weights[rows] / max(float(weights[rows].sum()), 1e-300)
        model = _model(secants, merit, basis, rows, local, damping)
        try:
            local = simplex_minimiser(model.gram, values[rows])
        except np.linalg.LinAlgError:
            # Too degenerate for the programme: what we have is the answer.
            break
        weights = np.zeros(len(values))
        weights[rows] = local
        worst = float(values.max())
        predicted = worst - float(
            local @ values[rows] - 0.5 * local @ model.gram @ local
        )
        if predicted < settings.predicted:
            break
        moved, moved_values = _try_step(
            secants, merit, basis, model, local, rows, values
        )
        gained = worst - float(moved_values.max())
        if gained < 0.25 * predicted:
            damping *= 8.0
        elif gained > 0.75 * predicted:
            damping /= 2.0
        if gained > 0.0:
            basis, values = moved, moved_values
    return np.asarray(scipy.linalg.qr(basis, mode="economic")[0])


def _try_step(
    secants: Secants,
    merit: Merit,
    basis: Array,
    model: _Model,
    weights: Array,
    rows: Indices,
    values: Array,
) -> tuple[Array, Array]:
    """Step along the model's minimiser, corrected once for the losses' curvature."""
    images = secants.images(basis)
    step = model.step(weights)
    best = basis, values
    for correction in range(2):
        curve = Curve(images, secants.images(step), step)
        for time in (1.0, 0.5, 0.25):
            trial = merit.values(curve.losses(time)[0])
            if float(trial.max()) < float(best[1].max()):
                best = curve.arrive(basis, time)[0], trial
        if correction == 0:
            # The linearised losses, replaced by what the full step really gave.
            reached = merit.values(curve.losses(1.0)[0])
            shifted = reached[rows] + model.gram @ weights
            try:
                step = model.step(simplex_minimiser(model.gram, shifted))
            except np.linalg.LinAlgError:
                break
    return best
