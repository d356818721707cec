"""Draw charts as SVG text, which every browser shows without scripts.

Elements carry classes instead of colours, so that light, dark and print differ by the
page's style alone. A chart is drawn for a width: a phone gets a drawing of its own.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from isoproj.numerics.spectral import Array
from isoproj.plot import marks
from isoproj.plot.marks import Axis, Chart, Mark

# Widths in pixels: a character in small and large type, a solid and a dashed line.
_CHARACTER, _WIDE_CHARACTER = 6.6, 9.0
_STROKE, _THIN = 2.0, 1.6
# Radii in pixels: of a marker of size one, and of an invisible spot that shows a hint.
_RADIUS, _SPOT = 0.7, 6.0
# Kinds of marks from back to front.
_LAYERS: tuple[type[Mark], ...] = (
    marks.Band,
    marks.Steps,
    marks.Rule,
    marks.Line,
    marks.Dots,
    marks.Note,
)

Spots = list[tuple[float, float]]


def draw(chart: Chart, width: int) -> str:
    """Return a chart as an ``svg`` element of the given width in pixels."""
    drawing = _Drawing(chart, width)
    drawing.axes()
    for kind in _LAYERS:
        for mark in chart.marks:
            if isinstance(mark, kind):
                getattr(drawing, kind.__name__.lower())(mark)
    for mark in chart.marks:
        if isinstance(mark, marks.Steps) and mark.hints:
            drawing.columns(mark)
    return ET.tostring(drawing.root, encoding="unicode")


class _Scale:
    """Maps values of an axis to pixels, from ``start`` to ``end``."""

    start, end = 0.0, 1.0

    def __init__(self, axis: Axis, values: list[float]) -> None:
        self.axis = axis
        self.low = min(values, default=0.0) if axis.low is None else axis.low
        self.high = max(values, default=1.0) if axis.high is None else axis.high
        low, high = self._along([self.low, self.high]).tolist()
        extra = axis.margin * (high - low) or 0.01
        if axis.low is None:
            self.low = 10.0 ** (low - extra) if axis.log else low - extra
        if axis.high is None:
            self.high = 10.0 ** (high + extra) if axis.log else high + extra
        self.ticks = _ticks(axis, self.low, self.high)

    def __call__(self, value: float) -> float:
        return float(self.pixels(value))

    def pixels(self, values: ArrayLike) -> Array:
        """Return pixels; values beyond an end of the axis, or infinite, are there."""
        ends = self._along([self.low, self.high])
        pixels = np.interp(self._along(values), ends, [self.start, self.end])
        return np.asarray(pixels)

    def _along(self, values: ArrayLike) -> Array:
        """Return values, or their logarithms, between which steps are even."""
        found = np.asarray(values, dtype=np.float64)
        return np.log10(np.maximum(found, self.low)) if self.axis.log else found


class _Drawing:
    """An ``svg`` element with the scales of a chart."""

    def __init__(self, chart: Chart, width: int) -> None:
        self.chart, self.width = chart, width
        self.x = _Scale(chart.x, _values(chart, ["x", "edges"]))
        self.y = _Scale(chart.y, _values(chart, ["y", "low", "high", "heights"]))
        notes = [mark for mark in chart.marks if isinstance(mark, marks.Note)]
        beyond = [
            note.offset[0] + _WIDE_CHARACTER * len(note.text)
            for note in notes
            if note.align == "left" and not note.shares and note.x >= self.x.high
        ]
        above = any("y" in note.shares and note.y >= 1.0 for note in notes)
        longest = max((len(word) for _, word in self.y.ticks), default=0)
        left = 24 + _CHARACTER * longest
        self.x.start, self.x.end = left, width - max([14.0, *beyond])
        self.y.start, self.y.end = chart.height - 48.0, 30.0 if above else 14.0
        self.top, self.bottom = self.y.end, self.y.start
        if chart.downwards:
            self.y.start, self.y.end = self.y.end, self.y.start
        self.root = ET.Element(
            "svg",
            {
                "viewBox": f"0 0 {width} {chart.height}",
                "role": "img",
                "aria-label": chart.about,
                "class": "chart",
            },
        )

    def axes(self) -> None:
        """Draw grid, ticks and the name of the horizontal axis.

        The vertical axis has no name here: a caption beside the drawing tells it.
        """
        for value, word in self.x.ticks:
            x = self.x(value)
            self._add("line", "grid", x1=x, x2=x, y1=self.top, y2=self.bottom)
            self._text(x, self.bottom + 17, word, align="middle")
        for value, word in self.y.ticks:
            y = self.y(value)
            if self.chart.y.grid:
                self._add("line", "grid", x1=self.x.start, x2=self.x.end, y1=y, y2=y)
            css = "" if self.chart.y.grid else "name"
            self._text(self.x.start - 9, y + 4, word, css=css, align="end")
        middle = (self.x.start + self.x.end) / 2
        label = self.chart.x.label
        if _CHARACTER * len(label) > self.width:
            # A phone has no room for the remark in brackets.
            label = label.partition(" (")[0]
        self._text(middle, self.bottom + 36, label, css="name", align="middle")

    def columns(self, mark: marks.Steps) -> None:
        """Lay an invisible column over every step, which shows its hint."""
        edges = self.x.pixels(mark.edges)
        for low, high, hint in zip(edges, edges[1:], mark.hints, strict=False):
            size = {"width": high - low, "height": self.bottom - self.top}
            self._add("rect", "hover", hint, x=low, y=self.top, **size)

    def line(self, mark: marks.Line) -> None:
        spots = self._spots(mark.x, mark.y)
        width = mark.width or (_THIN if mark.dash else _STROKE)
        self._path(spots, mark, width)
        if mark.marker:
            self._dots(spots, mark, mark.size or 4.0)
        else:
            for (x, y), hint in zip(spots, mark.hints, strict=False):
                self._add("circle", "hover", hint, cx=x, cy=y, r=_SPOT)

    def _dots(self, spots: Spots, mark: Mark, size: float) -> None:
        hints = mark.hints or [""] * len(spots)
        css = f"dot role-{mark.role}"
        for (x, y), hint in zip(spots, hints, strict=True):
            self._add("circle", css, hint, cx=x, cy=y, r=_RADIUS * size)

    def dots(self, mark: marks.Dots) -> None:
        self._dots(self._spots(mark.x, mark.y), mark, mark.size)

    def band(self, mark: marks.Band) -> None:
        n = np.size(mark.x)
        low = self._spots(mark.x, np.broadcast_to(mark.low, n))
        high = self._spots(mark.x, np.broadcast_to(mark.high, n))
        self._area([*low, *high[::-1]], mark)

    def steps(self, mark: marks.Steps) -> None:
        edges = np.repeat(np.asarray(mark.edges), 2)
        heights = np.repeat(np.asarray(mark.heights), 2)
        outline = self._spots(edges, [self.y.low, *heights, self.y.low])
        self._area(outline, mark)
        self._path(outline[1:-1], mark, _STROKE)

    def rule(self, mark: marks.Rule) -> None:
        x = self.x(mark.x or 0.0)
        ends = [(x, self.top), (x, self.bottom)]
        self._path(ends, mark, mark.width, "".join(mark.hints))

    def note(self, mark: marks.Note) -> None:
        x, y = self.x(mark.x), self.y(mark.y)
        if "y" in mark.shares:
            y = self.bottom - (self.bottom - self.top) * mark.y
        x, y = x + mark.offset[0], y - mark.offset[1] + 4
        align = {"left": "start", "center": "middle", "right": "end"}[mark.align]
        text = mark.text
        if mark.align == "right" and x < _CHARACTER * len(text):
            # There is no room at the left, so the text stands at the right.
            x, text, align = x + 10, f"← {text}", "start"
        beyond = not mark.shares and mark.x >= self.x.high
        css = "value" if beyond else ""
        turn = {"transform": f"rotate(-90 {x:.2f} {y:.2f})"} if mark.upright else {}
        x += 4 * mark.upright
        self._text(x, y, text, css=css, align=align, **turn)

    def _spots(self, xs: ArrayLike, ys: ArrayLike) -> Spots:
        return list(zip(self.x.pixels(xs), self.y.pixels(ys), strict=True))

    def _path(self, spots: Spots, mark: Mark, width: float, hint: str = "") -> None:
        style = f"stroke-width:{width:g}"
        dash = [f"{width * part:g}" for part in getattr(mark, "dash", ())]
        if dash:
            style += f";stroke-dasharray:{' '.join(dash)}"
        css = f"line role-{mark.role}"
        self._add("polyline", css, hint, points=_joined(spots), style=style)

    def _area(self, spots: Spots, mark: Mark) -> None:
        hint = "" if isinstance(mark, marks.Steps) else "".join(mark.hints)
        css = f"area role-{mark.role}"
        self._add("polygon", css, hint, points=_joined(spots))

    def _add(self, tag: str, css: str, hint: str = "", **where: float | str) -> None:
        shown = {
            name: value if isinstance(value, str) else f"{value:.2f}"
            for name, value in where.items()
        }
        element = ET.SubElement(self.root, tag, {"class": css, **shown})
        if hint:
            ET.SubElement(element, "title").text = hint

    def _text(
        self, x: float, y: float, words: str, *, css: str = "", align: str, **how: str
    ) -> None:
        place = {"x": f"{x:.2f}", "y": f"{y:.2f}", "text-anchor": align, **how}
        place["class"] = f"text {css}".strip()
        ET.SubElement(self.root, "text", place).text = words


def _joined(spots: Spots) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in spots)


def _values(chart: Chart, fields: Sequence[str]) -> list[float]:
    """Return the finite values that some fields of the marks hold."""
    found = [
        np.ravel(np.asarray(getattr(mark, field, None), dtype=np.float64))
        for mark in chart.marks
        if not isinstance(mark, marks.Note)
        for field in fields
    ]
    values = np.concatenate([[], *found])
    return list(values[np.isfinite(values)])


def _ticks(axis: Axis, low: float, high: float) -> list[tuple[float, str]]:
    """Return values and words of the ticks: those given, decades or round numbers."""
    if axis.ticks is not None:
        return list(axis.ticks)
    if axis.log:
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        powers = range(first, last + 1, max(1, (last - first + 5) // 6))
        return [(10.0**power, _decade(power, axis)) for power in powers]
    values = _round_numbers(low, high)
    if axis.whole:
        values = [value for value in values if value == int(value)] or [math.ceil(low)]
    return [(value, f"{value:g}") for value in values]


def _decade(power: int, axis: Axis) -> str:
    if axis.percent and power >= -6:
        return f"{100.0 * 10.0**power:g}%"
    digits = str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return f"10{digits}"


def _round_numbers(low: float, high: float) -> list[float]:
    """Return from four to eight round numbers between two others."""
    span = max(high - low, 1e-12) / 7.0
    power = 10.0 ** math.floor(math.log10(span))
    step = next(f * power for f in (1.0, 2.0, 5.0, 10.0) if f * power >= span * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(np.round(at * step, 12)) for at in range(first, last + 1)]
