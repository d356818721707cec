"""Which pairs count; kept as a rule or as row numbers, never as directions."""

from __future__ import annotations

import enum
import hashlib
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, column_or_1d

from isoproj.exceptions import NoPairsError
from isoproj.numerics.arrays import Rows, check_pair_list
from isoproj.numerics.spectral import Indices
from isoproj.numerics.storage import Storage
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.neighbors import approximate_pairs, nearest_pairs
from isoproj.pairs.points import Points, squared_lengths

__all__ = [
    "LABELLED",
    "LARGEST_LIST",
    "WORDS",
    "PairKind",
    "PairRule",
    "PairSet",
    "label_codes",
    "prepare_pairs",
    "sample_pairs",
]

_BLOCK = 512
# Pairs that may be listed one by one: a third of a gigabyte of row numbers.
LARGEST_LIST = 20_000_000
# Squared distances of coordinates are better than this share of the norms.
_MARGIN = 1e-9
# Pairs that a fit on a sample sees.
_SAMPLE = 200_000
_NEIGHBORS = ("neighbors", "approximate-neighbors")


class PairKind(enum.StrEnum):
    """How the pairs that count are named."""

    ALL = "all"
    LISTED = "listed"
    DIRECTIONS = "directions"
    LABELS = "labels"
    WITHIN = "within-labels"
    SAMPLED = "sample"

    @property
    def is_listed(self) -> bool:
        """Whether the pairs are kept as a list."""
        return self in (PairKind.LISTED, PairKind.SAMPLED)


LABELLED = (PairKind.LABELS, PairKind.WITHIN)
# What ``pairs`` may be besides a list.
WORDS = (
    PairKind.ALL.value,
    PairKind.DIRECTIONS.value,
    PairKind.SAMPLED.value,
    *_NEIGHBORS,
    *(kind.value for kind in LABELLED),
)


