"""The paper's figures, and figures beyond it, as charts made from the records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from isoproj.numerics.spectral import Array
from isoproj.plot.charts import curve_chart, floor_marks
from isoproj.plot.marks import Axis, Band, Chart, Dots, Line, Mark, Note, Rule
from isoproj.plot.style import LOOKS, look_of
from paper.evidence import GRID, LABELS, course, ratios, value
from paper.panels import Panels, save_panels
from paper.records import Finished, Records
from paper.table import (
    ALGORITHM,
    DIMENSIONS,
    N_STEPS,
    Subject,
)

_KS = "dimensions kept, k"
_LOSS = "worst pair's loss"
_DOTS = (2.0, 2.0)
# Dots of type for names inside a panel.
_SMALL = 7.0
# Roles whose colours stand for classes of points.
_CLASSES = ("isoproj", "pca", "guaranteed_pca", "sdp+dr")
# The paper shows per cent improvement where distortions are too close to see.
_AS_IMPROVEMENT = 46
_SIZES = {
    46: "1K pairs",
    101: "5K pairs",
    142: "10K pairs",
    317: "50K pairs",
    448: "100K pairs",
}


def draw_all(records: Records, folder: Path) -> dict[str, list[Path]]:
    """Draw every figure that the records have cells for; return the files by name."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, (experiments, panels_of) in FIGURES.items():
        cells = records.of(experiments)
        if cells:
            made[name] = save_panels(panels_of(cells), folder, name)
    return made


def series(
    cells: Iterable[Finished], method: str, name: str = "distortion"
) -> dict[int, list[float]]:
    """Return a number of a method by k, one value per seed."""
    return _grouped((f.cell.k, value(f, method, name)) for f in cells)


def _grouped(pairs: Iterable[tuple[int, float]]) -> dict[int, list[float]]:
    """Return the values of equal keys together, keys rising, NaN left out."""
    found: dict[int, list[float]] = {}
    for key, number in pairs:
        if not math.isnan(number):
            found.setdefault(key, []).append(number)
    return dict(sorted(found.items()))


def _means(groups: dict[int, list[float]]) -> list[float]:
    return [float(np.mean(values)) for values in groups.values()]


def _method_line(method: str, groups: dict[int, list[float]], label: str) -> Line:
    """Return means with standard deviations as error bars, in the method's look."""
    spreads = [float(np.std(values)) for values in groups.values()]
    line = Line(method, list(groups), _means(groups), errors=spreads, label=label)
    return _in_look(line)


def _in_look(line: Line) -> Line:
    """Return a line with the marker and dash of its method."""
    look = look_of(line.role) or LOOKS["isoproj"]
    return replace(line, marker=look.marker, dash=look.dash)


def _guide(x: float | None = None, y: float | None = None, label: str = "") -> Rule:
    """Return a thin dotted line that guides the eye."""
    return Rule("guide", x=x, y=y, label=label, width=0.8, dash=_DOTS)


def _ticks(values: Iterable[float], form: str = "g") -> list[tuple[float, str]]:
    return [(at, f"{at:{form}}") for at in values]


def _k_axis(label: str) -> Axis:
    """Return the same dimensions for every panel, also where cells are missing."""
    return Axis(
        label=label,
        low=min(DIMENSIONS) - 1.5,
        high=max(DIMENSIONS) + 1.5,
        ticks=_ticks(k for k in DIMENSIONS if k != 7),
    )


def _against_k(cells: list[Finished], title: str, *, named: bool) -> Chart:
    """Return every method's distortion, and the floor that none can go below."""
    floor = _grouped((f.cell.k, _lower_bound(f)) for f in cells)
    lines = [
        _method_line(method, groups, label)
        for method, label in LABELS.items()
        if (groups := series(cells, method))
    ]
    bounds = floor_marks(list(floor), _means(floor), "lower bound") if floor else []
    return replace(
        curve_chart(lines, bounds),
        x=_k_axis(_KS),
        y=Axis(_LOSS, low=0.0, high=1.03),
        title=title,
        names="best" if named else "",
    )


def _lower_bound(finished: Finished) -> float:
    """Return the best bound that any method has proved, NaN without one."""
    bounds = [value(finished, method, "lower_bound") for method in finished.scores]
    return max((b for b in bounds if not math.isnan(b)), default=math.nan)


def _improvement(cells: list[Finished], title: str, *, named: bool) -> Chart:
    """Return by how many per cent the algorithm is below each rival."""

    def gain(finished: Finished, method: str) -> float:
        own, other = value(finished, ALGORITHM), value(finished, method)
        return 100.0 * (other - own) / other if other > 0.0 else math.nan

    lines: list[Mark] = [
        _method_line(method, groups, f"over {LABELS[method]}")
        for method in ("sdp+dr", "sdp+rr", "minimax")
        if (groups := _grouped((f.cell.k, gain(f, method)) for f in cells))
    ]
    return Chart(
        x=_k_axis(_KS),
        y=Axis("improvement, %"),
        marks=[Rule("theory", y=0.0, width=0.8), *lines],
        title=title,
        names="best" if named else "",
    )


