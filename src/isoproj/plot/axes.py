"""Draw charts with matplotlib, which is imported on the first drawing only.

Displays are numbers at hand that ``plot`` draws.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.arrays import require
from isoproj.numerics.container import write_atomically
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Array, Foreign
from isoproj.plot import marks
from isoproj.plot.marks import Axis, Chart
from isoproj.plot.style import SHADE, colour_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def axes_or_new(ax: Axes | None) -> Axes:
    """Return the axes given, or the axes of a new figure."""
    pyplot = needed("matplotlib.pyplot", extra="plot", purpose="Drawing")
    axes: Axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    return axes


def drawn(chart: Chart, ax: Axes | None) -> Axes:
    """Draw a chart on the axes given, or on those of a new figure; return the axes."""
    axes = axes_or_new(ax)
    draw(chart, axes)
    return axes


def draw(chart: Chart, axes: Axes) -> list[Any]:
    """Draw a chart and return one matplotlib artist per mark, in their order."""
    painter = _Painter(chart, axes)
    # A method is named after the kind of mark that it draws.
    artists = [getattr(painter, type(m).__name__.lower())(m) for m in chart.marks]
    _set_axis(axes, "x", chart.x)
    _set_axis(axes, "y", chart.y)
    if chart.downwards and not axes.yaxis_inverted():
        axes.invert_yaxis()
    if chart.title:
        axes.set_title(chart.title)
    tidy(axes, grid_x=chart.x.grid, grid_y=chart.y.grid)
    if chart.names and any(mark.label for mark in chart.marks):
        axes.legend(loc=chart.names)
    return artists


def tidy(axes: Axes, *, grid_x: bool = True, grid_y: bool = True) -> None:
    """Hide the upper and right frame, and put a pale grid behind the marks."""
    axes.spines[["top", "right"]].set_visible(False)
    for axis, shown in ((axes.xaxis, grid_x), (axes.yaxis, grid_y)):
        axis.grid(visible=True, alpha=0.25) if shown else axis.grid(visible=False)
    axes.set_axisbelow(True)


class _Painter:
    """Draws the marks of one chart, each in the colour of its role."""

    def __init__(self, chart: Chart, axes: Axes) -> None:
        self.chart, self.axes = chart, axes
        self._colours: dict[str, Any] = {}

    def colour(self, role: str) -> Foreign:
        """Return the role's colour, or the next of matplotlib's cycle."""
        if role not in self._colours:
            found: Any = colour_of(role)
            if found is None:
                (line,) = self.axes.plot([], [])
                found = line.get_color()
                line.remove()
            self._colours[role] = found
        return self._colours[role]

    def line(self, mark: marks.Line) -> Foreign:
        colour = self.colour(mark.role)
        given: dict[str, Any] = {"linewidth": mark.width, "markersize": mark.size}
        options = {name: value for name, value in given.items() if value is not None}
        options |= {
            "color": colour,
            "linestyle": (0, mark.dash) if mark.dash else "-",
            "marker": mark.marker or None,
            "markerfacecolor": "white" if mark.hollow else colour,
            "label": mark.label or None,
        }
        if mark.errors is None:
            return self.axes.plot(mark.x, mark.y, **options)[0]
        return self.axes.errorbar(
            mark.x, mark.y, mark.errors, elinewidth=0.7, zorder=3, **options
        )[0]

    def dots(self, mark: marks.Dots) -> Foreign:
        is_opaque = mark.opacity == 1.0
        return self.axes.plot(
            mark.x,
            mark.y,
            linestyle="",
            marker=mark.marker,
            color=self.colour(mark.role),
            markersize=mark.size,
            markeredgewidth=0.8 if mark.marker == "x" else 0.2,
            alpha=mark.opacity,
            rasterized=not is_opaque,
            label=mark.label or None,
            zorder=4 if is_opaque else 2,
        )[0]

    def band(self, mark: marks.Band) -> Foreign:
        options = {"color": self.colour(mark.role), "alpha": SHADE, "linewidth": 0}
        across = np.asarray(mark.x)
        if np.isinf(mark.low).all() and np.isinf(mark.high).all():
            return self.axes.axvspan(across[0], across[-1], **options)
        # What is infinite ends at the limits of the axis.
        axis = self.chart.y
        low, high = (
            np.nan_to_num(values, nan=np.nan, neginf=axis.low, posinf=axis.high)
            for values in (mark.low, mark.high)
        )
        return self.axes.fill_between(across, low, high, **options)

    def steps(self, mark: marks.Steps) -> Foreign:
        colour, stairs = self.colour(mark.role), self.axes.stairs
        outline = stairs(
            mark.heights, mark.edges, color=colour, label=mark.label or None, lw=1.5
        )
        stairs(mark.heights, mark.edges, color=colour, fill=True, alpha=SHADE)
        return outline

    def bars(self, mark: marks.Bars) -> Foreign:
        places = range(np.size(mark.lengths))
        return self.axes.barh(places, mark.lengths, color=self.colour(mark.role))

    def rule(self, mark: marks.Rule) -> Foreign:
        options: dict[str, Any] = {
            "color": self.colour(mark.role),
            "linewidth": mark.width,
            "linestyle": (0, mark.dash) if mark.dash else "-",
        }
        if mark.x is not None:
            return self.axes.axvline(mark.x, **options)
        return self.axes.axhline(mark.y or 0.0, **options)

    def note(self, mark: marks.Note) -> Foreign:
        across, up = (
            "axes fraction" if name in mark.shares else "data" for name in ("x", "y")
        )
        return self.axes.annotate(
            mark.text,
            (mark.x, mark.y),
            xytext=mark.offset,
            xycoords=(across, up),
            textcoords="offset points",
            rotation=90 if mark.upright else 0,
            ha=mark.align,
            va="center",
            color=self.colour(mark.role),
            fontsize=mark.size,
        )


def _set_axis(axes: Axes, name: str, axis: Axis) -> None:
    """Set label, scale, limits and ticks of one axis."""
    drawn = getattr(axes, f"{name}axis")
    if axis.log:
        getattr(axes, f"set_{name}scale")("log")
        drawn.minorticks_off()
    if axis.label:
        drawn.set_label_text(axis.label)
    if axis.ticks is not None:
        drawn.set_ticks([at for at, _ in axis.ticks], [word for _, word in axis.ticks])
    elif axis.whole:
        ticker = needed("matplotlib.ticker", extra="plot", purpose="Drawing")
        drawn.set_major_locator(ticker.MaxNLocator(integer=True, steps=[1, 2, 5, 10]))
    elif axis.percent:
        drawn.set_major_formatter(lambda value, _: f"{100.0 * value:g}%")
    if axis.margin != Axis().margin:
        getattr(axes, f"set_{name}margin")(axis.margin)
    if axis.low is not None or axis.high is not None:
        # auto=None lets a further chart on the same axes widen the limits again.
        getattr(axes, f"set_{name}lim")(axis.low, axis.high, auto=None)


def check_figure_name(path: str) -> None:
    """Raise ValueError unless matplotlib can write a figure of this name."""
    figure = needed("matplotlib.figure", extra="plot", purpose="Drawing")
    known = figure.Figure().canvas.get_supported_filetypes()
    kind = Path(path).suffix.lstrip(".") or "png"
    if kind.lower() not in known:
        msg = f"a plot must end in .png, .svg or .pdf; got {path}. Name a .png file."
        raise ValueError(msg)


def save_axes(ax: Axes, path: str) -> None:
    """Write the figure of some axes, whole or not at all.

    The file's ending names the format, PNG without one.
    """
    figure: Any = ax.figure
    buffer, kind = BytesIO(), Path(path).suffix.lstrip(".") or "png"
    figure.savefig(buffer, format=kind, dpi=150, bbox_inches="tight")
    write_atomically(Path(path), buffer.getvalue())


class Display(ABC):
    """Numbers that can be drawn, after scikit-learn's convention for displays.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the last drawing.
    figure_ : matplotlib Figure
        Figure of these axes.
    """

    ax_: Axes
    figure_: Figure

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw the numbers.

        Parameters
        ----------
        ax : matplotlib Axes or None
            Where to draw; None makes a new figure.

        Returns
        -------
        Display
            The display itself.

        Raises
        ------
        MissingExtraError
            If matplotlib is not installed.
        """
        self._draw(self._chart(), axes_or_new(ax))
        return self

    @abstractmethod
    def _chart(self) -> Chart:
        """Return the chart of the numbers."""

    def _draw(self, chart: Chart, axes: Axes) -> list[Any]:
        """Draw a chart, remember where, and return one artist per mark."""
        artists = draw(chart, axes)
        self.ax_, self.figure_ = axes, axes.figure  # type: ignore[assignment]
        return artists


def as_long_as(first: Array, name: str, values: ArrayLike) -> Array:
    """Return values as an array if there is one for each entry of ``first``."""
    found = np.asarray(values, dtype=np.float64)
    fits = found.shape == first.shape and found.ndim == 1
    what = f"have one value for each of {first.size}"
    require(fits, name, found.shape, what, "Pass arrays of one length.")
    return found
