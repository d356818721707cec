from __future__ import annotations

import math

import literal
import numpy as np
import pytest
from geometry import cloud, every_pair, mnist_digits
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose

from isoproj import NearIsometricProjection
from isoproj.numerics.progress import Step, watching
from isoproj.pairs.moments import pose
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import spectral_ratio
from isoproj.solvers.dual_ascent import dual_ascent, project_on_simplex
from paper.datasets import load, sample

numbers = st.floats(-1e3, 1e3, allow_subnormal=False)
vectors = arrays(np.float64, st.integers(1, 30), elements=numbers)


# The five errors of the paper, each by its counterexample.


def test_error_1_theorem_1_fails_for_two_dimensions():
    directions, k = np.eye(4), 2
    uniform = np.full(4, 0.25)
    answer = np.eye(4)[:, :2]
    moment = literal.moment(directions, uniform)
    retained = np.trace(answer.T @ moment @ answer)
    assert retained == literal.top_eigenvectors(moment, k)[0].sum()
    best = 0.5  # attained by rows of equal length, and g(1/n) proves it
    equal = np.array([[1, 0], [0, 1], [1, 0], [0, 1]]) / math.sqrt(2)
    assert literal.distortion(directions, equal) == pytest.approx(best)
    assert literal.dual_value(directions, uniform, k) == pytest.approx(best)
    ratio = literal.distortion(directions, answer) / best
    sigma = np.linalg.svd(directions, compute_uv=False)
    claimed = 1 / (1 - sigma[0] ** 2 / 4)
    assert (ratio, claimed) == (pytest.approx(2.0), pytest.approx(4 / 3))
    points, pairs = prepare_pairs(directions, "directions", rotate=True)
    assert ratio <= spectral_ratio(points, pairs, k) + 1e-9


def test_error_2_g_is_not_the_dual_of_unit_vectors_without_orthogonality():
    x = np.array([[1.0, 0.0]])
    relaxed = 1 - 2 * (x @ x.T)[0, 0]  # both columns equal x: 1 - k mu_1
    g = literal.dual_value(x, np.ones(1), k=2)
    assert (relaxed, g) == (-1.0, pytest.approx(0.0))
    assert g > relaxed
    assert g <= literal.distortion(x, np.eye(2))


def test_error_3_rho_is_an_index_not_a_value():
    values = np.array([0.7, 0.6, 0.1])
    descending = np.sort(values)[::-1]
    terms = descending + (1 - np.cumsum(descending)) / np.arange(1, 4)
    assert terms.max() == pytest.approx(1.0)  # as printed, rho = 1.0 whatever values
    as_printed = np.maximum(values + (1 - descending[:1].sum()) / 1, 0)
    assert as_printed.sum() == pytest.approx(2.3)
    assert_allclose(project_on_simplex(values), [0.55, 0.45, 0.0], atol=1e-15)


@pytest.mark.parametrize("n_features", [2, 9])
def test_error_4_the_projection_sorts_n_weights_not_d_features(n_features, monkeypatch):
    rows = cloud(0, 12, n_features)
    problem = pose(*prepare_pairs(rows, rotate=True), 1)
    sizes = []
    sort = np.sort
    monkeypatch.setattr(np, "sort", lambda a: sizes.append(np.size(a)) or sort(a))
    dual_ascent(problem, max_iter=3)
    # One sort after each of w_0 ... w_3, of one weight for each of 12 * 11 / 2 pairs.
    assert sizes == [66] * 4


def test_error_5_where_eigenvalues_meet_g_has_a_corner():
    directions, k = np.eye(2), 1
    slopes = []
    for towards in (np.array([1.0, -1.0]), np.array([-1.0, 1.0])):
        moved = np.full(2, 0.5) + 1e-3 * towards
        slopes.append((literal.dual_value(directions, moved, k) - 0.5) / 1e-3)
    # A differentiable function would have slopes of opposite sign.
    assert slopes == [pytest.approx(-1.0), pytest.approx(-1.0)]


@given(st.integers(0, 2**32 - 1), st.integers(1, 4))
def test_minus_the_retained_lengths_are_a_supergradient(seed, k):
    rng = np.random.default_rng(seed)
    problem = pose(*prepare_pairs(rng.normal(size=(7, 5)), rotate=True), k)
    here, there = rng.dirichlet(np.ones(21)), rng.dirichlet(np.full(21, 0.2))
    value, basis = problem.dual(here)
    ceiling = value - problem.retained(basis) @ (there - here)
    assert problem.dual(there)[0] <= ceiling + 1e-12


