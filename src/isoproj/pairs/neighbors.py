"""The nearest neighbours of points, exactly or by pynndescent."""

from __future__ import annotations

import importlib

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.blocks import is_close, product_error
from isoproj.pairs.points import Points
from isoproj.pairs.rows import squared_lengths

__all__ = ["approximate_pairs", "nearest_pairs"]

# Relative error of a squared distance beyond which neighbours are found by a tree.
_ACCURACY = 1e-9


def nearest_pairs(points: Points, asked: Indices, others: Indices, k: int) -> Indices:
    """Return ``k`` nearest neighbours of each point asked about, or all there are.

    Neighbours are looked for among ``others``; of identical points one counts, and a
    copy of the point itself does not. A row of the result is the number of the point
    and the number of its neighbour.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.neighbors import nearest_pairs
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
