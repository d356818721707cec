"""The charts that plots, report and reproduction share: one function for each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics import rounding
from isoproj.plot import marks
from isoproj.plot.marks import Axis, Chart, Mark

_LOST = "share of squared length lost"
_WORST = "share of squared length the worst pair loses"
# Sizes of markers: on a line, at the end of a line, and of the model reported on.
_SMALL, _END, _SPOT = 4.0, 8.0, 9.0


def loss_line(
    role: str,
    ks: ArrayLike,
    losses: ArrayLike,
    *,
    label: str = "",
    errors: ArrayLike | None = None,
) -> marks.Line:
    """Return a method's loss against the number of dimensions as a line."""
    hints = [
        f"{label or role}, k = {k}: the worst pair loses {loss:.4f}"
        for k, loss in zip(np.asarray(ks), np.asarray(losses), strict=True)
    ]
    line = marks.Line(role, ks, losses, label=label, errors=errors, hints=hints)
    return replace(line, marker="o", size=_SMALL, width=2.0)


def floor_marks(
    ks: ArrayLike, bounds: ArrayLike, label: str = "no projection can get below"
) -> list[Mark]:
    """Return the dashed line of a lower bound and the shaded area below it."""
    hints = [
        f"k = {k}: no projection loses less than {rounding.at_least(bound)}"
        for k, bound in zip(np.asarray(ks), np.asarray(bounds), strict=True)
    ]
    return [
        marks.Band("floor", ks, 0.0, bounds),
        marks.Line("floor", ks, bounds, dash=marks.DASHED, label=label, hints=hints),
    ]


def curve_chart(lines: Sequence[Mark], floor: Sequence[Mark] = ()) -> Chart:
    """Return a chart of losses against the number of dimensions, above their floor."""
    return Chart(
        x=Axis("dimensions kept, k", whole=True),
        y=Axis(_WORST, low=0.0),
        marks=[*lines, *floor],
        about="Distortion against dimensions",
    )


def histogram_chart(
    counts: Mapping[str, ArrayLike],
    edges: ArrayLike,
    worst: Mapping[str, float],
    *,
    labels: Mapping[str, str] | None = None,
    at_least: Collection[str] = (),
) -> Chart:
    """Return how the share lost spreads over the pairs, for each method by its role.

    A dotted line marks the worst pair of a method; for methods in ``at_least`` it is
    the worst pair of a sample.
    """
    names = {role: (labels or {}).get(role, role) for role in counts}
    columns = {role: np.asarray(column) for role, column in counts.items()}
    shares = {role: c / max(1, int(c.sum())) for role, c in columns.items()}
    ends = np.asarray(edges)
    hints = [
        "\n".join(
            [f"{100.0 * ends[at]:.4g}% to {100.0 * ends[at + 1]:.4g}% lost"]
            + [
                f"{names[role]}: {columns[role][at]:,} pairs ({share[at]:.3%})"
                for role, share in shares.items()
            ]
        )
        for at in range(ends.size - 1)
    ]
    drawn: list[Mark] = [
        # A hint of the first method tells the values of all methods.
        marks.Steps(role, edges, share, label=names[role], hints=() if at else hints)
        for at, (role, share) in enumerate(shares.items())
    ]
    for role, loss in worst.items():
        sign = "≥ " if role in at_least else ""
        hint = f"{names[role]}: the worst pair loses {sign}{loss:.4f}"
        drawn.append(marks.Rule(role, x=loss, dash=marks.DOTTED, hints=[hint]))
    least = min(float(s.min(where=s > 0.0, initial=0.1)) for s in shares.values())
    lowest = 10.0 ** math.floor(math.log10(least))
    return Chart(
        x=Axis(f"{_LOST} (dotted: the worst pair)", low=ends[0], high=ends[-1]),
        y=Axis("share of pairs", log=True, percent=True, low=lowest, high=1.0),
        marks=drawn,
        about="Histogram of the share lost",
    )


def history_chart(
    rounds: ArrayLike,
    found: ArrayLike,
    bound: ArrayLike,
    *,
    labels: tuple[str, str] = ("distortion", "lower bound"),
    hints: Sequence[str] = (),
) -> Chart:
    """Return what a solve has found and what bounds it, round by round."""
    line = marks.Line("isoproj", rounds, found, label=labels[0], hints=hints)
    return Chart(
        x=Axis("round", whole=True),
        y=Axis(_WORST),
        marks=[
            replace(line, marker="o", size=3.0),
            marks.Line("floor", rounds, bound, label=labels[1], dash=marks.DASHED),
            marks.Band("isoproj", rounds, bound, found),
        ],
        about="Both bounds by round",
        height=270,
    )


