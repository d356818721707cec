"""Everything a report says, as one plain dict that JSON can hold."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from isoproj.exceptions import ClaimError
from isoproj.numerics.arrays import Rows, as_dense, check_points
from isoproj.numerics.container import versions
from isoproj.numerics.spectral import Indices
from isoproj.pairs.nearness import Metric
from isoproj.plot.images import image_shape_of
from isoproj.proof.audit import AuditResult
from isoproj.proof.certificate import Certificate, certificate_of
from isoproj.proof.verify import check_claims
from isoproj.reporting.maps import (
    maps_beside,
    new_points,
    prefixes_beside_pca,
    prefixes_of,
)
from isoproj.reporting.measuring import Sample, Scene
from isoproj.reporting.pictures import png_data

FACTS_VERSION = 1
_BINS = 64
_SHOWN = 6
# A label is shown whole up to this many characters.
_LONGEST = 280
# A sequence is shown whole up to this many entries.
_SHORT = 16

Facts = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Options:
    """Options of a report besides model and data, as in ``isoproj.report``."""

    heldout: ArrayLike | Rows | None = None
    labels: Sequence[str] | None = None
    image_shape: tuple[int, int] | None = None
    curve: Any = None
    frontier: Any = None
    maps: Mapping[str, Any] | None = None
    recall: int | Sequence[int] | None = None
    metric: Metric = "euclidean"
    max_pairs: int = 20_000_000
    model_name: str | None = None
    data_name: str | None = None
    heldout_name: str | None = None


def facts_of(model: Any, X: ArrayLike | Rows | None, options: Options) -> Facts:  # noqa: ANN401
    """Return what a report says of a model; data, where given, are measured.

    The dict holds strings, numbers, None, lists and dicts only. The function raises
    ``ClaimError`` if a claim does not hold for the data, and ``ValueError`` if an
    option does not fit them.
    """
    certificate = certificate_of(model)
    facts: Facts = {
        "format": "isoproj report",
        "format_version": FACTS_VERSION,
        "sentence": str(certificate),
        "model": _model_facts(model, certificate, options),
        "data": _data_facts(certificate, options),
        "certificate": _bounds(certificate),
        "claims": None,
        "methods": None,
        "histogram": None,
        "curve": _given_curve(options.curve, certificate),
        "frontier": _frontier(options.frontier, certificate),
        "worst_pairs": _bare_pairs(certificate),
        "pca_worst_pairs": None,
        "heldout": None,
        "nested": prefixes_of(certificate),
        "maps": None,
        "new_points": None,
        "guarantee": _guarantee(certificate),
        "history": _history(model),
        "kept_history": _history(model, kept=True),
        "versions": versions(),
    }
    if X is not None:
        facts.update(_measured(model, check_points(X), options, facts))
    return facts


def _model_facts(model: Any, certificate: Certificate, options: Options) -> Facts:  # noqa: ANN401
    """Return name, parameters and status of a model."""
    get_params = getattr(model, "get_params", None)
    given = get_params(deep=False) if get_params is not None else {}
    status = getattr(model, "status_", None)
    return {
        "name": _named(options.model_name),
        "estimator": None if get_params is None else type(model).__name__,
        "parameters": {name: _shown(value) for name, value in given.items()},
        "status": None if status is None else str(status),
        "n_iter": getattr(model, "n_iter_", None),
        "dtype": str(certificate.components.dtype),
    }


def _named(name: str | None) -> str | None:
    """Return a file name as text; bytes that are not UTF-8 become question marks."""
    return None if name is None else name.encode(errors="replace").decode()


def _shown(value: object) -> str:
    """Return a parameter as text; arrays are told by their shape."""
    if value is None or isinstance(value, bool | int | float | str | np.generic):
        return str(value)
    if isinstance(value, tuple | list) and len(value) <= _SHORT:
        return str(value)
    shape = getattr(value, "shape", None)
    return type(value).__name__ if shape is None else f"array of shape {shape}"


def _data_facts(certificate: Certificate, options: Options) -> Facts:
    """Return what the certificate knows of the data it was made for."""
    return {
        "name": _named(options.data_name),
        "n_points": certificate.n_points,
        "n_features": certificate.n_features,
        "n_pairs": certificate.n_pairs,
        "n_identical": certificate.n_identical,
        "pairs": certificate.pairs.described(certificate.pair_kind),
        "fingerprint": certificate.fingerprint,
    }


def _bounds(certificate: Certificate) -> Facts:
    """Return distortion, lower bound and gap of a certificate."""
    gap, hull = certificate.optimality_gap, certificate.hull
    proving = certificate.weighted_pairs if hull is None else hull.hull_pairs
    return {
        "n_components": certificate.n_components,
        "distortion": certificate.distortion,
        "lower_bound": certificate.lower_bound,
        "optimality_gap": gap if math.isfinite(gap) else None,
        "proof": certificate.proof,
        "n_proving": proving.shape[0],
    }


def _given_curve(curve: Any, certificate: Certificate) -> Facts | None:  # noqa: ANN401
    """Return the numbers of a curve that the caller computed."""
    if curve is None:
        return None
    ks = [int(k) for k in curve.ks]
    return {
        "ks": ks,
        "floor": _floats(curve.lower_bound),
        "isoproj": _floats(curve.distortion),
        "pca": None,
        "k": certificate.n_components,
    }


def _frontier(found: Any, certificate: Certificate) -> Facts | None:  # noqa: ANN401
    """Return the numbers of a frontier, if it is of the model's points and size."""
    if found is None:
        return None
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
        "objective": found.objective.value,
        "lower_bound": found.lower_bound,
        "cap": _floats(found.max_distortion),
        "distortion": _floats(found.distortion),
        "kept": _floats(found.kept),
        "kept_bound": _floats(found.kept_bound),
    }


