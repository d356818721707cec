"""``isoproj curve`` and ``isoproj frontier``: results for many k or many caps."""

from __future__ import annotations

import argparse

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.models import (
    check_dimensions,
    count_pairs,
    options_data,
    pair_options,
    read_labels,
)
from isoproj.cli.outputs import check_outputs, saved
from isoproj.estimators.curves import (
    DistortionCurve,
    distortion_curve,
    guarantee_frontier,
)
from isoproj.plot.axes import save_axes


def curve(options: argparse.Namespace, console: Console) -> None:
    """Print distortion and lower bound for many numbers of dimensions."""
    check_outputs(options, plot=options.plot)
    data = options_data(options, min_rows=2)
    largest = min(options.max_k, int(data.points.shape[1]))
    check_dimensions(options.n_components or (), data)
    console.note(str(data))
    with console.progress("searching", n_pairs=count_pairs(data)):
        found = distortion_curve(
            data.points,
            options.n_components or range(1, largest + 1),
            labels=read_labels(options.labels, data),
            **pair_options(options),
            tol=options.tol,
            time_limit=options.time_limit,
            random_state=options.seed,
        )
    if options.plot is not None:
        from isoproj import plot

        axes = plot.distortion_curve(found)
        saved(console, options.plot, lambda path: save_axes(axes, path))
    console.say(str(found))
    if found.knees:
        console.say(f"knees: k = {', '.join(map(str, found.knees))}")
    needed = [_needed(found, target) for target in options.targets]
    for entry in needed:
        console.say(_sentence(entry))
    points = [
        payloads.CurvePoint(k=k, distortion=upper, lower_bound=lower)
        for k, upper, lower in found
    ]
    console.tell(
        payloads.Curve(
            data=payloads.Data.of(data),
            curve=points,
            knees=found.knees,
            targets=needed,
        )
    )


def frontier(options: argparse.Namespace, console: Console) -> None:
    """Print the share kept and the loss of the worst pair for several caps."""
    check_outputs(options, plot=options.plot)
    data = options_data(options, min_rows=2)
    console.note(str(data))
    with console.progress("searching", n_pairs=count_pairs(data)):
        found = guarantee_frontier(
            data.points,
            options.n_components,
            options.n_points,
            objective=options.objective,
            labels=read_labels(options.labels, data),
            **pair_options(options),
            tol=options.tol,
            random_state=options.seed,
        )
    if options.plot is not None:
        from isoproj import plot

        axes = plot.frontier(found)
        saved(console, options.plot, lambda path: save_axes(axes, path))
    console.say(str(found))
    points = [
        payloads.FrontierPoint(
            max_distortion=cap, distortion=worst, kept=kept, kept_bound=bound
        )
        for cap, worst, kept, bound in found
    ]
    console.tell(
        payloads.Frontier(
            data=payloads.Data.of(data),
            objective=found.objective,
            lower_bound=found.lower_bound,
            frontier=points,
        )
    )


def _needed(found: DistortionCurve, target: float) -> payloads.Target:
    sufficient, impossible = found.needed(target)
    return payloads.Target(target=target, sufficient=sufficient, impossible=impossible)


def _sentence(entry: payloads.Target) -> str:
    """Return which k suffices for a target, and which is too small, in words."""
    text = f"distortion {entry.target:g}: "
    if entry.sufficient is None:
        text += "not reached by these numbers of dimensions"
    else:
        text += f"{entry.sufficient} dimensions suffice"
    if entry.impossible:
        text += f"; {entry.impossible} or fewer cannot do it"
    return text
