"""How each kind of cell is measured; the referee scores every map."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np
import scipy.sparse.linalg
from sklearn.manifold import TSNE, trustworthiness
from sklearn.neighbors import NearestNeighbors

from isoproj.baselines.dual_ascent import DualAscent
from isoproj.baselines.sdp import SDPProjection
from isoproj.comparison.compare import METHODS
from isoproj.comparison.referee import Record, measure, score_map
from isoproj.numerics.spectral import Array
from isoproj.pairs.moments import pose
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import spectral_ratio
from isoproj.solvers.dual_ascent import dual_ascent
from paper.datasets import held_out, load, sample
from paper.table import (
    ALGORITHM,
    N_STEPS,
    WHOLE,
    Cell,
    Experiment,
    Kind,
    experiment_named,
)

# What a record keeps of a score; the rest follows or is not used.
_KEPT = (
    "distortion",
    "mean",
    "q50",
    "q99",
    "q999",
    "lower_bound",
    "seconds",
    "cpu_seconds",
    "time_limit",
    "status",
    "error",
)
# Multiples of the algorithm's own time at which SDP+DR is looked at.
_OUR_TIMES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0)
_SCS_TIMES = (1.0, 3.0, 10.0, 30.0, 100.0)
_STEP_COUNTS = (30, N_STEPS, 480)
_WIDTHS = (500, 1000, 2000, 4000, 8000)
_NEIGHBOURS = 10
# Theory needs a weight per pair: beyond this size it is left out.
_LARGEST_THEORY = 500


def measure_cell(cell: Cell) -> Record:
    """Return what a cell measures: ``facts`` about the sample, and ``scores``.

    Scores go by method, or by whatever the kind of experiment varies: time, number of
    steps, dimension.
    """
    experiment = experiment_named(cell.experiment)
    points = _points(cell)
    facts = _facts(points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        more, scores = _KINDS[experiment.kind](cell, experiment, points)
    return {"facts": _tidy(facts | more), "scores": _tidy(scores)}


def _points(cell: Cell) -> Array:
    """Return the sample that a cell is about."""
    collection = load(cell.subject.data, offline=True)
    r = None if cell.r == WHOLE else cell.r
    return sample(collection, cell.subject.labels, r, cell.seed)


def _facts(points: Array) -> Record:
    """Return sizes of a sample."""
    # The copies of a point are found by the referee's own code.
    prepared, pairs = prepare_pairs(points, rotate=points.shape[0] <= _LARGEST_THEORY)
    return {
        "n_points": int(points.shape[0]),
        "n_features": int(points.shape[1]),
        "n_pairs": pairs.n_pairs,
        "n_identical": pairs.n_identical,
        "n_dims": prepared.n_dims if points.shape[0] <= _LARGEST_THEORY else None,
    }


def _tidy(value: Any) -> Any:  # noqa: ANN401 - whatever JSON can say
    """Return a value with all its numbers rounded to nine digits, NaN as None."""
    # More digits are noise and make files large.
    if isinstance(value, dict):
        return {str(name): _tidy(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_tidy(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.9g}") if math.isfinite(value) else None
    return value


def _kept(record: Record) -> Record:
    """Return the part of a score that goes into the records."""
    return {name: record[name] for name in _KEPT if record.get(name) is not None}


def _measured(
    cell: Cell,
    points: Array,
    name: str,
    *,
    time_limit: float | None = None,
    inspect: Callable[[Any], Record] | None = None,
) -> Record:
    """Return the record of one method on a cell's points."""
    is_scs = name == "sdp+dr/scs"
    estimator = SDPProjection(solver="scs") if is_scs else METHODS[name]()
    return measure(
        name,
        estimator,
        points,
        cell.k,
        cell.seed,
        time_limit=time_limit,
        inspect=inspect,
    )


def _at_hand(methods: tuple[str, ...]) -> list[str]:
    """Return the methods whose packages are installed."""
    has_scs = find_spec("scs") is not None
    return [name for name in methods if has_scs or not name.endswith("/scs")]


def _sizes(_: Cell, __: Experiment, points: Array) -> tuple[Record, Record]:
    """Return the paper's step size for a sample."""
    n = _facts(points)["n_pairs"]
    return {"step_size": math.sqrt(2.0) / math.sqrt(n * N_STEPS)}, {}


