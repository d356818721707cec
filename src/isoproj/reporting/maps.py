"""What a report says of prefixes, of other maps and of new points."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from isoproj.numerics.arrays import Rows
from isoproj.numerics.maps import linear_map
from isoproj.numerics.spectral import Array, Fitted
from isoproj.pairs.nearness import Metric
from isoproj.pairs.rows import stacked
from isoproj.pairs.rule import LABELLED, PairKind
from isoproj.pairs.selection import LARGEST_LIST
from isoproj.proof.audit import AuditResult
from isoproj.proof.certificate import Certificate
from isoproj.proof.heldout import Heldout, Split, measure_heldout
from isoproj.reporting.measuring import Scene, audited


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
