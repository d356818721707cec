from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from geometry import THREE_LINES, cloud, every_pair, seeds
from hypothesis import given, settings
from hypothesis import strategies as st

from isoproj.baselines import SDPProjection
from isoproj.baselines.base import Task
from isoproj.baselines.fair_pca import reduce_rank
from isoproj.baselines.fantope import FractionalProjection, systematic_sample
from isoproj.baselines.sdp import ConicProgramme, solve_conic
from isoproj.pairs.directions import quadratic_values
from isoproj.pairs.moments import pose
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.api import Clock
from isoproj.solvers.fantope import nearest_in_fantope


def random_fantope(seed, d, k):
    """Return a matrix of the fantope with eigenvalues all over [0, 1]."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, d)))[0]
    factor = nearest_in_fantope((basis * rng.normal(0.5, 0.6, d)) @ basis.T, k)
    return factor @ factor.T


def loss(matrix, directions):
    return float(1.0 - quadratic_values(directions, matrix).min())


def unit_rows(seed, m, d):
    rows = cloud(seed, m, d)
    return rows / np.linalg.norm(rows, axis=1)[:, None]


@given(seeds, st.integers(1, 6))
def test_projection_on_the_fantope_lands_there_and_is_nearest(seed, k):
    matrix = cloud(seed, 7, 7)
    matrix += matrix.T
    factor = nearest_in_fantope(matrix, k)
    nearest = factor @ factor.T
    values = np.linalg.eigvalsh(nearest)
    assert values.min() > -1e-12
    assert values.max() < 1 + 1e-12
    assert abs(values.sum() - k) < 1e-10
    # A projection on a convex set makes an obtuse angle with every other member.
    other = random_fantope(seed + 1, 7, k)
    assert np.sum((matrix - nearest) * (other - nearest)) < 1e-9


@given(seeds, st.integers(1, 5))
def test_deterministic_rounding_keeps_its_factor(seed, k):
    relaxed, directions = random_fantope(seed, 6, k), unit_rows(seed, 40, 6)
    basis = FractionalProjection.of(relaxed).leading(k)
    factor = FractionalProjection.of(relaxed).deterministic_factor(k)
    assert factor <= k + 1 + 1e-9
    rounded = loss(basis @ basis.T, directions)
    assert rounded <= factor * loss(relaxed, directions) + 1e-10


def test_the_factor_of_deterministic_rounding_is_attained():
    relaxed = np.eye(3) * 2 / 3
    basis = FractionalProjection.of(relaxed).leading(2)
    lost = np.linalg.qr(basis, mode="complete")[0][:, 2:].T
    assert math.isclose(loss(basis @ basis.T, lost), 3 * loss(relaxed, lost))


@given(seeds, st.integers(1, 5), st.floats(0.05, 4.0))
def test_bicriteria_rounding_keeps_both_promises(seed, k, slack):
    relaxed, directions = random_fantope(seed, 8, k), unit_rows(seed, 40, 8)
    basis = FractionalProjection.of(relaxed).heavy(slack)
    assert basis.shape[1] <= max(1, k * (1 + slack) / slack + 1e-9)
    rounded = loss(basis @ basis.T, directions)
    assert rounded <= (1 + slack) * loss(relaxed, directions) + 1e-10


@given(seeds, st.integers(1, 6))
def test_a_systematic_sample_has_the_size_asked_for_without_repeats(seed, k):
    shares = np.linalg.eigvalsh(random_fantope(seed, 7, k)).clip(0, 1)
    drawn = systematic_sample(shares, k, np.random.RandomState(seed % 1000))
    assert len(set(drawn.tolist())) == k
    assert (shares[drawn] > 0).all()


def test_randomised_rounding_averages_to_the_relaxed_matrix():
    d, k, n = 7, 3, 20_000
    relaxed = random_fantope(5, d, k)
    values = np.linalg.eigvalsh(relaxed)
    generator = np.random.RandomState(0)
    counts = np.zeros(d)
    for _ in range(n):
        counts[systematic_sample(values.clip(0, 1), k, generator)] += 1
    # Hoeffding for each of d frequencies; all hold but with probability 1e-6.
    allowed = math.sqrt(math.log(2 * d / 1e-6) / (2 * n))
    assert np.abs(counts / n - values).max() <= allowed
    assert ((values > 3 * allowed) & (values < 1 - 3 * allowed)).any()


def test_sampled_bases_are_eigenvectors_and_average_to_the_relaxed_matrix():
    d, k, n = 5, 2, 4000
    relaxed = random_fantope(8, d, k)
    generator = np.random.RandomState(1)
    fractional = FractionalProjection.of(relaxed)
    bases = (fractional.sampled(k, generator) for _ in range(n))
    mean = sum(basis @ basis.T for basis in bases) / n
    # In the eigenbasis the mean is diagonal, so its error is that of d frequencies.
    allowed = math.sqrt(math.log(2 * d / 1e-6) / (2 * n))
    assert np.linalg.norm(mean - relaxed, 2) <= allowed


@settings(max_examples=8)
@given(seeds, st.integers(1, 6))
def test_binned_rounding_is_orthonormal_and_loses_twice_the_loss_on_average(seed, k):
    d, n = 7, 300
    relaxed, directions = random_fantope(seed, d, k), unit_rows(seed, 3, d)
    generator = np.random.RandomState(seed % 1000)
    fractional, lost = FractionalProjection.of(relaxed), np.zeros(3)
    for _ in range(n):
        basis = fractional.binned(k, generator)
        np.testing.assert_allclose(basis.T @ basis, np.eye(k), atol=1e-10)
        lost += 1 - quadratic_values(directions, basis @ basis.T)
    # E(x.y)^2 <= sum of theta (q.x)^2 / (1/2); losses lie in [0, 1], so Hoeffding.
    allowed = math.sqrt(math.log(3 * 8 / 1e-6) / (2 * n))
    bound = 2 * (1 - quadratic_values(directions, relaxed))
    assert (lost / n <= bound + allowed).all()


@pytest.mark.parametrize("solver", ["relaxation", "scs", "clarabel"])
@pytest.mark.parametrize("k", [1, 3])
def test_the_relaxation_and_its_dual_meet(solver, k):
    if solver != "relaxation":
        pytest.importorskip(solver)
    model = SDPProjection(k, solver=solver, tol=5e-4).fit(cloud(3, 16, 6))
    assert model.relaxed_ - model.lower_bound_ <= 5.01e-4 * model.lower_bound_
    assert model.relaxed_ >= model.lower_bound_ - 1e-12


@pytest.mark.parametrize("solver", ["relaxation", "scs", "clarabel"])
def test_three_lines_have_the_relaxation_they_are_known_for(solver):
    if solver != "relaxation":
        pytest.importorskip(solver)
    model = SDPProjection(1, solver=solver, pairs="directions").fit(THREE_LINES)
    assert abs(model.relaxed_ - 0.5) < 1e-4
    assert abs(model.lower_bound_ - 0.5) < 1e-4
    assert model.distortion_ >= 0.75 - 1e-9


def test_the_relaxation_is_what_cvxpy_says():
    cvxpy = pytest.importorskip("cvxpy")
    rows, k = cloud(11, 14, 6), 2
    points, pairs = prepare_pairs(rows, rotate=True)
    directions = PairSearch(points, pairs).directions(every_pair(14))
    matrix = cvxpy.Variable((6, 6), PSD=True)
    kept = cvxpy.sum(cvxpy.multiply(directions @ matrix, directions), axis=1)
    constraints = [np.eye(6) - matrix >> 0, cvxpy.trace(matrix) == k]
    problem = cvxpy.Problem(cvxpy.Maximize(cvxpy.min(kept)), constraints)
    problem.solve(solver="CLARABEL")
    model = SDPProjection(k, tol=1e-5).fit(rows)
    assert abs(model.relaxed_ - (1 - problem.value)) < 1e-4


@pytest.mark.parametrize("triangle", [np.triu_indices(3), np.tril_indices(3)])
def test_the_conic_programme_says_what_it_should(triangle):
    directions = unit_rows(0, 5, 3)
    programme = ConicProgramme(directions, 2, triangle)
    matrix = random_fantope(1, 3, 2)
    rows, columns = triangle
    scale = np.where(rows == columns, 1.0, math.sqrt(2.0))
    solution = np.append(matrix[rows, columns] * scale, 0.25)
    slack = programme.bound - programme.matrix @ solution
    assert abs(slack[0]) < 1e-12
    forms = quadratic_values(directions, matrix)
    np.testing.assert_allclose(slack[1:6], forms - 0.25, atol=1e-12)
    duals = np.array([7.0, 3.0, -1.0, math.nan, math.inf, 1.0, 7.0])
    factor, weights = programme.nearest(solution, duals)
    np.testing.assert_allclose(factor @ factor.T, matrix, atol=1e-9)
    np.testing.assert_allclose(weights, [0.75, 0.0, 0.0, 0.0, 0.25])


@pytest.mark.parametrize("backend", ["scs", "clarabel"])
def test_a_missing_back_end_names_the_extra(backend, monkeypatch):
    real = importlib.import_module

    def absent(name, *args):
        if name == backend:
            raise ImportError(name)
        return real(name, *args)

    monkeypatch.setattr(importlib, "import_module", absent)
    with pytest.raises(ImportError, match=r"isoproj\[sdp\]"):
        SDPProjection(2, solver=backend).fit(cloud(0, 10, 5))


def test_a_conic_solve_cut_short_still_gives_valid_bounds():
    pytest.importorskip("scs")
    rows = cloud(4, 40, 20)
    points, pairs = prepare_pairs(rows, rotate=True)
    task = Task(
        rows=rows,
        points=points,
        pairs=pairs,
        labels=None,
        generator=np.random.RandomState(0),
        clock=Clock(0.05),
    )
    found = solve_conic(task, task.pool(), 4, "scs", tol=1e-9)
    values = np.linalg.eigvalsh(found.factor @ found.factor.T)
    assert values.min() > -1e-9
    assert values.max() < 1 + 1e-9
    assert abs(values.sum() - 4) < 1e-9
    assert (found.proof.weights >= 0).all()


@settings(max_examples=15)
@given(seeds, st.integers(1, 4))
def test_rank_reduction_keeps_the_worst_pair_and_reaches_the_bound(seed, k):
    rows = cloud(seed, 9, 7)
    points, pairs = prepare_pairs(rows, rotate=True)
    problem = pose(points, pairs, k)
    relaxed = random_fantope(seed, 7, k) * 0.5 + np.eye(7) * k / 14
    before = quadratic_values(
        PairSearch(points, pairs).directions(every_pair(9)), relaxed
    )
    reduced = reduce_rank(problem, relaxed, clock=Clock(None))
    after = quadratic_values(
        PairSearch(points, pairs).directions(every_pair(9)), reduced
    )
    assert after.min() >= before.min() - 1e-7
    assert abs(np.trace(reduced) - k) < 1e-7
    values = np.linalg.eigvalsh(reduced)
    assert values.min() > -1e-9
    assert values.max() < 1 + 1e-9
    n_tight = int((after <= after.min() + 1e-6).sum())
    n_inside = int(((values > 1e-6) & (values < 1 - 1e-6)).sum())
    # Theorem 1.7 of Tantipongpipat et al.: no free direction is left at a vertex.
    assert n_inside * (n_inside + 1) // 2 <= n_tight + 1


def test_more_dimensions_buy_the_bicriteria_bound():
    rows = cloud(2, 40, 15)
    model = SDPProjection(4, rounding="bicriteria", slack=0.2).fit(rows)
    assert model.n_components_ > 4
    assert model.distortion_ <= 1.2 * model.relaxed_ + 1e-9


def test_best_of_many_draws_is_no_worse_than_of_few():
    rows = cloud(6, 30, 10)
    few, many = (
        SDPProjection(3, rounding="randomized", n_rounds=n, random_state=0).fit(rows)
        for n in (1, 50)
    )
    assert many.distortion_ <= few.distortion_
