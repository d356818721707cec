"""The paper's figures again, and those beyond it, drawn from the records."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from isoproj.plot._style import FLOOR, draw_floor
from isoproj.reproduction.evidence import GRID, ratios, value
from isoproj.reproduction.records import Finished, Records
from isoproj.reproduction.style import (
    BLACK,
    GREY,
    LOOKS,
    figure,
    house_style,
    label_ends,
    save,
)
from isoproj.reproduction.table import (
    ALGORITHM,
    DIMENSIONS,
    N_STEPS,
    Subject,
)

__all__ = ["FIGURES", "draw_all", "series"]

_ORDER = ("random", "pca", "sdp+dr/scs", "sdp+dr", "sdp+rr", ALGORITHM, "minimax")
_KS = "dimensions kept, k"
_LOSS = "worst pair's loss"
# Where no methods are told apart: what holds and what does not.
_GOOD, _BAD = "#0072b2", "#d55e00"
# The paper shows per cent improvement where distortions are too close to see.
_AS_IMPROVEMENT = 46


def draw_all(records: Records, folder: Path) -> dict[str, list[Path]]:
    """Draw every figure that the records have cells for.

    Parameters
    ----------
    records : Records
        Finished cells.
    folder : Path
        Where to; made if need be.

    Returns
    -------
    dict
        Files by name of the figure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made = {}
    for name, (experiments, draw) in FIGURES.items():
        cells = records.of(experiments)
        if cells:
            with house_style():
                made[name] = save(draw(cells), folder, name)
    return made


def series(
    cells: Iterable[Finished], method: str, name: str = "distortion"
) -> dict[int, list[float]]:
    """Return a number of a method by k, one value per seed.

    Examples
    --------
    >>> from isoproj.reproduction.figures import series
    >>> series([], "pca")
    {}
    """
    found: dict[int, list[float]] = {}
    for finished in cells:
        number = value(finished, method, name)
        if not math.isnan(number):
            found.setdefault(finished.cell.k, []).append(number)
    return dict(sorted(found.items()))


def _panels(cells: list[Finished]) -> dict[tuple[Subject, int], list[Finished]]:
    found: dict[tuple[Subject, int], list[Finished]] = {}
    for finished in cells:
        key = finished.cell.subject, finished.cell.r
        found.setdefault(key, []).append(finished)
    return found


def _spread_line(axes: Any, by_x: dict[int, list[float]], method: str) -> float | None:  # noqa: ANN401
    """Draw means with standard deviations; return the last mean."""
    if not by_x:
        return None
    xs = list(by_x)
    means = [float(np.mean(by_x[x])) for x in xs]
    spreads = [float(np.std(by_x[x])) for x in xs]
    axes.errorbar(
        xs, means, yerr=spreads, elinewidth=0.7, **LOOKS[method].options(), zorder=3
    )
    return means[-1]


def _against_k(axes: Any, cells: list[Finished], *, named: bool) -> None:  # noqa: ANN401
    """Draw every method's distortion, and the floor that none can go below."""
    floor = {k: float(np.mean(v)) for k, v in _floor(cells).items()}
    if floor:
        draw_floor(axes, list(floor), list(floor.values()))
    ends = []
    for method in _ORDER:
        last = _spread_line(axes, series(cells, method), method)
        if last is not None:
            ends.append((last, LOOKS[method].label, LOOKS[method].colour))
    axes.set_ylim(0.0, 1.03)
    _k_axis(axes)
    if named:
        if floor:
            ends.append((list(floor.values())[-1], "lower bound", FLOOR))
        label_ends(axes, ends)


def _floor(cells: list[Finished]) -> dict[int, list[float]]:
    found: dict[int, list[float]] = {}
    for f in cells:
        bounds = [value(f, method, "lower_bound") for method in f.scores]
        if any(not math.isnan(bound) for bound in bounds):
            found.setdefault(f.cell.k, []).append(float(np.nanmax(bounds)))
    return dict(sorted(found.items()))