# Algorithm 2.


@given(vectors)
def test_the_projection_satisfies_the_optimality_conditions(values):
    nearest = project_on_simplex(values)
    assert nearest.min() >= 0.0
    assert nearest.sum() == pytest.approx(1.0, abs=1e-9)
    # KKT: one multiplier, equality where positive, at least it where zero.
    multiplier = (values - nearest)[nearest > 0]
    assert np.ptp(multiplier) <= 1e-9
    assert (values[nearest == 0] <= multiplier.min() + 1e-9).all()


@given(vectors, st.integers(0, 2**32 - 1))
def test_no_point_of_the_simplex_is_nearer(values, seed):
    other = np.random.default_rng(seed).dirichlet(np.full(values.size, 0.5))
    nearest = project_on_simplex(values)
    distance = np.linalg.norm(values - nearest)
    assert distance <= np.linalg.norm(values - other) * (1 + 1e-12) + 1e-12


@given(vectors)
def test_the_projection_agrees_with_the_literal_algorithm_2(values):
    assert_allclose(project_on_simplex(values), literal.algorithm_2(values), atol=1e-9)


@pytest.mark.parametrize("values", [[1e20, 0.0], [1e17, 1e17], [-1e20, -1e20]])
def test_the_projection_takes_any_real_numbers(values):
    nearest = project_on_simplex(np.array(values))
    assert nearest.sum() == pytest.approx(1.0)


@given(st.integers(0, 2**32 - 1), st.integers(1, 40))
def test_points_of_the_simplex_stay_where_they_are(seed, n):
    weights = np.random.default_rng(seed).dirichlet(np.ones(n))
    assert_allclose(project_on_simplex(weights), weights, atol=1e-14)


# Algorithm 1.


@pytest.mark.parametrize(
    ("r", "n", "printed"),
    [
        (46, 1035, "0.004"),
        (101, 5050, "0.0018"),
        (142, 10011, "0.00129"),
        (317, 50086, "0.00057"),
        (448, 100128, "0.0004"),
    ],
)
def test_step_sizes_are_those_of_the_papers_table(r, n, printed):
    assert len(every_pair(r)) == n
    # The table cuts digits off: 0.000577 is printed 0.00057.
    unit = 10.0 ** -len(printed.partition(".")[2])
    assert float(printed) <= literal.step_size(n, 120) < float(printed) + unit


@pytest.mark.parametrize("max_iter", [1, 7, 120])
def test_the_first_step_has_the_papers_size(max_iter):
    problem = pose(*prepare_pairs(cloud(1, 9, 6), rotate=True), 2)
    steps = []
    with watching(steps.append, Step):
        dual_ascent(problem, max_iter=max_iter)
    assert len(steps) == max_iter + 1
    uniform = np.full(36, 1 / 36)
    eta = literal.step_size(36, max_iter)
    moved = project_on_simplex(
        uniform - eta * problem.retained(problem.dual(uniform)[1])
    )
    assert steps[1].lower_bound == pytest.approx(problem.dual(moved)[0], abs=1e-12)


def random_points(k):
    rows = cloud(k, 46, 60)
    return rows, "all", literal.directions_of(rows)


def random_directions(k):
    rows = cloud(k, 1035, 60)
    return rows, "directions", rows / np.linalg.norm(rows, axis=1)[:, None]


def bundled_digits(k):
    rows = sample(load("digits"), (5,), 46, seed=0)
    return rows, "all", literal.directions_of(rows)


def mnist(k):
    rows = mnist_digits(5, 46)
    if rows is None:
        pytest.skip("no mnist.npz in ../shared/data or $ISOPROJ_DATA")
    # Pixels that never change add nothing but time to the literal algorithm.
    return rows, "all", literal.directions_of(rows[:, np.ptp(rows, axis=0) > 0])