def _grid(cell: Cell, experiment: Experiment, points: Array) -> tuple[Record, Record]:
    """Fit every method; the algorithm comes first because its time limits others."""
    methods = _at_hand(experiment.methods_at(cell.r))
    test = _test_points(cell) if experiment.has_held_out else None
    own: Record = {}
    scores: Record = {}
    for name in sorted(methods, key=lambda method: method != ALGORITHM):
        limit = _time_limit(name, experiment.time_rule(cell.r), own)
        inspect = _inspection(name, test, own)
        fitted = _measured(cell, points, name, time_limit=limit, inspect=inspect)
        scores[name] = _kept(fitted) | fitted.get("found", {})
        if name == ALGORITHM:
            own = scores[name]
    return (_theory(points, cell.k) if own else {}), scores


def _time_limit(name: str, rule: float | None, own: Record) -> float | None:
    """Return SDP's limit, ``rule`` times the algorithm's time; None for others."""
    if rule is None or not name.startswith("sdp"):
        return None
    return rule * float(own["seconds"])


def _test_points(cell: Cell) -> Array:
    """Return all points of a cell's classes that are held out."""
    collection = load(cell.subject.data, offline=True)
    return held_out(collection, cell.subject.labels)


def _inspection(name: str, test: Array | None, own: Record) -> Callable[[Any], Record]:
    """Return a function that reads off a fitted estimator what is not in its score."""

    def inspect(model: Any) -> Record:  # noqa: ANN401 - a fitted estimator
        found: Record = {}
        if name == ALGORITHM:
            found["mean_dual"] = _mean_dual(model)
        if name == "minimax":
            found |= _minimax_course(model, own)
        if hasattr(model, "rounding_factor_"):
            found["relaxed"] = model.relaxed_
            found["rounding_factor"] = model.rounding_factor_
        if test is not None:
            found["held_out"] = _kept(score_map(test, model).as_dict())
        return {"found": found}

    return inspect


def _mean_dual(model: DualAscent) -> float | None:
    """Return the mean dual value of the iterates.

    The dual is concave, so the value of their average is at least that.
    """
    values = [step.lower_bound for step in model.history_[1:]]
    return float(np.mean(values)) if values else None


def _minimax_course(model: Any, own: Record) -> Record:  # noqa: ANN401
    """Return the relaxation's value, and after how long the algorithm was matched."""
    history = model.history_
    if not history:
        return {}
    matched = [s.seconds for s in history if s.distortion <= own.get("distortion", 0.0)]
    return {
        "relaxed": history[-1].relaxed,
        "seconds_to_match": matched[0] if matched else None,
    }


def _theory(points: Array, k: int) -> Record:
    """Return Theorem 1's factor as claimed and as corrected."""
    if points.shape[0] > _LARGEST_THEORY:
        return {}
    prepared, pairs = prepare_pairs(points, rotate=True)
    return {
        "claimed_ratio": spectral_ratio(prepared, pairs, 1),
        "corrected_ratio": spectral_ratio(prepared, pairs, k),
    }


def _course(cell: Cell, experiment: Experiment, points: Array) -> tuple[Record, Record]:
    """Stop SDP+DR at multiples of the algorithm's time until it converges."""
    own = _measured(cell, points, ALGORITHM)
    scores: Record = {ALGORITHM: _kept(own)}
    for name in _at_hand(experiment.methods):
        times = _SCS_TIMES if name.endswith("scs") else _OUR_TIMES
        for multiple in times:
            limit = multiple * float(own["seconds"])
            found = _measured(cell, points, name, time_limit=limit)
            scores[f"{name} x {multiple:g}"] = _kept(found)
            if found.get("error") or found["status"] != "time_limit":
                break
    return {}, scores


