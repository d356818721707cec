"""Points that a fit did not see: a split, and what a map does to their pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import train_test_split

from isoproj.engines.base import Engine
from isoproj.exceptions import NoPairsError
from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Indices
from isoproj.pairs.duplicates import first_copies
from isoproj.pairs.neighbors import nearest_pairs
from isoproj.pairs.points import Points
from isoproj.pairs.rule import LABELLED, LARGEST_LIST, PairKind, PairRule, label_codes
from isoproj.proof.audit import AuditResult, audit

__all__ = ["Heldout", "Split", "fitted_part", "measure_heldout", "split_rows"]

_FEWEST = 2
# Words for pairs that are listed one by one where they join both parts.
_LISTED = (PairKind.ALL, PairKind.SAMPLED, *LABELLED)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Which rows are fitted, and which are not.

    Parameters
    ----------
    training, heldout : ndarray
        Row numbers, ascending.
    """

    training: Indices
    heldout: Indices


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Heldout:
    """What a projection does to points that it was not fitted on.

    No certificate covers these pairs: they are measured, exactly, on the points that
    were held out.

    Parameters
    ----------
    rows : ndarray of shape (n_points,)
        The rows that were held out, as ``fit`` was given them.
    training : ndarray of shape (n_training,)
        The rows that were fitted; the certificate is over their pairs, and numbers
        them from 0.
    within : AuditResult or None
        Of the pairs of two rows that were held out; None if none of them counts.
    to_training : AuditResult or None
        Of the pairs of one that was held out and one that was not.
    """

    rows: Indices
    training: Indices
    within: AuditResult | None
    to_training: AuditResult | None

    @property
    def n_points(self) -> int:
        """How many points were held out."""
        return int(self.rows.size)

    @property
    def distortion_within(self) -> float:
        """What the worst pair of held-out points loses; NaN if there is none."""
        return math.nan if self.within is None else self.within.distortion

    @property
    def distortion_to_training(self) -> float:
        """What the worst pair with a fitted point loses; NaN if there is none."""
        return math.nan if self.to_training is None else self.to_training.distortion

    def __str__(self) -> str:
        lines = [
            f"{self.n_points:,} points held out of the fit, which the certificate does"
            " not cover:"
        ]
        named = {"among them": self.within, "to fitted points": self.to_training}
        for name, result in named.items():
            if result is None:
                lines.append(f"{name:<17}no pair counts")
                continue
            lines.append(
                f"{name:<17}{result.n_pairs:,} pairs, the worst loses "
                f"{result.distortion:.4f}, 99.9% lose at most "
                f"{result.quantiles[0.999]:.4f}, mean {result.mean:.4f}"
            )
        return "\n".join(lines)


def split_rows(
    n_rows: int,
    size: float,
    rule: PairRule,
    random_state: int | np.random.RandomState | None = None,
) -> Split:
    """Return which rows to hold out, at random.

    Parameters
    ----------
    n_rows : int
        How many there are.
    size : float or int
        Share of the rows, between 0 and 1, or how many of them.
    rule : PairRule
        Which pairs count.
    random_state : int, RandomState instance or None
        Of the draw.

    Returns
    -------
    Split
        At least two rows in each part.

    Raises
    ------
    ValueError
        If there is no such split, or the pairs are listed by row.

    Examples
    --------
    >>> from isoproj.proof.heldout import split_rows
    >>> from isoproj.pairs.rule import PairRule
    >>> split_rows(10, 0.2, PairRule(), 0).heldout.size
    2
    """
    if not isinstance(rule.pairs, str):
        msg = (
            "heldout needs pairs that a word names; got a list, whose rows may be held "
            "out. Split the rows first, or use pairs='all'."
        )
        raise ValueError(msg)  # noqa: TRY004 - scikit-learn's convention
    count = _count(n_rows, size)
    if rule.pairs in _LISTED and count * (n_rows - count) > LARGEST_LIST:
        msg = (
            f"heldout lists the pairs between both parts, at most {LARGEST_LIST:,}; "
            f"{count} of {n_rows} rows make {count * (n_rows - count):,}. Hold out "
            f"{LARGEST_LIST // n_rows} rows or fewer."
        )
        raise ValueError(msg)
    parts = train_test_split(
        np.arange(n_rows), test_size=count, random_state=random_state
    )
    return Split(np.sort(parts[0]), np.sort(parts[1]))


