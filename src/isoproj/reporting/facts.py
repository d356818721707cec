"""Everything a report says, as one plain dict that JSON can hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows, as_dense, check_points, require
from isoproj.numerics.container import versions
from isoproj.numerics.spectral import Fitted, Foreign, Indices
from isoproj.proof.audit import AuditResult
from isoproj.proof.certificate import Certificate, certificate_of
from isoproj.proof.verify import check_claims
from isoproj.reporting.measuring import Sample, Scene, audited, prefixes_of, sample_rows
from isoproj.reporting.pictures import png_data

N_SHOWN = 6
# A label is shown whole up to this many characters.
_LONGEST = 280

# What needs the data, or is given beside them.
_OF_DATA = (
    "claims methods histogram curve frontier pca_worst_pairs heldout maps new_points"
)

Facts = dict[str, Any]


def stated(model: Fitted, certificate: Certificate) -> Facts:
    """Return what a model states without its data; what needs them is None.

    The dict holds strings, numbers, None, lists and dicts only.
    """
    guarantee = certificate.guarantee
    return {
        "format": "isoproj report",
        "format_version": 1,
        "sentence": str(certificate),
        "model": _model_facts(model, certificate),
        "data": {
            "name": None,
            **_told(certificate, "n_points n_features n_pairs n_identical"),
            "things": certificate.pairs.things,
            "pairs": certificate.pairs.described(certificate.pair_kind),
            "fingerprint": certificate.fingerprint,
        },
        "certificate": _bounds(certificate),
        "worst_pairs": _bare_pairs(certificate),
        "nested": prefixes_of(certificate),
        **dict.fromkeys(_OF_DATA.split()),
        "guarantee": guarantee and _told(guarantee, "objective cap kept kept_bound"),
        "history": _history(model),
        "kept_history": _history(model, kept=True),
        "versions": versions(),
    }


def _model_facts(model: Fitted, certificate: Certificate) -> Facts:
    """Return parameters and status of a model, and a place for its name."""
    get_params = getattr(model, "get_params", None)
    given = {} if get_params is None else get_params(deep=False)
    status = getattr(model, "status_", None)
    return {
        "name": None,
        "estimator": None if get_params is None else type(model).__name__,
        "parameters": {name: _shown(value) for name, value in given.items()},
        "status": None if status is None else str(status),
        "n_iter": getattr(model, "n_iter_", None),
        "dtype": str(certificate.components.dtype),
    }


def file_name(name: str | None) -> str | None:
    """Return a file name as text; bytes that are not UTF-8 become question marks."""
    return None if name is None else name.encode(errors="replace").decode()


def _shown(value: object) -> str:
    """Return a parameter as text; arrays are told by their shape."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return str(value)
    # A sequence is shown whole up to this many entries.
    if isinstance(value, tuple | list) and len(value) <= 16:
        return str(value)
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"array of shape {shape}"


def _told(source: object, names: str) -> Facts:
    """Return attributes by name, arrays as lists."""
    found = {name: getattr(source, name) for name in names.split()}
    return {n: v.tolist() if isinstance(v, np.ndarray) else v for n, v in found.items()}


def _bounds(certificate: Certificate) -> Facts:
    """Return distortion, lower bound and gap of a certificate."""
    gap, hull = certificate.optimality_gap, certificate.hull
    proving = certificate.weighted_pairs if hull is None else hull.hull_pairs
    return {
        **_told(certificate, "n_components distortion lower_bound proof"),
        "optimality_gap": gap if math.isfinite(gap) else None,
        "n_proving": proving.shape[0],
    }


def given_curve(curve: Foreign, k: int) -> Facts:
    """Return the numbers of a curve that the caller computed."""
    return {
        "ks": [int(k) for k in curve.ks],
        "floor": _floats(curve.lower_bound),
        "isoproj": _floats(curve.distortion),
        "pca": None,
        "k": k,
    }