@dataclass(frozen=True, slots=True, eq=False)
class PairRule:
    """Which pairs count, as a user says it and as a certificate states it.

    Parameters
    ----------
    pairs : str or array-like of shape (m, 2)
        ``"all"`` pairs of rows; ``"directions"``, every row as a direction of its own
        (a pair with the origin); ``"neighbors"``, every point with its nearest ones
        (``"approximate-neighbors"`` finds them by pynndescent); ``"labels"``, pairs of
        rows with different labels (``"within-labels"``: with the same); a random
        ``"sample"`` of all pairs; or a list.
    labels : array-like of shape (n_rows,) or None
        Class labels, for the two kinds that need them.
    n_neighbors : int
        Neighbours of each point; copies of a point are not its neighbours.
    min_distance : float
        Pairs closer than this do not count.
    include_norms : bool
        Whether every row counts as a direction too, besides its pairs.

    Examples
    --------
    >>> from isoproj.pairs.rule import PairRule
    >>> str(PairRule("all", include_norms=True))
    'all+norms'
    """

    pairs: str | ArrayLike = "all"
    labels: ArrayLike | None = None
    n_neighbors: int = 10
    min_distance: float = 0.0
    include_norms: bool = False

    @classmethod
    def of(cls, pairs: str | ArrayLike | PairRule, **parts: Any) -> PairRule:  # noqa: ANN401
        """Return the rule that public functions are given as keywords.

        Parameters
        ----------
        pairs : str, array-like of shape (m, 2) or PairRule
            The pairs; a rule says all of it.
        **parts
            The other fields.

        Examples
        --------
        >>> from isoproj.pairs.rule import PairRule
        >>> str(PairRule.of("all", min_distance=0.5))
        'all, at least 0.5 apart'
        """
        return pairs if isinstance(pairs, PairRule) else cls(pairs, **parts)

    @property
    def kind(self) -> PairKind:
        """How a certificate names the pairs; neighbours are listed."""
        if not isinstance(self.pairs, str) or self.pairs in _NEIGHBORS:
            return PairKind.LISTED
        if self.pairs not in WORDS:
            named = ", ".join(repr(word) for word in WORDS)
            msg = (
                f"pairs must be {named} or an integer array of shape (n_pairs, 2); "
                f"got {self.pairs!r}. Use pairs='all' for every pair."
            )
            raise ValueError(msg)
        return PairKind(self.pairs)

    @property
    def has_origin(self) -> bool:
        """Whether the origin is one more point, the last."""
        return self.include_norms or self.kind is PairKind.DIRECTIONS

    def __str__(self) -> str:
        return self.described(self.kind)

    def described(self, kind: PairKind) -> str:
        """Return the rule in words; a list may be called by what it was."""
        text = kind.value + ("+norms" if self.include_norms else "")
        if self.min_distance > 0.0:
            text += f", at least {self.min_distance:g} apart"
        return text

    def elsewhere(self, labels: ArrayLike | None = None) -> PairRule:
        """Return the rule for other points, where row numbers and labels say nothing.

        Parameters
        ----------
        labels : array-like of shape (n_rows,) or None
            Labels of the other points, if known.

        Returns
        -------
        PairRule
            The same; all pairs in place of a list, or of labels that are not known.
        """
        lost = self.kind is PairKind.SAMPLED or not isinstance(self.pairs, str)
        lost |= self.kind in LABELLED and labels is None
        labels = labels if self.kind in LABELLED else None
        return replace(self, pairs="all" if lost else self.pairs, labels=labels)

    def of_rows(self, chosen: Indices) -> PairRule:
        """Return the rule for some of the rows; not for a list."""
        labels = None if self.labels is None else np.asarray(self.labels)[chosen]
        return replace(self, labels=labels)

    def check(self) -> None:
        """Raise ValueError if a part of the rule is unusable."""
        PairKind(self.kind)
        n: object = self.n_neighbors
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            msg = f"n_neighbors must be a whole number above 0; got {n!r}. Use 10."
            raise ValueError(msg)
        least: object = self.min_distance
        if (
            isinstance(least, bool)
            or not isinstance(least, int | float | np.number)
            or not 0.0 <= float(least) < np.inf
        ):
            msg = (
                f"min_distance must be a finite number, 0 or more; got {least!r}. "
                "Use 0 to leave out no pair."
            )
            raise ValueError(msg)
        if not isinstance(self.include_norms, bool | np.bool_):
            msg = f"include_norms must be True or False; got {self.include_norms!r}."
            raise ValueError(msg)  # noqa: TRY004 - scikit-learn's convention
        if self.kind is PairKind.SAMPLED and (least or self.include_norms):
            msg = (
                "pairs='sample' draws from all pairs of rows; it takes neither "
                "min_distance nor include_norms. Leave them out, or use pairs='all'."
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, eq=False)
class PairSet:
    """The pairs over which a distortion is a maximum.

    Parameters
    ----------
    kind : PairKind
        How they are named.
    listed : ndarray of shape (n_pairs, 2) or None
        Point numbers, smaller first; None means every pair of points.
    n_pairs : int
        Pairs that have a direction and are not too close.
    n_identical : int
        Pairs left out because their two points are the same.
    n_close : int
        Pairs of distinct points left out because they are closer than asked for.
    rule : PairRule
        What names exactly these pairs: neighbours as a list, labels as integers.
    """

    kind: PairKind
    listed: Indices | None
    n_pairs: int
    n_identical: int
    n_close: int = 0
    rule: PairRule = field(default_factory=PairRule)

    @property
    def fingerprint(self) -> str:
        """Digest of the list; empty where every pair of points counts."""
        if self.listed is None:
            return ""
        return hashlib.sha256(self.listed.astype("<i8").tobytes()).hexdigest()

    def holds(self, pairs: Indices, n_points: int) -> NDArray[np.bool_]:
        """Return which of some pairs of distinct points count, shape (m,).

        Parameters
        ----------
        pairs : ndarray of shape (m, 2)
            Point numbers, in either order.
        n_points : int
            Points there are, the origin among them.
        """
        if self.listed is None:
            return np.ones(pairs.shape[0], dtype=bool)
        code = np.array([n_points, 1])
        return np.isin(np.sort(pairs, axis=1) @ code, self.listed @ code)


