"""``isoproj curve`` and ``isoproj frontier``: results for many k or many caps."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import Any

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
from isoproj.files.read.reading import DataFile
from isoproj.numerics.rounding import counted


def curve(options: argparse.Namespace, console: Console) -> None:
    """Print distortion and lower bound for many numbers of dimensions."""
    data, asked = _prepared(options, console, options.n_components or ())
    largest = min(options.max_k, int(data.points.shape[1]))
    ks = options.n_components or range(1, largest + 1)
    with console.progress("searching"):
        found = distortion_curve(data.points, ks, **asked)
    _show(options, console, found)
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
    k, n_points = options.n_components, options.n_points
    data, asked = _prepared(options, console, [k])
    asked["objective"] = options.objective
    with console.progress("searching"):
        found = guarantee_frontier(data.points, k, n_points, **asked)
    _show(options, console, found)
    names = "max_distortion", "distortion", "kept", "kept_bound"
    points = [
        told("FrontierPoint", **dict(zip(names, point, strict=True))) for point in found
    ]
    console.tell(
        "frontier", found, data=told_data(data), frontier=points, **_sampling(found)
    )


def _sampling(found: DistortionCurve | Frontier) -> Json:
    """Return which pairs all figures are over, and what a sample says of the rest."""
    most = max(found.certificates, key=lambda each: each.sampled_share or 0.0)
    return {"pair_kind": most.pair_kind, "sampled_share": most.sampled_share}


def _prepared(
    options: argparse.Namespace, console: Console, ks: Iterable[int]
) -> tuple[DataFile, dict[str, Any]]:
    """Return the data, and the options that both verbs pass on."""
    check_outputs(options, plot=options.plot)
    data = models.options_data(options, min_rows=2)
    models.check_dimensions(ks, data)
    console.note(str(data))
    return data, {
        "labels": models.read_labels(options.labels, data),
        **models.pair_options(options),
        "tol": options.tol,
        "time_limit": options.time_limit,
        "random_state": options.seed,
    }


def _show(
    options: argparse.Namespace, console: Console, found: DistortionCurve | Frontier
) -> None:
    """Save the plot and print the table; say if it is over a sample of all pairs."""
    save_plot(console, options.plot, found.plot)
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