def _k_axis(axes: Any) -> None:  # noqa: ANN401
    """Show the same dimensions in every panel, also where cells are missing."""
    axes.set_xticks([k for k in DIMENSIONS if k != 7])
    axes.set_xlim(min(DIMENSIONS) - 1.5, max(DIMENSIONS) + 1.5)


def _improvement(axes: Any, cells: list[Finished], *, named: bool) -> None:  # noqa: ANN401
    """Draw by how much per cent the algorithm is below each rival, and minimax."""
    ends = []
    for method in ("sdp+dr", "sdp+rr", "minimax"):
        gains: dict[int, list[float]] = {}
        for f in cells:
            own, other = value(f, ALGORITHM), value(f, method)
            gain = 100.0 * (other - own) / other if other > 0.0 else math.nan
            if not math.isnan(gain):
                gains.setdefault(f.cell.k, []).append(gain)
        last = _spread_line(axes, dict(sorted(gains.items())), method)
        if last is not None:
            ends.append((last, f"over {LOOKS[method].label}", LOOKS[method].colour))
    axes.axhline(0.0, color=BLACK, linewidth=0.8, zorder=2)
    _k_axis(axes)
    if named:
        label_ends(axes, ends, gap=0.085)


def _grid_figure(
    cells: list[Finished], columns: Sequence[tuple[str, int]], sizes: dict[int, str]
) -> Any:  # noqa: ANN401
    """Draw a panel per subject and size, as the paper's Figures 1 and 2 do."""
    panels = _panels(cells)
    wanted = [
        column for column in columns if any(_in_column(key, column) for key in panels)
    ]
    subjects = [
        sorted({s for s, r in panels if _in_column((s, r), column)}, key=str)
        for column in wanted
    ]
    rows = max(map(len, subjects))
    made, axes = figure(rows, len(wanted), 2.6 * len(wanted) + 0.6, 1.75 * rows + 0.3)
    for place, (column, found) in enumerate(zip(wanted, subjects, strict=True)):
        for row in range(rows):
            ax = axes[row, place]
            if row >= len(found):
                ax.set_axis_off()
                continue
            subject = found[row]
            some = panels[subject, column[1]]
            size = sizes.get(column[1], f"r = {column[1]}")
            ax.set_title(f"{subject.title}, {size}")
            gains = column[1] == _AS_IMPROVEMENT
            draw = _improvement if gains else _against_k
            named = row == 0 if gains else place == len(wanted) - 1 or row == 0
            draw(ax, some, named=named)
            ax.set_ylabel("improvement, %" if gains else _LOSS)
            if row == len(found) - 1:
                ax.set_xlabel(_KS)
    return made


def _in_column(key: tuple[Subject, int], column: tuple[str, int]) -> bool:
    is_news = key[0].data == "news"
    return key[1] == column[1] and is_news == (column[0] == "news")


_SIZES = {
    46: "1K pairs",
    101: "5K pairs",
    142: "10K pairs",
    317: "50K pairs",
    448: "100K pairs",
}


