"""Held-out points: split them off, and measure a map on their pairs."""

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

# Fewest rows in each part of a split.
_FEWEST = 2
# Kinds whose pairs between both parts are listed one by one.
_LISTED = (PairKind.ALL, PairKind.SAMPLED, *LABELLED)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Numbers of the rows that are fitted and of those held out, both ascending."""

    training: Indices
    heldout: Indices


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Heldout:
    """Exact losses of the pairs with points that were held out of the fit.

    The certificate does not cover these pairs.

    Parameters
    ----------
    rows : ndarray of shape (n_points,)
        Numbers of the held-out rows in the data passed to ``fit``.
    training : ndarray of shape (n_training,)
        Numbers of the fitted rows. The certificate is about their pairs, and numbers
        these rows from 0.
    within : AuditResult or None
        Losses of pairs of two held-out rows; None if no such pair counts.
    to_training : AuditResult or None
        Losses of pairs of a held-out row and a fitted row; None if no such pair counts.

    See Also
    --------
    isoproj.NearIsometricProjection : Its parameter ``heldout`` holds out rows.
    isoproj.audit : Measure a map on any points.
    """

    rows: Indices
    training: Indices
    within: AuditResult | None
    to_training: AuditResult | None

    @property
    def n_points(self) -> int:
        """Number of held-out points."""
        return int(self.rows.size)

    @property
    def distortion_within(self) -> float:
        """Largest loss of a pair of held-out points; NaN if no such pair counts."""
        return math.nan if self.within is None else self.within.distortion

    @property
    def distortion_to_training(self) -> float:
        """Largest loss of a pair with a fitted point; NaN if no such pair counts."""
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
    """Return a random split; ``size`` is the share or number of held-out rows."""
    if not isinstance(rule.pairs, str):
        msg = (
            "pairs must be a word such as 'all' when heldout is given; got a list, "
            "whose rows may be held out. Split the rows first, or use pairs='all'."
        )
        raise ValueError(msg)  # noqa: TRY004 - scikit-learn's convention
    count = _count(n_rows, size)
    if rule.pairs in _LISTED and count * (n_rows - count) > LARGEST_LIST:
        msg = (
            f"heldout must leave at most {LARGEST_LIST:,} pairs between both parts; "
            f"got {count} of {n_rows} rows, which make {count * (n_rows - count):,}. "
            f"Hold out {LARGEST_LIST // n_rows} rows or fewer."
        )
        raise ValueError(msg)
    parts = train_test_split(
        np.arange(n_rows), test_size=count, random_state=random_state
    )
    return Split(np.sort(parts[0]), np.sort(parts[1]))


def _count(n_rows: int, size: object) -> int:
    """Return the number of rows to hold out, from a share or a number."""
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
    """Return the rows to fit and their labels: all of them if there is no split."""
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
    """Measure a map on the pairs with held-out points.

    ``rows`` and the labels of ``rule`` are those of all points. With neighbours, the
    nearest held-out points and the nearest fitted points of each held-out point count.
    """
    own = rule.of_rows(split.heldout)
    if own.kind is PairKind.SAMPLED:
        own = replace(own, pairs="all")
    chosen = rows[split.heldout]
    if rule.pairs in ("neighbors", "approximate-neighbors"):
        # Few held-out points may have fewer neighbours among themselves than asked for.
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
    """Return the worst pairs with row numbers of all data; the origin comes last."""
    return np.append(heldout, rows.shape[0])[result.worst_pairs]


def _audited(
    rows: Rows, components: ArrayLike, rule: PairRule, engine: Engine | None
) -> AuditResult | None:
    """Return an audit, or None if no pair counts."""
    if not isinstance(rule.pairs, str) and not len(np.asarray(rule.pairs)):
        return None
    try:
        return audit(rows, components, pairs=rule, engine=engine)
    except NoPairsError:
        return None


def _between(rows: Rows, split: Split, rule: PairRule) -> Indices:
    """Return the pairs of a held-out row and a fitted row that count."""
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
