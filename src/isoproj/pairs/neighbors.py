"""Every point with its nearest ones, exactly or by pynndescent."""

from __future__ import annotations

import importlib

import numpy as np

from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.points import Points, squared_lengths

__all__ = ["approximate_pairs", "nearest_pairs"]

# Squared distances are trusted to this share.
_MARGIN = 1e-9


def nearest_pairs(points: Points, asked: Indices, others: Indices, k: int) -> Indices:
    """Return some points with the nearest of others; copies are no neighbours.

    Parameters
    ----------
    points : Points
        The geometry.
    asked : ndarray of shape (m,)
        Point numbers.
    others : ndarray of shape (n,)
        Point numbers among which to look; of copies one counts.
    k : int
        Neighbours of each, or as many as there are.

    Returns
    -------
    ndarray of shape (n_pairs, 2)
        Number of the point asked, number of its neighbour.

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
    # Products of rows as given would cancel far from the origin, or overflow.
    near = _nearest(points.centred(others), points.centred(asked), k + 1)
    is_own = copies[near] == points.first_copy[asked][:, None]
    # One more was asked for: the point's own copy, or else the last.
    is_own[:, k:] |= ~is_own.any(axis=1, keepdims=True)
    row, column = np.nonzero(~is_own)
    return np.column_stack([asked[row], others[near[row, column]]])


def _nearest(rows: Array, asked: Array, count: int) -> Indices:
    """Return the numbers of the rows nearest to each of those asked, nearest first."""
    from sklearn.neighbors import NearestNeighbors

    count = min(count, rows.shape[0])
    lengths, near = NearestNeighbors(n_neighbors=count).fit(rows).kneighbors(asked)
    # Distances may come from products, which cancel where neighbours are close
    # compared with their norms; a tree takes differences.
    error = rows.shape[1] * np.finfo(np.float64).eps * squared_lengths(asked)
    doubtful = np.flatnonzero(_MARGIN * np.square(lengths[:, -1]) <= error)
    if doubtful.size:
        tree = NearestNeighbors(n_neighbors=count, algorithm="kd_tree").fit(rows)
        near[doubtful] = tree.kneighbors(asked[doubtful], return_distance=False)
    return np.asarray(near)


def approximate_pairs(points: Points, chosen: Indices, k: int) -> Indices:
    """Return points with about their nearest ones.

    Parameters
    ----------
    points : Points
        The geometry.
    chosen : ndarray of shape (m,)
        Point numbers, no two of them copies.
    k : int
        Neighbours of each.

    Returns
    -------
    ndarray of shape (n_pairs, 2)
        Number of a point, number of its neighbour.

    Raises
    ------
    ValueError
        If pynndescent is not installed.
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
