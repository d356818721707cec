"""``isoproj fit``: fit a model to a file of points, and certify it."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import isoproj
from isoproj.cli import models, outputs
from isoproj.cli.console import Console
from isoproj.cli.errors import Interrupted, UsageError
from isoproj.cli.payloads import told_data, told_heldout, told_or_null, told_prefixes
from isoproj.estimators.estimate import FitEstimate
from isoproj.numerics.arrays import Rows, as_dense
from isoproj.numerics.rounding import at_least, at_most, counted, excess
from isoproj.numerics.spectral import Array, Indices
from isoproj.pairs.rule import PairKind
from isoproj.proof.certificate import Certificate
from isoproj.solvers.api import Status

if TYPE_CHECKING:
    from isoproj import GuaranteedPCA, NearIsometricProjection
    from isoproj.files.read.reading import DataFile

# What a proof rests on, before the name of the pairs.
_PROOFS = {"fantope": "a weighted average over", "hull": "the hull proof of some"}
# Options whose names are those of parameters.
_PARAMETERS = (
    "max_distortion slack objective solver tol max_iter time_limit scale checkpoint "
    "heldout nested nested_weights memory_limit"
)


def fit(options: argparse.Namespace, console: Console) -> None:
    """Fit, certify and save a model; raise Interrupted after Ctrl-C."""
    _check_method(options)
    outputs.check_outputs(options, options.output)
    outputs.check_model_name(options.output)
    if options.checkpoint is not None:
        outputs.check_output(
            options.checkpoint, inputs=outputs.input_files(options), force=True
        )
    data = models.options_data(options, min_rows=2)
    if options.n_components is not None:
        models.check_dimensions([options.n_components], data)
    console.note(str(data))
    if options.estimate:
        _tell_estimate(options, console, data)
        return
    labels = models.read_labels(options.labels, data)
    is_capped = options.method == "guaranteed-pca"
    name = "GuaranteedPCA" if is_capped else "NearIsometricProjection"
    model = getattr(isoproj, name)(**_parameters(options))
    start = time.perf_counter()
    total, aim = None, model.tol
    if options.solver == "dual_ascent":
        total, aim = options.max_iter or 120, None
    limit = options.time_limit
    with console.progress("searching", total=total, aim=aim, limit=limit):
        model.fit(data.points, labels)
    seconds = time.perf_counter() - start
    if data.names is not None:
        model.feature_names_in_ = np.asarray(data.names, dtype=object)
    if options.output is not None:
        options.output = outputs.saved(console, options.output, model.save)
    _show(options, console, model, seconds)
    # A loss above this is explained.
    if model.distortion_ > 0.95 and model.heldout_ is None:
        console.say(_why_so_much(model.certificate_, data.points))
    certificate = model.certificate_
    console.tell(
        "fit",
        certificate,
        data=told_data(data),
        model=options.output,
        method=options.method,
        solver=getattr(model, "solver", "guaranteed"),
        status=model.status_,
        worst_pairs=_worst_pairs(model),
        n_iter=model.n_iter_,
        seconds=seconds,
        isometry=model.distortion_ / (2.0 - model.distortion_),
        scale=getattr(model, "scale_", 1.0),
        n_components_lower_bound=getattr(model, "n_components_lower_bound_", None),
        guarantee=told_or_null("Kept", certificate.guarantee),
        heldout=told_heldout(model.heldout_),
        nested=told_prefixes(certificate),
    )
    if model.status_ is Status.INTERRUPTED:
        raise Interrupted


def _tell_estimate(
    options: argparse.Namespace, console: Console, data: DataFile
) -> None:
    """Say what a fit to all pairs would take, and what else there is."""
    n_points, n_features = map(int, data.points.shape)
    k = options.n_components or n_features
    estimate = FitEstimate.of(n_points, n_features, k)
    console.say(f"{estimate}; times are rough")
    for other in estimate.others():
        console.say(f"  {other}")
    console.tell("fit estimate", estimate, data=told_data(data))


def _check_method(options: argparse.Namespace) -> None:
    """Raise UsageError if options contradict each other."""
    given = {name for name, value in vars(options).items() if value is not None}
    fault = ""
    if not given & {"n_components", "max_distortion"}:
        fault = "-k or --max-distortion must be given; got neither. Add -k 20."
    elif given >= {"nested", "max_distortion"}:
        fault = "--nested needs -k alone; got --max-distortion. Leave that out."
    elif options.method == "guaranteed-pca":
        for name in sorted(given & {"solver", "scale", "checkpoint"}):
            fault = f"--{name} has no effect with --method guaranteed-pca. Drop it."
    elif alone := given & {"slack", "objective"}:
        name = min(alone)
        fault = f"--{name} needs --method guaranteed-pca. Add it, or drop --{name}."
    elif options.nested is not None and options.solver == "dual_ascent":
        fault = "--nested needs the minimax solver. Leave --solver out."
    elif given >= {"n_components", "max_distortion"}:
        fault = (
            "-k and --max-distortion together need --method guaranteed-pca. Add it, or "
            "leave -k out to find the fewest dimensions."
        )
    if fault:
        raise UsageError(fault)


def _parameters(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options that the user gave, as parameters of the estimator."""
    asked = {name: getattr(options, name) for name in _PARAMETERS.split()}
    given = {name: value for name, value in asked.items() if value is not None}
    # n_components=None asks for the fewest; it is not the default of every method.
    return {
        "n_components": options.n_components,
        "random_state": options.seed,
        **given,
        **models.pair_options(options),
    }