def prepare_pairs(
    rows: Rows,
    pairs: str | ArrayLike | PairRule = "all",
    *,
    rotate: bool,
    seed: int = 0,
    storage: Storage | None = None,
) -> tuple[Points, PairSet]:
    """Return validated rows as points, with the pairs that count.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_rows, n_features)
        Finite floats.
    pairs : str, array-like of shape (m, 2) or PairRule
        Which pairs count; a word or a list alone is a rule without further parts.
    rotate : bool
        Whether coordinates are rotated into the span of the points.
    seed : int
        Of the sample.
    storage : Storage or None
        Where arrays as large as the data go; None means memory.

    Returns
    -------
    points : Points
        The geometry, with the origin as last point where rows count as directions.
    selected : PairSet
        The pairs, without those of identical points.

    Raises
    ------
    ValueError
        If no pair is left, or ``pairs`` is none of the above.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.rule import PairRule, prepare_pairs
    >>> rows = np.array([[0.0], [1.0], [1.0]])
    >>> points, selected = prepare_pairs(rows, rotate=False)
    >>> selected.n_pairs, selected.n_identical
    (2, 1)
    >>> far = PairRule(min_distance=0.5, include_norms=True)
    >>> prepare_pairs(rows + 0.125, far, rotate=False)[1].n_close
    1
    """
    rule = PairRule.of(pairs)
    rule.check()
    points = Points.prepare(
        rows, rotate=rotate, with_origin=rule.has_origin, storage=storage
    )
    n_rows = int(rows.shape[0])
    kind = rule.kind
    rule = _resolved(rule, points, n_rows, seed)
    if rule.kind is PairKind.ALL and not rule.min_distance > 0.0:
        r = points.n_points
        n_identical = points.n_identical_pairs
        n_pairs = r * (r - 1) // 2 - n_identical
        selected = PairSet(rule.kind, None, n_pairs, n_identical, rule=rule)
    else:
        selected = _selected(kind, rule, points, _listed(rule, points, n_rows))
    _check_some(rule, selected)
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
    >>> from isoproj.pairs.rule import sample_pairs
    >>> from isoproj.pairs.points import Points
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


def _resolved(rule: PairRule, points: Points, n_rows: int, seed: int) -> PairRule:
    """Return the rule with neighbours or a sample as a list, labels as integers."""
    rule = replace(
        rule,
        min_distance=float(rule.min_distance),
        include_norms=bool(rule.include_norms),
    )
    if rule.kind is PairKind.LISTED:
        if isinstance(rule.pairs, str):
            listed = _neighbor_pairs(rule, points, n_rows)
        else:
            listed = check_pair_list(rule.pairs, n_rows)
        return replace(rule, pairs=listed, labels=None)
    if rule.kind is PairKind.SAMPLED:
        listed = np.unique(sample_pairs(points, _SAMPLE, seed), axis=0)
        return replace(rule, pairs=listed, labels=None)
    if rule.kind in LABELLED:
        return replace(rule, labels=label_codes(rule, n_rows))
    return replace(rule, labels=None)


def _neighbor_pairs(rule: PairRule, points: Points, n_rows: int) -> Indices:
    """Return every distinct point with its nearest ones."""
    first = points.first_copy[:n_rows]
    alone = np.flatnonzero(first == np.arange(n_rows))
    k = int(rule.n_neighbors)
    if k >= alone.size:
        msg = (
            f"n_neighbors must be below the number of distinct points, {alone.size}; "
            f"got {k}. Lower it, or use pairs='all'."
        )
        raise ValueError(msg)
    if rule.pairs == "neighbors":
        return check_pair_list(nearest_pairs(points, alone, alone, k), n_rows)
    return check_pair_list(approximate_pairs(points, alone, k), n_rows)


def label_codes(rule: PairRule, n_rows: int) -> Indices:
    """Return the labels of a rule as integers, one for every row."""
    if rule.labels is None:
        msg = (
            f"pairs={rule.pairs!r} requires y to be passed, but the target y is None. "
            "Pass one class label per row."
        )
        raise ValueError(msg)
    labels = column_or_1d(rule.labels, warn=True)
    check_consistent_length(np.empty(n_rows), labels)
    if labels.dtype.kind == "f" and not np.isfinite(labels).all():
        msg = "y must be finite; it contains NaN or infinity. Drop or fill those rows."
        raise ValueError(msg)
    check_classification_targets(labels)
    codes: Indices = np.unique(labels, return_inverse=True)[1]
    return codes.astype(np.intp)


