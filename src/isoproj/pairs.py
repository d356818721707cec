"""Which pairs count; kept as a rule or as row numbers, never as directions."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from isoproj._spectral import Indices
from isoproj._validation import Rows, check_pair_list
from isoproj.points import Points

__all__ = ["PairKind", "PairSet", "prepare_pairs", "sample_pairs"]


# Pairs that a fit on a sample sees.
_SAMPLE = 200_000


class PairKind(enum.StrEnum):
    """How the pairs that count are named."""

    ALL = "all"
    LISTED = "listed"
    DIRECTIONS = "directions"
    SAMPLED = "sample"

    @property
    def is_listed(self) -> bool:
        """Whether the pairs are kept as a list."""
        return self in (PairKind.LISTED, PairKind.SAMPLED)


@dataclass(frozen=True, slots=True, eq=False)
class PairSet:
    """The pairs over which a distortion is a maximum.

    Parameters
    ----------
    kind : PairKind
        All pairs, listed ones, or every row together with the origin.
    listed : ndarray of shape (n_pairs, 2) or None
        Point numbers, smaller first; None means every pair.
    n_pairs : int
        Pairs that have a direction.
    n_identical : int
        Pairs left out because their two points are the same.
    """

    kind: PairKind
    listed: Indices | None
    n_pairs: int
    n_identical: int


def prepare_pairs(
    rows: Rows, pairs: str | ArrayLike = "all", *, rotate: bool, seed: int = 0
) -> tuple[Points, PairSet]:
    """Return validated rows as points, with the pairs that count.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_rows, n_features)
        Finite floats.
    pairs : {"all", "directions", "sample"} or array-like of shape (m, 2)
        Every pair of rows; every row as a direction of its own (a pair with the
        origin); a random sample of all pairs; or the pairs listed.
    rotate : bool
        Whether coordinates are rotated into the span of the points.
    seed : int
        Of the sample.

    Returns
    -------
    points : Points
        The geometry, with the origin as last point for directions.
    selected : PairSet
        The pairs, without those of identical points.

    Raises
    ------
    ValueError
        If no pair is left, or ``pairs`` is none of the above.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs import prepare_pairs
    >>> rows = np.array([[0.0], [1.0], [1.0]])
    >>> points, selected = prepare_pairs(rows, rotate=False)
    >>> selected.n_pairs, selected.n_identical
    (2, 1)
    """
    kind = _kind_of(pairs)
    points = Points.prepare(
        rows, rotate=rotate, with_origin=kind is PairKind.DIRECTIONS
    )
    if kind is PairKind.ALL:
        r = points.n_points
        n_identical = points.n_identical_pairs
        selected = PairSet(kind, None, r * (r - 1) // 2 - n_identical, n_identical)
    else:
        if kind is PairKind.LISTED:
            listed = check_pair_list(pairs, points.n_points)
        elif kind is PairKind.SAMPLED:
            listed = np.unique(sample_pairs(points, _SAMPLE, seed), axis=0)
        else:
            n_rows = points.n_points - 1
            listed = np.column_stack([np.arange(n_rows), np.full(n_rows, n_rows)])
        lead = points.first_copy[listed]
        distinct = lead[:, 0] != lead[:, 1]
        n_identical = int(listed.shape[0] - distinct.sum())
        selected = PairSet(kind, listed[distinct], int(distinct.sum()), n_identical)
    if selected.n_pairs == 0:
        what = "row" if kind is PairKind.DIRECTIONS else "pair"
        msg = (
            f"X must hold at least two distinct points; every {what} that counts has "
            f"length zero ({n_identical} in all). Pass rows that differ."
        )
        raise ValueError(msg)
    return points, selected


def sample_pairs(points: Points, count: int, seed: int) -> Indices:
    """Return random pairs of distinct points, drawn independently with replacement.

    Parameters
    ----------
    points : Points
        Of which at least two differ.
    count : int
        How many.
    seed : int
        Of the draw.

    Returns
    -------
    ndarray of shape (count, 2)
        Smaller number first; each pair of distinct points is as likely as any other.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs import sample_pairs
    >>> from isoproj.points import Points
    >>> points = Points.prepare(np.array([[0.0], [1.0]]), rotate=False)
    >>> sample_pairs(points, 2, seed=0).tolist()
    [[0, 1], [0, 1]]
    """
    rng, first = np.random.default_rng(seed), points.first_copy
    drawn = np.empty((0, 2), dtype=np.intp)
    if not (first != first[0]).any():
        return drawn
    while drawn.shape[0] < count:
        more = rng.integers(points.n_points, size=(count, 2))
        more = more[first[more[:, 0]] != first[more[:, 1]]]
        drawn = np.concatenate([drawn, np.sort(more, axis=1)])
    return drawn[:count]


def _kind_of(pairs: str | ArrayLike) -> PairKind:
    if not isinstance(pairs, str):
        return PairKind.LISTED
    if pairs in (PairKind.ALL, PairKind.DIRECTIONS, PairKind.SAMPLED):
        return PairKind(pairs)
    msg = (
        "pairs must be 'all', 'directions', 'sample' or an integer array of shape "
        "(n_pairs, 2); "
        f"got {pairs!r}. Use pairs='all' for every pair."
    )
    raise ValueError(msg)
