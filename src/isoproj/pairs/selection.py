"""Lists of pairs: drawn at random, by class labels, and by distance."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.blocks import SquaredDistances
from isoproj.pairs.points import Points

__all__ = [
    "LARGEST_LIST",
    "all_pairs",
    "are_closer_than",
    "labelled_pairs",
    "sample_pairs",
]

# Pairs that may be listed one by one: a third of a gigabyte of row numbers.
LARGEST_LIST = 20_000_000
# Rotation and centring change squared distances by less than this share of the norms.
_ROTATION_ERROR = 1e-9
_BLOCK_ROWS = 512


def sample_pairs(points: Points, count: int, seed: int) -> Indices:
    """Return random pairs of distinct points, drawn independently with replacement.

    The result has shape (count, 2), smaller number first, or (0, 2) if all points are
    identical. All pairs of distinct points are equally likely.
    """
    rng, first = np.random.default_rng(seed), points.first_copy
    drawn = np.empty((0, 2), dtype=np.intp)
    if not (first != first[0]).any():
        return drawn
    while drawn.shape[0] < count:
        more = rng.integers(points.n_points, size=(count, 2))
        more = more[points.are_distinct(more)]
        drawn = np.concatenate([drawn, np.sort(more, axis=1)])
    return drawn[:count]


def all_pairs(n_points: int) -> Indices:
    """Return all pairs of points, smaller number first, in order."""
    _check_affordable(n_points * (n_points - 1) // 2)
    return np.column_stack(np.triu_indices(n_points, 1))


def labelled_pairs(codes: Indices, *, within: bool) -> Indices:
    """Return the pairs of rows with one label (``within``) or with two, in order."""
    n = codes.size
    sizes = np.bincount(codes)
    n_within = int((sizes * (sizes - 1) // 2).sum())
    _check_affordable(n_within if within else n * (n - 1) // 2 - n_within)
    parts = []
    for start in range(0, n, _BLOCK_ROWS):
        rows = np.arange(start, min(start + _BLOCK_ROWS, n))
        is_wanted = (codes[rows, None] == codes) == within
        is_wanted &= rows[:, None] < np.arange(n)
        parts.append(np.argwhere(is_wanted) + np.array([start, 0]))
    return np.concatenate(parts)


def _check_affordable(n_pairs: int) -> None:
    if n_pairs > LARGEST_LIST:
        msg = (
            f"min_distance and labels list their pairs, at most {LARGEST_LIST:,}; got "
            f"{n_pairs:,}. Fit a sample of the rows, or use pairs='neighbors'."
        )
        raise ValueError(msg)


def are_closer_than(
    points: Points, listed: Indices, min_distance: float
) -> NDArray[np.bool_]:
    """Return which pairs, ordered by their first point, are closer than a distance.

    The difference of the two rows decides, in float64.
    """
    r = points.n_points
    if 16 * listed.shape[0] < r * r:
        return points.distances(listed) < min_distance
    # A product of coordinates decides most pairs; differences decide the others.
    is_close, is_open = _judged_by_product(points, listed, min_distance)
    at = np.flatnonzero(is_open)
    is_close[at] = points.distances(listed[at]) < min_distance
    return is_close


@single_blas_thread
def _judged_by_product(
    points: Points, listed: Indices, min_distance: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which pairs are closer by the product, and for which it cannot tell."""
    distances = SquaredDistances.of(
        points.coordinates, blur=2.0 * points.blur, storage=points.storage
    )
    scaled = points.to_coordinate_scale(min_distance)
    # A product may become infinite, where a power raises an error.
    square = scaled * scaled
    is_close = np.empty(listed.shape[0], dtype=bool)
    is_open = np.empty(listed.shape[0], dtype=bool)
    every = slice(0, points.n_points)
    for start in range(0, points.n_points, _BLOCK_ROWS):
        low, high = np.searchsorted(listed[:, 0], [start, start + _BLOCK_ROWS])
        some = listed[low:high]
        table = distances.block(
            distances.left(slice(start, start + _BLOCK_ROWS)), every
        )
        squares = table[some[:, 0] - start, some[:, 1]]
        norms = distances.norms[some].sum(axis=1)
        margin = _ROTATION_ERROR * (norms + square + 2.0 * points.raw_square)
        margin += distances.errors(some)
        is_close[low:high] = squares < square
        is_open[low:high] = np.abs(squares - square) <= margin
    return is_close, is_open
