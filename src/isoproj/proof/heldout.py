"""Held-out points: split them off, and measure a map on their pairs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import train_test_split

from isoproj.engines.base import Engine
from isoproj.exceptions import NoPairsError
from isoproj.numerics.arrays import Rows, is_sparse, is_whole, require
from isoproj.numerics.rounding import at_least, at_most, trimmed
from isoproj.numerics.shown import Shown
from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.blocks import SquaredDistances
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.points import Points
from isoproj.pairs.rows import first_copies
from isoproj.pairs.rule import (
    LABELLED,
    PairKind,
    PairRule,
    label_codes,
    prepare_pairs,
)
from isoproj.pairs.selection import LARGEST_LIST, nearest_pairs
from isoproj.proof.audit import AuditResult, audit
from isoproj.proof.confidence import (
    CONFIDENCE,
    conformal_rank,
    fewest_points,
    largest_share,
)

# Fewest rows in each part of a split.
_FEWEST = 2
# Held-out rows that are measured together.
_BLOCK = 256
# Which fitted points count for a new one, and which pairs of new ones.
_CLASSES = {
    PairKind.LABELS: ("of another class", "of different classes"),
    PairKind.WITHIN: ("of its own class", "of one class"),
    PairKind.QUERIES: ("of the other kind (query or not)", "of a query and another"),
}
# Kinds whose pairs between both parts are listed one by one.
_LISTED = (PairKind.ALL, PairKind.SAMPLED, *LABELLED)


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Numbers of the rows that are fitted and of those held out, both ascending."""

    training: Indices
    heldout: Indices


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class NewPoints(Shown):
    """What holds for points that were neither fitted nor held out.

    Both statements assume that new points are drawn independently from where the
    fitted and the held-out points came from. Each holds at its own confidence.

    Parameters
    ----------
    new_point : float
        With probability ``confidence``, over held-out points and the new one, none of
        a new point's distances to ``fitted`` loses more than this share.
    new_pair_share : float
        With confidence ``confidence`` at most this share of ``new_pairs`` loses more
        than ``distortion``. NaN where no random pair counts, as with neighbours.
    confidence : float
        Probability of each statement.
    distortion : float
        What the certificate states of the fitted points.
    n_points, n_training : int
        Number of held-out points and of fitted points.
    fitted, new_pairs : str
        Which pairs the two statements are about, in words: those that the rule of the
        fit counts. With labels these are pairs with points of another class (or of the
        same), so that the class of a new point must be known; with ``min_distance``,
        points at least so far away; with neighbours, its nearest fitted points.

    See Also
    --------
    isoproj.NearIsometricProjection : Its parameter ``heldout`` holds out rows.

    References
    ----------
    Vovk, Gammerman and Shafer, "Algorithmic Learning in a Random World", 2005, chapter
    2: conformal prediction.
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the
    case of the binomial", Biometrika 26, 1934.
    """

    new_point: float
    new_pair_share: float
    confidence: float
    distortion: float
    n_points: int
    n_training: int
    fitted: str
    new_pairs: str

    def __str__(self) -> str:
        level = f"{trimmed(at_least(100.0 * self.confidence))} %"
        text = (
            "If new points are drawn like the points fitted, a new point's distances "
            f"to {self.fitted} all lose at most "
            f"{at_most(self.new_point)} with probability {level}"
        )
        if math.isnan(self.new_pair_share):
            return text + "."
        return (
            f"{text}, and at most {at_most(100.0 * self.new_pair_share, 2)} % of "
            f"{self.new_pairs} lose more than the certified {at_most(self.distortion)} "
            f"with {level} confidence."
        )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True, repr=False)