def _grid_figure(cells: list[Finished], columns: Sequence[tuple[str, int]]) -> Panels:
    """Return a panel per subject and size, as in the paper's Figures 1 and 2."""
    found: dict[tuple[Subject, int], list[Finished]] = {}
    for finished in cells:
        found.setdefault((finished.cell.subject, finished.cell.r), []).append(finished)
    wanted = [
        (r, sorted((s for s, size in found if _is_in(s, size, data, r)), key=str))
        for data, r in columns
    ]
    wanted = [(r, subjects) for r, subjects in wanted if subjects]
    charts: list[list[Chart | None]] = []
    for row in range(max(len(subjects) for _, subjects in wanted)):
        charts.append([])
        for place, (r, subjects) in enumerate(wanted):
            if row >= len(subjects):
                charts[-1].append(None)
                continue
            title = f"{subjects[row].title}, {_SIZES.get(r, f'r = {r}')}"
            some = found[subjects[row], r]
            if r == _AS_IMPROVEMENT:
                chart = _improvement(some, title, named=row == 0)
            else:
                named = row == 0 or place == len(wanted) - 1
                chart = _against_k(some, title, named=named)
            is_last = row == len(subjects) - 1
            charts[-1].append(chart if is_last else _without_x_label(chart))
    width, height = 2.6 * len(wanted) + 0.6, 1.75 * len(charts) + 0.3
    return Panels(rows=charts, width=width, height=height)


def _is_in(subject: Subject, size: int, data: str, r: int) -> bool:
    return size == r and (subject.data == "news") == (data == "news")


def _without_x_label(chart: Chart) -> Chart:
    return replace(chart, x=replace(chart.x, label=""))


def _side_by_side(
    cells: list[Finished],
    key: Callable[[Finished], Any],
    chart_of: Callable[..., Chart],
    size: tuple[float, float],
    *,
    share_y: bool = False,
) -> Panels:
    """Return one panel per key; the first names the vertical axis, the last the lines.

    ``size`` is the width of one panel and the height, in inches.
    """
    keys = sorted({key(finished) for finished in cells})
    charts: list[Chart] = []
    for at in keys:
        some = [finished for finished in cells if key(finished) == at]
        chart = chart_of(some, named=at == keys[-1])
        charts.append(replace(chart, y=replace(chart.y, label="")) if charts else chart)
    width = size[0] * len(keys) + 0.8
    return Panels(rows=[charts], width=width, height=size[1], share_y=share_y)


def _figure1(cells: list[Finished]) -> Panels:
    return _grid_figure(cells, [("digits", 46), ("digits", 101), ("digits", 142)])


def _figure2(cells: list[Finished]) -> Panels:
    return _grid_figure(cells, [("digits", 317), ("digits", 448), ("news", 46)])


def _figure3(cells: list[Finished]) -> Panels:
    """Return distortion against time in multiples of the algorithm's own."""
    return _side_by_side(cells, _k_of, _course_chart, (2.5, 2.5))


def _k_of(finished: Finished) -> int:
    return finished.cell.k


def _course_chart(cells: list[Finished], *, named: bool) -> Chart:
    own = float(np.mean([value(finished, ALGORITHM) for finished in cells]))
    marks: list[Mark] = [
        Rule(ALGORITHM, label=LABELS[ALGORITHM], y=own, width=1.3),
        Dots(ALGORITHM, [1.0], [own], size=3.5),
        # The paper offers three times the algorithm's own time.
        _guide(x=3.0),
    ]
    for method in ("sdp+dr", "sdp+dr/scs"):
        points = _course(cells, method)
        if points:
            xs, means, spreads = zip(*points, strict=True)
            label = "" if named and method == "sdp+dr" else LABELS[method]
            marks.append(_in_look(Line(method, xs, means, errors=spreads, label=label)))
            if not label:
                # This line ends within the panel, so its name is there too.
                note = Note(method, xs[-1], means[-1], LABELS[method], size=_SMALL)
                marks.append(replace(note, align="center", offset=(0.0, -11.0)))
    ticks = _ticks((0.1, 1.0, 3.0, 10.0, 100.0))
    return Chart(
        x=Axis("processor time / the algorithm's", log=True, ticks=ticks),
        y=Axis(_LOSS, margin=0.18 if named else 0.05),
        marks=marks,
        title=f"k = {cells[0].cell.k}",
        names="best" if named else "",
    )


