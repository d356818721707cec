"""Charts as inline SVG: visible without scripts, coloured by the page's style.

Elements carry classes instead of colours, so that light, dark and print differ by style
alone. Every chart is drawn for a width: a phone gets a drawing of its own rather than a
shrunken one.
"""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Callable, Sequence

import numpy as np

from isoproj.reporting.facts import Facts
from isoproj.reporting.wording import METHOD_NAMES, amount, percent

__all__ = [
    "bounds_chart",
    "convergence_chart",
    "curve_chart",
    "frontier_chart",
    "histogram_chart",
    "kept_chart",
]

_LOST = "share of squared length lost"
_WORST = "share of squared length the worst pair loses"

Scale = Callable[[float], float]
Points = Sequence[tuple[float, float]]


class _Drawing:
    """An SVG element with a plot area and axes."""

    def __init__(self, label: str, width: int, height: int, margins: str) -> None:
        top, right, bottom, left = (int(m) for m in margins.split())
        self.root = ET.Element(
            "svg",
            {
                "viewBox": f"0 0 {width} {height}",
                "role": "img",
                "aria-label": label,
                "class": "chart",
            },
        )
        self.left, self.right = left, width - right
        self.top, self.bottom = top, height - bottom

    def across(self, low: float, high: float) -> Scale:
        width = self.right - self.left
        return lambda value: self.left + width * (value - low) / (high - low)

    def upwards(self, low: float, high: float) -> Scale:
        height = self.bottom - self.top
        return lambda value: self.bottom - height * (value - low) / (high - low)

    def add(self, tag: str, css: str, title: str = "", **where: float | str) -> None:
        shown = {
            name.replace("_", "-"): value if isinstance(value, str) else f"{value:.2f}"
            for name, value in where.items()
        }
        element = ET.SubElement(self.root, tag, {"class": css, **shown})
        if title:
            ET.SubElement(element, "title").text = title

    def text(self, x: float, y: float, words: str, css: str = "", **how: str) -> None:
        place = {"x": f"{x:.2f}", "y": f"{y:.2f}", "class": f"text {css}".strip()}
        place.update({name.replace("_", "-"): value for name, value in how.items()})
        ET.SubElement(self.root, "text", place).text = words

    def line(self, points: Points, css: str, title: str = "") -> None:
        self.add("polyline", css, title, points=_joined(points))

    def area(self, points: Points, css: str) -> None:
        self.add("polygon", css, points=_joined(points))

    def dot(self, x: float, y: float, css: str, title: str = "", r: float = 5) -> None:
        self.add("circle", css, title, cx=x, cy=y, r=r)

    def box(
        self, x: float, y: float, to_x: float, to_y: float, css: str, title: str = ""
    ) -> None:
        size = {"width": max(0.0, to_x - x), "height": max(0.0, to_y - y)}
        self.add("rect", css, title, x=x, y=y, **size)

    def x_axis(self, scale: Scale, ticks: Sequence[float], name: str) -> None:
        for tick in ticks:
            x = scale(tick)
            self.add("line", "grid", x1=x, x2=x, y1=self.top, y2=self.bottom)
            self.text(x, self.bottom + 17, f"{tick:g}", text_anchor="middle")
        middle = (self.left + self.right) / 2
        self.text(middle, self.bottom + 36, name, "name", text_anchor="middle")

    def y_axis(self, scale: Scale, ticks: Sequence[float], words: list[str]) -> None:
        for tick, word in zip(ticks, words, strict=True):
            y = scale(tick)
            self.add("line", "grid", x1=self.left, x2=self.right, y1=y, y2=y)
            self.text(self.left - 7, y + 4, word, text_anchor="end")

    def svg(self) -> str:
        return ET.tostring(self.root, encoding="unicode")


