"""One look for all figures: the same colour, mark and line for a method everywhere.

The colours are those of ``isoproj.plot``; every method also has a mark and a line of
its own, so that print in grey loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from isoproj.numerics.container import write_atomically
from isoproj.numerics.extras import needed
from isoproj.plot._style import COLOURS

__all__ = [
    "LOOKS",
    "Look",
    "figure",
    "house_style",
    "label_ends",
    "save",
]

BLACK, GREY, PALE = "#000000", "#666666", "#e6e6e6"
# Names beside a panel end here, as a share of its height.
_TOP = 1.02
_SETTINGS: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
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


@dataclass(frozen=True, slots=True)
class Look:
    """How a method is drawn.

    Parameters
    ----------
    label : str
        What it is called in figures.
    colour, marker, line : str
        As matplotlib takes them.
    """

    label: str
    colour: str
    marker: str
    line: str | tuple[int, tuple[float, ...]]

    def options(self) -> dict[str, Any]:
        """Return the options of a line in this look."""
        return {"color": self.colour, "marker": self.marker, "linestyle": self.line}


LOOKS: dict[str, Look] = {
    name: Look(label, COLOURS["isoproj" if name == "minimax" else name], marker, line)
    for name, label, marker, line in (
        ("dual_ascent", "paper's algorithm", "o", "-"),
        ("minimax", "minimax", "D", "-"),
        ("sdp+dr", "SDP+DR", "s", (0, (5.0, 1.5))),
        ("sdp+rr", "SDP+RR", "^", (0, (2.0, 1.2))),
        ("sdp+dr/scs", "SDP+DR by SCS", "v", (0, (5.0, 1.2, 1.0, 1.2))),
        ("pca", "PCA", "P", (0, (1.0, 1.0))),
        ("random", "random", "x", (0, (1.0, 1.0))),
    )
}


@contextmanager
def house_style() -> Iterator[None]:
    """Draw everything inside the context in this look.

    Raises
    ------
    MissingExtraError
        If matplotlib is not installed.
    """
    mpl = needed("matplotlib", extra="plot", purpose="Drawing")
    with mpl.rc_context(_SETTINGS):
        yield


def figure(rows: int, columns: int, width: float, height: float, **options: Any) -> Any:  # noqa: ANN401
    """Return a figure and its axes as a two-dimensional array.

    Parameters
    ----------
    rows, columns : int
        Panels.
    width, height : float
        Inches.
    **options : dict
        For ``Figure.subplots``.

    Returns
    -------
    tuple of Figure and ndarray of Axes
        Neither knows of a screen.
    """
    from matplotlib.figure import Figure

    made = Figure(figsize=(width, height), layout="constrained")
    return made, made.subplots(rows, columns, squeeze=False, **options)


def save(made: Any, folder: Path, name: str) -> list[Path]:  # noqa: ANN401 - a figure
    """Write a figure as SVG and PNG; equal figures make equal files.

    Parameters
    ----------
    made : Figure
        What to write.
    folder : Path
        Where to; exists.
    name : str
        Without extension.

    Returns
    -------
    list of Path
        The files.
    """
    paths = []
    for kind, metadata in (("svg", {"Date": None}), ("png", {"Software": None})):
        buffer = BytesIO()
        made.savefig(buffer, format=kind, dpi=200, metadata=metadata)
        paths.append(folder / f"{name}.{kind}")
        write_atomically(paths[-1], buffer.getvalue())
    return paths


def label_ends(
    axes: Any,  # noqa: ANN401 - matplotlib Axes
    ends: Sequence[tuple[float, str, str]],
    *,
    x: float = 1.02,
    gap: float = 0.075,
) -> None:
    """Write names beside the right ends of lines, moved apart where they would touch.

    Parameters
    ----------
    axes : Axes
        Its limits must be final.
    ends : sequence of (float, str, str)
        Height in data units, text, colour.
    x : float
        Where, as a share of the width.
    gap : float
        Least distance of two names, as a share of the height.
    """
    to_share = axes.transData + axes.transAxes.inverted()
    placed = sorted(
        (float(to_share.transform((0.0, y))[1]), y, text, colour)
        for y, text, colour in ends
    )
    heights = _spread([share for share, *_ in placed], gap)
    for height, (share, _, text, colour) in zip(heights, placed, strict=True):
        axes.annotate(
            text,
            xy=(1.0, share),
            xytext=(x, height),
            xycoords="axes fraction",
            textcoords="axes fraction",
            color=colour,
            fontsize=7.0,
            va="center",
            annotation_clip=False,
        )


def _spread(heights: list[float], gap: float) -> list[float]:
    """Return heights, given in rising order, at least ``gap`` apart and moved little.

    Groups that touch are merged and centred on the mean of their members; what then
    sticks out of the panel is pushed back, as far as there is room.
    """
    groups: list[list[float]] = []
    for height in heights:
        groups.append([height])
        while len(groups) > 1 and _low(groups[-1], gap) < _high(groups[-2], gap) + gap:
            last = groups.pop()
            groups[-1] += last
    placed = [_low(group, gap) + i * gap for group in groups for i in range(len(group))]
    count = len(placed)
    placed = [min(y, _TOP - gap * (count - 1 - i)) for i, y in enumerate(placed)]
    return [max(y, gap * i) for i, y in enumerate(placed)]


def _low(group: list[float], gap: float) -> float:
    return sum(group) / len(group) - gap * (len(group) - 1) / 2.0


def _high(group: list[float], gap: float) -> float:
    return sum(group) / len(group) + gap * (len(group) - 1) / 2.0
