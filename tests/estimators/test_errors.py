from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from geometry import cloud
from numpy.testing import assert_allclose

from isoproj import NearIsometricProjection, audit
from isoproj.numerics.arrays import check_points

AXIS = [[1.0, 0.0, 0.0]]


def fit(X, **options):
    options = {"n_components": 1, "random_state": 0, **options}
    return NearIsometricProjection(**options).fit(X)


def spoilt(value, dtype=np.float64):
    X = cloud(0, 5, 3).astype(dtype)
    X[3, 1] = value
    return X


def message_of(call, kind=ValueError):
    """Return the error's message, having checked that it is one line."""
    with pytest.raises(kind) as caught:
        call()
    text = str(caught.value)
    assert text.strip()
    assert len(text.splitlines()) == 1, text
    return text


USES = {
    "fit": fit,
    "audit": lambda X: audit(X, AXIS),
    "check_points": check_points,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("value", "word"), [(np.nan, "NaN"), (-np.inf, "inf")])
def test_a_value_that_is_not_finite_is_named_with_its_place(
    use, form, dtype, value, word
):
    text = message_of(lambda: USES[use](form(spoilt(value, dtype))))
    assert "row 3, column 1" in text
    assert word in text


def test_a_model_in_place_of_the_data_is_told_what_comes_first():
    X = cloud(0, 5, 3)
    text = message_of(lambda: audit(fit(X), X))
    assert text == (
        "X must hold numbers; got NearIsometricProjection. Pass the data first."
    )


def test_transform_names_the_place_too():
    model = fit(cloud(0, 5, 3))
    assert "row 3, column 1" in message_of(lambda: model.transform(spoilt(np.nan)))


def test_finite_values_whose_sum_overflows_are_fine():
    X = np.array([[1.7e308, 0], [1.7e308, 1.0], [1.6e308, 1.7e308]])
    assert audit(X, [[1.0, 0.0]]).n_pairs == 3


@pytest.mark.parametrize("use", USES)
def test_one_row_is_not_enough(use):
    text = message_of(lambda: USES[use](np.ones((1, 3))))
    assert "1 sample" in text
    assert "2" in text


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_rows_all_identical_are_refused_with_their_number(form):
    X = form(np.ones((4, 3)))
    for call in (lambda: fit(X), lambda: audit(X, AXIS)):
        text = message_of(call)
        assert "two distinct points" in text
        assert "6 in all" in text


def test_directions_all_zero_are_refused():
    text = message_of(lambda: fit(np.zeros((4, 3)), pairs="directions"))
    assert "every row" in text


@pytest.mark.parametrize("use", USES)
def test_words_are_no_numbers(use):
    text = message_of(lambda: USES[use]([["one", "2", "3"], ["4", "5", "6"]]))
    assert "'one'" in text


@pytest.mark.parametrize("use", USES)
def test_masked_entries_are_refused_in_one_line(use):
    rows = np.ma.masked_greater(spoilt(1e6), 1e5)
    assert "1 of 15 masked" in message_of(lambda: USES[use](rows))
    USES[use](np.ma.masked_array(cloud(0, 5, 3)))


@pytest.mark.parametrize("use", USES)
def test_complex_numbers_are_refused_in_one_line(use):
    text = message_of(lambda: USES[use](cloud(0, 4, 3) + 1j))
    assert "Complex" in text or "complex" in text


@pytest.mark.parametrize("k", [0, -2, 4, 100])
def test_a_number_of_dimensions_out_of_range_is_named_with_the_limit(k):
    text = message_of(lambda: fit(cloud(0, 6, 3), n_components=k))
    assert f"got {k}" in text
    assert "n_features=3" in text


@pytest.mark.parametrize("k", [1.0, "2", True, [2], np.float64(2)])
def test_a_number_of_dimensions_that_is_no_integer_is_shown(k):
    text = message_of(lambda: fit(cloud(0, 6, 3), n_components=k))
    assert f"got {k!r}" in text


def test_numpy_integers_are_integers():
    assert fit(cloud(0, 6, 3), n_components=np.int32(2)).n_components_ == 2


PAIR_LISTS = {
    "empty": ([], "empty"),
    "empty array": (np.zeros((0, 2), int), "empty"),
    "floats": ([[0.0, 1.0]], "float64"),
    "booleans": ([[True, False]], "bool"),
    "triples": ([[0, 1, 2]], r"(1, 3)"),
    "flat": ([0, 1], r"(2,)"),
    "none": (None, "object"),
    "too large": ([[0, 6]], "0 to 6"),
    "negative": ([[-1, 2]], "-1 to 2"),
    "ragged": ([[0, 1], [2]], "(n_pairs, 2)"),
    "word": ("nearest", "'nearest'"),
    "pair with itself": ([[2, 2]], "distinct"),
}


