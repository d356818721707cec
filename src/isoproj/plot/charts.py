"""The charts that plots, report and reproduction share: one function for each."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.spectral import Array
from isoproj.plot.marks import (
    DASHED,
    DOTTED,
    Axis,
    Band,
    Bars,
    Chart,
    Line,
    Mark,
    Names,
    Note,
    Points,
    Rule,
    Steps,
)

__all__ = [
    "bounds_chart",
    "curve_chart",
    "distances_chart",
    "floor_marks",
    "frontier_chart",
    "histogram_chart",
    "history_chart",
    "loss_line",
    "losses_chart",
]

_LOST = "share of squared length lost"
_WORST = "share of squared length the worst pair loses"
_DIMENSIONS = "dimensions kept, k"
# Sizes of markers: on a line, at the end of a line, and of the model reported on.
_SMALL, _END, _SPOT = 4.0, 8.0, 9.0


def loss_line(
    role: str,
    ks: ArrayLike,
    losses: ArrayLike,
    *,
    label: str = "",
    errors: ArrayLike | None = None,
) -> Line:
    """Return a method's loss against the number of dimensions as a line."""
    hints = [
        f"{label or role}, k = {k}: the worst pair loses {loss:.4f}"
        for k, loss in zip(np.asarray(ks), np.asarray(losses), strict=True)
    ]
    return Line(
        role=role,
        label=label,
        x=ks,
        y=losses,
        errors=errors,
        hints=hints,
        marker="o",
        size=_SMALL,
        width=2.0,
    )


def floor_marks(
    ks: ArrayLike, bounds: ArrayLike, label: str = "no projection can get below"
) -> list[Mark]:
    """Return the dashed line of a lower bound and the shaded area below it."""
    hints = [
        f"k = {k}: no projection loses less than {bound:.4f}"
        for k, bound in zip(np.asarray(ks), np.asarray(bounds), strict=True)
    ]
    return [
        Band(role="floor", x=ks, low=0.0, high=bounds),
        Line(role="floor", x=ks, y=bounds, dash=DASHED, label=label, hints=hints),
    ]


