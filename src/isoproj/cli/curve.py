"""``isoproj curve`` and ``isoproj frontier``: what dimensions and caps buy."""

from __future__ import annotations

import argparse

from isoproj.cli import payloads
from isoproj.cli.console import Console
from isoproj.cli.errors import Trouble
from isoproj.cli.models import (
    options_data,
    pair_options,
    read_labels,
)
from isoproj.estimators.curves import (
    DistortionCurve,
    distortion_curve,
    guarantee_frontier,
)
from isoproj.files.write.writing import check_output
from isoproj.plot.axes import save_axes

__all__ = ["curve", "frontier"]


def curve(options: argparse.Namespace, console: Console) -> None:
    """Print distortion and proven floor for many numbers of dimensions."""
    _check_plot(options)
    data = options_data(options, min_rows=2)
    n_features = int(data.points.shape[1])
    largest = min(options.max_k, n_features)
    if options.n_components and max(options.n_components) > n_features:
        msg = (
            f"-k must be between 1 and the {n_features} features of {data.name}; got "
            f"{max(options.n_components)}. Choose values in that range."
        )
        raise Trouble(msg)
    console.note(str(data))
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

        save_axes(plot.distortion_curve(found), options.plot)
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
    """Print what is kept against what the worst pair loses, from minimax to PCA."""
    _check_plot(options)
    data = options_data(options, min_rows=2)
    console.note(str(data))
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

        save_axes(plot.frontier(found), options.plot)
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
    text = f"distortion {entry.target:g}: "
    if entry.sufficient is None:
        text += "not reached by these numbers of dimensions"
    else:
        text += f"{entry.sufficient} dimensions suffice"
    if entry.impossible:
        text += f"; {entry.impossible} or fewer cannot do it"
    return text


def _check_plot(options: argparse.Namespace) -> None:
    if options.plot is not None:
        check_output(options.plot, inputs=[options.data], force=options.force)
