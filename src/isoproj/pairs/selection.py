"""Lists of pairs: all, by labels, a sample, nearest neighbours, and pairs far apart."""

from __future__ import annotations

import importlib

import numpy as np
from numpy.typing import NDArray

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.blocks import SquaredDistances, is_close, product_error
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths

# Pairs that may be listed one by one: a third of a gigabyte of row numbers.
LARGEST_LIST = 20_000_000
# Rotation and centring change squared distances by less than this share of the norms.
_ROTATION_ERROR = 1e-9
_BLOCK_ROWS = 512
# Relative error of a squared distance beyond which neighbours are found by a tree.
_ACCURACY = 1e-9


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
    count = n_within if within else n * (n - 1) // 2 - n_within
    _check_affordable(count)
    listed, done = np.empty((count, 2), dtype=np.intp), 0
    for i, code in enumerate(codes):
        same = codes[i + 1 :] == code
        others = np.flatnonzero(same if within else ~same)
        rows = slice(done, done := done + others.size)
        listed[rows, 0] = i
        np.add(others, i + 1, out=listed[rows, 1])
    return listed


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


def nearest_pairs(points: Points, asked: Indices, others: Indices, k: int) -> Indices:
    """Return ``k`` nearest neighbours of each point asked about, or all there are.

    Neighbours are looked for among ``others``; of identical points one counts, and a
    copy of the point itself does not. A row of the result is the number of the point
    and the number of its neighbour.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.selection import nearest_pairs
    >>> from isoproj.pairs.points import Points
    >>> points = Points.prepare(np.array([[0.0], [1.0], [3.0]]), rotate=False)
    >>> nearest_pairs(points, np.arange(3), np.arange(3), 1).tolist()
    [[0, 1], [1, 0], [2, 1]]
    """
    copies, at = np.unique(points.first_copy[others], return_index=True)
    others = others[at]
    # Products of rows that are not centred would cancel or overflow.
    near = _nearest(points.centred(others), points.centred(asked), k + 1)
    is_own = copies[near] == points.first_copy[asked][:, None]
    # One neighbour too many was asked for: drop the point's own copy, or the last.
    is_own[:, k:] |= ~is_own.any(axis=1, keepdims=True)
    row, column = np.nonzero(~is_own)
    return np.column_stack([asked[row], others[near[row, column]]])


def _nearest(rows: Array, asked: Array, count: int) -> Indices:
    """Return the numbers of the rows nearest to each of those asked, nearest first."""
    from sklearn.neighbors import NearestNeighbors

    count = min(count, rows.shape[0])
    lengths, near = NearestNeighbors(n_neighbors=count).fit(rows).kneighbors(asked)
    # Distances may come from products, which cancel where neighbours are close
    # compared with their norms; a tree takes differences. The norm of a close
    # neighbour is about that of the point.
    errors = product_error(rows.shape[1], np.float64) * 2.0 * squared_lengths(asked)
    doubtful = np.flatnonzero(is_close(np.square(lengths[:, -1]), errors, _ACCURACY))
    if doubtful.size:
        tree = NearestNeighbors(n_neighbors=count, algorithm="kd_tree").fit(rows)
        near[doubtful] = tree.kneighbors(asked[doubtful], return_distance=False)
    return np.asarray(near)


def approximate_pairs(points: Points, chosen: Indices, k: int) -> Indices:
    """Return about ``k`` nearest neighbours of each chosen point, by pynndescent.

    No two of the chosen points may be identical. A row of the result is the number of a
    point and the number of its neighbour. Without pynndescent a ValueError says how to
    install it.
    """
    try:
        pynndescent = importlib.import_module("pynndescent")
    except ImportError:
        msg = (
            "pairs='approximate-neighbors' needs pynndescent, which is not "
            "installed. Run: pip install 'isoproj[neighbors]', or use "
            "pairs='neighbors'."
        )
        raise ValueError(msg) from None
    rows = points.centred(chosen)
    index = pynndescent.NNDescent(rows, n_neighbors=k + 1, random_state=0)
    near = index.neighbor_graph[0]
    own = np.repeat(np.arange(chosen.size), near.shape[1])
    found = np.column_stack([own, near.ravel()])
    found = found[(found[:, 1] >= 0) & (found[:, 0] != found[:, 1])]
    return np.asarray(chosen[found])