def curve_chart(
    lines: Sequence[Mark],
    floor: Sequence[Mark] = (),
    *,
    x: Axis | None = None,
    y: Axis | None = None,
    title: str = "",
    names: Names = "best",
) -> Chart:
    """Return a chart of losses against the number of dimensions, above their floor."""
    return Chart(
        x=x or Axis(label=_DIMENSIONS, whole=True),
        y=y or Axis(label=_WORST, low=0.0),
        marks=[*lines, *floor],
        title=title,
        about="Distortion against dimensions",
        names=names,
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
    totals = {role: max(1, int(np.sum(column))) for role, column in counts.items()}
    shares = {role: np.asarray(counts[role]) / totals[role] for role in counts}
    ends = np.asarray(edges)
    hints = [
        _bin_hint(
            ends[at : at + 2],
            {names[role]: np.asarray(counts[role])[at] for role in counts},
            max(totals.values()),
        )
        for at in range(ends.size - 1)
    ]
    marks: list[Mark] = [
        # One column of hints tells of all methods.
        Steps(
            role=role,
            label=names[role],
            edges=edges,
            heights=column,
            hints=() if at else hints,
        )
        for at, (role, column) in enumerate(shares.items())
    ]
    for role, loss in worst.items():
        sign = "≥ " if role in at_least else ""
        hint = f"{names[role]}: the worst pair loses {sign}{loss:.4f}"
        marks.append(Rule(role=role, x=loss, dash=DOTTED, hints=[hint]))
    least = min(float(s.min(where=s > 0.0, initial=0.1)) for s in shares.values())
    return Chart(
        x=Axis(
            label=f"{_LOST} (dotted: the worst pair)",
            low=float(ends[0]),
            high=float(ends[-1]),
        ),
        y=Axis(
            label="share of pairs",
            log=True,
            percent=True,
            low=10.0 ** math.floor(math.log10(least)),
            high=1.0,
        ),
        marks=marks,
        about="Histogram of the share lost",
    )


def _bin_hint(ends: ArrayLike, counts: Mapping[str, int], total: int) -> str:
    """Return how many pairs every method has in a bin, one method a line."""
    low, high = np.asarray(ends).tolist()
    lines = [f"{100.0 * low:.4g}% to {100.0 * high:.4g}% lost"]
    lines += [
        f"{name}: {count:,} pairs ({count / total:.3%})"
        for name, count in counts.items()
    ]
    return "\n".join(lines)


def history_chart(
    rounds: ArrayLike,
    found: ArrayLike,
    bound: ArrayLike,
    *,
    labels: tuple[str, str] = ("distortion", "lower bound"),
    axis: str = _WORST,
    hints: Sequence[str] = (),
) -> Chart:
    """Return what a solve has found and what bounds it, round by round."""
    return Chart(
        x=Axis(label="round", whole=True),
        y=Axis(label=axis),
        marks=[
            Line(
                role="isoproj",
                label=labels[0],
                x=rounds,
                y=found,
                hints=hints,
                marker="o",
                size=3.0,
            ),
            Line(role="floor", label=labels[1], x=rounds, y=bound, dash=DASHED),
            Band(role="isoproj", x=rounds, low=bound, high=found),
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
    wall = f"proven: no projection to as many dimensions loses less than {floor:.6f}"
    hints = [
        f"no pair loses more than {cap:.4f}: {share:.4f} is kept, no projection keeps "
        f"more than {top:.4f}"
        for cap, share, top in zip(xs, ys, most, strict=True)
    ]
    marks: list[Mark] = [
        Band(role="floor", x=xs, low=most, high=math.inf),
        Line(role="floor", label=labels[1], x=xs, y=most, dash=DASHED),
        Band(role="floor", x=(left, floor), low=-math.inf, high=math.inf, hints=[wall]),
        Note(
            role="floor",
            x=(left + floor) / 2.0,
            y=0.5,
            shares="y",
            text="proved impossible",
            align="center",
            upright=True,
        ),
        Line(
            role=role,
            label=labels[0],
            x=xs,
            y=ys,
            marker="o",
            size=6.0,
            hints=hints,
        ),
        *_frontier_ends(xs, ys),
    ]
    if model is not None:
        hint = f"this model: {model[1]:.4f} under {model[0]:.4f}"
        x = min(model[0], float(xs[-1]))
        marks.append(Points(role=role, x=[x], y=[model[1]], size=_SPOT, hints=[hint]))
    what = "variance kept" if objective == "variance" else "mean length kept"
    return Chart(
        x=Axis(label="the worst pair loses", low=left),
        y=Axis(label=what, high=ceiling),
        marks=marks,
        about="What caps cost and buy",
        names="center right",
    )


def _frontier_ends(caps: Array, kept: Array) -> list[Mark]:
    """Return the two ends of a frontier, with their names."""
    marks: list[Mark] = []
    for name, role, at, align, offset in (
        ("minimax", "isoproj", 0, "left", (10.0, 2.0)),
        ("PCA", "pca", -1, "right", (-8.0, -14.0)),
    ):
        x, y = float(caps[at]), float(kept[at])
        marks.append(Points(role=role, x=[x], y=[y], size=_END))
        marks.append(Note(role=role, x=x, y=y, text=name, align=align, offset=offset))
    return marks


def distances_chart(
    original: ArrayLike, projected: ArrayLike, n_pairs: int, distortion: float | None
) -> Chart:
    """Return projected against original distances of pairs: a Shepard diagram."""
    before = np.asarray(original, dtype=np.float64)
    top = float(before.max())
    marks: list[Mark] = [
        Points(
            role="isoproj", x=before, y=projected, marker=".", size=2.0, opacity=0.35
        ),
        Line(role="floor", label="kept whole", x=[0, top], y=[0, top], width=1.0),
    ]
    if distortion is not None:
        least = top * math.sqrt(max(0.0, 1.0 - distortion))
        marks.append(
            Line(
                role="floor",
                label="no pair is below",
                x=[0, top],
                y=[0, least],
                dash=DASHED,
                width=1.0,
            )
        )
    sampled = f"{before.size:,} sampled of " if before.size < n_pairs else ""
    return Chart(
        x=Axis(label="original distance", low=0.0),
        y=Axis(label="projected distance", low=0.0),
        marks=marks,
        title=f"{sampled}{n_pairs:,} pairs",
        about="Projected against original distances",
        names="upper left",
    )


def losses_chart(names: Sequence[str], losses: ArrayLike) -> Chart:
    """Return the losses of named pairs as bars, the first on top."""
    return Chart(
        x=Axis(label=_LOST, low=0.0, high=1.0),
        y=Axis(ticks=list(enumerate(names)), grid=False),
        marks=[Bars(role="isoproj", lengths=np.nan_to_num(losses))],
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
    wall = f"proven: no projection to as many dimensions loses less than {lower:.6f}"
    marks: list[Mark] = [
        Band(role="floor", x=(0.0, lower), low=-math.inf, high=math.inf, hints=[wall]),
        Rule(role="floor", x=lower, width=1.6),
        Note(
            role="floor",
            x=lower,
            y=1.0,
            shares="y",
            text="no projection gets here",
            align="right",
            offset=(-8.0, 12.0),
        ),
    ]
    for at, (role, loss) in enumerate(losses.items()):
        told = f"{'≥ ' if role in at_least else ''}{loss:.4f}"
        hints = [f"{labels[role]}: the worst pair loses {told}"]
        width = 1.5 if at else 7.0
        marks += [
            Line(role=role, x=[lower, loss], y=[at, at], width=width),
            Points(role=role, x=[loss], y=[at], size=10.0, hints=hints),
            Note(role="floor", x=1.0, y=at, text=told, offset=(12.0, 0.0)),
        ]
    names = [labels[role] for role in losses]
    first = next(iter(losses.values()))
    return Chart(
        x=Axis(label=_WORST, low=0.0, high=1.0),
        y=Axis(
            ticks=list(enumerate(names)), low=-0.5, high=len(names) - 0.5, grid=False
        ),
        marks=marks,
        about=f"The worst pair loses {first:.2%}; none can be below {lower:.2%}",
        names="",
        height=38 * len(names) + 84,
        downwards=True,
    )