def _show(
    options: argparse.Namespace,
    console: Console,
    model: NearIsometricProjection | GuaranteedPCA,
    seconds: float,
) -> None:
    """Print the result of a fit."""
    certificate = model.certificate_
    gap = certificate.optimality_gap
    console.say(str(certificate))
    if certificate.sampled_words:
        console.say(f"over         {certificate.scope}; {certificate.sampled_words}")
    console.say(_worst_pair(model))
    above = f"; the loss is {excess(gap)}" if np.isfinite(gap) else ""
    console.say(
        f"lower bound  {at_least(model.lower_bound_, 6)}{above} "
        f"(proved by {_PROOFS[certificate.proof]} {certificate.pairs.things})"
    )
    solver = getattr(model, "solver", "guaranteed")
    guarantee = certificate.guarantee
    if guarantee is not None:
        console.say(
            f"kept         {at_least(guarantee.kept, 6)} of "
            f"{guarantee.objective.phrase}, at most "
            f"{at_most(guarantee.kept_bound, 6)} under the cap {guarantee.cap:.6f}"
        )
    if isinstance(model, isoproj.NearIsometricProjection) and model.scale is not None:
        console.say(
            f"balanced     squared lengths within 1 +- {model.isometry_:.6f}, points "
            f"times {model.scale_:.6f}"
        )
    if certificate.prefixes:
        console.table(*models.prefix_table(certificate))
    if model.heldout_ is not None:
        console.say(str(model.heldout_))
    console.say(
        f"solver       {solver}, {model.status_}, {model.n_iter_} steps, "
        f"{seconds:.1f} s"
    )
    if _is_above_tol(model):
        console.say(
            f"gap          above --tol {model.tol:g}: the search ended because neither "
            "the projection nor the bound improved any more. Another --seed may find a "
            "better projection; the rest may be a gap that no search closes"
        )
    if options.output is not None:
        console.say(f"saved        {options.output}")
    else:
        console.note("not saved; add -o model.isoproj to keep the model")


def _worst_pair(model: NearIsometricProjection | GuaranteedPCA) -> str:
    """Return what the worst pair loses, or the row that loses more, in one line."""
    (i, j), lost = _worst_pairs(model)[0], f"{model.distortion_:.6f}"
    certificate, heldout = model.certificate_, model.heldout_
    if j == (certificate.n_points if heldout is None else heldout.n_rows):
        return f"worst row    row {i} loses {lost} of its squared length"
    return f"worst pair   rows {i} and {j} lose {lost} of their squared distance"


def _worst_pairs(model: NearIsometricProjection | GuaranteedPCA) -> Indices:
    """Return the worst pairs, with the numbers that their rows have in the data.

    The certificate numbers the fitted rows alone. The origin comes last.
    """
    found, heldout = model.worst_pairs_, model.heldout_
    if heldout is None:
        return found
    return np.asarray(np.append(heldout.training, heldout.n_rows)[found])


def _is_above_tol(model: NearIsometricProjection | GuaranteedPCA) -> bool:
    """Return whether a search for given dimensions ended by itself above ``tol``."""
    return (
        isinstance(model, isoproj.NearIsometricProjection)
        and model.n_components is not None
        and model.solver == "minimax"
        and not model.certificate_.prefixes
        and not model.status_.advice
        and model.certificate_.optimality_gap > model.tol
    )


def _why_so_much(certificate: Certificate, rows: Rows) -> str:
    """Return one line on what a loss of nearly everything means, and what to do."""
    k, is_all = certificate.n_components, certificate.pair_kind is PairKind.ALL
    things = certificate.pairs.things
    text = (
        f"much lost    some {'pair' if 'pair' in things else 'row'} keeps at most "
        f"{at_most(100 * (1.0 - certificate.lower_bound), 2)}% in any projection to "
        f"{counted(k, 'dimension')}; take more dimensions"
    )
    pairs = certificate.worst_pairs
    pairs = pairs[(pairs < rows.shape[0]).all(axis=1)]
    drawn = np.random.default_rng(0).integers(rows.shape[0], size=(1000, 2))
    worst = _lengths(rows, pairs).max(initial=0.0)
    usual = float(np.median(_lengths(rows, drawn)))
    if is_all and 0.0 < worst < usual / 2.0:
        # Rounding to three digits takes less than what is added.
        least = f"{1.006 * worst:.3g}"
        text += (
            f"; the worst are {least} apart or less, others {usual:.3g}: leave them "
            f"out with --min-distance {least}"
        )
    elif is_all:
        text += ", or fewer pairs: --pairs neighbors"
    return text


def _lengths(rows: Rows, pairs: Indices) -> Array:
    """Return the distances of pairs of rows."""
    # Unsigned integers would wrap around, and booleans cannot be subtracted.
    first, second = (rows[side].astype(np.float64) for side in pairs.T)
    return np.asarray(np.linalg.norm(as_dense(first - second), axis=1))
