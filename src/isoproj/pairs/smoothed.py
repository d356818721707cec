"""The smoothed largest loss over all pairs of points, and its gradient.

A working set shows a descent only the pairs that were weak before, and a long step then
meets others. Here every pair counts at every step. With ``W`` the matrix of weights
over squared distances, the sum of ``w_l x_l x_l' F`` over all pairs is ``U' L(W) U F``
with the Laplacian ``L(W)``. So value and gradient cost three products of the width of
the map, and no direction is ever formed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import n_threads, threaded_map
from isoproj.pairs.blocks import PairBlocks, Real, SquaredDistances, Workspace
from isoproj.pairs.directions import Secants
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairSet

__all__ = ["SmoothedWorst", "Softened"]

# Points in the rows of a stripe: a stripe of some thousand columns fits the cache.
_STRIPE_ROWS = 128
# Points below which one thread is faster than several.
_FEW_POINTS = 1000
# Relative error of a squared distance from which on a pair is measured by difference.
_ACCURACY = {np.dtype(np.float32): 3e-3, np.dtype(np.float64): 1e-6}
# Close pairs for every point beyond which single precision will not do.
_MANY_CLOSE = 4
# Share that stands for an entry that is no pair: no projection keeps more than 1.
_FAR = 4.0
# Weights below exp(-30) of the largest are rounded up: smaller numbers are slow.
_SMALLEST = -30.0


@dataclass(frozen=True, slots=True, eq=False)
class Softened:
    """The smoothed maximum at one map.

    Parameters
    ----------
    worst : float
        The largest loss itself, to the rounding of the product.
    total : float
        Sum of ``exp((loss - worst) / temperature)`` over all pairs.
    pulled : ndarray of shape (n_dims, k)
        Sum of ``exp((loss - worst) / temperature) x x' F``.
    """

    worst: float
    total: float
    pulled: Array


@dataclass(slots=True, eq=False)
class _Stripe:
    """Inverse squared distances of some rows, zero where there is no pair."""

    rows: slice
    inverse: Real
    absent: Indices


class SmoothedWorst:
    """All pairs of some points, ready for one map after another.

    Parameters
    ----------
    points : Points
        Points in span coordinates.
    pairs : PairSet
        The pairs that count.
    chosen : ndarray of shape (m,) or None
        Numbers of the points to look at, in order; None means all.
    """

    def __init__(
        self, points: Points, pairs: PairSet, chosen: Indices | None = None
    ) -> None:
        rows, copies = points.coordinates, points.first_copy
        if chosen is not None:
            rows = rows[chosen]
            _, first, label = np.unique(
                copies[chosen], return_index=True, return_inverse=True
            )
            copies = first[label]
        # Lengths near 1 keep weights over squared distances away from underflow.
        size = math.sqrt(max(float(np.mean(np.square(rows).sum(axis=1))), 1e-300))
        self._rows = rows / size
        self._copies = copies
        self._allowed = _allowed(pairs, points.n_points, chosen)
        self._workspace = Workspace()
        self._stripes, close = self._prepared(np.dtype(np.float32))
        if close.shape[0] > _MANY_CLOSE * len(rows):
            self._stripes, close = self._prepared(np.dtype(np.float64))
        self.dtype: np.dtype[Any] = self._stripes[0].inverse.dtype
        self._points = self._rows.astype(self.dtype)
        self._close = Secants(self._rows, close) if close.size else None

    def __call__(self, factor: Array, temperature: float) -> Softened:
        """Return the smoothed maximum of ``1 - |F' x|^2`` over all pairs."""
        images = self._points @ factor.astype(self.dtype)
        distances = SquaredDistances.of(images, self.dtype)
        # The last column sums weights.
        ones = np.ones((len(images), 1), self.dtype)
        extended = np.hstack([images, ones])

        def visit(stripe: _Stripe) -> tuple[float, float, Real, Real]:
            return self._visited(stripe, distances, extended, temperature)

        threads = 1 if len(images) <= _FEW_POINTS else n_threads()
        parts = list(threaded_map(visit, self._stripes, threads))
        worst = 1.0 - min(part[0] for part in parts)
        if self._close is not None:
            kept = self._close.images(factor)
            shares = np.einsum("ij,ij->i", kept, kept)
            worst = max(worst, 1.0 - float(shares.min()))
        total, laplacian = 0.0, np.zeros(images.shape)
        for stripe, (low, mass, left, right) in zip(self._stripes, parts, strict=True):
            scale = math.exp((1.0 - worst - low) / temperature)
            total += scale * mass
            start, stop = stripe.rows.start, stripe.rows.stop
            laplacian[start:stop] += scale * (
                left[:, -1:] * images[start:stop] - left[:, :-1]
            )
            ahead = right[:, -1:] * images[start:] - right[:, :-1]
            laplacian[start:] += scale * ahead
        pulled = np.asarray(self._points.T @ laplacian.astype(self.dtype), np.float64)
        if self._close is not None:
            weights = np.exp((1.0 - worst - shares) / temperature)
            total += float(weights.sum())
            pulled += self._close.pull(kept * weights[:, None])
        return Softened(worst, total, pulled)

    def _visited(
        self,
        stripe: _Stripe,
        distances: SquaredDistances,
        extended: Real,
        temperature: float,
    ) -> tuple[float, float, Real, Real]:
        """Return a stripe's least share, its weight, and both products with it."""
        shares = self._workspace.arrays(1, stripe.inverse.shape, self.dtype)[0]
        columns = slice(stripe.rows.start, len(extended))
        distances.block(distances.left(stripe.rows), columns, shares)
        shares *= stripe.inverse
        shares.ravel()[stripe.absent] = _FAR
        low = float(shares.min())
        shares -= self.dtype.type(low)
        shares *= self.dtype.type(-1.0 / temperature)
        np.maximum(shares, self.dtype.type(_SMALLEST), out=shares)
        weights = np.exp(shares, out=shares)
        mass = float(weights.sum(dtype=np.float64))
        weights *= stripe.inverse
        return (
            low,
            mass,
            weights @ extended[columns],
            weights.T @ extended[stripe.rows],
        )

    def _prepared(self, dtype: np.dtype[Any]) -> tuple[list[_Stripe], Indices]:
        """Return all stripes in one precision, and the close pairs."""
        n_points = len(self._rows)
        distances = SquaredDistances.of(self._rows, dtype)
        blocks = PairBlocks(self._copies, _ACCURACY[dtype])
        stripes, close = [], [np.empty((0, 2), dtype=np.intp)]
        for start in range(0, n_points, _STRIPE_ROWS):
            rows = slice(start, min(start + _STRIPE_ROWS, n_points))
            columns = slice(start, n_points)
            block = blocks.measure(distances, distances.left(rows), rows, columns)
            inverse = block.inverted()
            near = block.close
            absent = np.isnan(inverse)
            if self._allowed is not None:
                absent |= ~self._allowed[rows, columns]
                near = near[self._allowed[near[:, 0], near[:, 1]]]
            inverse[absent] = 0.0
            stripes.append(_Stripe(rows, inverse, np.flatnonzero(absent)))
            close.append(near)
        return stripes, np.concatenate(close)


def _allowed(pairs: PairSet, n_points: int, chosen: Indices | None) -> Any:  # noqa: ANN401
    """Return the table of pairs that count; None if all do."""
    if pairs.listed is None:
        return None
    numbers = np.arange(n_points) if chosen is None else chosen
    position = np.full(n_points, -1)
    position[numbers] = np.arange(numbers.size)
    listed = position[pairs.listed]
    listed = listed[(listed >= 0).all(axis=1)]
    allowed = np.zeros((numbers.size, numbers.size), dtype=bool)
    allowed[listed[:, 0], listed[:, 1]] = True
    return allowed