def _picture(
    cell: Cell, experiment: Experiment, points: Array
) -> tuple[Record, Record]:
    """Draw the points and every embedding of them by t-SNE from the same start."""
    own: Record = {}
    scores: Record = {}
    images = {"original": points}
    for name in experiment.methods:
        record = _measured(
            cell,
            points,
            name,
            time_limit=_time_limit(name, experiment.time_rule(cell.r), own),
            inspect=lambda model: {"image": model.transform(points)},
        )
        scores[name] = _kept(record)
        if "image" in record:
            images[name] = record["image"]
        if name == ALGORITHM:
            own = scores[name]
    start = _start_of_picture(points)
    for name, image in images.items():
        tsne = TSNE(init=start, random_state=cell.seed, perplexity=30.0)
        scores.setdefault(name, {})
        scores[name]["picture"] = np.round(tsne.fit_transform(image), 1).tolist()
        scores[name]["neighbours_kept"] = _neighbours_kept(points, image)
        scores[name]["trustworthiness"] = float(
            trustworthiness(points, image, n_neighbors=_NEIGHBOURS)
        )
    labels = np.repeat(cell.subject.labels, cell.r // len(cell.subject.labels))
    return {"labels": labels.tolist()}, scores


def _start_of_picture(points: Array) -> Array:
    """Return the two leading principal coordinates, scaled down for t-SNE."""
    centred = points - points.mean(axis=0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    start = left[:, :2] * values[:2]
    return np.asarray(start / start[:, 0].std() * 1e-4, dtype=np.float64)


def _neighbours_kept(points: Array, image: Array) -> float:
    """Return the share of nearest neighbours that remain nearest neighbours."""
    before, after = (
        NearestNeighbors(n_neighbors=_NEIGHBOURS).fit(rows).kneighbors()[1]
        for rows in (points, image)
    )
    common = [
        np.intersect1d(one, other).size
        for one, other in zip(before, after, strict=True)
    ]
    return float(np.mean(common)) / _NEIGHBOURS


def _convergence(cell: Cell, _: Experiment, points: Array) -> tuple[Record, Record]:
    """Run the algorithm for several T and compare with the optimum of the dual."""
    prepared, pairs = prepare_pairs(points, rotate=True)
    optimum = SDPProjection(cell.k, tol=1e-6).fit(points)
    facts = {"optimum_low": optimum.lower_bound_, "optimum_high": optimum.relaxed_}
    scores: Record = {}
    for n_steps in _STEP_COUNTS:
        result = dual_ascent(pose(prepared, pairs, cell.k), max_iter=n_steps)
        best = min(result.history, key=lambda step: step.distortion)
        average = result.average
        if average is not None:
            scores[str(n_steps)] = {
                "average_dual": average.lower_bound,
                "average_distortion": average.distortion,
                "best_dual": best.lower_bound,
                "best_distortion": best.distortion,
                "bound": math.sqrt(2.0 * pairs.n_pairs / n_steps),
            }
    return facts, scores


def _dimension(cell: Cell, _: Experiment, points: Array) -> tuple[Record, Record]:
    """Time the algorithm on the d commonest words, in the span and as printed."""
    scores: Record = {}
    for width in _WIDTHS:
        part = np.ascontiguousarray(points[:, :width])
        fitted = _measured(cell, part, ALGORITHM)
        scores[str(width)] = {
            "seconds": fitted.get("seconds"),
            "cpu_seconds": fitted.get("cpu_seconds"),
            "ascent_cpu_seconds": _ascent(part, cell.k),
            "printed_step_cpu_seconds": _printed_step(part, cell.k),
        }
    return {}, scores


def _ascent(points: Array, k: int) -> float:
    """Return the processor time of all steps, in the span of the points."""
    problem = pose(*prepare_pairs(points, rotate=True), k)
    start = time.process_time()
    dual_ascent(problem, max_iter=N_STEPS)
    return time.process_time() - start


def _printed_step(points: Array, k: int) -> float:
    """Return the processor time of one step with ``M`` formed in d dimensions."""
    i, j = np.triu_indices(points.shape[0], 1)
    gaps = points[i] - points[j]
    lengths = np.linalg.norm(gaps, axis=1)
    directions = gaps[lengths > 0.0] / lengths[lengths > 0.0, None]
    weights = np.full(directions.shape[0], 1.0 / directions.shape[0])
    start = time.process_time()
    moment = directions.T @ (weights[:, None] * directions)
    basis = scipy.sparse.linalg.eigsh(moment, k, which="LA", v0=directions[0])[1]
    _ = ((directions @ basis) ** 2).sum(axis=1)
    return time.process_time() - start


_Measure = Callable[[Cell, Experiment, Array], tuple[Record, Record]]
_KINDS: dict[Kind, _Measure] = {
    Kind.SIZES: _sizes,
    Kind.GRID: _grid,
    Kind.COURSE: _course,
    Kind.PICTURE: _picture,
    Kind.CONVERGENCE: _convergence,
    Kind.DIMENSION: _dimension,
}