@pytest.mark.parametrize("k", [5, 20])
@pytest.mark.parametrize(
    "data", [random_points, random_directions, bundled_digits, mnist]
)
def test_the_implicit_solver_is_the_literal_one_at_every_step(data, k):
    rows, pairs, directions = data(k)
    assert directions.shape[0] == 1035
    run = literal.algorithm_1(directions, k, keep_iterates=True)
    problem = pose(*prepare_pairs(rows, pairs, rotate=True), k)
    # Rounding grows tenfold every eight steps or so where eigenvalues meet (the
    # literal algorithm departs as far from itself on rotated data): so every step is
    # taken from the literal weights, and free runs are compared while they may be.
    eta = literal.step_size(1035, 120)
    for t, weights in enumerate(run.iterates):
        value, basis = problem.dual(weights)
        retained = problem.retained(basis)
        seen = (1 - retained.min(), value)
        assert_allclose(seen, run.history[t], atol=1e-6)
        if t < 120:
            moved = project_on_simplex(weights - eta * retained)
            assert_allclose(moved, run.iterates[t + 1], atol=1e-6 / 1035)
    steps = dual_ascent(problem).history
    free = np.array([(s.distortion, s.lower_bound) for s in steps])
    assert_allclose(free[:25], run.history[:25], atol=1e-6)
    assert free.shape == (121, 2)


@pytest.mark.parametrize(("seed", "k", "max_iter"), [(0, 1, 9), (1, 2, 20), (2, 3, 40)])
def test_the_answer_is_the_better_of_best_and_average_iterate(seed, k, max_iter):
    rows = cloud(seed, 9, 7)
    run = literal.algorithm_1(literal.directions_of(rows), k, n_steps=max_iter)
    model = NearIsometricProjection(k, solver="dual_ascent", max_iter=max_iter)
    model.fit(rows)
    assert model.distortion_ == pytest.approx(run.distortion, abs=1e-6)
    assert model.lower_bound_ == pytest.approx(run.best_dual, abs=1e-6)
    # The same subspace, not merely the same number.
    shared = np.linalg.svd(model.components_ @ run.basis, compute_uv=False)
    assert_allclose(shared, 1.0, atol=1e-6)


def test_both_outcomes_of_the_last_comparison_occur():
    seen = set()
    for seed in range(30):
        rows = cloud(seed, 8, 6)
        run = literal.algorithm_1(literal.directions_of(rows), 2, n_steps=15)
        model = NearIsometricProjection(2, solver="dual_ascent", max_iter=15).fit(rows)
        assert model.distortion_ == pytest.approx(run.distortion, abs=1e-6)
        seen.add(run.chose_average)
    assert seen == {True, False}


def test_the_average_dual_value_obeys_the_rate_of_supergradient_ascent():
    rows = cloud(3, 7, 5)
    directions = literal.directions_of(rows)
    best = max(
        literal.algorithm_1(directions, 2, n_steps=t).best_dual for t in (500, 1000)
    )
    for n_steps in (50, 200):
        history = literal.algorithm_1(directions, 2, n_steps=n_steps).history
        mean = np.mean([g for _, g in history[:n_steps]])
        assert best - mean <= math.sqrt(2 * 21 / n_steps)


@pytest.mark.parametrize("max_iter", [1, 8, 40])
def test_the_average_iterate_is_that_of_the_literal_algorithm(max_iter):
    rows = cloud(3, 9, 7)
    directions = literal.directions_of(rows)
    run = literal.algorithm_1(directions, 2, n_steps=max_iter, keep_iterates=True)
    weights = np.mean(run.iterates[1:], axis=0)
    result = dual_ascent(pose(*prepare_pairs(rows, rotate=True), 2), max_iter=max_iter)
    expected = literal.dual_value(directions, weights, 2)
    assert result.average.lower_bound == pytest.approx(expected, abs=1e-6)
    # Concave: no less than the mean of the iterates' values.
    values = [step.lower_bound for step in result.history[1:]]
    assert result.average.lower_bound >= np.mean(values) - 1e-12


def test_the_basis_of_a_certificate_spans_what_the_solver_found():
    rows = cloud(4, 12, 30)
    points, pairs = prepare_pairs(rows, rotate=True)
    result = dual_ascent(pose(points, pairs, 3))
    model = NearIsometricProjection(3, solver="dual_ascent").fit(rows)
    lifted = points.frame.lift(result.basis)
    assert_allclose(
        model.components_.T @ model.components_, lifted @ lifted.T, atol=1e-10
    )
