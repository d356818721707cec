from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from geometry import cloud
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from isoproj import NearIsometricProjection, audit, plot, search_plan
from isoproj.plot.style import LOOKS, colour_of

pyplot = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(scope="module")
def points():
    return cloud(3, 30, 6)


@pytest.fixture(scope="module")
def fitted(points):
    return NearIsometricProjection(2, random_state=0).fit(points)


def legend_of(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_function_draws_on_the_axes_it_is_given(points, fitted):
    result = audit(points, fitted)
    draw = [
        lambda ax: plot.distortion_curve([1, 2], [0.9, 0.5], [0.8, 0.4], ax=ax),
        lambda ax: plot.distortion_histogram(result, ax=ax),
        lambda ax: plot.convergence(fitted, ax=ax),
        lambda ax: plot.worst_pairs(points, fitted, ax=ax),
        lambda ax: plot.shepard(points, fitted, ax=ax),
        lambda ax: plot.search_plan(search_plan(points, fitted), ax=ax),
    ]
    figure, axes = pyplot.subplots(1, len(draw))
    for function, ax in zip(draw, axes, strict=True):
        assert function(ax) is ax
        assert ax.has_data()
    assert pyplot.get_fignums() == [figure.number]


def test_a_curve_object_and_its_arrays_draw_alike():
    curve = SimpleNamespace(
        ks=[1, 2, 3], distortion=[0.9, 0.5, 0.2], lower_bound=[0.8] * 3
    )
    one = plot.distortion_curve(curve)
    two = plot.distortion_curve(curve.ks, curve.distortion, curve.lower_bound)
    for a, b in zip(one.get_lines(), two.get_lines(), strict=True):
        assert_array_equal(a.get_xydata(), b.get_xydata())


def test_a_curve_has_every_method_and_the_floor():
    ax = plot.distortion_curve([1, 2], [0.5, 0.4], [0.3, 0.2], others={"pca": [1, 0.9]})
    assert legend_of(ax) == ["pca", "isoproj", "no projection can get below"]


def test_the_curve_of_an_estimator_is_what_audit_measures(points):
    display = plot.DistortionCurveDisplay.from_estimator(PCA(), points, ks=[1, 3])
    expected = [audit(points, PCA(k).fit(points)).distortion for k in (1, 3)]
    assert_allclose(display.line_.get_ydata(), expected)
    assert display.lower_bound is None
    ours = NearIsometricProjection(random_state=0)
    display = plot.DistortionCurveDisplay.from_estimator(ours, points, ks=[2])
    assert display.lower_bound[0] <= display.distortion[0]
    assert display.figure_ is display.ax_.figure


def test_arrays_of_different_lengths_are_told_apart():
    with pytest.raises(ValueError, match=r"one value for each of 2"):
        plot.distortion_curve([1, 2], [0.5])


def test_the_histogram_draws_every_pair(points, fitted):
    result = audit(points, fitted)
    ax = plot.distortion_histogram({"isoproj": result, "pca": result}, n_bins=7)
    assert legend_of(ax) == ["isoproj", "pca"]
    values = ax.patches[0].get_data().values
    assert len(values) == 7
    assert_allclose(values.sum(), 1.0)


def test_a_map_that_stretches_has_losses_below_zero(points):
    ax = plot.distortion_histogram(audit(points, 2.0 * np.eye(6)))
    assert ax.patches[0].get_data().edges[0] < -2.9


def test_convergence_shows_the_best_bounds_so_far(fitted):
    ax = plot.convergence(fitted)
    upper, lower = (line.get_ydata() for line in ax.get_lines())
    assert (np.diff(upper) <= 0).all()
    assert (np.diff(lower) >= 0).all()
    assert_allclose(upper[-1], fitted.distortion_, atol=1e-6)
    with pytest.raises(ValueError, match="this PCA has none"):
        plot.convergence(PCA())


def found(plan, name, m):
    return getattr(plan.recall(m), name.removeprefix("stored "))


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_a_plan_is_drawn_at_every_number_of_candidates(points, fitted, share):
    asked = cloud(8, 25, 6)
    for stored, queries in ((True, None), (True, asked), (False, asked)):
        plan = search_plan(
            points, fitted, 5, queries, stored=stored, share=share, confidence=0.9
        )
        ax = plan.plot()
        names = ["stored rows"] * stored + ["queries"] * (queries is not None)
        lines = {line.get_label(): line.get_data() for line in ax.get_lines()}
        for name in names:
            x, y = lines[name]
            for m in range(int(x[0]), int(x[-1]) + 1):
                assert np.interp(m, x, y) == pytest.approx(found(plan, name, m))
        told = {
            "stored rows": ("every stored row", plan.every_row),
            "queries": ("a new query, with probability 0.9", plan.new_query),
        }
        marked = [f"{told[name][1]} suffice for {told[name][0]}" for name in names]
        assert sorted(legend_of(ax)) == sorted([*names, *marked])
        for name, label in zip(names, marked, strict=True):
            (number,), (height,) = lines[label]
            assert number == told[name][1]
            assert height == found(plan, name, number)


def test_distances_are_drawn_in_their_own_units(points, fitted):
    ax = plot.shepard(1000.0 * points, fitted)
    original, projected = ax.get_lines()[0].get_data()
    expected = np.linalg.norm(1000.0 * (points[:, None] - points[None]), axis=2)
    assert_allclose(np.sort(original), np.sort(expected[np.triu_indices(30, 1)]))
    assert (projected <= original * (1 + 1e-12)).all()
    assert (projected**2 >= (1 - fitted.distortion_) * original**2 - 1e-6).all()


def test_a_shepard_diagram_takes_what_an_audit_takes():
    rows, matrix = cloud(0, 8, 4), np.arange(16.0).reshape(4, 4)
    layer = SimpleNamespace(weight=matrix)
    drawn = [plot.shepard(rows, some).lines[0].get_ydata() for some in (matrix, layer)]
    assert_array_equal(*drawn)


def test_a_sample_says_that_it_is_one(points, fitted):
    ax = plot.shepard(points, fitted, n_sampled=100)
    assert "sampled of 435 pairs" in ax.get_title()


def test_images_are_shown_as_images_and_names_as_names():
    digits = load_digits().data[:40]
    result = audit(digits, digits[:3], n_worst=4)
    ax = plot.worst_pairs(digits, result)
    canvas = ax.images[0].get_array()
    i, j = result.worst_pairs[0]
    assert_array_equal(canvas[:8, :8], digits[i].reshape(8, 8))
    assert_array_equal(canvas[:8, 10:18], digits[j].reshape(8, 8))
    assert f"{i} and {j}: loses" in ax.get_yticklabels()[0].get_text()
    names = [f"row {at}" for at in range(40)]
    ax = plot.worst_pairs(digits[:, :63], result, labels=names)
    assert not ax.images
    assert ax.get_yticklabels()[0].get_text() == f"row {i} and row {j}"


def test_an_image_shape_that_does_not_fit_says_what_would(points, fitted):
    with pytest.raises(ValueError, match=r"multiply to the 6 features; got 2 x 4"):
        plot.worst_pairs(points, fitted, image_shape=(2, 4))


def test_methods_have_colours_and_markers_of_their_own():
    assert len({look.colour for look in LOOKS.values()}) == len(LOOKS)
    assert len({look.marker for look in LOOKS.values()}) == len(LOOKS)
    assert colour_of("minimax") == LOOKS["isoproj"].colour == "#0072b2"


def test_a_missing_matplotlib_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"isoproj\[plot\]"):
        plot.distortion_curve([1], [0.5])
