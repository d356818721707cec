"""All pairs closer than a radius, found by reduced vectors, exactly."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.arrays import Rows, check_points, is_number
from isoproj.numerics.maps import LinearMap, Orientation, linear_map
from isoproj.numerics.shown import Shown
from isoproj.numerics.spectral import Indices
from isoproj.numerics.storage import Storage
from isoproj.pairs.nearness import Nearness
from isoproj.proof.recall import walked
from isoproj.search.plan import proved_distortion

_COLUMNS = 8192
# Room for the rounding of a bound on squared distances in float64.
_ROOM = 1e-9


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class ClosePairs(Shown):
    """All pairs closer than a radius, and how many of them had to be read in full.

    Parameters
    ----------
    radius : float
        Euclidean distance below which a pair counts.
    pairs : ndarray of shape (m, 2)
        Row numbers, the smaller first, in ascending order. Identical rows are close.
    n_pairs : int
        Number of all pairs.
    n_read : int
        Number of pairs whose full vectors were read, because their reduced distance
        could not decide.

    See Also
    --------
    close_pairs : Finds them.
    """

    radius: float
    pairs: Indices
    n_pairs: int
    n_read: int

    def __str__(self) -> str:
        return (
            f"{self.pairs.shape[0]:,} of {self.n_pairs:,} pairs are closer than "
            f"{self.radius:g}; {self.n_read:,} ({self.n_read / self.n_pairs:.2%}) were "
            "read in full"
        )


def close_pairs(
    X: ArrayLike | Rows,
    model: LinearMap,
    radius: float,
    *,
    orientation: Orientation | None = None,
) -> ClosePairs:
    """Find all pairs closer than a radius, exactly, mostly by reduced vectors.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n_points, n_features)
        The points.
    model : fitted estimator, array-like, linear layer or faiss transform
        A linear map, as ``audit`` takes it. A certificate over all pairs of these
        points saves reading those that are near enough.
    radius : float
        Euclidean distance below which a pair counts.
    orientation : {"rows", "columns"} or None
        As for ``audit``: what one output coordinate of a square matrix is.

    Returns
    -------
    ClosePairs
        The pairs, and how many were read in full.

    Raises
    ------
    ValueError
        If the data, the map or the radius are not usable.

    See Also
    --------
    isoproj.search_plan : How many candidates a search must fetch.

    Notes
    -----
    A map that stretches nothing leaves far what is far in the reduced vectors: a pair
    beyond the radius there is never close. A pair loses at most the share
    ``distortion``, so a pair within ``sqrt(1 - distortion)`` times the radius there is
    always close. Only the pairs in between are read. Distances are those of float64:
    a pair whose distance is the radius but for rounding may count or not.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj import close_pairs
    >>> X = np.array([[0.0, 0.0], [0.0, 0.1], [5.0, 0.0], [5.0, 3.0]])
    >>> close_pairs(X, [[1.0, 0.0]], 0.5)
    <ClosePairs: 1 of 6 pairs are closer than 0.5; 2 (33.33%) were read in full>
    """
    if not is_number(radius) or not 0.0 < radius < math.inf:
        msg = (
            f"radius must be a finite number above 0; got {radius!r}. Pass a distance."
        )
        raise ValueError(msg)
    storage = Storage()
    rows = check_points(X, storage)
    linear = linear_map(model, int(rows.shape[1]), orientation=orientation)
    lost = proved_distortion(model, rows)
    lost = 1.0 if lost is None else lost
    side = Nearness.of(rows, None, "euclidean", linear=linear, storage=storage)
    join = _Join(side, float(radius), lost)
    found, read = zip(*walked(join.visit, side.n_rows, side.n_rows), strict=True)
    n = side.n_rows
    return ClosePairs(
        radius=float(radius),
        pairs=np.concatenate(found),
        n_pairs=n * (n - 1) // 2,
        n_read=sum(read),
    )


class _Join:
    """The search for close pairs, one block of rows after another."""

    def __init__(self, side: Nearness, radius: float, lost: float) -> None:
        self.side, self.full = side, replace(side, linear=None)
        with np.errstate(over="ignore"):
            # Scaled points lie within reach of any larger radius.
            self.radius = min(float(np.ldexp(radius, -side.exponent)), 1e100)
        top = float(np.linalg.norm(np.asarray(side.linear), 2)) ** 2
        # Squared reduced distances above and below which no pair need be read.
        self.never = top * self.radius**2 * (1.0 + _ROOM)
        self.always = (1.0 - lost) * self.radius**2 * (1.0 - _ROOM)

    def visit(self, rows: slice) -> tuple[Indices, int]:
        """Return the close pairs of some rows with later ones; how many were read."""
        found, n_read = [np.empty((0, 2), dtype=np.intp)], 0
        # Adding the squared length of a row rounds once more.
        margins = 2.0 * self.side.margins(rows)[:, None]
        own = self.side.constants(rows)[:, None]
        for first in range(rows.start, self.side.n_rows, _COLUMNS):
            columns = slice(first, min(first + _COLUMNS, self.side.n_rows))
            values = self.side.values(rows, columns)
            with np.errstate(over="ignore"):
                bars = (self.never + margins - own).astype(values.dtype)
            bars = np.nextafter(bars, np.inf, dtype=bars.dtype)
            at, column = np.nonzero(values <= bars)
            squares = values[at, column] + own[at, 0]
            pairs = np.column_stack([at + rows.start, column + first])
            is_later = pairs[:, 1] > pairs[:, 0]
            pairs, squares, at = pairs[is_later], squares[is_later], at[is_later]
            is_close = squares < self.always - margins[at, 0]
            unread = np.flatnonzero(~is_close)
            exact, _ = self.full.exact(pairs[unread, 0], pairs[unread, 1])
            is_close[unread] = np.sqrt(exact) < self.radius
            n_read += unread.size
            found.append(pairs[is_close])
        pairs = np.concatenate(found)
        return pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))], n_read