def bounds_chart(facts: Facts, width: int) -> str:
    """Return the bar from lower bound to distortion, other methods below it.

    Parameters
    ----------
    facts : dict
        Of a report.
    width : int
        Of the drawing.

    Returns
    -------
    str
        An ``svg`` element.
    """
    bounds, methods = facts["certificate"], facts["methods"]
    lower, upper = bounds["lower_bound"], bounds["distortion"]
    rows = methods or [
        {"name": "isoproj", "distortion": upper, "distortion_is": "exact"}
    ]
    step = 38
    drawing = _Drawing(
        f"The worst pair loses {percent(upper)}; none can be below {percent(lower)}",
        width,
        len(rows) * step + 84,
        f"30 66 {54} {74 if width < 500 else 96}",
    )
    x = drawing.across(0.0, 1.0)
    is_wide = width > 500
    name = _WORST if is_wide else "share the worst pair loses"
    drawing.x_axis(x, _ticks(0.0, 1.0, 5), name)
    wall = f"proven: no projection to as many dimensions loses less than {lower:.6f}"
    drawing.box(x(0), drawing.top - 8, x(lower), drawing.bottom, "floor-area", wall)
    drawing.add(
        "line",
        "floor-line",
        x1=x(lower),
        x2=x(lower),
        y1=drawing.top - 8,
        y2=drawing.bottom,
    )
    words = "no projection gets here" if is_wide else "impossible"
    room = 7.2 * len(words)
    if x(lower) - x(0) > room:
        drawing.text(x(lower) - 8, drawing.top - 14, words, text_anchor="end")
    else:
        drawing.text(x(lower) + 2, drawing.top - 14, f"← {words}")
    for at, row in enumerate(rows):
        _bounds_row(drawing, x, drawing.top + step * (at + 0.5), row, lower)
    return drawing.svg()


def _bounds_row(
    drawing: _Drawing, x: Scale, y: float, row: Facts, lower: float
) -> None:
    name, value = row["name"], row["distortion"]
    told = amount(row)
    title = f"{METHOD_NAMES[name]}: the worst pair loses {told}"
    css = f"fill-{name}"
    drawing.text(
        drawing.left - 10, y + 4, METHOD_NAMES[name], "name", text_anchor="end"
    )
    thick = 7.0 if name == "isoproj" else 1.5
    drawing.box(x(lower), y - thick / 2, x(value), y + thick / 2, css, title)
    drawing.dot(x(value), y, css, title, r=7)
    drawing.text(x(1.0) + 12, y + 4, told, "value")


