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
import scipy.sparse

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import n_threads, threaded_list
from isoproj.pairs.blocks import PairBlocks, Real, SquaredDistances, Workspace
from isoproj.pairs.directions import Secants
from isoproj.pairs.points import Points
from isoproj.pairs.rows import shared_images, shared_pull
from isoproj.pairs.rule import PairSet

# Points in the rows of a stripe: a stripe of some thousand columns fits the cache.
_STRIPE_ROWS = 128
# Points below which one thread is faster than several.
_FEW_POINTS = 1000
# Relative error of a squared distance from which on a pair is measured by difference.
_ACCURACY = {np.dtype(np.float32): 3e-3, np.dtype(np.float64): 1e-6}
# Close pairs for every point beyond which single precision will not do.
_MANY_CLOSE = 4
# Share that stands for an entry that is no pair, and what its exponent is lowered by:
# no projection keeps more than 1, and the weight is zero at any temperature.
_FAR = 4.0
_NONE = 200.0
# Weights below exp(-30) of the largest do not matter. They are rounded up where some
# may be below exp(-80): numbers next to the smallest are slow.
_SMALLEST = -30.0
_SLOW = -80.0
# A stripe lists its pairs where fewer than one in so many carry weight, and entries
# up to which it does not.
_SPARSE = 32
_FEW_ENTRIES = 2**15


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


@dataclass(frozen=True, slots=True, eq=False)
class _Entries:
    """Pairs that carry weight: their points, exponents, and inverse distances."""

    rows: Indices
    columns: Indices
    exponents: Real
    inverse: Real


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What the pairs of a stripe add to the sums.

    Exponents are minus the share that a pair keeps, over the temperature; ``top`` is
    the largest. ``products`` are those of the weights, relative to ``top``, with the
    points on either side, the second one transposed; where few pairs matter, these are
    listed instead.
    """

    stripe: slice
    top: float
    mass: float = 0.0
    products: tuple[Real, Real] | None = None
    entries: _Entries | None = None


class SmoothedWorst:
    """All pairs of some points, ready for one map after another.

    Parameters
    ----------
    points : Points
        Points in span coordinates.
    pairs : PairSet
        The pairs that count.
    """

    def __init__(self, points: Points, pairs: PairSet) -> None:
        rows = points.coordinates
        # Lengths near 1 keep weights over squared distances away from underflow.
        size = math.sqrt(max(float(np.mean(np.square(rows).sum(axis=1))), 1e-300))
        self._rows = rows / size
        self._copies = points.first_copy
        self._listed = pairs.listed
        self._workspace = Workspace()
        self._stripes, close = self._prepared(np.dtype(np.float32))
        if close.shape[0] > _MANY_CLOSE * len(rows):
            self._stripes, close = self._prepared(np.dtype(np.float64))
        self.dtype: np.dtype[Any] = self._stripes[0].inverse.dtype
        self._points = self._rows.astype(self.dtype)
        self._close = Secants(self._rows, close) if close.size else None

    def __call__(self, factor: Array, temperature: float) -> Softened:
        """Return the smoothed maximum of ``1 - |F' x|^2`` over all pairs."""
        images = shared_images(self._points, factor.astype(self.dtype))
        distances = SquaredDistances.of(images, self.dtype)
        left = distances.left(slice(None)) * self.dtype.type(-1.0 / temperature)
        # A product with a matrix that lies along its rows is a quarter faster.
        right = np.ascontiguousarray(distances.right.T)
        # The last column sums weights.
        extended = np.empty((len(images), images.shape[1] + 1), self.dtype)
        extended[:, :-1], extended[:, -1] = images, 1.0

        def visit(stripe: _Stripe) -> _Part:
            return self._visited(stripe, left, right, extended, temperature)

        threads = 1 if len(images) <= _FEW_POINTS else n_threads()
        parts = threaded_list(visit, self._stripes, threads)
        top = max(part.top for part in parts)
        if self._close is not None:
            kept = self._close.images(factor)
            exponents = np.einsum("ij,ij->i", kept, kept) * (-1.0 / temperature)
            top = max(top, float(exponents.max()))
        total, sums = _summed(parts, extended, top)
        laplacian = sums[:, -1:] * images - sums[:, :-1]
        pulled = shared_pull(self._points, laplacian).astype(np.float64)
        if self._close is not None:
            weights = np.exp(exponents - top)
            total += float(weights.sum())
            pulled += self._close.pull(kept * weights[:, None])
        return Softened(1.0 + temperature * top, total, pulled)

    def _visited(
        self,
        stripe: _Stripe,
        left: Real,
        right: Real,
        extended: Real,
        temperature: float,
    ) -> _Part:
        """Return what the pairs of a stripe add."""
        weights = self._workspace.arrays(1, stripe.inverse.shape, self.dtype)[0]
        columns = slice(stripe.rows.start, len(extended))
        np.matmul(left[stripe.rows], right[:, columns], out=weights)
        weights *= stripe.inverse
        flat = weights.ravel()
        flat[stripe.absent] = -_FAR / temperature - _NONE
        top = weights.max()
        # No pair loses less than nothing, so this is the least exponent.
        least = -1.0 / temperature - float(top)
        at = _sparse(flat, top) if least < _SMALLEST else None
        if at is not None:
            row, column = np.divmod(at, weights.shape[1])
            return _Part(
                stripe.rows,
                float(top),
                entries=_Entries(
                    row + columns.start,
                    column + columns.start,
                    flat[at],
                    stripe.inverse.ravel()[at],
                ),
            )
        weights -= top
        if least < _SLOW:
            np.maximum(weights, self.dtype.type(_SMALLEST), out=weights)
        np.exp(weights, out=weights)
        # The last row but one is all ones.
        mass = float((weights @ right[-2, columns]).sum(dtype=np.float64))
        weights *= stripe.inverse
        products = weights @ extended[columns], extended[stripe.rows].T @ weights
        return _Part(stripe.rows, float(top), mass, products)

    def _prepared(self, dtype: np.dtype[Any]) -> tuple[list[_Stripe], Indices]:
        """Return all stripes in one precision, and the close pairs."""
        n_points = len(self._rows)
        distances = SquaredDistances.of(self._rows, dtype)
        blocks = PairBlocks(self._copies, _ACCURACY[dtype], self._listed)
        stripes, close = [], [np.empty((0, 2), dtype=np.intp)]
        for start in range(0, n_points, _STRIPE_ROWS):
            rows = slice(start, min(start + _STRIPE_ROWS, n_points))
            columns = slice(start, n_points)
            block = blocks.measure(distances, distances.left(rows), rows, columns)
            inverse = block.inverted()
            absent = np.isnan(inverse)
            inverse[absent] = 0.0
            stripes.append(_Stripe(rows, inverse, np.flatnonzero(absent)))
            close.append(block.close)
        return stripes, np.concatenate(close)


