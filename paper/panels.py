"""Figures of several panels, as files; names stand at the ends of lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from isoproj.plot import marks
from isoproj.plot.axes import draw
from isoproj.plot.marks import Chart, Mark
from isoproj.plot.style import colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Least distance of two names at the ends of lines, and where the highest may be, as
# shares of the height of a panel.
_GAP, _TOP = 0.08, 1.02
_NAME_SIZE = 7.0
# matplotlib's settings for figures of several small panels.
SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.3,
    "lines.markersize": 3.5,
    "errorbar.capsize": 1.5,
    "svg.hashsalt": "isoproj",
    "svg.fonttype": "path",
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Panels:
    """Charts in rows and columns of one figure; None leaves a place empty."""

    rows: Sequence[Sequence[Chart | None]]
    width: float
    height: float
    """Inches."""
    share_y: bool = False


def save_panels(panels: Panels, folder: Path, name: str) -> list[Path]:
    """Draw panels as SVG and PNG files; equal panels make equal files."""
    import matplotlib as mpl

    with mpl.rc_context(SETTINGS):
        figure = _figure_of(panels)
        paths = []
        for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
            paths.append(folder / f"{name}.{kind}")
            figure.savefig(paths[-1], dpi=200, metadata=metadata)
    return paths


def _figure_of(panels: Panels) -> Figure:
    """Return a figure that needs no screen."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(panels.width, panels.height), layout="constrained")
    columns = max(map(len, panels.rows))
    axes = figure.subplots(
        len(panels.rows), columns, squeeze=False, sharey=panels.share_y
    )
    for row, charts in zip(axes, panels.rows, strict=True):
        for ax in row[len(charts) :]:
            ax.set_axis_off()
        for ax, chart in zip(row, charts, strict=False):
            if chart is None:
                ax.set_axis_off()
                continue
            # A legend in every panel would hide the lines.
            draw(replace(chart, names=""), ax)
            if chart.names:
                _name_ends(ax, chart)
    return figure


def _name_ends(axes: Axes, chart: Chart) -> None:
    """Write labels beside the right ends of lines, moved apart if they would touch."""
    to_share = axes.transData + axes.transAxes.inverted()
    ends = sorted(
        (float(to_share.transform((1.0, _end(mark)))[1]), mark.label, mark.role)
        for mark in chart.marks
        if mark.label
    )
    heights = spread_apart([share for share, _, _ in ends], _GAP)
    for height, (_, label, role) in zip(heights, ends, strict=True):
        axes.annotate(
            label,
            (1.02, height),
            xycoords="axes fraction",
            color=colour_of(role),
            fontsize=_NAME_SIZE,
            va="center",
            annotation_clip=False,
        )


def _end(mark: Mark) -> float:
    """Return the height at which a line or rule ends."""
    if isinstance(mark, marks.Line):
        return float(np.asarray(mark.y)[-1])
    return float(getattr(mark, "y", 0.0))


def spread_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Return rising heights, moved as little as possible to be ``gap`` apart.

    Groups that touch are merged and centred on the mean of their members. Heights above
    the panel are pushed back as far as there is room.
    """
    groups: list[list[float]] = []

    def lowest(group: list[float]) -> float:
        return sum(group) / len(group) - gap * (len(group) - 1) / 2.0

    for height in heights:
        groups.append([height])
        while len(groups) > 1 and lowest(groups[-1]) < (
            lowest(groups[-2]) + gap * len(groups[-2])
        ):
            last = groups.pop()
            groups[-1] += last
    placed = [lowest(group) + i * gap for group in groups for i in range(len(group))]
    room = [_TOP - gap * i for i in reversed(range(len(placed)))]
    placed = [min(y, top) for y, top in zip(placed, room, strict=True)]
    return [max(y, gap * i) for i, y in enumerate(placed)]
