"""``isoproj curve`` and ``isoproj frontier``: results for many k or many caps."""

from __future__ import annotations

import argparse

from isoproj.cli import models
from isoproj.cli.console import Console
from isoproj.cli.outputs import check_outputs, save_plot
from isoproj.cli.payloads import Json, told, told_data
from isoproj.estimators.curves import (
    DistortionCurve,
    Frontier,
    distortion_curve,
    guarantee_frontier,
)
from isoproj.numerics.rounding import counted


def curve(options: argparse.Namespace, console: Console) -> None:
    """Print distortion and lower bound for many numbers of dimensions."""
    check_outputs(options, plot=options.plot)
    data = models.options_data(options, min_rows=2)
    largest = min(options.max_k, int(data.points.shape[1]))
    models.check_dimensions(options.n_components or (), data)
    console.note(str(data))
    with console.progress("searching"):
        found = distortion_curve(
            data.points,
            options.n_components or range(1, largest + 1),
            labels=models.read_labels(options.labels, data),
            **models.pair_options(options),
            tol=options.tol,
            time_limit=options.time_limit,
            random_state=options.seed,
        )
    save_plot(console, options.plot, found.plot)
    _say(console, found)
    if found.knees:
        knees = ", ".join(map(str, found.knees))
        console.say(f"after k = {knees} further dimensions lower the loss much less")
    targets = []
    for target in options.targets:
        sufficient, impossible = found.needed(target)
        say = _sentence(target, sufficient, impossible)
        console.say(say + " (sampled pairs)" * bool(found.sampled_words))
        targets.append(
            told("Target", target=target, sufficient=sufficient, impossible=impossible)
        )
    points = [
        told("CurvePoint", k=k, distortion=upper, lower_bound=lower)
        for k, upper, lower in found
    ]
    console.tell(
        "curve",
        data=told_data(data),
        curve=points,
        knees=found.knees,
        targets=targets,
        **_sampling(found),
    )


def frontier(options: argparse.Namespace, console: Console) -> None:
    """Print the share kept and the loss of the worst pair for several caps."""
    check_outputs(options, plot=options.plot)
    data = models.options_data(options, min_rows=2)
    console.note(str(data))
    with console.progress("searching"):
        found = guarantee_frontier(
            data.points,
            options.n_components,
            options.n_points,
            objective=options.objective,
            labels=models.read_labels(options.labels, data),
            **models.pair_options(options),
            tol=options.tol,
            time_limit=options.time_limit,
            random_state=options.seed,
        )
    save_plot(console, options.plot, found.plot)
    _say(console, found)
    points = [
        told(
            "FrontierPoint",
            max_distortion=cap,
            distortion=worst,
            kept=kept,
            kept_bound=bound,
        )
        for cap, worst, kept, bound in found
    ]
    console.tell(
        "frontier", found, data=told_data(data), frontier=points, **_sampling(found)
    )


def _sampling(found: DistortionCurve | Frontier) -> Json:
    """Return which pairs all figures are over, and what a sample says of the rest."""
    most = max(found.certificates, key=lambda each: each.sampled_share or 0.0)
    return {"pair_kind": most.pair_kind, "sampled_share": most.sampled_share}


def _say(console: Console, found: DistortionCurve | Frontier) -> None:
    """Print the table, and what it says of all pairs where it is over a sample."""
    console.say(str(found))
    if found.sampled_words:
        console.say(found.sampled_words)


def _sentence(target: float, sufficient: int | None, impossible: int) -> str:
    """Return which k suffices for a target, and which is too small, in words."""
    text = f"loss of at most {target:g}: "
    if sufficient is None:
        text += "not reached by these numbers of dimensions"
    else:
        verb = "suffices" if sufficient == 1 else "suffice"
        text += f"{counted(sufficient, 'dimension')} {verb}"
    if impossible:
        text += f"; {impossible} or fewer cannot do it"
    return text
