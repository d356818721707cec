"""Measure a model beside PCA and a random projection, on all pairs or on a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from isoproj.numerics.arrays import Rows
from isoproj.numerics.maps import linear_map
from isoproj.numerics.spectral import Array, Fitted, Indices, orthonormal
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.nearness import Metric
from isoproj.pairs.rows import stacked
from isoproj.pairs.rule import LABELLED, PairKind, PairRule, prepare_pairs
from isoproj.pairs.selection import LARGEST_LIST
from isoproj.pairs.worst_pairs import find_worst
from isoproj.proof.audit import AuditResult, audit
from isoproj.proof.bounds import lower_bounds
from isoproj.proof.certificate import Certificate
from isoproj.proof.heldout import Heldout, Split, measure_heldout


@dataclass(frozen=True, slots=True, eq=False)
class Sample:
    """The rows that methods are measured on, and the pairs that count among them.

    ``n_all`` is the number of all rows; ``is_whole`` says that all pairs are there.
    """

    rows: Rows
    pairs: PairRule
    n_all: int
    is_whole: bool

    @property
    def facts(self) -> dict[str, Any]:
        """How many of the rows methods are measured on."""
        n_rows = int(self.rows.shape[0])
        return {"is_whole": self.is_whole, "n_rows": n_rows, "n_all": self.n_all}


def sample_rows(rows: Rows, rule: PairRule, max_pairs: int) -> Sample:
    """Return as much of the data as has at most ``max_pairs`` pairs.

    Data that are small enough are returned whole. Otherwise the sample is random rows
    with all their pairs, or, where pairs are listed, random pairs of the list.
    """
    n_all, draw = int(rows.shape[0]), np.random.default_rng(0)
    if rule.kind is PairKind.LISTED:
        listed = np.asarray(rule.pairs)
        if len(listed) <= max_pairs:
            return Sample(rows, rule, n_all, is_whole=True)
        chosen = np.sort(draw.choice(len(listed), max_pairs, replace=False))
        return Sample(rows, replace(rule, pairs=listed[chosen]), n_all, is_whole=False)
    n_rows = int((1.0 + np.sqrt(1.0 + 8.0 * max_pairs)) / 2.0)
    n_rows = max_pairs if rule.kind is PairKind.DIRECTIONS else n_rows
    if n_all <= n_rows:
        return Sample(rows, rule, n_all, is_whole=True)
    chosen = np.sort(draw.choice(n_all, max(2, n_rows), replace=False))
    return Sample(rows[chosen], rule.of_rows(chosen), n_all, is_whole=False)


class Scene:
    """A certified projection on its data, beside PCA and a random projection.

    ``maps`` and ``audits`` hold the three maps and what each does to at most
    ``max_pairs`` pairs, as ``"isoproj"``, ``"pca"`` and ``"random"``.
    """

    def __init__(self, certificate: Certificate, rows: Rows, *, max_pairs: int) -> None:
        self.certificate = certificate
        self.points, _ = prepare_pairs(rows, certificate.pairs, rotate=True)
        self.sample = sample_rows(rows, certificate.pairs, max_pairs)
        # In one dimension numpy returns a number.
        coordinates = self.points.coordinates[: rows.shape[0]]
        covariance = np.cov(coordinates, rowvar=False)
        self._covariance = np.atleast_2d(covariance)
        self._axes = np.asarray(np.linalg.eigh(self._covariance)[1][:, ::-1])
        components = certificate.components.astype(np.float64)
        k, d = components.shape
        noise = np.random.default_rng(0).standard_normal((d, k))
        self.maps = {
            "isoproj": components,
            "pca": self.principal_components(k),
            "random": orthonormal(noise).T,
        }
        self.audits = audited(self.sample, self.maps)

    def principal_components(self, k: int) -> Array:
        """Return the first ``k`` principal components of all points, one a row."""
        return self.points.frame.lift(self._axes[:, :k]).T

    def variance_kept(self) -> dict[str, float]:
        """Return the share of all points' variance that every map keeps."""
        total = float(np.trace(self._covariance))
        kept = {}
        for name, components in self.maps.items():
            inside = self.points.frame.coordinates_of(components.T)
            kept[name] = float(np.sum(inside * (self._covariance @ inside))) / total
        return kept

    def pca_losses(self, ks: Sequence[int]) -> Array:
        """Return the loss of PCA's worst measured pair at other dimensions."""
        points, pairs = prepare_pairs(self.sample.rows, self.sample.pairs, rotate=False)
        found = [
            find_worst(points, pairs, self.principal_components(k), n_worst=1)
            for k in ks
        ]
        return np.array([max(0.0, float(each.worst_losses[0])) for each in found])

    def floor(self, ks: Sequence[int]) -> Array:
        """Return the best lower bound that the certificate proves at each k."""
        floor = np.zeros(len(ks))
        for k, part in self.certificate.by_dimension.items():
            pairs, weights = part.weighted_pairs, part.weights
            own = lower_bounds(self.points, pairs, weights, list(ks))
            # What no k dimensions can do, fewer cannot do either.
            stated = np.where(np.asarray(ks) <= k, part.lower_bound, 0.0)
            floor = np.maximum(floor, np.maximum(own, stated))
        return floor

    def losses(self, name: str, pairs: Indices) -> Array:
        """Return the exact losses of given pairs under a map."""
        lost = exact_losses(self.points, pairs, self.maps[name])
        return np.maximum(0.0, lost)  # What a projection gains is rounding.

    def ks(self) -> list[int]:
        """Return numbers of dimensions to draw; the model's own is among them."""
        k = self.certificate.n_components
        top = min(2 * k, self.points.n_dims)
        # Numbers of dimensions that a curve shows.
        ks = np.unique(np.rint(np.geomspace(1, max(top, 1), 12)).astype(int))
        prefixes = [part.n_components for part in self.certificate.prefixes]
        return sorted({*ks.tolist(), min(k, top), *(n for n in prefixes if n <= top)})


