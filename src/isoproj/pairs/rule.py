"""Which pairs count, as a rule or as a list of row numbers."""

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
from isoproj.numerics.arrays import Rows, check_pair_list, is_number, is_whole
from isoproj.numerics.shown import Shown
from isoproj.numerics.spectral import Indices
from isoproj.numerics.storage import Storage
from isoproj.pairs.points import Points
from isoproj.pairs.selection import (
    all_pairs,
    approximate_pairs,
    are_closer_than,
    labelled_pairs,
    nearest_pairs,
    sample_pairs,
)

# Pairs of a random sample that a fit uses.
_SAMPLE = 200_000
_NEIGHBORS = ("neighbors", "approximate-neighbors")
# Measuring a pair by its difference costs about as much as this many in a block.
_PER_LISTED = 64


class PairKind(enum.StrEnum):
    """Kinds of pairs that count, as certificates name them."""

    ALL = "all"
    LISTED = "listed"
    DIRECTIONS = "directions"
    LABELS = "labels"
    WITHIN = "within-labels"
    QUERIES = "queries"
    SAMPLED = "sample"

    @property
    def is_listed(self) -> bool:
        """Whether the pairs are kept as a list."""
        return self in (PairKind.LISTED, PairKind.SAMPLED)


LABELLED = (PairKind.LABELS, PairKind.WITHIN, PairKind.QUERIES)
# Words that a user may pass as ``pairs`` instead of a list.
WORDS = (
    PairKind.ALL.value,
    PairKind.DIRECTIONS.value,
    PairKind.SAMPLED.value,
    *_NEIGHBORS,
    *(kind.value for kind in LABELLED),
)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PairRule(Shown):
    """Which pairs count, as a user asks for it and as a certificate states it.

    Parameters
    ----------
    pairs : str or array-like of shape (m, 2)
        ``"all"`` pairs of rows; ``"directions"``, every row as a direction of its own
        (a pair with the origin); ``"neighbors"``, every point with its nearest
        neighbours (``"approximate-neighbors"`` finds them by pynndescent);
        ``"labels"``, pairs of rows with different labels (``"within-labels"``: with
        the same label); ``"queries"``, every query with every other row; a random
        ``"sample"`` of all pairs; or a list.
    labels : array-like of shape (n_rows,) or None
        Class labels, for the kinds that need them; for queries, which rows are some.
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
        """Return the rule that the keywords of a public function describe.

        If ``pairs`` is a rule already, it is returned and the other parts are ignored.
        """
        return pairs if isinstance(pairs, PairRule) else cls(pairs, **parts)

    @property
    def kind(self) -> PairKind:
        """Kind of the pairs; neighbours count as listed."""
        if not isinstance(self.pairs, str) or self.is_of_neighbors:
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
    def is_of_neighbors(self) -> bool:
        """Whether the pairs are points with their nearest neighbours."""
        return isinstance(self.pairs, str) and self.pairs in _NEIGHBORS

    @property
    def has_origin(self) -> bool:
        """Whether the origin is added as the last point."""
        return self.include_norms or self.kind is PairKind.DIRECTIONS

    @property
    def things(self) -> str:
        """What counts, in words: pairs, rows as directions of their own, or both."""
        if self.kind is PairKind.DIRECTIONS:
            return "rows"
        return "pairs and rows" if self.include_norms else "pairs"

    def __str__(self) -> str:
        return self.described(self.kind)

    def described(self, kind: PairKind) -> str:
        """Return the rule in words, with the given name for its kind."""
        text = kind.value + ("+norms" if self.include_norms else "")
        if self.min_distance > 0.0:
            text += f", at least {self.least} apart"
        return text

    @property
    def least(self) -> str:
        """The least distance of a pair that counts, as a decimal number."""
        return str(float(self.min_distance)).removesuffix(".0")

    def elsewhere(self, labels: ArrayLike | None = None) -> PairRule:
        """Return the rule for other points, with their labels if they are known.

        Row numbers mean nothing there: all pairs replace a list or a sample, and also
        pairs by labels if the labels are not known.
        """
        lost = self.kind is PairKind.SAMPLED or not isinstance(self.pairs, str)
        lost |= self.kind in LABELLED and labels is None
        labels = labels if self.kind in LABELLED else None
        return replace(self, pairs="all" if lost else self.pairs, labels=labels)

    def of_rows(self, chosen: Indices) -> PairRule:
        """Return the rule for some of the rows; the rule must not be a list."""
        labels = None if self.labels is None else np.asarray(self.labels)[chosen]
        return replace(self, labels=labels)

    def check(self) -> None:
        """Raise ValueError if a part of the rule is unusable."""
        PairKind(self.kind)
        n: object = self.n_neighbors
        if not is_whole(n) or n < 1:
            msg = f"n_neighbors must be a whole number above 0; got {n!r}. Use 10."
            raise ValueError(msg)
        least: object = self.min_distance
        if not is_number(least) or not 0.0 <= float(least) < np.inf:
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

    ``listed``, of shape (n_pairs, 2), holds point numbers, smaller first; None means
    every pair of points. ``n_identical`` pairs are left out because their two points
    are the same, and ``n_close`` because they are closer than asked for. ``rule`` gives
    exactly these pairs: neighbours as a list, labels as integers.
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

    def is_dense(self, n_points: int) -> bool:
        """Whether blocks of all pairs cost less than measuring those that count."""
        return self.listed is None or _PER_LISTED * self.n_pairs >= n_points**2

    def holds(self, pairs: Indices, n_points: int) -> NDArray[np.bool_]:
        """Return which pairs of distinct points, in either order, count; shape (m,).

        ``n_points`` counts all points, the origin included.
        """
        if self.listed is None:
            return np.ones(pairs.shape[0], dtype=bool)
        codes = self.listed[:, 0] * n_points + self.listed[:, 1]
        asked = pairs.min(axis=1) * n_points + pairs.max(axis=1)
        # Lists are in order.
        at = np.searchsorted(codes, asked).clip(0, codes.size - 1)
        return np.asarray(codes[at] == asked)


def prepare_pairs(
    rows: Rows,
    pairs: str | ArrayLike | PairRule = "all",
    *,
    rotate: bool,
    seed: int = 0,
    storage: Storage | None = None,
) -> tuple[Points, PairSet]:
    """Return validated rows as points, with the pairs that count.

    The origin is the last point if rows count as directions. ``seed`` is that of a
    random sample. A ValueError says if no pair is left.
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
    """Return every distinct point with its nearest neighbours."""
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
    values, codes = np.unique(labels, return_inverse=True)
    if rule.kind is PairKind.QUERIES and values.size != 2:
        msg = (
            "pairs='queries' needs a y of two values, which say what rows are queries; "
            f"got {values.size}. Pass True for queries and False for the others."
        )
        raise ValueError(msg)
    return codes.astype(np.intp)