def _count(n_rows: int, size: object) -> int:
    """Return how many rows to hold out."""
    count = -1
    if isinstance(size, int | np.integer) and not isinstance(size, bool):
        count = int(size)
    elif isinstance(size, float | np.floating) and 0.0 < size < 1.0:
        count = math.ceil(float(size) * n_rows)
    if not _FEWEST <= count <= n_rows - _FEWEST:
        msg = (
            "heldout must be a share between 0 and 1 or a whole number that leaves at "
            f"least {_FEWEST} rows on both sides, or None; got {size!r} of {n_rows} "
            "rows. Use 0.2, or None to fit all."
        )
        raise ValueError(msg)
    return count


def fitted_part(rows: Rows, y: Any, split: Split | None) -> tuple[Rows, Any]:  # noqa: ANN401
    """Return the rows to fit with their labels; all of them without a split.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.heldout import Split, fitted_part
    >>> split = Split(np.array([0, 2]), np.array([1, 3]))
    >>> fitted_part(np.eye(4), None, split)[0].shape
    (2, 4)
    """
    if split is None:
        return rows, y
    return rows[split.training], None if y is None else np.asarray(y)[split.training]


def measure_heldout(
    rows: Rows,
    split: Split,
    components: ArrayLike,
    rule: PairRule,
    *,
    engine: Engine | None = None,
) -> Heldout:
    """Measure a map on the pairs that a fit did not see.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_rows, n_features)
        All of them.
    split : Split
        Which were fitted.
    components : array-like of shape (k, n_features)
        The map.
    rule : PairRule
        Which pairs count, with the labels of all rows where it goes by labels. With
        neighbours these are those of a held-out point among the held-out ones, and
        among the fitted ones.
    engine : Engine or None
        Where pairs are looked at.

    Returns
    -------
    Heldout
        Exact.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.proof.heldout import Split, measure_heldout
    >>> from isoproj.pairs.rule import PairRule
    >>> split = Split(np.array([0, 1]), np.array([2, 3]))
    >>> found = measure_heldout(np.eye(4), split, np.eye(3, 4), PairRule())
    >>> found.distortion_within, found.distortion_to_training
    (0.5, 0.5)
    """
    own = rule.of_rows(split.heldout)
    if own.kind is PairKind.SAMPLED:
        own = replace(own, pairs="all")
    chosen = rows[split.heldout]
    if rule.pairs in ("neighbors", "approximate-neighbors"):
        # A few held-out points have fewer neighbours among themselves.
        others = np.unique(first_copies(chosen)).size - 1
        own = replace(own, n_neighbors=max(1, min(int(rule.n_neighbors), others)))
        own = own if others else replace(own, pairs="all")
    within = _audited(chosen, components, own, engine)
    if within is not None:
        within = replace(within, worst_pairs=_numbered(within, split.heldout, rows))
    between = replace(
        rule, pairs=_between(rows, split, rule), labels=None, include_norms=False
    )
    return Heldout(
        rows=split.heldout,
        training=split.training,
        within=within,
        to_training=_audited(rows, components, between, engine),
    )


def _numbered(result: AuditResult, heldout: Indices, rows: Rows) -> Indices:
    """Return worst pairs by the numbers of all rows; the origin comes after them."""
    return np.append(heldout, rows.shape[0])[result.worst_pairs]


def _audited(
    rows: Rows, components: ArrayLike, rule: PairRule, engine: Engine | None
) -> AuditResult | None:
    """Return an audit, or None where no pair counts."""
    if not isinstance(rule.pairs, str) and not len(np.asarray(rule.pairs)):
        return None
    try:
        return audit(rows, components, pairs=rule, engine=engine)
    except NoPairsError:
        return None


def _between(rows: Rows, split: Split, rule: PairRule) -> Indices:
    """Return the pairs of a held-out and a fitted row that a rule names."""
    heldout, training = split.heldout, split.training
    if rule.kind is PairKind.DIRECTIONS:
        return np.empty((0, 2), dtype=np.intp)
    if rule.pairs in ("neighbors", "approximate-neighbors"):
        points = Points.prepare(rows, rotate=False)
        return nearest_pairs(points, heldout, training, int(rule.n_neighbors))
    pairs = np.column_stack(
        [np.repeat(heldout, training.size), np.tile(training, heldout.size)]
    )
    if rule.kind in LABELLED:
        labels = label_codes(rule, int(rows.shape[0]))
        same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
        pairs = pairs[same == (rule.kind is PairKind.WITHIN)]
    return pairs