def histogram_chart(facts: Facts, width: int) -> str:
    """Return how the share lost spreads over the pairs, model against PCA.

    Parameters
    ----------
    facts : dict
        Of a report on data.
    width : int
        Of the drawing.

    Returns
    -------
    str
        An ``svg`` element.
    """
    found = facts["histogram"]
    edges, counts = found["edges"], found["counts"]
    total = max(1, sum(counts["pca"]))
    shares = {name: [c / total for c in column] for name, column in counts.items()}
    smallest = min(s for column in shares.values() for s in column if s > 0)
    low, high = min(-1, math.floor(math.log10(smallest))), 0
    drawing = _Drawing("Histogram of the share lost", width, 300, "14 12 48 64")
    x, y = drawing.across(0.0, 1.0), drawing.upwards(low, high)
    drawing.x_axis(x, _ticks(0.0, 1.0, 5), _LOST)
    decades = list(range(low, high + 1, max(1, (high - low + 5) // 6)))
    drawing.y_axis(y, decades, _decades(decades))
    for name in ("pca", "isoproj"):
        heights = [
            y(max(low, math.log10(s))) if s > 0 else y(low) for s in shares[name]
        ]
        outline = _steps([x(e) for e in edges], heights, y(low))
        drawing.area(outline, f"area-{name}")
        drawing.line(outline[1:-1], f"line-{name}")
    for row in facts["methods"]:
        if row["name"] in shares:
            at = x(row["distortion"])
            title = f"{METHOD_NAMES[row['name']]}: the worst pair loses {amount(row)}"
            drawing.line(
                [(at, drawing.top), (at, y(low))], f"mark line-{row['name']}", title
            )
    for at in range(len(edges) - 1):
        drawing.box(
            x(edges[at]),
            drawing.top,
            x(edges[at + 1]),
            y(low),
            "hover",
            _bin_title(edges, counts, total, at),
        )
    return drawing.svg()


def _bin_title(
    edges: list[float], counts: dict[str, list[int]], total: int, at: int
) -> str:
    lines = [f"{percent(edges[at])} to {percent(edges[at + 1])} lost"]
    lines += [
        f"{METHOD_NAMES[name]}: {column[at]:,} pairs ({column[at] / total:.3%})"
        for name, column in counts.items()
    ]
    return "\n".join(lines)


def _steps(edges: list[float], heights: list[float], ground: float) -> Points:
    outline = [(edges[0], ground)]
    for left, right, height in zip(edges[:-1], edges[1:], heights, strict=True):
        outline += [(left, height), (right, height)]
    return [*outline, (edges[-1], ground)]


def curve_chart(facts: Facts, width: int) -> str:
    """Return what is lost at other numbers of dimensions, above the proven floor.

    Parameters
    ----------
    facts : dict
        Of a report with a curve.
    width : int
        Of the drawing.

    Returns
    -------
    str
        An ``svg`` element.
    """
    curve = facts["curve"]
    ks, floor, k = curve["ks"], curve["floor"], curve["k"]
    drawing = _Drawing("Distortion against dimensions", width, 300, "14 14 48 46")
    x = drawing.across(min(ks), max(max(ks), min(ks) + 1))
    y = drawing.upwards(0.0, 1.0)
    ticks = [t for t in _ticks(min(ks), max(ks), 6) if t == int(t)]
    drawing.x_axis(x, ticks, "dimensions kept, k")
    drawing.y_axis(y, _ticks(0.0, 1.0, 5), [f"{t:g}" for t in _ticks(0.0, 1.0, 5)])
    line = [(x(at), y(bound)) for at, bound in zip(ks, floor, strict=True)]
    drawing.area([(x(ks[0]), y(0)), *line, (x(ks[-1]), y(0))], "floor-area")
    drawing.line(line, "floor-line dashed")
    for at, bound in zip(ks, floor, strict=True):
        title = f"k = {at}: no projection loses less than {bound:.4f}"
        drawing.dot(x(at), y(bound), "hover", title, r=6)
    for name in ("pca", "isoproj"):
        if curve[name] is not None:
            _curve_line(drawing, x, y, ks, curve[name], name)
    value = facts["certificate"]["distortion"]
    title = f"this model, k = {k}: the worst pair loses {value:.4f}"
    drawing.dot(x(k), y(value), "fill-isoproj", title, r=6.5)
    return drawing.svg()


def _curve_line(
    drawing: _Drawing, x: Scale, y: Scale, ks: list[int], losses: list[float], name: str
) -> None:
    spots = list(zip(ks, losses, strict=True))
    drawing.line([(x(k), y(loss)) for k, loss in spots], f"line-{name}")
    for k, loss in spots:
        title = f"{METHOD_NAMES[name]}, k = {k}: the worst pair loses {loss:.4f}"
        drawing.dot(x(k), y(loss), f"fill-{name}", title, r=3.2)


def frontier_chart(facts: Facts, width: int) -> str:
    """Return what is kept on the whole against what the worst pair loses.

    Parameters
    ----------
    facts : dict
        Of a report with a frontier.
    width : int
        Of the drawing.

    Returns
    -------
    str
        An ``svg`` element.
    """
    found, guarantee = facts["frontier"], facts["guarantee"]
    caps, kept, bound = found["cap"], found["kept"], found["kept_bound"]
    floor = found["lower_bound"]
    drawing = _Drawing("What caps cost and buy", width, 300, "14 20 48 56")
    left, low = min(floor, caps[0]), min(kept)
    slack = 0.06 * (caps[-1] - left) or 0.01
    x = drawing.across(left - slack, caps[-1] + slack)
    rise = 0.08 * (max(bound) - low) or 0.01
    y = drawing.upwards(low - rise, max(bound) + rise)
    ticks = _ticks(left, caps[-1], 5)
    drawing.x_axis(x, ticks, _WORST if width > 500 else "share the worst pair loses")
    ticks = _ticks(low - rise, max(bound) + rise, 5)
    drawing.y_axis(y, ticks, [f"{t:.3g}" for t in ticks])
    wall = f"proven: no projection to as many dimensions loses less than {floor:.6f}"
    drawing.box(drawing.left, drawing.top, x(floor), drawing.bottom, "floor-area", wall)
    line = [(x(cap), y(most)) for cap, most in zip(caps, bound, strict=True)]
    ends = [(line[-1][0], drawing.top), (line[0][0], drawing.top)]
    drawing.area([*line, *ends], "floor-area")
    drawing.line(line, "floor-line dashed")
    spots = [(x(cap), y(share)) for cap, share in zip(caps, kept, strict=True)]
    drawing.line(spots, "line-isoproj")
    for at, spot in enumerate(spots):
        title = (
            f"no pair loses more than {caps[at]:.4f}: {kept[at]:.4f} is kept, no "
            f"projection keeps more than {bound[at]:.4f}"
        )
        css = "fill-pca" if at == len(spots) - 1 else "fill-isoproj"
        drawing.dot(*spot, css, title, r=4)
    if guarantee and guarantee["objective"] == found["objective"]:
        title = f"this model: {guarantee['kept']:.4f} under {guarantee['cap']:.4f}"
        spot = x(min(guarantee["cap"], caps[-1])), y(guarantee["kept"])
        drawing.dot(*spot, "fill-isoproj", title, r=6.5)
    return drawing.svg()


def convergence_chart(facts: Facts, width: int) -> str:
    """Return both bounds on the distortion by round.

    Parameters
    ----------
    facts : dict
        Of a report on a model with a history.
    width : int
        Of the drawing.

    Returns
    -------
    str
        An ``svg`` element.
    """
    return _between(facts["history"], width, found="upper", bound="lower")


def kept_chart(facts: Facts, width: int) -> str:
    """Return what is kept under a cap, and the most that can be, by round.

    Parameters
    ----------
    facts : dict
        Of a report on a model with a guarantee.
    width : int
        Of the drawing.

    Returns
    -------
    str
        An ``svg`` element.
    """
    return _between(facts["kept_history"], width, found="lower", bound="upper")


def _between(history: list[Facts], width: int, *, found: str, bound: str) -> str:
    """Draw what was found and what bounds it, round by round."""
    rounds = [step["iteration"] for step in history]
    drawing = _Drawing("Both bounds by round", width, 270, "14 14 48 56")
    x = drawing.across(rounds[0], max(rounds[-1], rounds[0] + 1))
    low = min(step["lower"] for step in history)
    high = max(step["upper"] for step in history)
    slack = 0.06 * (high - low) or 0.01
    y = drawing.upwards(low - slack, high + slack)
    whole = [t for t in _ticks(rounds[0], rounds[-1], 6) if t == int(t)]
    drawing.x_axis(x, whole or [rounds[0]], "round")
    ticks = _ticks(low - slack, high + slack, 5)
    drawing.y_axis(y, ticks, [f"{t:.3g}" for t in ticks])
    lines = {
        side: [(x(step["iteration"]), y(step[side])) for step in history]
        for side in (found, bound)
    }
    drawing.area([*lines[found], *lines[bound][::-1]], "area-isoproj")
    drawing.line(lines[found], "line-isoproj")
    drawing.line(lines[bound], "floor-line dashed")
    for step, spot in zip(history, lines[found], strict=True):
        title = (
            f"round {step['iteration']}, {step['seconds']:.1f} s: between "
            f"{step['lower']:.4f} and {step['upper']:.4f}"
        )
        drawing.dot(*spot, "fill-isoproj", title, r=2.6)
    return drawing.svg()


def _ticks(low: float, high: float, wanted: int) -> list[float]:
    """Return round numbers between two others, about as many as wanted."""
    span = max(high - low, 1e-12) / wanted
    power = 10.0 ** math.floor(math.log10(span))
    step = next(f * power for f in (1.0, 2.0, 5.0, 10.0) if f * power >= span * 0.999)
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(np.round(at * step, 12)) for at in range(first, last + 1)]


def _decades(powers: Sequence[int]) -> list[str]:
    if min(powers) >= -6:
        return [f"{100.0 * 10.0**power:g}%" for power in powers]
    return [f"10{_superscript(power)}" for power in powers]


def _superscript(number: int) -> str:
    return str(number).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def _joined(points: Points) -> str:
    return " ".join(f"{x:.2f},{y:.2f}" for x, y in points)