def frontier_chart(
    caps: ArrayLike,
    kept: ArrayLike,
    bound: ArrayLike,
    floor: float,
    *,
    objective: str = "variance",
    role: str = "guaranteed_pca",
    labels: tuple[str, str] = ("GuaranteedPCA", "no projection can keep more"),
    model: tuple[float, float] | None = None,
) -> Chart:
    """Return what is kept against what the worst pair loses, from minimax to PCA.

    ``model`` is the cap and the share kept of a model to be marked.
    """
    xs, ys, most = (np.asarray(v, dtype=np.float64) for v in (caps, kept, bound))
    left = floor - 0.1 * max(float(xs[-1]) - floor, 0.01)
    ceiling = float(most.max() + 0.1 * (most.max() - ys.min() + 0.01))
    hints = [
        f"no pair loses more than {rounding.at_most(cap)}: {rounding.at_least(share)} "
        f"is kept, no projection keeps more than {rounding.at_most(top)}"
        for cap, share, top in zip(xs, ys, most, strict=True)
    ]
    middle = marks.Note(
        "floor", (left + floor) / 2.0, 0.5, "proved impossible", shares="y"
    )
    drawn: list[Mark] = [
        marks.Band("floor", xs, most, math.inf),
        marks.Line("floor", xs, most, label=labels[1], dash=marks.DASHED),
        _wall(left, floor),
        replace(middle, align="center", upright=True),
        marks.Line(role, xs, ys, label=labels[0], marker="o", size=6.0, hints=hints),
        marks.Dots("isoproj", xs[:1], ys[:1], size=_END),
        marks.Note("isoproj", xs[0], ys[0], "minimax", offset=(10.0, 2.0)),
        marks.Dots("pca", xs[-1:], ys[-1:], size=_END),
        marks.Note("pca", xs[-1], ys[-1], "PCA", align="right", offset=(-8.0, -14.0)),
    ]
    if model is not None:
        hint = f"this model: {model[1]:.4f} under {model[0]:.4f}"
        x = min(model[0], float(xs[-1]))
        drawn.append(marks.Dots(role, [x], [model[1]], size=_SPOT, hints=[hint]))
    return Chart(
        x=Axis("the worst pair loses", low=left),
        y=Axis(
            "variance kept" if objective == "variance" else "mean length kept",
            high=ceiling,
        ),
        marks=drawn,
        about="What caps cost and buy",
        names="center right",
    )


def _wall(left: float, floor: float) -> marks.Band:
    """Return the region of losses that no projection reaches."""
    bound = rounding.at_least(floor, 6)
    hint = f"proven: no projection to as many dimensions loses less than {bound}"
    return marks.Band("floor", (left, floor), -math.inf, math.inf, hints=[hint])


def distances_chart(
    original: ArrayLike, projected: ArrayLike, n_pairs: int, distortion: float | None
) -> Chart:
    """Return projected against original distances of pairs: a Shepard diagram."""
    before = np.asarray(original, dtype=np.float64)
    ends = [0.0, float(before.max())]
    cloud = marks.Dots("isoproj", before, projected, marker=".", size=2.0, opacity=0.35)
    drawn: list[Mark] = [
        cloud,
        marks.Line("floor", ends, ends, label="kept whole", width=1.0),
    ]
    if distortion is not None:
        least = [0.0, ends[1] * math.sqrt(max(0.0, 1.0 - distortion))]
        line = marks.Line(
            "floor", ends, least, label="no pair is below", dash=marks.DASHED
        )
        drawn.append(replace(line, width=1.0))
    sampled = f"{before.size:,} sampled of " if before.size < n_pairs else ""
    return Chart(
        x=Axis("original distance", low=0.0),
        y=Axis("projected distance", low=0.0),
        marks=drawn,
        title=f"{sampled}{n_pairs:,} pairs",
        about="Projected against original distances",
        names="upper left",
    )


def losses_chart(names: Sequence[str], losses: ArrayLike) -> Chart:
    """Return the losses of named pairs as bars, the first on top."""
    rows = [(float(at), name) for at, name in enumerate(names)]
    return Chart(
        x=Axis(_LOST, low=0.0, high=1.0),
        y=Axis(ticks=rows, low=-0.5, high=len(rows) - 0.5, grid=False),
        marks=[marks.Bars("isoproj", np.nan_to_num(losses))],
        about="Losses of the worst pairs",
        names="",
        downwards=True,
    )


def bounds_chart(
    losses: Mapping[str, float],
    lower: float,
    *,
    labels: Mapping[str, str],
    at_least: Collection[str] = (),
) -> Chart:
    """Return the worst pair's loss under each method, beside what none can reach.

    The first method is drawn thick. The loss of methods in ``at_least`` is that of a
    sample.
    """
    note = marks.Note("floor", lower, 1.0, "no projection gets here", shares="y")
    drawn: list[Mark] = [
        _wall(0.0, lower),
        marks.Rule("floor", x=lower, width=1.6),
        replace(note, align="right", offset=(-8.0, 12.0)),
    ]
    for at, (role, loss) in enumerate(losses.items()):
        told = f"{'≥ ' if role in at_least else ''}{loss:.4f}"
        hint = f"{labels[role]}: the worst pair loses {told}"
        drawn += [
            marks.Line(role, [lower, loss], [at, at], width=1.5 if at else 7.0),
            marks.Dots(role, [loss], [at], size=10.0, hints=[hint]),
            marks.Note("floor", 1.0, at, told, offset=(12.0, 0.0)),
        ]
    rows = [(float(at), labels[role]) for at, role in enumerate(losses)]
    first = next(iter(losses.values()))
    return Chart(
        x=Axis(_WORST, low=0.0, high=1.0),
        y=Axis(ticks=rows, low=-0.5, high=len(rows) - 0.5, grid=False),
        marks=drawn,
        about=f"The worst pair loses {first:.2%}; none can be "
        f"below {rounding.at_least(100 * lower, 2)}%",
        names="",
        height=38 * len(rows) + 84,
        downwards=True,
    )
