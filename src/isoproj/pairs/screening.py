"""Rule out, from a few coordinates, the pairs that a map keeps more of than a level.

Take a map with squared singular values ``g`` and right singular vectors ``W``, and
further orthonormal directions ``U``. A gap has the coordinates ``z`` along ``[W, U]``;
what is left of it is no longer than what is left of its two points, ``t_i + t_j``. So
its image has the squared length ``sum g z^2``, the gap itself at most
``sum z^2 + (t_i + t_j)^2``, and the pair keeps more than ``level`` unless ::

    sum (g - level) z^2  -  level sum_U z^2  -  level (t_i + t_j)^2  <=  0.

One product of narrow matrices gives the left side for a block of pairs. Its worst-case
rounding error is added on the side of keeping a pair. Few pairs survive if ``U`` holds
the directions in which the rest of the data spreads most. Survivors are bounded again,
in float64, from differences and with more directions.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import EPS, Array, Indices, orthonormal
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import for_each_chunk, n_threads, threaded_map
from isoproj.pairs.blocks import Real, Workspace, product_error
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths, times
from isoproj.pairs.settings import USUAL, PairSettings

_CHUNK = 2048
# Points that show in which directions the data spread.
_POINTS = 1024
# Pairs that show how many of these directions pay.
_PAIRS = 16_384
# Singular values below this share of the largest are rounding.
_RANK = 1e-13
# Cosines of directions that count as orthogonal.
_LEAN = 1e-13
# Points have size about 1. Squares next to the smallest number of a precision lose
# digits, so float32 sums below the first bound and float64 lengths below the second
# rule out nothing.
_FAINT = 1e-30
_FAINT_LENGTH = 1e-150


@dataclass(frozen=True, slots=True, eq=False)
class Sieve:
    """Points in a few coordinates, with bounds on what a linear map keeps of pairs.

    ``directions``, of shape (n_dims, s + w), are orthonormal: those of the map, then
    others in which the points spread most. ``images`` are the points along them.
    ``gains``, of shape (s,), are the squared singular values of the map. ``squares``
    are the squared lengths of the points, and ``rests`` the lengths of their parts
    outside ``directions``, rounded up. ``haze`` bounds the error of an image, relative
    to the length of its point. ``sample`` holds random pairs that show how many
    coordinates pay.
    """

    coordinates: Array
    directions: Array
    images: Array
    gains: Array
    squares: Array
    rests: Array
    haze: float
    sample: _Sample
    storage: Storage
    settings: PairSettings

    @staticmethod
    def of(
        coordinates: Array,
        linear: Array,
        storage: Storage | None = None,
        settings: PairSettings = USUAL,
    ) -> Sieve:
        """Return a sieve for the map that keeps ``|linear.T x|^2`` of ``x``."""
        vectors, sizes, _ = np.linalg.svd(linear, full_matrices=False)
        own = sizes > _RANK * max(float(sizes.max(initial=0.0)), 1e-300)
        vectors, gains = vectors[:, own], np.square(sizes[own])
        further = spread_directions(coordinates, vectors, max(settings.widths))
        directions = np.hstack([vectors, further])
        storage = storage or Storage()
        images = times(coordinates, directions, storage)
        squares = _by_rows(lambda rows: squared_lengths(coordinates[rows]), coordinates)
        haze = 16.0 * coordinates.shape[1] * EPS
        rests = squares - squared_lengths(images)
        return Sieve(
            coordinates=coordinates,
            directions=directions,
            images=images,
            gains=gains,
            squares=squares,
            rests=_rounded_up_roots(rests, squares, haze),
            haze=haze,
            sample=_Sample.of(images, gains, squares, settings.widths),
            storage=storage,
            settings=settings,
        )

    def screen(self, level: float) -> Screen:
        """Return the cheapest screen that rules out pairs that keep above ``level``."""
        images = self.images
        width = self._best_width(level)
        if width > images.shape[1]:
            known, width = images.shape[1], self.coordinates.shape[1]
            images = self.storage.empty((images.shape[0], width))
            images[:, :known] = self.images
            rest = _completion(self.directions)
            times(self.coordinates, rest, out=images[:, known:])
        right = self.storage.empty((images.shape[0], width + 4), np.float32)
        _fill_right(right, images[:, :width], self.gains, self.squares, self.haze)
        return Screen(self, level, right)

    def least(self, pairs: Indices) -> Array:
        """Return a lower bound on the share that each pair keeps.

        The bound uses all directions and allows for rounding.
        """
        bounds = np.empty(pairs.shape[0])
        for start in range(0, pairs.shape[0], _CHUNK):
            chunk = pairs[start : start + _CHUNK]
            gaps = self.images[chunk[:, 0]]
            gaps -= self.images[chunk[:, 1]]
            np.square(gaps, out=gaps)
            rest = self.rests[chunk].sum(axis=1)
            kept = np.sqrt(gaps[:, : self.gains.size] @ self.gains)
            whole = np.sqrt(gaps.sum(axis=1) + rest**2)
            error = self.haze * np.sqrt(self.squares[chunk]).sum(axis=1)
            error += _FAINT_LENGTH
            kept = np.maximum(kept - self.top * error, 0.0)
            whole += error
            share = kept / np.where(whole > 0.0, whole, 1.0)
            bounds[start : start + _CHUNK] = share**2 * (1.0 - 1e-13)
        return bounds

    @property
    def top(self) -> float:
        """Largest singular value of the map, at least 1."""
        return max(1.0, math.sqrt(float(self.gains.max(initial=0.0))))

    def _best_width(self, level: float) -> int:
        """Return how many columns make the product and its survivors cost least.

        One more column than ``images`` has stands for all dimensions.
        """
        n_columns, n_dims = self.images.shape[1], self.coordinates.shape[1]
        best, cost = n_dims if n_columns == n_dims else n_columns + 1, float(n_dims)
        for width, whole in self.sample.wholes.items():
            share = float(np.mean(self.sample.kept <= level * whole))
            if width + self.settings.survivor_cost * share < cost:
                best, cost = width, width + self.settings.survivor_cost * share
        return int(best)


@dataclass(frozen=True, slots=True, eq=False)
class _Sample:
    """Random pairs that show how many survive a product of each width.

    ``kept`` holds the squared length of each pair under the map, ``wholes`` for each
    width an upper bound on its squared length.
    """

    kept: Array
    wholes: dict[int, Array]

    @staticmethod
    def of(
        images: Array, gains: Array, squares: Array, widths: tuple[int, ...]
    ) -> _Sample:
        pairs = np.random.default_rng(1).integers(images.shape[0], size=(_PAIRS, 2))
        gaps = np.empty((_PAIRS, images.shape[1]))
        for start in range(0, _PAIRS, _CHUNK):
            left, right = pairs[start : start + _CHUNK].T
            gap = np.subtract(images[left], images[right])
            np.square(gap, out=gaps[start : start + _CHUNK])
        wholes: dict[int, Array] = {}
        before, length, rests = 0, np.zeros(_PAIRS), squares.copy()
        for width in (gains.size + count for count in widths):
            if width > images.shape[1]:
                break
            length += gaps[:, before:width].sum(axis=1)
            rests -= squared_lengths(images[:, before:width])
            roots = np.sqrt(np.maximum(rests, 0.0))
            wholes[width] = length + roots[pairs].sum(axis=1) ** 2
            before = width
        return _Sample(gaps[:, : gains.size] @ gains, wholes)


@dataclass(frozen=True, slots=True, eq=False)
class Screen:
    """A sieve at one level: pairs that keep a larger share than it are ruled out.

    ``right``, of shape (n_points, width + 4), is the float32 factor of the product.
    """

    sieve: Sieve
    level: float
    right: Real

    def left(self, rows: slice) -> Real:
        """Return the other factor of the product for some points."""
        level, error, gains = self.level, self._error, self.sieve.gains
        right = self.right[rows].astype(np.float64)
        width = right.shape[1] - 4
        weights = np.full(width, -level)
        weights[: gains.size] += gains
        left = np.empty(right.shape, dtype=np.float32)
        left[:, :width] = -2.0 * weights * right[:, :width]
        left[:, width] = -2.0 * level * right[:, width]
        # Squares of the images add, those of the points subtract; each carries the
        # error of the product, so that what is above 0 is so whatever the rounding.
        above, below = 1.0 - error, level * (1.0 + error) + self._drift
        left[:, -3] = above * right[:, -2] - below * right[:, -1]
        left[:, -2] = above
        left[:, -1] = -below
        return left

    def survivors(
        self, points: Points, start: int, workspace: Workspace
    ) -> Iterator[tuple[Indices, int]]:
        """Yield, for each block of a stripe, the pairs that are not ruled out.

        The stripe begins at row ``start``; columns are the points after that. Each
        block gives pairs of shape (m, 2), smaller number first, and the number of all
        pairs of distinct points in it.
        """
        settings = self.sieve.settings
        left = self.left(slice(start, start + settings.block_rows))
        faint = _FAINT * self.sieve.top**2
        for first in range(start, points.n_points, settings.block_columns):
            right = self.right[first : first + settings.block_columns]
            shape = (left.shape[0], right.shape[0])
            block = workspace.arrays(1, shape, right.dtype)[0]
            np.matmul(left, right.T, out=block)
            n_pairs = block.size
            if first < start + shape[0]:
                mirrored = np.tri(shape[0], shape[1], start - first, dtype=bool)
                block[mirrored] = np.inf
                n_pairs -= int(mirrored.sum())
            i, j = np.divmod(np.flatnonzero(block <= faint), shape[1])
            pairs = np.column_stack([i + start, j + first])
            # Identical points have no direction; they always survive the product.
            distinct = points.are_distinct(pairs)
            yield pairs[distinct], n_pairs - int((~distinct).sum())

    @property
    def _error(self) -> float:
        # Terms add up to at most twice the squares that carry the error below, as in
        # a block of squared distances.
        return product_error(self.right.shape[1], np.float32)

    @property
    def _drift(self) -> float:
        """Error of the form, relative to squared lengths, before any float32."""
        return 4.0 * (1.0 + self.sieve.top**2) * self.sieve.haze


class Screens:
    """Screens of one sieve; threads share the screen of the latest level."""

    def __init__(self, sieve: Sieve) -> None:
        self.sieve = sieve
        self._last: Screen | None = None
        self._lock = threading.Lock()

    def at(self, level: float) -> Screen:
        """Return the screen of a level."""
        with self._lock:
            if self._last is None or self._last.level != level:
                self._last = self.sieve.screen(level)
            return self._last


def _by_rows(function: Callable[[slice], Array], coordinates: Array) -> Array:
    """Return a function of slices of rows for all rows, computed by threads."""
    starts = range(0, coordinates.shape[0], _CHUNK)
    chunks = (slice(start, start + _CHUNK) for start in starts)
    return np.concatenate(list(threaded_map(function, chunks, n_threads())))


def spread_directions(coordinates: Array, vectors: Array, count: int) -> Array:
    """Return orthonormal directions, orthogonal to ``vectors``, of largest spread.

    A sample of the points and two steps of subspace iteration are enough, because the
    bounds hold for any directions.
    """
    n_dims = coordinates.shape[1]
    count = min(count, n_dims - vectors.shape[1])
    if count <= 0:
        return np.empty((n_dims, 0))
    step = max(1, coordinates.shape[0] // _POINTS)
    sample = coordinates[::step][:_POINTS]
    sample = sample - sample.mean(axis=0)
    sample -= (sample @ vectors) @ vectors.T
    start = np.random.default_rng(0).standard_normal((sample.shape[0], count))
    probe = sample.T @ start
    for _ in range(2):
        probe = orthonormal(_off(probe, vectors))
        probe = sample.T @ (sample @ probe)
    probe = orthonormal(_off(orthonormal(_off(probe, vectors)), vectors))
    # If the points span fewer dimensions, some columns are arbitrary and may not be
    # orthogonal to ``vectors``.
    lean = max(
        float(np.abs(vectors.T @ probe).max(initial=0.0)),
        float(np.abs(probe.T @ probe - np.eye(count)).max()),
    )
    if lean > _LEAN:
        probe = _completion(vectors)[:, :count]
    spread = sample @ probe
    _, turn = np.linalg.eigh(spread.T @ spread)
    return np.asarray(probe @ turn[:, ::-1])


def _off(columns: Array, vectors: Array) -> Array:
    """Return the part of the columns that is orthogonal to ``vectors``."""
    return columns - vectors @ (vectors.T @ columns)


def _completion(directions: Array) -> Array:
    """Return orthonormal columns that complete ``directions`` to a basis."""
    full = np.linalg.qr(directions, mode="complete")[0]
    return np.asarray(full[:, directions.shape[1] :])


def _rounded_up_roots(rests: Array, squares: Array, error: float) -> Array:
    """Return upper bounds on lengths whose squares are off by ``error * squares``."""
    return np.sqrt(np.maximum(rests, 0.0) + error * squares)


def _fill_right(
    right: Real, images: Array, gains: Array, squares: Array, error: float
) -> None:
    """Fill the right factor: coordinates, rest, 1, squares of image and point."""
    n_points, width = images.shape

    def fill(rows: slice) -> None:
        z = images[rows]
        rests = squares[rows] - squared_lengths(z)
        rest = _rounded_up_roots(rests, squares[rows], error)
        right[rows, :width] = z
        right[rows, width] = rest
        right[rows, width + 1] = 1.0
        right[rows, width + 2] = np.square(z[:, : gains.size]) @ gains
        right[rows, width + 3] = squared_lengths(z) + rest**2

    for_each_chunk(fill, n_points, _CHUNK)