def _history(model: Any, *, kept: bool = False) -> list[Facts]:  # noqa: ANN401
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
    return _thinned(told)


def _thinned(told: list[Facts]) -> list[Facts]:
    # A curve of a few hundred points looks the same as one of thousands.
    """Return at most about 400 entries, the last among them."""
    stride = max(1, len(told) // 400)
    return told[:-1:stride] + told[-1:]


def _guarantee(certificate: Certificate) -> Facts | None:
    """Return cap and share kept of a certificate, None without a cap."""
    guarantee = certificate.guarantee
    if guarantee is None:
        return None
    return {
        "objective": guarantee.objective.value,
        "cap": guarantee.cap,
        "kept": guarantee.kept,
        "kept_bound": guarantee.kept_bound,
    }


def _measured(
    model: Any,  # noqa: ANN401 - an estimator or a certificate
    rows: Rows,
    options: Options,
    facts: Facts,
) -> Facts:
    """Return the facts that need the data."""
    certificate = certificate_of(model)
    if options.labels is not None and len(options.labels) != rows.shape[0]:
        msg = (
            f"labels must name every one of {rows.shape[0]} points; got "
            f"{len(options.labels)}. Pass one a row."
        )
        raise ValueError(msg)
    shape = image_shape_of(rows, options.image_shape)
    claims = _checked_claims(model, rows, options.max_pairs)
    scene = Scene(certificate, rows, max_pairs=options.max_pairs)
    told = _Teller(scene, rows, options.labels, shape)
    crushed = scene.pca_worst_pairs()
    return {
        "claims": claims,
        "methods": _methods(scene),
        "histogram": _histogram(scene),
        "curve": facts["curve"] or _curve(scene),
        "worst_pairs": told.pairs(certificate.worst_pairs[:_SHOWN]),
        "pca_worst_pairs": None if crushed is None else told.pairs(crushed[:_SHOWN]),
        "heldout": _heldout(scene, options),
        "nested": prefixes_beside_pca(facts["nested"], scene),
        "maps": maps_beside(scene, options.maps, options.recall, options.metric),
        "new_points": new_points(model, scene, rows, _checked_heldout(scene, options)),
    }


def _checked_claims(model: Any, rows: Rows, max_pairs: int) -> Facts:  # noqa: ANN401
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


def _methods(scene: Scene) -> list[Facts]:
    """Return what the model, PCA and a random projection lose and keep."""
    exact, kept = scene.sample.is_whole, scene.variance_kept()
    methods = [
        {**_method(name, result, exact=exact), "variance": kept[name]}
        for name, result in scene.audits.items()
    ]
    # The certificate knows the worst of all pairs, also if a sample was measured.
    exactly = {"distortion": scene.certificate.distortion, "distortion_is": "exact"}
    return [methods[0] | exactly, *methods[1:]]


def _method(name: str, result: AuditResult, *, exact: bool) -> Facts:
    """Return what one method loses on the pairs measured."""
    return {
        "name": name,
        "distortion": max(0.0, result.distortion),
        # The worst pair of a sample loses no more than the worst of all.
        "distortion_is": "exact" if exact else "at least",
        "mean": result.mean,
        "quantiles": {f"{q:g}": value for q, value in result.quantiles.items()},
    }


def _sampling(sample: Sample, n_pairs: int) -> Facts:
    """Return how many rows and pairs were measured."""
    return {
        "is_whole": sample.is_whole,
        "n_rows": sample.n_rows,
        "n_all": sample.n_all,
        "n_pairs": n_pairs,
    }


def _histogram(scene: Scene) -> Facts:
    """Return the histograms of model and PCA over the same bins."""
    found = {
        name: scene.audits[name].coarse_histogram(_BINS) for name in ("isoproj", "pca")
    }
    return {
        "edges": _floats(found["pca"][1]),
        "counts": {name: counts.tolist() for name, (counts, _) in found.items()},
        "sampling": _sampling(scene.sample, scene.audits["isoproj"].n_pairs),
    }


def _curve(scene: Scene) -> Facts:
    """Return PCA's loss and the proven floor at other dimensions."""
    ks = scene.ks()
    return {
        "ks": ks,
        "floor": _floats(scene.floor(ks)),
        "isoproj": None,
        "pca": _floats(scene.pca_losses(ks)),
        "k": scene.certificate.n_components,
    }


class _Teller:
    """Shows pairs as pictures, texts or row numbers."""

    def __init__(
        self,
        scene: Scene,
        rows: Rows,
        labels: Sequence[str] | None,
        shape: tuple[int, int] | None,
    ) -> None:
        self.scene, self.rows, self.labels, self.shape = scene, rows, labels, shape

    def pairs(self, pairs: Indices) -> list[Facts]:
        """Return the losses of pairs, with labels and images where there are any."""
        losses = self.scene.losses(pairs)
        return [
            {
                "pair": [int(i) for i in pair],
                "isoproj": float(losses["isoproj"][at]),
                "pca": float(losses["pca"][at]),
                "labels": self._labels(pair),
                "images": self._images(pair),
            }
            for at, pair in enumerate(pairs)
        ]

    def _labels(self, pair: Indices) -> list[str] | None:
        if self.labels is None:
            return None
        # With directions the second point is the origin, which has no label.
        return [
            _shortened(str(self.labels[i])) if i < len(self.labels) else "origin"
            for i in pair
        ]

    def _images(self, pair: Indices) -> list[str] | None:
        if self.shape is None or max(pair) >= self.rows.shape[0]:
            return None
        images = [as_dense(self.rows[[i]]).reshape(self.shape) for i in pair]
        low = min(float(image.min()) for image in images)
        high = max(float(image.max()) for image in images)
        return [png_data(image, low, high) for image in images]


def _bare_pairs(certificate: Certificate) -> list[Facts]:
    """Return the worst pairs as the certificate states them."""
    found = zip(
        certificate.worst_pairs.tolist(),
        certificate.worst_distortions.tolist(),
        strict=True,
    )
    return [
        {"pair": pair, "isoproj": loss, "pca": None, "labels": None, "images": None}
        for pair, loss in list(found)[:_SHOWN]
    ]


def _heldout(scene: Scene, options: Options) -> Facts | None:
    """Return what all methods lose on points that were not fitted."""
    rows = _checked_heldout(scene, options)
    if rows is None:
        return None
    sample, found = scene.heldout(rows, options.max_pairs)
    exact = sample.is_whole
    return {
        "name": _named(options.heldout_name),
        "n_points": int(rows.shape[0]),
        "methods": [_method(n, found[n], exact=exact) for n in found],
        "sampling": _sampling(sample, found["isoproj"].n_pairs),
        "pairs": str(sample.pairs),
    }


def _checked_heldout(scene: Scene, options: Options) -> Rows | None:
    """Return the held-out points, or raise ValueError if they do not fit."""
    if options.heldout is None:
        return None
    rows = check_points(options.heldout)
    expected = scene.certificate.n_features
    if rows.shape[1] != expected:
        msg = (
            f"held-out points must have the model's {expected} features; got "
            f"{rows.shape[1]}. Pass the same columns."
        )
        raise ValueError(msg)
    return rows


def _shortened(text: str) -> str:
    """Return a text on one line, cut where it is too long."""
    plain = " ".join(text.split())
    return plain if len(plain) <= _LONGEST else plain[: _LONGEST - 1] + "…"


def _floats(values: ArrayLike) -> list[float]:
    return [float(value) for value in np.asarray(values)]