@pytest.mark.parametrize("case", PAIR_LISTS)
def test_unusable_pairs_are_named(case):
    pairs, word = PAIR_LISTS[case]
    for call in (
        lambda: fit(cloud(0, 6, 3), pairs=pairs),
        lambda: audit(cloud(0, 6, 3), AXIS, pairs=pairs),
    ):
        text = message_of(call)
        assert word in text
        assert "distinct" in text or "pairs" in text


@pytest.mark.parametrize("solver", ["simplex", None, ["dual_ascent"]])
def test_an_unknown_solver_is_named_with_the_known_ones(solver):
    text = message_of(lambda: fit(cloud(0, 6, 3), solver=solver))
    assert repr(solver) in text
    assert "'dual_ascent'" in text


@pytest.mark.parametrize("name", ["max_iter", "time_limit"])
@pytest.mark.parametrize("value", [0, -1, "soon", True, float("nan")])
def test_limits_must_be_positive_numbers(name, value):
    text = message_of(lambda: fit(cloud(0, 6, 3), **{name: value}))
    assert name in text
    assert repr(value) in text


def test_a_fraction_of_an_iteration_is_refused():
    assert "2.5" in message_of(lambda: fit(cloud(0, 6, 3), max_iter=2.5))


def test_a_random_state_that_is_none_is_refused():
    assert "'dice'" in message_of(lambda: fit(cloud(0, 6, 3), random_state="dice"))


# Instead of check_param_validation, which wants scikit-learn's private constraints and
# its wording.
@pytest.mark.parametrize("name", sorted(NearIsometricProjection().get_params()))
def test_every_parameter_is_checked_in_fit_not_before(name):
    odd = {"one": "two"}
    model = NearIsometricProjection(**{name: odd})
    assert getattr(model, name) is odd
    message_of(lambda: model.fit(cloud(0, 6, 3)))


def test_other_features_at_transform_are_counted():
    model = fit(cloud(0, 6, 3))
    text = message_of(lambda: model.transform(cloud(0, 6, 4)))
    assert "4 features" in text
    assert "3 features" in text
    text = message_of(lambda: model.inverse_transform(cloud(0, 6, 2)))
    assert "n_components_=1" in text
    assert "got 2" in text


def test_a_map_of_another_width_is_shown_with_its_shape():
    text = message_of(lambda: audit(cloud(0, 6, 3), np.eye(2)))
    assert "(2, 2)" in text
    assert "3" in text


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_map_that_is_not_finite_is_refused(value):
    assert "finite" in message_of(lambda: audit(cloud(0, 6, 3), [[value, 0, 0]]))


@pytest.mark.parametrize("n_worst", [0, -3])
def test_at_least_one_worst_pair_must_be_asked_for(n_worst):
    text = message_of(lambda: audit(cloud(0, 6, 3), AXIS, n_worst=n_worst))
    assert f"got {n_worst}" in text


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("shape", [(8, 5), (5, 8)])
@pytest.mark.parametrize("factor", [2.0**500, 2.0**-500, 1e150, 1e-150])
def test_units_in_which_squares_overflow_or_vanish_change_no_answer(
    form, shape, factor
):
    X = cloud(1, *shape)
    paper = {"solver": "dual_ascent", "max_iter": 10}
    plain = fit(form(X), n_components=2, **paper)
    extreme = fit(form(X * factor), n_components=2, **paper)
    assert_allclose(extreme.components_, plain.components_, atol=1e-9)
    assert extreme.distortion_ == pytest.approx(plain.distortion_, abs=1e-12)
    assert extreme.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-12)
    result = audit(form(X * factor), plain.components_)
    assert result.distortion == pytest.approx(plain.distortion_, abs=1e-12)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_small_gaps_beside_huge_values_are_still_measured(form):
    X = form(np.array([[1e300, 0.0], [1e-300, 0.0], [0.0, 2e-300]]))
    result = audit(X, [[1.0, 0.0]])
    assert result.worst_pairs[0].tolist() == [1, 2]
    assert result.distortion == pytest.approx(0.8)


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("least", [0.0, 5e-324])
def test_the_smallest_gap_beside_the_largest_values_is_measured_too(form, least):
    X = form(np.array([[1.5e308, 0.0], [1.5e308, 5e-324], [-1.5e308, 0.0]]))
    result = audit(X, [[1.0, 0.0]], min_distance=least)
    assert result.n_pairs == 3
    assert result.worst_pairs[0].tolist() == [0, 1]
    assert result.distortion == 1.0


@pytest.mark.parametrize("factor", [2.0**100, 2.0**-100])
def test_float32_squares_may_overflow_too(factor):
    X = cloud(2, 9, 4).astype(np.float32)
    scaled = X * np.float32(factor)
    plain, extreme = fit(X, n_components=2), fit(scaled, n_components=2)
    assert extreme.distortion_ == pytest.approx(plain.distortion_, abs=1e-9)