def _course(cells: list[Finished], method: str) -> list[tuple[float, float, float]]:
    """Return time, mean loss and its spread over seeds, wherever a method stopped.

    A seed that has converged keeps its distortion at all later times.
    """
    courses = [found for finished in cells if (found := course(finished, method))]
    points = []
    for multiple in sorted(set().union(*courses)):
        times = [stops[multiple][0] for stops in courses if multiple in stops]
        losses = [
            stops[max(m for m in stops if m <= multiple)][1]
            for stops in courses
            if min(stops) <= multiple
        ]
        # The mean of a few late seeds would stretch the line beyond what is typical.
        if 2 * len(times) >= len(courses):
            middle = float(np.exp(np.mean(np.log(times))))
            points.append((middle, float(np.mean(losses)), float(np.std(losses))))
    return points


def _figure4(cells: list[Finished]) -> Panels:
    """Return the t-SNE pictures of the first seed side by side."""
    first = min(cells, key=lambda finished: finished.cell.seed)
    names = ["original", ALGORITHM, "sdp+dr", "sdp+rr", "pca", "minimax"]
    names = [name for name in names if "picture" in first.scores.get(name, {})]
    charts = [_picture(first, name) for name in names]
    return Panels(rows=[charts[:3], charts[3:]], width=7.2, height=5.2)


def _picture(finished: Finished, name: str) -> Chart:
    """Return the positions of all points; the mark of a point is its digit."""
    picture = np.array(finished.scores[name]["picture"])
    labels = np.array(finished.facts["labels"])
    marks = [
        Dots(role, x, y, marker=f"${label}$", size=3.6)
        for label, role in zip(np.unique(labels), _CLASSES, strict=False)
        for x, y in [picture[labels == label].T]
    ]
    note, loss = "", value(finished, name)
    if not math.isnan(loss):
        kept = value(finished, name, "neighbours_kept")
        note = f"neighbours kept: {kept:.1%}\nworst pair loses {loss:.2f}"
    original = f"original, {finished.facts['n_features']} dimensions"
    return Chart(
        x=Axis(note, ticks=()),
        y=Axis(ticks=()),
        marks=marks,
        title=LABELS.get(name, original),
        names="",
    )


def _theorem1(cells: list[Finished]) -> Panels:
    """Return the measured ratio to the optimum against Theorem 1's two factors."""
    rows = np.array(ratios(cells)).reshape(-1, 4)
    # Each is measured from the safe side: a violation, or its absence, is certain.
    claimed = _ratio_chart(rows[:, 0], rows[:, 2], "as claimed", "at least")
    corrected = _ratio_chart(rows[:, 1], rows[:, 3], "corrected", "at most")
    return Panels(rows=[[claimed, corrected]], width=6.6, height=2.9)


def _ratio_chart(measured: Array, factor: Array, title: str, side: str) -> Chart:
    broken = measured > factor
    top = 1.05 * float(np.append(measured, 1.2).max())
    right = 1.1 * float(np.append(factor, 1.2).max())
    place = (0.97, "right") if side == "at least" else (0.03, "left")
    marks = [
        Band("pca", (1.0, top), (1.0, top), math.inf),
        Line("theory", (1.0, top), (1.0, top), width=0.8),
        Dots("isoproj", factor[~broken], measured[~broken], size=2.5),
        Dots("pca", factor[broken], measured[broken], marker="x", size=3.5),
        Note("pca", place[0], 0.93, "violated", shares="xy", align=place[1]),
    ]
    return Chart(
        x=_ratio_axis("factor that Theorem 1 allows", right),
        y=_ratio_axis(f"distortion / optimum, {side}", top),
        marks=marks,
        title=f"{title}: violated in {int(broken.sum())} of {len(measured)} cells",
        names="",
    )


def _ratio_axis(label: str, high: float) -> Axis:
    near, far = (1, 1.1, 1.2, 1.3, 1.5, 2, 3), (1, 2, 3, 5, 10, 30, 100, 300)
    ticks = [tick for tick in (far if high > 5 else near) if tick <= high]
    return Axis(label, log=True, low=1.0, high=high, ticks=_ticks(ticks))


def _convergence(cells: list[Finished]) -> Panels:
    """Return the gap of the average iterate beside the bound, against T."""
    size = (3.1, 2.6)
    return _side_by_side(cells, lambda f: f.cell.r, _gap_chart, size, share_y=True)