class Heldout(Shown):
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
    distortion : float
        What the certificate states of the fitted rows.
    point_losses : ndarray of shape (n_points,)
        For every held-out row its largest loss with a fitted row, 0 if none counts.
        Empty where ``to_training`` is None.
    pair_losses : ndarray of shape (m,)
        Losses of pairs of held-out rows that count, drawn at random such that no row is
        in two of them; at most ``n_points // 2``.
    fitted, new_pairs : str
        Which fitted points count for a held-out point, and which pairs of held-out
        points count, in words.

    See Also
    --------
    isoproj.NearIsometricProjection : Its parameter ``heldout`` holds out rows.
    isoproj.audit : Measure a map on any points.
    """

    rows: Indices
    training: Indices
    within: AuditResult | None
    to_training: AuditResult | None
    distortion: float
    point_losses: Array
    pair_losses: Array
    fitted: str
    new_pairs: str

    def guarantee(self, confidence: float = CONFIDENCE) -> NewPoints:
        """Return what holds for new points, drawn like the points fitted.

        Parameters
        ----------
        confidence : float
            Probability of each statement, between 0 and 1.

        Returns
        -------
        NewPoints
            With ``new_point`` and ``new_pair_share``; it prints itself as a sentence.

        Raises
        ------
        ValueError
            If too few points were held out, with the number needed, or if no pair of
            a held-out and a fitted point counts.
        """
        rank = conformal_rank(self.n_points, confidence)
        if not self.point_losses.size:
            msg = (
                "a guarantee needs pairs of held-out and fitted points; none counts. "
                "Use pairs='all'."
            )
            raise ValueError(msg)
        n_drawn, share = self.pair_losses.size, math.nan
        if n_drawn:
            n_more = int((self.pair_losses > self.distortion).sum())
            share = largest_share(n_more, n_drawn, float(confidence))
        return NewPoints(
            new_point=float(np.sort(self.point_losses)[rank - 1]),
            new_pair_share=share,
            confidence=float(confidence),
            distortion=self.distortion,
            n_points=self.n_points,
            n_training=int(self.training.size),
            fitted=self.fitted,
            new_pairs=self.new_pairs,
        )

    @property
    def n_points(self) -> int:
        """Number of held-out points."""
        return int(self.rows.size)

    @property
    def n_rows(self) -> int:
        """Number of rows passed to ``fit``, fitted or held out."""
        return int(self.rows.size + self.training.size)

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
                f"{name:<17}{result.n_pairs:,} {result.things}, the worst loses "
                f"{result.distortion:.4f}, 99.9% lose at most "
                f"{at_most(result.quantiles[0.999])}, mean {result.mean:.4f}"
            )
        needed = fewest_points(CONFIDENCE)
        if self.point_losses.size:
            lines.append(
                str(self.guarantee())
                if self.n_points >= needed
                else f"A guarantee for new points at {100.0 * CONFIDENCE:g} % needs at "
                f"least {needed} held-out points."
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
    if rule.kind in LABELLED:
        label_codes(rule, n_rows)
    parts = train_test_split(
        np.arange(n_rows), test_size=count, random_state=random_state
    )
    return Split(np.sort(parts[0]), np.sort(parts[1]))


def _count(n_rows: int, size: object) -> int:
    """Return the number of rows to hold out, from a share or a number."""
    count = -1
    if is_whole(size):
        count = int(size)
    elif isinstance(size, float | np.floating) and 0.0 < size < 1.0:
        count = math.ceil(float(size) * n_rows)
    what = (
        "be a share between 0 and 1 or a whole number that leaves at least "
        f"{_FEWEST} of {n_rows} rows on both sides, or None"
    )
    fits = _FEWEST <= count <= n_rows - _FEWEST
    require(fits, "heldout", size, what, "Use 0.2, or None to fit all.")
    return count


def measure_heldout(
    rows: Rows,
    split: Split,
    components: ArrayLike,
    rule: PairRule,
    *,
    distortion: float,
    engine: Engine | None = None,
) -> Heldout:
    """Measure a map on the pairs with held-out points.

    ``rows`` and the labels of ``rule`` are those of all points; ``distortion`` is what
    the certificate states of the fitted ones. With neighbours, the
    nearest held-out points and the nearest fitted points of each held-out point count.
    """
    own = rule.of_rows(split.heldout)
    if own.kind is PairKind.SAMPLED:
        own = replace(own, pairs="all")
    chosen = rows[split.heldout]
    if rule.is_of_neighbors:
        # Few held-out points may have fewer neighbours among themselves than asked for.
        others = np.unique(first_copies(chosen)).size - 1
        own = replace(own, n_neighbors=max(1, min(int(rule.n_neighbors), others)))
        own = own if others else replace(own, pairs="all")
    within = _audited(chosen, components, own, engine)
    if within is not None:
        # In numbers of all rows; the origin comes last.
        numbers = np.append(split.heldout, rows.shape[0])
        within = replace(
            within,
            worst_pairs=numbers[within.worst_pairs],
            origin=None if within.origin is None else int(rows.shape[0]),
        )
    between = replace(
        rule, pairs=_between(rows, split, rule), labels=None, include_norms=False
    )
    to_training = _audited(rows, components, between, engine)
    points = Points.prepare(rows, rotate=False)
    linear = np.asarray(components, dtype=np.float64)
    losses = np.empty(0)
    fitted, new_pairs = _in_words(rule, split.training.size)
    if to_training is not None:
        losses = _point_losses(points, split, linear, between, rule)
    return Heldout(
        rows=split.heldout,
        training=split.training,
        within=within,
        to_training=to_training,
        distortion=float(distortion),
        point_losses=losses,
        pair_losses=_disjoint_losses(points, split, linear, rule),
        fitted=fitted,
        new_pairs=new_pairs,
    )


def _in_words(rule: PairRule, n_training: int) -> tuple[str, str]:
    """Return which fitted points count for a new one, and which pairs of new ones."""
    fitted, new_pairs = f"the {n_training:,} fitted points", "pairs of new points"
    if rule.is_of_neighbors:
        fitted = f"its {rule.n_neighbors} nearest of {fitted}"
    whose, apart = [], []
    if rule.kind in LABELLED:
        of_new, of_both = _CLASSES[rule.kind]
        whose.append(of_new)
        apart.append(of_both)
    if rule.min_distance > 0.0:
        whose.append(f"at least {rule.least} away")
        apart.append(f"at least {rule.least} apart")
    if whose:
        fitted = f"those of {fitted} that are {' and '.join(whose)}"
        new_pairs += f" {' and '.join(apart)}"
    return fitted, new_pairs


def _disjoint_losses(
    points: Points, split: Split, components: Array, rule: PairRule
) -> Array:
    """Return the losses of random pairs of held-out rows that share no row."""
    if rule.kind not in (PairKind.ALL, PairKind.SAMPLED, *LABELLED):
        return np.empty(0)
    # Rows may be sorted, so that neighbours in a file are alike: the order is random.
    order = np.random.default_rng(0).permutation(split.heldout)
    pairs = np.sort(order[: order.size // 2 * 2].reshape(-1, 2), axis=1)
    pairs = _with_labels(pairs, rule, points.n_points)
    pairs = pairs[points.are_distinct(pairs)]
    if rule.min_distance > 0.0:
        pairs = pairs[points.distances(pairs) >= rule.min_distance]
    return exact_losses(points, pairs, components)


def _point_losses(
    points: Points, split: Split, components: Array, between: PairRule, rule: PairRule
) -> Array:
    """Return the largest loss of every held-out row with a fitted row; exact."""
    is_plain = rule.kind in (PairKind.ALL, PairKind.SAMPLED)
    if is_plain and not rule.min_distance > 0.0 and not is_sparse(points.rows):
        return _largest_of_all(points, split, components)
    _, selected = prepare_pairs(points.rows, between, rotate=False)
    listed = np.asarray(selected.listed)
    own = np.full(points.n_points, -1)
    own[split.heldout] = np.arange(split.heldout.size)
    largest = np.zeros(split.heldout.size)
    number = own[listed].max(axis=1)
    np.maximum.at(largest, number, exact_losses(points, listed, components))
    return largest


@single_blas_thread
def _largest_of_all(points: Points, split: Split, components: Array) -> Array:
    """Return the largest loss of every held-out row with any fitted row; exact.

    A product bounds every loss from both sides; the pairs that may be the worst of a
    row are measured from the difference of their rows.
    """
    mapped, training = points.mapped(components), split.training
    order = np.concatenate([training, split.heldout])
    spaces = [
        SquaredDistances.of(rows[order], storage=points.storage)
        for rows in (points.coordinates, mapped)
    ]
    columns = slice(0, training.size)
    top = max(1.0, float(np.linalg.norm(components, 2)) ** 2)
    largest = np.zeros(split.heldout.size)
    for start in range(0, split.heldout.size, _BLOCK):
        block = split.heldout[start : start + _BLOCK]
        rows = slice(training.size + start, training.size + start + block.size)
        lengths, images = (space.block(space.left(rows), columns) for space in spaces)
        error, image_error = (space.block_errors(rows, columns) for space in spaces)
        # Images inherit the rounding of the rows they were made of.
        image_error = image_error + top * error
        with np.errstate(divide="ignore", invalid="ignore"):
            losses = 1.0 - images / lengths
            reach = (image_error + (np.abs(losses) + 1.0) * error) / (lengths - error)
        losses[is_open := ~(lengths > 4.0 * error)] = 0.0
        reach[is_open] = np.inf
        same = points.first_copy[block][:, None] == points.first_copy[training]
        reach[same], losses[same] = -np.inf, 0.0
        bars = np.where(np.isfinite(reach), losses - reach, -np.inf).max(axis=1)
        at, column = np.nonzero(losses + reach >= bars[:, None])
        is_pair = ~same[at, column]
        at, column = at[is_pair], column[is_pair]
        pairs = np.column_stack([block[at], training[column]])
        exact = exact_losses(points, pairs, components)
        np.maximum.at(largest, start + at, exact)
    return largest


def _audited(
    rows: Rows, components: ArrayLike, rule: PairRule, engine: Engine | None
) -> AuditResult | None:
    """Return an audit, or None if no pair counts."""
    if not isinstance(rule.pairs, str) and not len(np.asarray(rule.pairs)):
        return None
    try:
        return audit(rows, components, orientation="rows", pairs=rule, engine=engine)
    except NoPairsError:
        return None


def _between(rows: Rows, split: Split, rule: PairRule) -> Indices:
    """Return the pairs of a held-out row and a fitted row that count."""
    heldout, training = split.heldout, split.training
    if rule.kind is PairKind.DIRECTIONS:
        return np.empty((0, 2), dtype=np.intp)
    if rule.is_of_neighbors:
        points = Points.prepare(rows, rotate=False)
        return nearest_pairs(points, heldout, training, int(rule.n_neighbors))
    pairs = np.column_stack(
        [np.repeat(heldout, training.size), np.tile(training, heldout.size)]
    )
    return _with_labels(pairs, rule, int(rows.shape[0]))


def _with_labels(pairs: Indices, rule: PairRule, n_rows: int) -> Indices:
    """Return the pairs whose labels count; all pairs if the rule is not by labels."""
    if rule.kind not in LABELLED:
        return pairs
    labels = label_codes(rule, n_rows)[pairs]
    is_within = labels[:, 0] == labels[:, 1]
    return np.asarray(pairs[is_within == (rule.kind is PairKind.WITHIN)])
