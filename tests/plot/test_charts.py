from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from isoproj.plot import charts, svg
from isoproj.plot.axes import draw
from isoproj.plot.marks import Axis, Band, Chart, Dots, Line, Note, Rule
from isoproj.plot.style import LOOKS, colour_of, css_palette, look_of

KS, LOSSES, FLOOR = [1, 2, 4], [0.9, 0.6, 0.3], [0.8, 0.5, 0.25]
CHARTS = {
    "curve": charts.curve_chart(
        [charts.loss_line("pca", KS, LOSSES, label="PCA")],
        charts.floor_marks(KS, FLOOR),
    ),
    "histogram": charts.histogram_chart(
        {"isoproj": [0, 3, 5], "pca": [4, 4, 0]},
        [0.0, 0.3, 0.6, 1.0],
        {"isoproj": 0.9, "pca": 0.5},
    ),
    "history": charts.history_chart([0, 1, 2], [0.9, 0.7, 0.6], [0.1, 0.4, 0.5]),
    "frontier": charts.frontier_chart(
        [0.5, 0.7, 0.9], [0.2, 0.6, 0.8], [0.4, 0.7, 0.8], 0.45, model=(0.7, 0.5)
    ),
    "distances": charts.distances_chart([1.0, 2.0], [0.5, 1.5], 10, 0.8),
    "losses": charts.losses_chart(["a and b", "c and d"], [0.5, 0.25]),
    "bounds": charts.bounds_chart(
        {"isoproj": 0.4, "pca": 0.8},
        0.3,
        labels={"isoproj": "isoproj", "pca": "PCA"},
        at_least={"pca"},
    ),
}


def simple(*marks, **options):
    x, y = options.pop("x", Axis()), options.pop("y", Axis())
    return Chart(x=x, y=y, marks=marks, **options)


def elements(chart, kind, width=720):
    return [e for e in ET.fromstring(svg.draw(chart, width)) if e.tag == kind]


def corners(element):
    pairs = element.get("points").split()
    return np.array([[float(part) for part in pair.split(",")] for pair in pairs])


@pytest.fixture
def axes():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    figure, axes = pyplot.subplots()
    yield axes
    pyplot.close(figure)


@pytest.mark.parametrize("name", CHARTS)
def test_every_chart_is_drawn_by_both_renderers(name, axes):
    chart = CHARTS[name]
    assert len(draw(chart, axes)) == len(chart.marks)
    assert axes.get_xlabel() == chart.x.label
    for width in (720, 348):
        root = ET.fromstring(svg.draw(chart, width))
        assert root.get("viewBox") == f"0 0 {width} {chart.height}"
        assert root.get("aria-label")


@pytest.mark.parametrize("name", CHARTS)
@pytest.mark.parametrize("width", [720, 348])
def test_nothing_is_drawn_outside_the_svg(name, width):
    height = CHARTS[name].height
    for tag in ("polyline", "polygon"):
        for element in elements(CHARTS[name], tag, width):
            spots = corners(element)
            assert (spots >= -0.01).all()
            assert (spots <= [width + 0.01, height + 0.01]).all()


def test_a_line_is_where_its_values_are_in_both_drawings(axes):
    chart = simple(
        Line("pca", x=[0, 5, 10], y=[1, 10, 100]),
        x=Axis(low=0, high=10),
        y=Axis(low=1, high=100, log=True),
    )
    (line,) = draw(chart, axes)
    shares = axes.transAxes.inverted().transform(
        axes.transData.transform(line.get_xydata())
    )
    np.testing.assert_allclose(shares, [[0, 0], [0.5, 0.5], [1, 1]], atol=1e-9)
    spots = corners(elements(chart, "polyline")[0])
    span = spots[-1] - spots[0]
    np.testing.assert_allclose(spots[1] - spots[0], span / 2, atol=0.01)
    assert span[0] > 0
    assert span[1] < 0