def audited(
    sample: Sample,
    maps: Mapping[str, Array],
    **options: Any,  # noqa: ANN401 - of ``audit``
) -> dict[str, AuditResult]:
    """Measure maps on the pairs of a sample."""
    return {
        name: audit(
            sample.rows,
            components,
            orientation="rows",
            pairs=sample.pairs,
            **{"n_worst": 8, **options},
        )
        for name, components in maps.items()
    }


def prefixes_of(
    certificate: Certificate, scene: Scene | None = None
) -> list[dict[str, Any]] | None:
    """Return the bounds of every prefix and of all rows, None without prefixes.

    With a scene they stand beside what PCA's worst measured pair loses at each.
    """
    if not certificate.prefixes:
        return None
    parts = certificate.by_dimension
    pca = [None] * len(parts) if scene is None else scene.pca_losses(list(parts))
    return [
        {
            "k": k,
            "distortion": part.distortion,
            "lower_bound": part.lower_bound,
            "pca": None if loss is None else float(loss),
        }
        for (k, part), loss in zip(parts.items(), pca, strict=True)
    ]


def maps_beside(
    scene: Scene,
    maps: Mapping[str, Any] | None,
    recall: int | Sequence[int] | None,
    metric: Metric,
) -> dict[str, Any] | None:
    """Return what the model, PCA and maps by name lose and find, all measured alike."""
    if not maps and recall is None:
        return None
    sample = scene.sample
    n_features = int(sample.rows.shape[1])
    measured = {name: scene.maps[name] for name in ("isoproj", "pca")}
    for name, given in (maps or {}).items():
        if name in measured:
            msg = f"maps must not be called {name!r}, as the report's own. Rename it."
            raise ValueError(msg)
        measured[str(name)] = linear_map(given, n_features)
    audits = audited(sample, measured, n_worst=1, recall=recall, metric=metric)
    return {
        "metric": metric,
        **sample.facts,
        "rows": [_row(name, measured[name], audits[name]) for name in measured],
    }


def _row(name: str, components: Array, result: AuditResult) -> dict[str, Any]:
    """Return what one map does, as a row of the table."""
    found = result.neighbors
    return {
        "name": name,
        "n_components": int(components.shape[0]),
        "distortion": max(0.0, result.distortion),
        "stretch": result.stretch,
        "mean": result.mean,
        "recall": {str(k): value for k, value in result.recall.items()},
        "nearest_changed": None if found is None else found.nearest_changed,
    }


def new_points(
    model: Fitted, scene: Scene, rows: Rows, heldout: Rows | None
) -> dict[str, Any] | None:
    """Return what holds for new points, None where no point was held out.

    Rows given as held out come before those that the fit held out. Where nothing can be
    told of new points, the sentence says why.
    """
    found: Heldout | None = getattr(model, "heldout_", None)
    certificate = scene.certificate
    if heldout is not None:
        n_rows, n_more = int(rows.shape[0]), int(heldout.shape[0])
        # Kinds of pairs that say nothing of points without a label or a place in a
        # list.
        if certificate.pair_kind in (*LABELLED, PairKind.LISTED):
            return _untold("which of their pairs count goes by labels or a list")
        if n_rows * n_more > LARGEST_LIST:
            return _untold(
                f"they have more than {LARGEST_LIST:,} pairs with fitted ones"
            )
        split = Split(np.arange(n_rows), np.arange(n_rows, n_rows + n_more))
        found = measure_heldout(
            stacked(rows, heldout),
            split,
            certificate.components,
            certificate.pairs.elsewhere(),
            distortion=certificate.distortion,
        )
    return None if found is None else _promise(found)


def _untold(why: str) -> dict[str, Any]:
    """Return that nothing is told of new points, and why."""
    sentence = f"No guarantee for new points: {why}."
    return {"sentence": sentence, "new_point": None, "new_pair_share": None}


def _promise(found: Heldout) -> dict[str, Any]:
    """Return the guarantee for new points, or the reason why there is none."""
    try:
        promise = found.guarantee()
    except ValueError as error:
        return _untold(str(error).rstrip("."))
    share = promise.new_pair_share
    return {
        "sentence": str(promise),
        "new_point": promise.new_point,
        "new_pair_share": None if math.isnan(share) else share,
    }