def _gap_chart(cells: list[Finished], *, named: bool) -> Chart:
    dashes = ((), (5.0, 1.5), (2.0, 1.2), (1.0, 1.0))
    marks: list[Mark] = []
    for k, dash in zip(sorted({f.cell.k for f in cells}), dashes, strict=False):
        gaps = _grouped(
            (int(steps), f.facts["optimum_high"] - value(f, steps, "average_dual"))
            for f in cells
            if f.cell.k == k
            for steps in f.scores
        )
        line = Line(ALGORITHM, list(gaps), _means(gaps), marker="o", dash=dash)
        marks.append(replace(line, label=f"measured, k = {k}"))
    found = dict(
        sorted((int(s), value(f, s, "bound")) for f in cells for s in f.scores)
    )
    bound = Line("theory", list(found), list(found.values()), marker="s")
    marks += [
        replace(bound, label="bound of the theorem"),
        _guide(y=1.0, label="the dual's whole range"),
    ]
    r = cells[0].cell.r
    return Chart(
        x=Axis(f"steps T (the paper: {N_STEPS})", log=True, ticks=_ticks(found, "d")),
        y=Axis("optimum - average iterate", log=True),
        marks=marks,
        title=f"digit 5, {_SIZES.get(r, f'r = {r}')}",
        names="best" if named else "",
    )


def _dimension(cells: list[Finished]) -> Panels:
    """Return the time of a step as printed, and of all in the span, against d."""
    marks = []
    for name, label, role, marker in (
        ("printed_step_cpu_seconds", "one step as printed", "pca", "o"),
        ("cpu_seconds", "whole fit in the span", "isoproj", "s"),
        ("ascent_cpu_seconds", f"its {N_STEPS} steps alone", "guide", "^"),
    ):
        times = _grouped(
            (int(width), value(f, width, name)) for f in cells for width in f.scores
        )
        if times:
            line = Line(role, list(times), _means(times), label=label)
            marks.append(replace(line, marker=marker))
    widths = sorted({int(width) for f in cells for width in f.scores})
    chart = Chart(
        x=Axis("dimension d", log=True, ticks=_ticks(widths, ",")),
        y=Axis("processor seconds", log=True),
        marks=marks,
        title="20 Newsgroups, 46 posts, k = 20",
        names="best",
    )
    return Panels(rows=[[chart]], width=4.6, height=2.6)


def _held_out(cells: list[Finished]) -> Panels:
    """Return the worst pair fitted and the worst pair held out, against r."""
    subject = Subject(cells[0].cell.subject.data, (5,))
    some = [finished for finished in cells if finished.cell.subject == subject]
    return _side_by_side(some, _k_of, _held_out_chart, (2.5, 2.7), share_y=True)


def _held_out_chart(cells: list[Finished], *, named: bool) -> Chart:
    marks: list[Mark] = []
    for method in ("pca", ALGORITHM, "minimax"):
        for held in (False, True):
            by_r = _grouped(
                (int(f.facts["n_points"]), _loss(f, method, held=held)) for f in cells
            )
            if by_r:
                what = "held out" if held else "fitted"
                line = _method_line(method, by_r, f"{LABELS[method]}, {what}")
                dash = (2.0, 1.2) if held else ()
                marks.append(replace(line, errors=None, dash=dash, hollow=held))
    first = cells[0]
    d = int(first.facts["n_features"])
    note = Note("guide", d, 0.04, f"r = d = {d}", shares="y", size=_SMALL)
    marks += [_guide(x=d), replace(note, align="right", offset=(-2.0, 0.0))]
    sizes = sorted({int(f.facts["n_points"]) for f in cells})
    return Chart(
        x=Axis("points fitted, r", log=True, ticks=_ticks(sizes, ",")),
        y=Axis(_LOSS, low=0.0, high=1.03),
        marks=marks,
        title=f"{first.cell.subject.title}, k = {first.cell.k}",
        names="best" if named else "",
    )


def _loss(finished: Finished, method: str, *, held: bool) -> float:
    """Return the loss of the worst pair fitted or held out, NaN if not measured."""
    score = finished.scores.get(method, {})
    loss = (score.get("held_out", {}) if held else score).get("distortion")
    return math.nan if loss is None else float(loss)


def _classes(cells: list[Finished]) -> Panels:
    """Return distortion against k for whole classes, a panel per digit."""

    def chart(some: list[Finished], *, named: bool) -> Chart:
        n_pairs = some[0].facts["n_pairs"]
        title = f"{some[0].cell.subject.title}, {n_pairs / 1e6:.1f}M pairs"
        return _against_k(some, title, named=named)

    size = (2.0, 2.5)
    return _side_by_side(
        cells, lambda f: str(f.cell.subject), chart, size, share_y=True
    )


_PanelsOf = Callable[[list[Finished]], Panels]
FIGURES: dict[str, tuple[tuple[str, ...], _PanelsOf]] = {
    "figure1": (("figure1",), _figure1),
    "figure2": (("figure2", "figure2-news"), _figure2),
    "figure3": (("figure3",), _figure3),
    "figure4": (("figure4",), _figure4),
    "theorem1": (GRID, _theorem1),
    "convergence": (("convergence",), _convergence),
    "dimension": (("dimension",), _dimension),
    "held-out": (("held-out", "classes"), _held_out),
    "classes": (("classes",), _classes),
}