def _sparse(exponents: Real, top: Real) -> Indices | None:
    """Return which entries matter if these are few, else None."""
    if exponents.size <= _FEW_ENTRIES:
        return None
    matters = exponents > top + exponents.dtype.type(_SMALLEST)
    few = np.count_nonzero(matters) * _SPARSE < exponents.size
    return np.flatnonzero(matters) if few else None


def _summed(parts: list[_Part], extended: Real, top: float) -> tuple[float, Real]:
    """Return the sum of all weights, and of weighted other ends for every point."""
    total, sums = 0.0, np.zeros_like(extended)
    dense = [part for part in parts if part.products is not None]
    across = np.zeros(extended.T.shape, extended.dtype)
    for part in dense:
        assert part.products is not None
        scale = math.exp(part.top - top)
        total += scale * part.mass
        for product in part.products:
            product *= product.dtype.type(scale)
        sums[part.stripe] += part.products[0]
        across[:, part.stripe.start :] += part.products[1]
    if dense:
        sums += across.T
    listed = [part.entries for part in parts if part.entries is not None]
    if listed:
        exponents = np.concatenate([each.exponents for each in listed]) - top
        weights = np.exp(np.maximum(exponents, _SMALLEST)).astype(extended.dtype)
        total += float(weights.sum(dtype=np.float64))
        weights *= np.concatenate([each.inverse for each in listed])
        rows = np.concatenate([each.rows for each in listed])
        columns = np.concatenate([each.columns for each in listed])
        count = len(extended)
        # Stripes list their pairs row by row.
        starts = np.searchsorted(rows, np.arange(count + 1))
        table = scipy.sparse.csr_array((weights, columns, starts), (count, count))
        sums += table @ extended
        sums += table.T @ extended
    return total, sums