def test_an_infinite_band_ends_at_the_edge(axes):
    band = Band("floor", x=[0, 1], low=[0.2, 0.4], high=np.inf)
    chart = simple(band, x=Axis(low=0, high=1), y=Axis(low=0, high=1))
    (drawn,) = draw(chart, axes)
    assert drawn.get_paths()[0].vertices[:, 1].max() == 1.0
    spots = corners(elements(chart, "polygon")[0])
    grid = [float(line.get("y1")) for line in elements(chart, "line")]
    assert spots[:, 1].min() == pytest.approx(min(grid), abs=0.01)


def test_a_role_has_one_colour_even_if_nobody_knows_it(axes):
    marks = [
        Line("magic", x=[0, 1], y=[0, 1]),
        Rule("magic", x=0.5),
        Line("sorcery", x=[0, 1], y=[1, 0]),
    ]
    line, rule, other = draw(simple(*marks), axes)
    assert look_of("magic") is None
    assert line.get_color() == rule.get_color() != other.get_color()


def test_a_second_chart_on_the_same_axes_widens_them(axes):
    low, high = (
        charts.curve_chart([charts.loss_line("pca", ks, losses)])
        for ks, losses in (([1, 2], [0.2, 0.1]), ([1, 9], [0.9, 0.8]))
    )
    draw(low, axes)
    draw(high, axes)
    assert axes.get_ylim()[0] == 0.0
    assert axes.get_ylim()[1] > 0.9
    assert axes.get_xlim()[1] > 9


def test_dimensions_are_whole_numbers(axes):
    draw(CHARTS["curve"], axes)
    inside = [t for t in axes.get_xticks() if 1 <= t <= 4]
    assert inside
    assert all(tick == int(tick) for tick in inside)
    words = [e.text for e in elements(CHARTS["curve"], "text")]
    assert {"2", "4", "dimensions kept, k"} <= set(words)


def test_a_hint_is_shown_where_the_reader_points():
    root = ET.fromstring(svg.draw(CHARTS["histogram"], 720))
    hints = [title.text for title in root.iter("title")]
    assert (
        "30% to 60% lost\nisoproj: 3 pairs (37.500%)\npca: 4 pairs (50.000%)" in hints
    )
    assert "pca: the worst pair loses 0.5000" in hints


def test_a_loss_of_a_sample_is_marked():
    words = [e.text for e in elements(CHARTS["bounds"], "text")]
    assert "≥ 0.8000" in words
    assert "0.4000" in words


def test_texts_are_escaped():
    chart = simple(Note("floor", x=0, y=0, text="<script>", hints=["<b>"]))
    assert "<script>" not in svg.draw(chart, 300)
    assert "<script>" in [e.text for e in elements(chart, "text")]


def test_hollow_markers_and_error_bars_are_drawn(axes):
    line = Line(
        role="pca", x=[0, 1], y=[1, 2], errors=[0.1, 0.2], marker="o", hollow=True
    )
    (drawn,) = draw(simple(line), axes)
    assert drawn.get_markerfacecolor() == "white"


def test_a_page_has_the_colours_of_the_plots():
    light, dark = css_palette().values()
    assert light.keys() == dark.keys() >= {"isoproj", "pca", "random", "floor"}
    assert all(light[role] == colour_of(role) for role in light)
    assert light["pca"] == LOOKS["pca"].colour


def test_plots_do_not_load_matplotlib_and_charts_and_svg_do_not_need_it():
    code = (
        "import sys, isoproj.plot; assert 'matplotlib' not in sys.modules\n"
        "sys.modules['matplotlib'] = None\n"
        "from isoproj.plot import charts, svg\n"
        "import isoproj.reporting.document\n"
        "print(svg.draw(charts.losses_chart(['a'], [0.5]), 300)[:4])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "<svg"


def test_points_are_circles_of_their_role():
    chart = simple(Dots("random", x=[1, 2], y=[3, 4]))
    assert [e.get("class") for e in elements(chart, "circle")] == [
        "dot role-random"
    ] * 2