def _figure1(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    columns = [("digits", 46), ("digits", 101), ("digits", 142)]
    return _grid_figure(cells, columns, _SIZES)


def _figure2(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    columns = [("digits", 317), ("digits", 448), ("news", 46)]
    return _grid_figure(cells, columns, _SIZES)


def _figure3(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw distortion against time in multiples of the algorithm's own."""
    ks = sorted({finished.cell.k for finished in cells})
    made, axes = figure(1, len(ks), 2.5 * len(ks) + 0.7, 2.5)
    for place, k in enumerate(ks):
        ax = axes[0, place]
        some = [finished for finished in cells if finished.cell.k == k]
        own = [value(finished, ALGORITHM) for finished in some]
        look = LOOKS[ALGORITHM]
        ax.axhline(np.mean(own), color=look.colour, linewidth=1.3)
        ax.plot([1.0], [np.mean(own)], look.marker, color=look.colour, zorder=4)
        ends = [(float(np.mean(own)), look.label, look.colour)]
        for method in ("sdp+dr", "sdp+dr/scs"):
            last = _course_line(ax, some, method)
            if last is not None and method == "sdp+dr" and place == len(ks) - 1:
                # It ends within the panel, so its name is there too.
                ax.annotate(
                    LOOKS[method].label,
                    xy=last,
                    xytext=(0, -7),
                    textcoords="offset points",
                    color=LOOKS[method].colour,
                    fontsize=7.0,
                    ha="center",
                    va="top",
                )
            elif last is not None:
                ends.append((last[1], LOOKS[method].label, LOOKS[method].colour))
        ax.set_xscale("log")
        ticks = (0.1, 1.0, 3.0, 10.0, 100.0)
        ax.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        # What the paper offers: three times the algorithm's own time.
        ax.axvline(3.0, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
        ax.set_title(f"k = {k}")
        ax.set_xlabel("processor time / the algorithm's")
        if place == 0:
            ax.set_ylabel(_LOSS)
        if place == len(ks) - 1:
            ax.margins(y=0.18)
            label_ends(ax, ends)
    return made


def _course_line(
    axes: Any,  # noqa: ANN401
    cells: list[Finished],
    method: str,
) -> tuple[float, float] | None:
    """Draw a method's distortion at the times it was stopped, mean over seeds.

    A seed that has converged keeps its distortion at all later times.
    """
    courses = [_stops(finished, method) for finished in cells]
    courses = [course for course in courses if course]
    if not courses:
        return None
    points = []
    for multiple in sorted(set().union(*courses)):
        times = [course[multiple][0] for course in courses if multiple in course]
        losses = [
            course[max(m for m in course if m <= multiple)][1]
            for course in courses
            if min(course) <= multiple
        ]
        # The mean of a few late seeds would stretch the line beyond what is typical.
        if 2 * len(times) >= len(courses):
            middle = float(np.exp(np.mean(np.log(times))))
            points.append((middle, float(np.mean(losses)), float(np.std(losses))))
    xs, means, spreads = zip(*points, strict=True)
    axes.errorbar(xs, means, yerr=spreads, elinewidth=0.7, **LOOKS[method].options())
    return float(xs[-1]), float(means[-1])


def _stops(finished: Finished, method: str) -> dict[float, tuple[float, float]]:
    """Return by nominal multiple the real one, of processor time, and the loss."""
    own = value(finished, ALGORITHM, "cpu_seconds")
    found = {}
    for key in finished.scores:
        name, _, multiple = key.partition(" x ")
        if name == method and multiple and not math.isnan(value(finished, key)):
            time = value(finished, key, "cpu_seconds") / own
            found[float(multiple)] = (time, value(finished, key))
    return found


def _figure4(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw the t-SNE pictures of the first seed side by side."""
    first = min(cells, key=lambda finished: finished.cell.seed)
    names = ["original", ALGORITHM, "sdp+dr", "sdp+rr", "pca", "minimax"]
    names = [name for name in names if "picture" in first.scores.get(name, {})]
    labels = np.array(first.facts["labels"])
    made, axes = figure(2, 3, 7.2, 5.0)
    colours = ("#0072b2", "#d55e00", "#009e73", "#cc79a7")
    for ax, name in zip(axes.flat, names, strict=False):
        picture = np.array(first.scores[name]["picture"])
        for label, colour in zip(np.unique(labels), colours, strict=False):
            rows = picture[labels == label]
            # The digit itself is the mark: no legend, and grey print tells all.
            ax.scatter(*rows.T, s=13, color=colour, marker=f"${label}$", linewidths=0.2)
        kept = value(first, name, "neighbours_kept")
        title = "original, 784 dimensions" if name == "original" else LOOKS[name].label
        ax.set_title(title.replace("784", str(first.facts["n_features"])))
        loss = value(first, name)
        if not math.isnan(loss):
            note = f"neighbours kept: {kept:.1%}; worst pair loses {loss:.2f}"
            ax.set_xlabel(note, fontsize=7.0)
        ax.set_xticks([])
        ax.set_yticks([])
    return made


def _theorem1(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw the measured ratio to the optimum against Theorem 1's two factors."""
    rows = np.array(ratios(cells)).reshape(-1, 4)
    made, axes = figure(1, 2, 6.6, 2.9)
    # Against what it proves: too high for certain, or within for certain.
    for ax, measured, factor, title, side, spot in (
        (axes[0, 0], rows[:, 0], rows[:, 2], "as claimed", "at least", "right"),
        (axes[0, 1], rows[:, 1], rows[:, 3], "corrected", "at most", "left"),
    ):
        broken = measured > factor
        top = 1.05 * float(np.append(measured, 1.2).max())
        right = 1.1 * float(np.append(factor, 1.2).max())
        ax.set(xscale="log", yscale="log", xlim=(1.0, right), ylim=(1.0, top))
        ax.fill_between([1.0, top], [1.0, top], top, color="#fbe9e0", linewidth=0)
        ax.plot([1.0, top], [1.0, top], color=BLACK, linewidth=0.8)
        ax.plot(factor[~broken], measured[~broken], ".", color=_GOOD)
        ax.plot(factor[broken], measured[broken], "x", color=_BAD, markeredgewidth=0.8)
        ax.set_title(f"{title}: violated in {int(broken.sum())} of {len(rows)} cells")
        ax.set_xlabel("factor that Theorem 1 allows")
        ax.set_ylabel(f"distortion / optimum, {side}")
        for axis, end in ((ax.xaxis, right), (ax.yaxis, top)):
            near, far = (1, 1.1, 1.2, 1.3, 1.5, 2, 3), (1, 2, 3, 5, 10, 30, 100, 300)
            ticks = [t for t in (far if end > 5 else near) if t <= end]
            axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
        ax.minorticks_off()
        share = 0.97 if spot == "right" else 0.03
        where = {"ha": spot, "va": "top", "transform": ax.transAxes}
        ax.text(share, 0.96, "violated", color=_BAD, **where)
    return made


def _convergence(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw the gap of the average iterate beside the bound, against T."""
    sizes = sorted({finished.cell.r for finished in cells})
    made, axes = figure(1, len(sizes), 3.1 * len(sizes) + 0.6, 2.6, sharey=True)
    lines = ("-", (0, (5, 1.5)), (0, (2, 1.2)), (0, (1, 1)))
    for place, r in enumerate(sizes):
        ax = axes[0, place]
        some = [finished for finished in cells if finished.cell.r == r]
        ends = []
        for k, line in zip(sorted({f.cell.k for f in some}), lines, strict=False):
            gaps: dict[int, list[float]] = {}
            for f in some:
                if f.cell.k == k:
                    for steps in f.scores:
                        gap = f.facts["optimum_high"] - value(f, steps, "average_dual")
                        gaps.setdefault(int(steps), []).append(gap)
            xs = sorted(gaps)
            means = [float(np.mean(gaps[x])) for x in xs]
            look = LOOKS[ALGORITHM]
            ax.plot(xs, means, marker="o", linestyle=line, color=look.colour)
            ends.append((means[-1], f"measured, k = {k}", look.colour))
        bounds = {int(s): value(f, s, "bound") for f in some for s in f.scores}
        xs = sorted(bounds)
        ax.plot(xs, [bounds[x] for x in xs], color=BLACK, marker="s")
        ends.append((bounds[xs[-1]], "bound of the theorem", BLACK))
        ax.axhline(1.0, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
        ends.append((1.0, "the dual's whole range", GREY))
        ax.set(xscale="log", yscale="log")
        ax.set_xticks(xs, [str(x) for x in xs])
        ax.minorticks_off()
        ax.set_xlabel(f"steps T (the paper: {N_STEPS})")
        ax.set_title(f"digit 5, {_SIZES.get(r, f'r = {r}')}")
        if place == 0:
            ax.set_ylabel("optimum - average iterate")
        if place == len(sizes) - 1:
            label_ends(ax, ends)
    return made


def _dimension(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw the time of a step as printed, and of all in the span, against d."""
    made, axes = figure(1, 1, 4.6, 2.6)
    ax = axes[0, 0]
    lines = (
        (
            "printed_step_cpu_seconds",
            "one step as printed",
            _BAD,
            "o",
        ),
        ("cpu_seconds", "whole fit in the span", _GOOD, "s"),
        ("ascent_cpu_seconds", f"its {N_STEPS} steps alone", GREY, "^"),
    )
    ends = []
    for name, label, colour, marker in lines:
        times: dict[int, list[float]] = {}
        for f in cells:
            for width in f.scores:
                seconds = value(f, width, name)
                if not math.isnan(seconds):
                    times.setdefault(int(width), []).append(seconds)
        if times:
            xs = sorted(times)
            means = [float(np.mean(times[x])) for x in xs]
            ax.plot(xs, means, color=colour, marker=marker)
            ends.append((means[-1], label, colour))
    ax.set(xscale="log", yscale="log", xlabel="dimension d", ylabel="processor seconds")
    widths = sorted({int(width) for f in cells for width in f.scores})
    ax.set_xticks(widths, [f"{width:,}" for width in widths])
    ax.minorticks_off()
    ax.set_title("20 Newsgroups, 46 posts, k = 20")
    label_ends(ax, ends)
    return made


def _held_out(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw the worst pair fitted and the worst pair held out against r."""
    subject = Subject(cells[0].cell.subject.data, (5,))
    some = [finished for finished in cells if finished.cell.subject == subject]
    ks = sorted({finished.cell.k for finished in some})
    made, axes = figure(1, len(ks), 2.4 * len(ks) + 0.9, 2.7, sharey=True)
    for place, k in enumerate(ks):
        ax = axes[0, place]
        ends = []
        for method in ("pca", ALGORITHM, "minimax"):
            look = LOOKS[method]
            for held in (False, True):
                by_r: dict[int, list[float]] = {}
                for f in some:
                    score = f.scores.get(method, {})
                    found = score.get("held_out", {}) if held else score
                    if f.cell.k == k and found.get("distortion") is not None:
                        r = int(f.facts["n_points"])
                        by_r.setdefault(r, []).append(found["distortion"])
                if by_r:
                    xs = sorted(by_r)
                    means = [float(np.mean(by_r[x])) for x in xs]
                    options = look.options()
                    options["linestyle"] = (0, (2.0, 1.2)) if held else "-"
                    face = "white" if held else look.colour
                    ax.plot(xs, means, **options, markerfacecolor=face)
                    what = "held out" if held else "fitted"
                    ends.append((means[-1], f"{look.label}, {what}", look.colour))
        d = int(some[0].facts["n_features"])
        ax.axvline(d, color=GREY, linewidth=0.8, linestyle=(0, (2, 2)))
        ax.set_xscale("log")
        sizes = sorted({int(f.facts["n_points"]) for f in some})
        ax.set_xticks(sizes, [f"{size:,}" for size in sizes])
        ax.minorticks_off()
        ax.set_ylim(0.0, 1.03)
        ax.annotate(
            f"r = d = {d}",
            xy=(d, 0.02),
            xycoords=("data", "axes fraction"),
            xytext=(-2, 0),
            textcoords="offset points",
            fontsize=6.5,
            color=GREY,
            ha="right",
        )
        ax.set_title(f"{subject.title}, k = {k}")
        ax.set_xlabel("points fitted, r")
        if place == 0:
            ax.set_ylabel(_LOSS)
        if place == len(ks) - 1:
            label_ends(ax, ends)
    return made


def _classes(cells: list[Finished]) -> Any:  # noqa: ANN401 - a figure
    """Draw whole classes: distortion against k, a panel per digit."""
    subjects = sorted({finished.cell.subject for finished in cells}, key=str)
    width = 2.0 * len(subjects) + 0.9
    made, axes = figure(1, len(subjects), width, 2.5, sharey=True)
    for place, subject in enumerate(subjects):
        ax = axes[0, place]
        some = [finished for finished in cells if finished.cell.subject == subject]
        _against_k(ax, some, named=place == len(subjects) - 1)
        ax.set_title(f"{subject.title}, {some[0].facts['n_pairs'] / 1e6:.1f}M pairs")
        ax.set_xlabel(_KS)
        if place == 0:
            ax.set_ylabel(_LOSS)
    return made


_Draw = Callable[[list[Finished]], Any]
FIGURES: dict[str, tuple[tuple[str, ...], _Draw]] = {
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
