"""Newton's method on the fantope ``0 <= P <= I, tr P = k`` with rank-one constraints.

The linearised optimality conditions of the relaxation, with Nesterov-Todd scaling of
the blocks ``P`` and ``I - P``. In a frame that diagonalises both scalings the system
decouples entry by entry, which leaves one Schur complement over the directions,
``H_ij = sum_ab K_ab y_ia y_ja y_ib y_jb``. The small kernel ``K`` is numerically of low
rank, hence ``H`` is a short sum of squared Gram matrices.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from isoproj.numerics.spectral import Array
from isoproj.numerics.threads import n_threads, threaded_map
from isoproj.solvers.descent.objectives import Real
from isoproj.solvers.relaxation.iterate import Iterate
from isoproj.solvers.relaxation.matrices import (
    congruence,
    moment_of,
    quadratic,
    symmetric,
    trace_product,
)

__all__ = ["Move", "NewtonSystem"]

_KERNEL_TOL = 1e-5  # truncation of the Newton kernel, affects the direction only
_KERNEL_RATIO = 0.1  # the same, per unit of the barrier
_SINGLE = 1e-7  # truncation above which single precision will do
_NOTHING = 1e-15  # size of a column, beside the largest, that is as good as zero
_TILE = 128  # rows of the Schur complement formed together


@dataclass(frozen=True)
class Move:
    """A Newton direction; scaled copies of the matrix blocks come along."""

    projector: Array
    weights: Array
    slacks: Array
    t: float
    spare: float
    level: float
    scaled: tuple[Array, Array]
    scaled_dual: tuple[Array, Array]


class _Scaling:
    """Nesterov-Todd scaling of one matrix block.

    ``inverse @ primal @ inverse.T`` and ``forward.T @ dual @ forward`` are the same
    diagonal matrix with entries ``spectrum``.
    """

    def __init__(self, primal: Array, dual: Array) -> None:
        root = np.linalg.cholesky(primal)
        # near the central path this product is a multiple of I: no precision is lost
        squares, vectors = np.linalg.eigh(root.T @ dual @ root)
        if squares[0] <= 0:
            msg = "dual block is not positive definite"
            raise np.linalg.LinAlgError(msg)
        self.spectrum = np.sqrt(squares)
        half = np.sqrt(self.spectrum)
        self.forward = (root @ vectors) / half
        self.inverse = np.linalg.solve(root.T, vectors * half).T
        self.square = self.forward @ self.forward.T

    def limit(self, scaled: Array) -> float:
        """Return the step at which ``diag(spectrum) + step * scaled`` is singular."""
        half = np.sqrt(self.spectrum)
        least = np.linalg.eigvalsh(scaled / np.outer(half, half))[0]
        return np.inf if least >= 0 else float(-1 / least)

    def corrector(
        self, primal: Array, dual: Array, target: float, trust: float
    ) -> Array:
        """Return the scaled second-order centring term."""
        product = -trust * symmetric(primal @ dual)
        product[np.diag_indices_from(product)] += target
        result: Array = 2 * product / np.add.outer(self.spectrum, self.spectrum)
        return result


class NewtonSystem:
    """Linearised optimality conditions at one iterate, factorised once."""

    def __init__(self, state: Iterate) -> None:
        self.weights, self.slacks = state.weights, state.slacks
        self.spare, self.room = state.spare, state.room
        self.is_plain = state.objective is None
        self.barrier = state.barrier
        width = len(state.projector)
        identity = np.eye(width)
        self.blocks = (
            _Scaling(state.projector, state.lower_dual),
            _Scaling(identity - state.projector, state.upper_dual),
        )
        self._diagonalise()
        self.images = state.images @ self.frame
        values = quadratic(state.images, state.projector)
        self.row_residual = values - state.t - state.slacks
        self.trace_residual = float(np.trace(state.projector)) - state.k
        self.mass_residual = float(state.weights.sum()) + state.spare - state.mass
        force = state.inner_moment() - state.level * identity
        self.force = self.frame.T @ force @ self.frame
        self._factorise()

    def _diagonalise(self) -> None:
        """Find the frame in which both scalings are diagonal.

        Their sum is close to a multiple of I, so reducing by it keeps occupations
        accurate at both ends of [0, 1].
        """
        first, second = self.blocks
        root = np.linalg.cholesky(first.square + second.square)
        half = np.linalg.solve(root, first.square)
        ratio, turn = np.linalg.eigh(symmetric(np.linalg.solve(root, half.T)))
        ratio = np.clip(ratio, 1e-14, 1 - 1e-14)
        self.frame = root @ turn
        self.metric = self.frame.T @ self.frame
        below, above = np.outer(ratio, ratio), np.outer(1 - ratio, 1 - ratio)
        self.kernel = below * above / (below + above)
        self.links = tuple(block.inverse @ self.frame for block in self.blocks)

    def _factorise(self) -> None:
        """Factorise the Schur complement and eliminate its two borders."""
        ratio = self.slacks / self.weights
        # slacks / weights shrinks with the barrier, so must the truncation error
        tol = max(min(_KERNEL_TOL, _KERNEL_RATIO * self.barrier), 1e-13)
        try:
            self.cholesky = self._cholesky(ratio, tol)
        except np.linalg.LinAlgError:  # truncation or rounding made it indefinite
            diagonal = quadratic(self.images**2, self.kernel)
            self.cholesky = self._cholesky(ratio + 1e-9 * diagonal.max(), 1e-3 * tol)
        damped = self.kernel * self.metric
        self.trace_row = quadratic(self.images, damped)
        borders = np.column_stack([np.ones(len(ratio)), self.trace_row])
        self.borders = cho_solve(self.cholesky, borders, check_finite=False)
        self.corner = borders.T @ self.borders
        self.corner[1, 1] -= trace_product(self.metric, damped)
        # A ceiling over t is one more complementary pair; without one, room is endless.
        self.corner[0, 0] += self.spare / self.room

    def _cholesky(self, ratio: Array, tol: float) -> tuple[Array, bool]:
        """Return the factor of the Schur complement plus its diagonal."""
        # Under an objective the bound needs the last digits.
        is_single = self.is_plain and tol > _SINGLE
        schur = _schur_complement(self.images, self.kernel, tol, is_single=is_single)
        schur[np.diag_indices_from(schur)] += ratio
        factor, lower = cho_factor(
            schur, lower=True, overwrite_a=True, check_finite=False
        )
        return factor, bool(lower)

    def direction(self, affine: Move | None, target: float, trust: float = 1.0) -> Move:
        """Return the Newton direction towards complementarity ``target``.

        Without ``affine`` this is the predictor; otherwise its second-order terms
        are corrected for, in part where ``trust`` is below 1.  Feasibility is exact
        whatever the accuracy of the Schur complement: its error only reaches the
        products ``weights * slacks``.
        """
        products = target - self.slacks * self.weights
        last = target - self.room * self.spare if self.spare else 0.0
        centring = [np.zeros_like(self.kernel)] * 2
        force = self.force
        if affine is not None:
            products = products - trust * affine.weights * affine.slacks
            last += trust * affine.spare * affine.t
            centring = [
                block.corrector(primal, dual, target, trust)
                for block, primal, dual in zip(
                    self.blocks, affine.scaled, affine.scaled_dual, strict=True
                )
            ]
            force = force + congruence(self.links[0], centring[0])
            force = force - congruence(self.links[1], centring[1])
        weights, t, level = self._eliminate(force, products, last / self.room)
        spare = (last + self.spare * t) / self.room
        force = force + moment_of(self.images, weights) - level * self.metric
        inner = self.kernel * force
        slacks = quadratic(self.images, inner) - t + self.row_residual
        projector = symmetric(self.frame @ inner @ self.frame.T)
        scaled = (
            congruence(self.blocks[0].inverse.T, projector),
            -congruence(self.blocks[1].inverse.T, projector),
        )
        dual = [
            term - primal - np.diag(block.spectrum)
            for term, primal, block in zip(centring, scaled, self.blocks, strict=True)
        ]
        return Move(
            projector, weights, slacks, t, spare, level, scaled, (dual[0], dual[1])
        )

    def _eliminate(
        self, force: Array, products: Array, freed: float
    ) -> tuple[Array, float, float]:
        """Solve the bordered Schur system for the weights, t and the level.

        ``freed`` is what the spare weight changes by while t stays.
        """
        damped = self.kernel * force
        right = products / self.weights - self.row_residual
        right -= quadratic(self.images, damped)
        inner = cho_solve(self.cholesky, right, check_finite=False)
        trace = trace_product(self.metric, damped)
        t, level = np.linalg.solve(
            self.corner,
            [
                -self.mass_residual - inner.sum() - freed,
                -self.trace_residual - trace - self.trace_row @ inner,
            ],
        )
        return inner + self.borders @ np.array([t, level]), float(t), float(level)

    def lengths(self, move: Move) -> tuple[float, float]:
        """Return the primal and dual steps to the boundary."""
        primal = [_ratio_limit(self.slacks, move.slacks)]
        dual = [_ratio_limit(self.weights, move.weights)]
        if self.spare:
            primal.append(self.room / move.t if move.t > 0 else np.inf)
            dual.append(-self.spare / move.spare if move.spare < 0 else np.inf)
        for block, first, second in zip(
            self.blocks, move.scaled, move.scaled_dual, strict=True
        ):
            primal.append(block.limit(first))
            dual.append(block.limit(second))
        return min(primal), min(dual)

    def complementarity(self, move: Move, primal: float, dual: float) -> float:
        """Return the mean complementarity product after a step."""
        slacks = self.slacks + primal * move.slacks
        total = float(slacks @ (self.weights + dual * move.weights))
        count = len(slacks)
        if self.spare:
            room = self.room - primal * move.t
            total += room * (self.spare + dual * move.spare)
            count += 1
        for block, first, second in zip(
            self.blocks, move.scaled, move.scaled_dual, strict=True
        ):
            spectrum = block.spectrum
            total += float(spectrum @ (spectrum + primal * np.diag(first)))
            total += float(dual * spectrum @ np.diag(second))
            total += primal * dual * trace_product(first, second)
            count += len(spectrum)
        return total / count

    def dual_moves(self, move: Move) -> tuple[Array, Array]:
        """Return the moves of both dual matrices in the working basis."""
        first, second = (
            congruence(block.inverse, scaled)
            for block, scaled in zip(self.blocks, move.scaled_dual, strict=True)
        )
        return first, second


def _ratio_limit(values: Array, moves: Array) -> float:
    """Return the step at which some value reaches zero."""
    falling = moves < 0
    if not falling.any():
        return np.inf
    return float(np.min(-values[falling] / moves[falling]))


def _schur_complement(
    images: Real, kernel: Array, tol: float, *, is_single: bool = False
) -> Array:
    """Return ``H_ij = sum_ab kernel_ab y_ia y_ja y_ib y_jb``.

    The eigenvectors g_r of the kernel, taken in coordinates in which the columns of
    the images have unit mean square, give ``H = sum_r c_r (Y diag(g_r) Y')**2``.
    Only the lower triangle is filled. Single precision does for some steps.
    """
    size = np.sqrt(np.mean(images**2, axis=0)) + 1e-300
    values, vectors = np.linalg.eigh(kernel * np.outer(size, size))
    keep = np.abs(values) > tol * np.abs(values).max()
    values = values[keep]
    scales = (vectors[:, keep] * np.sqrt(np.abs(values))).T / size
    schur = np.zeros((len(images), len(images)))
    if is_single:
        # A column next to nothing adds nothing, and its scale may be no float32.
        scales[:, size < _NOTHING * size.max()] = 0.0
        images, scales = images.astype(np.float32), scales.astype(np.float32)

    def fill(start: int) -> None:
        stop = min(start + _TILE, len(images))
        tile = np.zeros((stop - start, stop), images.dtype)
        others = images[:stop].T
        for value, scale in zip(values, scales, strict=True):
            gram = (images[start:stop] * scale) @ others
            gram *= gram
            if value > 0:
                tile += gram
            else:
                tile -= gram
        schur[start:stop, :stop] = tile

    # Tiles of the lower triangle stay in cache while the terms are summed; small
    # systems are not worth a thread.
    threads = n_threads() if len(images) > 4 * _TILE else 1
    for _ in threaded_map(fill, range(0, len(images), _TILE), threads):
        pass
    return schur
