from __future__ import annotations

import numpy as np
import pytest

from isoproj.plot.marks import Axis, Chart, Line
from paper.panels import Panels, _figure_of, spread_apart

pytest.importorskip("matplotlib")


def test_names_at_the_ends_of_lines_keep_their_distance_and_order():
    rng = np.random.default_rng(0)
    for _ in range(50):
        heights = sorted(rng.uniform(size=7).tolist())
        placed = spread_apart(heights, 0.08)
        assert np.diff(placed).min() >= 0.08 - 1e-12
    assert spread_apart([0.1, 0.5], 0.08) == [0.1, 0.5]


def test_names_stand_at_the_ends_of_their_lines():
    lines = [
        Line("pca", label="high", x=[0, 1], y=[0, 0.9]),
        Line("isoproj", label="low", x=[0, 1], y=[0, 0.1]),
    ]
    chart = Chart(x=Axis(), y=Axis(low=0, high=1), marks=lines)
    figure = _figure_of(Panels(rows=[[chart]], width=4, height=3))
    (axes,) = figure.axes
    places = {text.get_text(): text.xy[1] for text in axes.texts}
    assert places == pytest.approx({"high": 0.9, "low": 0.1})
