"""A chart as data: axes and marks, without a word on how they are drawn.

``isoproj.plot.axes`` draws a chart with matplotlib, ``isoproj.plot.svg`` as SVG text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Literal

from numpy.typing import ArrayLike

# Lengths of strokes and gaps, in widths of the line.
SOLID: tuple[float, ...] = ()
DASHED = (3.7, 1.6)
DOTTED = (1.0, 1.7)

Names = Literal["best", "center right", "upper left", ""]


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis.

    A limit that is None fits the marks, and ``margin`` is added as a share of the span.
    Ticks are positions with words; None chooses round numbers, which are whole numbers
    or read as per cent if so asked.
    """

    label: str = ""
    _: KW_ONLY
    low: float | None = None
    high: float | None = None
    log: bool = False
    whole: bool = False
    percent: bool = False
    ticks: Sequence[tuple[float, str]] | None = None
    grid: bool = True
    margin: float = 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Mark:
    """What all marks share.

    The role decides the colour (see ``isoproj.plot.style``), the label is the name in
    the legend, and hints are texts shown where the reader points (SVG only).
    """

    role: str
    label: str = field(default="", kw_only=True)
    hints: Sequence[str] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True, eq=False)
class Line(Mark):
    """A line through points, with optional markers and (not in SVG) error bars.

    Markers have matplotlib's names; SVG draws a circle for any of them.
    """

    x: ArrayLike
    y: ArrayLike
    _: KW_ONLY
    dash: tuple[float, ...] = SOLID
    width: float | None = None
    marker: str = ""
    size: float | None = None
    hollow: bool = False
    errors: ArrayLike | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Dots(Mark):
    """Separate points."""

    x: ArrayLike
    y: ArrayLike
    _: KW_ONLY
    marker: str = "o"
    size: float = 4.0
    opacity: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Band(Mark):
    """The shaded area between two heights; an infinite height is the chart's edge."""

    x: ArrayLike
    low: ArrayLike
    high: ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class Steps(Mark):
    """A histogram: one height between two consecutive edges."""

    edges: ArrayLike
    heights: ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class Bars(Mark):
    """Horizontal bars from zero, at heights 0, 1, 2 and so on."""

    lengths: ArrayLike


@dataclass(frozen=True, slots=True, eq=False)
class Rule(Mark):
    """A straight line across the whole chart, at one x or at one y."""

    _: KW_ONLY
    x: float | None = None
    y: float | None = None
    dash: tuple[float, ...] = SOLID
    width: float = 1.5


@dataclass(frozen=True, slots=True, eq=False)
class Note(Mark):
    """A text near a point.

    Coordinates named in ``shares`` are shares of the chart. The offset is the distance
    from point to text, right and up, in typographic points. An upright text reads from
    bottom to top.
    """

    x: float
    y: float
    text: str
    _: KW_ONLY
    shares: str = ""
    align: str = "left"
    offset: tuple[float, float] = (0.0, 0.0)
    upright: bool = False
    size: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Chart:
    """Two axes and the marks between them.

    ``about`` is one sentence for readers who cannot see the chart. ``names`` says where
    the legend stands, if there is one. ``height`` is that of the SVG in pixels. With
    ``downwards`` the vertical axis counts from top to bottom.
    """

    x: Axis
    y: Axis
    marks: Sequence[Mark]
    title: str = ""
    about: str = ""
    names: Names = "best"
    height: int = 300
    downwards: bool = False