def _listed(rule: PairRule, points: Points, n_rows: int) -> Indices:
    """Return every pair that the rule names, identical and close ones included."""
    origin = np.column_stack([np.arange(n_rows), np.full(n_rows, n_rows)])
    if rule.kind is PairKind.DIRECTIONS:
        return origin
    if rule.kind is PairKind.ALL:
        return all_pairs(points.n_points)
    if rule.kind is PairKind.LISTED:
        listed = np.asarray(rule.pairs)
    else:
        is_within = rule.kind is PairKind.WITHIN
        listed = labelled_pairs(np.asarray(rule.labels), within=is_within)
    if not rule.include_norms:
        return listed
    listed = np.concatenate([listed, origin])
    return np.asarray(listed[np.lexsort((listed[:, 1], listed[:, 0]))])


def _selected(
    kind: PairKind, rule: PairRule, points: Points, listed: Indices
) -> PairSet:
    """Return the named pairs without those that are identical or too close."""
    distinct = points.are_distinct(listed)
    n_identical = int(listed.shape[0] - distinct.sum())
    listed = listed[distinct] if n_identical else listed
    n_close = 0
    if rule.min_distance > 0.0:
        is_close = are_closer_than(points, listed, rule.min_distance)
        n_close = int(is_close.sum())
        listed = listed[~is_close]
    n_pairs = int(listed.shape[0])
    return PairSet(kind, listed, n_pairs, n_identical, n_close, rule)


def sampled_instead(
    points: Points, pairs: PairSet, known: Indices, n_rows: int, seed: int
) -> PairSet:
    """Return a random sample of all pairs, with known ones, as the pairs that count.

    Rows that count as directions all stay.
    """
    drawn = sample_pairs(points, _SAMPLE, seed)
    both = np.concatenate([drawn, known])
    both = both[(both < n_rows).all(axis=1)]
    listed = check_pair_list(both[points.are_distinct(both)], n_rows)
    rule = replace(pairs.rule, pairs=listed)
    named = _listed(rule, points, n_rows)
    return _selected(PairKind.SAMPLED, rule, points, named)


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