def _listed(rule: PairRule, points: Points, n_rows: int) -> Indices:
    """Return every pair that is named, the identical and the close included."""
    origin = np.column_stack([np.arange(n_rows), np.full(n_rows, n_rows)])
    if rule.kind is PairKind.DIRECTIONS:
        return origin
    if rule.kind is PairKind.ALL:
        _check_affordable(points.n_points * (points.n_points - 1) // 2)
        return np.column_stack(np.triu_indices(points.n_points, 1))
    if rule.kind is PairKind.LISTED:
        listed = np.asarray(rule.pairs)
    else:
        listed = _labelled_pairs(np.asarray(rule.labels), rule.kind)
    if not rule.include_norms:
        return listed
    listed = np.concatenate([listed, origin])
    return np.asarray(listed[np.lexsort((listed[:, 1], listed[:, 0]))])


def _labelled_pairs(codes: Indices, kind: PairKind) -> Indices:
    n = codes.size
    sizes = np.bincount(codes)
    within = int((sizes * (sizes - 1) // 2).sum())
    is_within = kind is PairKind.WITHIN
    _check_affordable(within if is_within else n * (n - 1) // 2 - within)
    parts = []
    for start in range(0, n, _BLOCK):
        rows = np.arange(start, min(start + _BLOCK, n))
        wanted = (codes[rows, None] == codes) == is_within
        wanted &= rows[:, None] < np.arange(n)
        parts.append(np.argwhere(wanted) + np.array([start, 0]))
    return np.concatenate(parts)


def _check_affordable(n_pairs: int) -> None:
    if n_pairs > LARGEST_LIST:
        msg = (
            f"min_distance and labels list their pairs, at most {LARGEST_LIST:,}; got "
            f"{n_pairs:,}. Fit a sample of the rows, or use pairs='neighbors'."
        )
        raise ValueError(msg)


def _selected(
    kind: PairKind, rule: PairRule, points: Points, listed: Indices
) -> PairSet:
    """Return the named pairs without those that are identical or too close."""
    lead = points.first_copy[listed]
    distinct = lead[:, 0] != lead[:, 1]
    n_identical = int(listed.shape[0] - distinct.sum())
    listed = listed[distinct]
    n_close = 0
    if rule.min_distance > 0.0:
        is_close = _closer_than(points, listed, rule.min_distance)
        n_close = int(is_close.sum())
        listed = listed[~is_close]
    n_pairs = int(listed.shape[0])
    return PairSet(kind, listed, n_pairs, n_identical, n_close, rule)


def _closer_than(
    points: Points, listed: Indices, min_distance: float
) -> NDArray[np.bool_]:
    """Return which pairs are closer; decided in float64 from the difference itself."""
    r = points.n_points
    if 16 * listed.shape[0] < r * r:
        return points.distances(listed) < min_distance
    # Most pairs are clear from a product of coordinates; the others are looked at.
    is_close, is_open = _judged_by_product(points, listed, min_distance)
    at = np.flatnonzero(is_open)
    is_close[at] = points.distances(listed[at]) < min_distance
    return is_close


@single_blas_thread
def _judged_by_product(
    points: Points, listed: Indices, min_distance: float
) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which pairs, ordered by their first point, seem close, and are unclear."""
    coordinates = points.coordinates
    norms = squared_lengths(coordinates)
    length = points.to_coordinate_scale(min_distance)
    square = length * length
    is_close = np.empty(listed.shape[0], dtype=bool)
    is_open = np.empty(listed.shape[0], dtype=bool)
    for start in range(0, points.n_points, _BLOCK):
        low, high = np.searchsorted(listed[:, 0], [start, start + _BLOCK])
        i, j = listed[low:high].T
        table = coordinates[start : start + _BLOCK] @ coordinates.T
        far = norms[i] + norms[j]
        squares = far - 2.0 * table[i - start, j]
        margin = _MARGIN * (far + square + 2.0 * points.raw_square) + 2.0 * points.blur
        is_close[low:high] = squares < square
        is_open[low:high] = np.abs(squares - square) <= margin
    return is_close, is_open


def _check_some(rule: PairRule, selected: PairSet) -> None:
    if selected.n_pairs:
        return
    if selected.n_close:
        msg = (
            f"min_distance must leave some pair; all {selected.n_close:,} are closer "
            f"than {rule.min_distance:g}. Lower it."
        )
    elif selected.n_identical == 0 and rule.kind in LABELLED:
        codes = np.asarray(rule.labels)
        msg = (
            f"pairs={rule.pairs!r} must name at least one pair; y has "
            f"{np.unique(codes).size} classes in {codes.size} rows. Pass other labels, "
            "or pairs='all'."
        )
    else:
        what = "row" if rule.kind is PairKind.DIRECTIONS else "pair"
        msg = (
            f"X must hold at least two distinct points; every {what} that counts has "
            f"length zero ({selected.n_identical} in all). Pass rows that differ."
        )
    raise NoPairsError(msg)
