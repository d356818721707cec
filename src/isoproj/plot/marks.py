"""A chart as data: axes and marks, without a word on how they are drawn.

``isoproj.plot.axes`` draws a chart with matplotlib, ``isoproj.plot.svg`` as SVG text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from numpy.typing import ArrayLike

__all__ = [
    "DASHED",
    "DOTTED",
    "SOLID",
    "Axis",
    "Band",
    "Bars",
    "Chart",
    "Line",
    "Mark",
    "Names",
    "Note",
    "Points",
    "Rule",
    "Steps",
]

# Lengths of strokes and gaps, in widths of the line.
SOLID: tuple[float, ...] = ()
DASHED = (3.7, 1.6)
DOTTED = (1.0, 1.7)

Names = Literal["best", "center right", "upper left", "ends", ""]


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """One axis; a limit that is None fits the marks, with ``margin`` added."""

    label: str = ""
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    """Whether ticks are at whole numbers only."""
    percent: bool = False
    """Whether ticks read as per cent."""
    ticks: Sequence[tuple[float, str]] | None = None
    """Positions and words of the ticks; None chooses round numbers."""
    grid: bool = True
    margin: float = 0.05
    """Share of the span that is added where a limit is None."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mark:
    """What all marks share.

    The role decides the colour (see ``isoproj.plot.style``), the label is the name in
    the legend, and hints are texts shown where the reader points (SVG only).
    """

    role: str
    label: str = ""
    hints: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Line(Mark):
    """A line through points, with optional markers and error bars."""

    x: ArrayLike
    y: ArrayLike
    dash: tuple[float, ...] = SOLID
    width: float | None = None
    marker: str = ""
    """A marker as matplotlib names it; SVG draws a circle for any."""
    size: float | None = None
    hollow: bool = False
    errors: ArrayLike | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Points(Mark):
    """Separate points."""

    x: ArrayLike
    y: ArrayLike
    marker: str = "o"
    size: float = 4.0
    opacity: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Band(Mark):
    """The shaded area between two heights; an infinite height is the chart's edge."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Steps(Mark):
    """A histogram: one height between two consecutive edges."""

    edges: ArrayLike
    heights: ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Bars(Mark):
    """Horizontal bars from zero, at heights 0, 1, 2 and so on."""

    lengths: ArrayLike


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rule(Mark):
    """A straight line across the whole chart, at one x or at one y."""

    x: float | None = None
    y: float | None = None
    dash: tuple[float, ...] = SOLID
    width: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Note(Mark):
    """A text at a point; coordinates named in ``shares`` are shares of the chart."""

    x: float
    y: float
    text: str
    shares: str = ""
    align: str = "left"
    offset: tuple[float, float] = (0.0, 0.0)
    """Distance from the point to the text, in typographic points, up and right."""
    upright: bool = False
    """Whether the text reads from bottom to top."""
    size: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """Two axes and the marks between them."""

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    about: str = ""
    """One sentence for readers who cannot see the chart."""
    names: Names = "best"
    """Where labels stand: in a legend, at the ends of lines, or nowhere."""
    height: int = 300
    """Pixels of the SVG drawing."""
    downwards: bool = False
    """Whether the vertical axis counts from top to bottom."""