def frontier(found: Foreign, certificate: Certificate) -> Facts:
    """Return the numbers of a frontier, if it is of the model's points and size."""
    k = found.certificates[0].n_components
    if found.certificates[0].fingerprint != certificate.fingerprint:
        msg = (
            "frontier must be of the points that the model was fitted on; got one of "
            "others. Call guarantee_frontier with the same X."
        )
        raise ValueError(msg)
    if k != certificate.n_components:
        msg = (
            f"frontier must be for the model's {certificate.n_components} dimensions; "
            f"got one for {k}. Call guarantee_frontier(X, {certificate.n_components})."
        )
        raise ValueError(msg)
    return {
        "cap": found.max_distortion.tolist(),
        **_told(found, "objective lower_bound distortion kept kept_bound"),
    }


def _history(model: Fitted, *, kept: bool = False) -> list[Facts]:
    """Return the best bounds so far, round by round.

    The bounds are on the distortion or, with ``kept``, on what is kept under the cap.
    """
    steps = getattr(model, "history_", ())
    if kept:
        found = [(s, s.kept, s.kept_bound) for s in steps if s.kept > 0.0]
    else:
        # What is kept is searched for after the cap has been found.
        first = itertools.takewhile(lambda step: step.kept <= 0.0, steps)
        found = [(s, s.lower_bound, s.distortion) for s in first]
    lower, upper, told = 0.0, 1.0 if kept else math.inf, []
    # The best nested basis need not be the best of all rows.
    is_nested = bool(certificate_of(model).prefixes)
    for step, low, high in found:
        lower, upper = (low, high) if is_nested else (max(lower, low), min(upper, high))
        round_ = {"iteration": step.iteration, "upper": upper, "lower": lower}
        told.append({**round_, "seconds": step.seconds})
    # A curve of a few hundred points looks the same as one of thousands.
    stride = max(1, len(told) // 400)
    return told[:-1:stride] + told[-1:]


def checked_claims(model: Fitted, rows: Rows, max_pairs: int) -> Facts:
    """Recompute the model's claims, all pairs if they are few enough."""
    scan = certificate_of(model).n_pairs <= max_pairs
    claims = check_claims(model, rows, scan=scan)
    broken = [claim for claim in claims if not claim.holds]
    if broken:
        claim = broken[0]
        msg = (
            f"{claim.refusal}: the model states {claim.stated}, the data "
            f"give {claim.found}. Report on the data that the model was fitted on; "
            "others may be given as held out."
        )
        raise ClaimError(msg)
    return {"all_pairs": scan, "checked": [asdict(claim) for claim in claims]}


def measured(scene: Scene) -> Facts:
    """Return what the model, PCA and a random projection do to the points fitted."""
    kept, certificate = scene.variance_kept(), scene.certificate
    methods = _methods(scene.sample, scene.audits)
    for method in methods:
        method["variance"] = kept[method["name"]]
    # The certificate knows the worst of all pairs, also if a sample was measured.
    methods[0] |= {"distortion": certificate.distortion, "distortion_is": "exact"}
    return {
        "methods": methods,
        "histogram": _histogram(scene),
        "nested": prefixes_of(certificate, scene),
    }


def proven_curve(scene: Scene) -> Facts:
    """Return PCA's loss and the proven floor at other dimensions."""
    ks = scene.ks()
    return {
        "ks": ks,
        "floor": _floats(scene.floor(ks)),
        "isoproj": None,
        "pca": _floats(scene.pca_losses(ks)),
        "k": scene.certificate.n_components,
    }


def _methods(sample: Sample, audits: dict[str, AuditResult]) -> list[Facts]:
    """Return what every map loses on the pairs measured."""
    return [
        {
            "name": name,
            "distortion": max(0.0, result.distortion),
            # The worst pair of a sample loses no more than the worst of all.
            "distortion_is": "exact" if sample.is_whole else "at least",
            "mean": max(0.0, result.mean),
            "quantiles": {f"{q:g}": value for q, value in result.quantiles.items()},
        }
        for name, result in audits.items()
    ]


def _histogram(scene: Scene) -> Facts:
    """Return the histograms of model and PCA over the same bins."""
    found = {
        name: scene.audits[name].coarse_histogram(64) for name in ("isoproj", "pca")
    }
    return {
        "edges": _floats(found["pca"][1]),
        "counts": {name: counts.tolist() for name, (counts, _) in found.items()},
        "sampling": _sampling(scene.sample, scene.audits["isoproj"]),
    }


def _sampling(sample: Sample, result: AuditResult) -> Facts:
    """Return what was measured: how many rows, and how much of what counts."""
    return sample.facts | {"n_pairs": result.n_pairs, "things": result.things}


def told_pairs(
    scene: Scene,
    pairs: Indices,
    rows: Rows,
    labels: Sequence[str] | None,
    shape: tuple[int, int] | None,
) -> list[Facts]:
    """Return the losses of pairs, with labels and images where there are any."""
    ours, pca = (scene.losses(name, pairs) for name in ("isoproj", "pca"))
    return [
        {
            "pair": pair.tolist(),
            "isoproj": float(ours[at]),
            "pca": float(pca[at]),
            "labels": None if labels is None else _labels(pair, labels),
            "images": None if shape is None else _images(pair, rows, shape),
        }
        for at, pair in enumerate(pairs)
    ]


def _labels(pair: Indices, labels: Sequence[str]) -> list[str]:
    """Return the labels of two points; the origin, of directions, has none."""
    return [_shortened(str(labels[i])) if i < len(labels) else "origin" for i in pair]


def _images(pair: Indices, rows: Rows, shape: tuple[int, int]) -> list[str] | None:
    """Return two rows as images of the same greys; the origin has none."""
    if max(pair) >= rows.shape[0]:
        return None
    images = [as_dense(rows[[i]]).reshape(shape) for i in pair]
    low, high = float(np.min(images)), float(np.max(images))
    return [png_data(image, low, high) for image in images]


def _bare_pairs(certificate: Certificate) -> list[Facts]:
    """Return the worst pairs as the certificate states them."""
    pairs = certificate.worst_pairs[:N_SHOWN].tolist()
    losses = np.maximum(0.0, certificate.worst_distortions[:N_SHOWN]).tolist()
    return [
        {"pair": pair, "isoproj": loss, "pca": None, "labels": None, "images": None}
        for pair, loss in zip(pairs, losses, strict=True)
    ]


def heldout(scene: Scene, rows: Rows, name: str | None, max_pairs: int) -> Facts:
    """Return what all methods lose on points that were not fitted."""
    sample = sample_rows(rows, scene.certificate.pairs.elsewhere(), max_pairs)
    audits = audited(sample, scene.maps)
    return {
        "name": file_name(name),
        "n_points": int(rows.shape[0]),
        "methods": _methods(sample, audits),
        "sampling": _sampling(sample, audits["isoproj"]),
        "pairs": str(sample.pairs),
    }


def check_labels(labels: Sequence[str] | None, n_points: int) -> None:
    """Raise ValueError unless there is a label for every point, or none at all."""
    n_given = n_points if labels is None else len(labels)
    what = f"name every one of {n_points} points"
    require(n_given == n_points, "labels", n_given, what, "Pass one a row.")


def checked_heldout(heldout: ArrayLike | Rows, n_features: int) -> Rows:
    """Return the held-out points, or raise ValueError if they do not fit."""
    rows = check_points(heldout)
    width, what = rows.shape[1], f"have the model's {n_features} features"
    advice = "Pass the same columns."
    require(width == n_features, "held-out points", width, what, advice)
    return rows


def _shortened(text: str) -> str:
    """Return a text on one line, cut where it is too long."""
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def _floats(values: ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values)]
