from __future__ import annotations

import functools
from fractions import Fraction

import cvxpy
import numpy as np
import pytest
import scipy.sparse
from geometry import (
    THREE_LINES,
    brute_distortion,
    cloud,
    every_pair,
    random_basis,
    random_simplex,
    seeds,
)
from hypothesis import given
from hypothesis import strategies as st
from literal import directions_of, dual_value
from numpy.testing import assert_allclose

from isoproj import NearIsometricProjection
from isoproj.pairs.moments import pose
from isoproj.pairs.points import Points
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import lower_bound, spectral_ratio
from isoproj.solvers.dual_ascent import dual_ascent


def bound(rows, pairs, weights, k):
    return lower_bound(Points.prepare(rows, rotate=False), pairs, weights, k)


def all_pairs_dual(rows, weights, k):
    points, pairs = prepare_pairs(rows, rotate=True)
    return pose(points, pairs, k).dual(weights)[0]


@given(seeds, st.integers(3, 12), st.integers(2, 8), st.integers(1, 7))
def test_any_weights_bound_any_projection_from_below(seed, r, d, k):
    k = min(k, d)
    rows = cloud(seed, r, d)
    pairs = every_pair(r)
    weights = random_simplex(seed, len(pairs))
    basis = random_basis(seed + 1, d, k)
    # Keeping every dimension loses nothing, up to the sign of its rounding.
    loss = max(0.0, brute_distortion(rows, basis.T))
    assert bound(rows, pairs, weights, k) <= loss


@given(seeds, st.integers(1, 4))
def test_weights_on_a_few_pairs_still_bound_all_pairs(seed, k):
    rows = cloud(seed, 9, 6)
    pairs = every_pair(9)[np.random.default_rng(seed).permutation(36)[:8]]
    weights = random_simplex(seed, 8)
    basis = random_basis(seed + 1, 6, k)
    assert bound(rows, pairs, weights, k) <= brute_distortion(rows, basis.T)


@given(seeds, st.integers(1, 5))
def test_the_bound_is_the_dual_value_but_for_rounding(seed, k):
    rows = cloud(seed, 8, 6)
    weights = random_simplex(seed, 28)
    literal = dual_value(directions_of(rows), weights, k)
    assert 0.0 <= literal - bound(rows, every_pair(8), weights, k) <= 1e-12
    assert all_pairs_dual(rows, weights, k) == pytest.approx(literal, abs=1e-12)


@given(seeds, st.sampled_from([1e-2, 1e-4, 1e-6, 1e-8, 1e-10]))
def test_the_dual_value_is_right_for_nearly_identical_points(seed, gap):
    rows = cloud(seed, 8, 6)
    rows[1] = rows[0] + gap * rows[1]
    weights = random_simplex(seed, 28)
    literal = dual_value(directions_of(rows), weights, 2)
    assert bound(rows, every_pair(8), weights, 2) == pytest.approx(literal, abs=1e-6)
    assert all_pairs_dual(rows, weights, 2) == pytest.approx(literal, abs=1e-6)


@given(seeds, st.sampled_from([1e-4, 1e-6, 1e-8]))
def test_retained_lengths_are_right_for_nearly_identical_points(seed, gap):
    rows = cloud(seed, 8, 6)
    rows[1] = rows[0] + gap * rows[1]
    points, pairs = prepare_pairs(rows, rotate=True)
    basis = random_basis(seed, 6, 2)
    kept = ((directions_of(rows) @ points.frame.lift(basis)) ** 2).sum(axis=1)
    assert_allclose(pose(points, pairs, 2).retained(basis), kept, atol=1e-6)


def exact_moment(rows, pairs, weights):
    """Return ``M(w)`` in rational numbers; weights are scaled to sum 1 exactly."""
    total = sum(Fraction(w) for w in weights.tolist())
    d = rows.shape[1]
    moment = [[Fraction(0)] * d for _ in range(d)]
    for (i, j), w in zip(pairs.tolist(), weights.tolist(), strict=True):
        gap = [
            Fraction(a) - Fraction(b)
            for a, b in zip(rows[i].tolist(), rows[j].tolist(), strict=True)
        ]
        share = Fraction(w) / total / sum(g * g for g in gap)
        for a in range(d):
            for b in range(d):
                moment[a][b] += share * gap[a] * gap[b]
    return moment


def is_positive_semidefinite(matrix):
    """Decide by elimination in rational numbers."""
    m = [row[:] for row in matrix]
    d = len(m)
    for p in range(d):
        if m[p][p] < 0 or (m[p][p] == 0 and any(m[p][q] != 0 for q in range(p, d))):
            return False
        if m[p][p] == 0:
            continue
        for q in range(p + 1, d):
            factor = m[q][p] / m[p][p]
            for c in range(p, d):
                m[q][c] -= factor * m[p][c]
    return True


@pytest.mark.parametrize("kind", ["normal", "lattice", "axes", "near copies", "far"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("smallest", [True, False])
def test_rounding_never_lifts_the_bound_above_the_truth(kind, seed, smallest):
    d = 4
    rows = cloud(seed, 7, d)
    if kind == "lattice":
        rows = np.random.default_rng(seed).permutation(
            np.indices((3,) * d).reshape(d, -1).T
        )
        rows = rows[:7].astype(float)
    elif kind == "axes":
        rows = np.vstack([np.zeros(d), np.eye(d) * 0.1 * (seed + 1)])
    elif kind == "near copies":
        rows[1] = rows[0] + 1e-9 * rows[1]
    elif kind == "far":
        rows += 1e8
    pairs = every_pair(len(rows))
    if kind == "axes":
        pairs = pairs[:d]
        weights = np.ones(d)
    else:
        weights = random_simplex(seed, len(pairs))
        weights, pairs = weights[weights > 0], pairs[weights > 0]
    moment = exact_moment(rows, pairs, weights)
    k = d - 1 if smallest else 1
    stated = Fraction(bound(rows, pairs, weights, k))
    # M has trace 1: for k = d - 1 the dual value is M's least eigenvalue, for k = 1
    # it is 1 minus the greatest; both comparisons are exact.
    for slack, expected in ((Fraction(0), True), (Fraction(1, 10**10), False)):
        level = stated + slack
        shifted = [
            [
                (m if smallest else -m)
                + ((-level if smallest else 1 - level) * (a == b))
                for b, m in enumerate(row)
            ]
            for a, row in enumerate(moment)
        ]
        if stated > 0 or expected:
            assert is_positive_semidefinite(shifted) is expected


@pytest.mark.parametrize(("d", "k"), [(2, 1), (4, 1), (4, 2), (6, 5), (9, 3)])
def test_orthonormal_directions_lose_one_minus_k_over_d(d, k):
    rows = np.linalg.qr(cloud(d, d, d))[0]
    points, pairs = prepare_pairs(rows, "directions", rotate=True)
    weights = np.ones(d)
    assert lower_bound(points, pairs.listed, weights, k) == pytest.approx(1 - k / d)
    # Any basis whose rows all have squared length k/d attains it: harmonics do for
    # even k, the flat vector for k = 1.
    model = NearIsometricProjection(k, pairs="directions").fit(rows)
    assert model.lower_bound_ == pytest.approx(1 - k / d, abs=1e-9)
    assert model.distortion_ >= 1 - k / d - 1e-9


def test_orthonormal_directions_attain_their_optimum():
    flat = np.full((1, 4), 0.5)
    assert brute_distortion(
        np.vstack([np.eye(4), np.zeros(4)]), flat, [[i, 4] for i in range(4)]
    ) == pytest.approx(0.75)


def test_three_lines_leave_an_optimality_gap_that_no_work_closes():
    angles = np.linspace(0, np.pi, 100_001)
    bases = np.column_stack([np.cos(angles), np.sin(angles)])
    best = (1 - ((bases @ THREE_LINES.T) ** 2).min(axis=1)).min()
    assert best == pytest.approx(0.75, abs=1e-6)
    model = NearIsometricProjection(
        1, solver="dual_ascent", pairs="directions", max_iter=500
    ).fit(THREE_LINES)
    assert model.lower_bound_ == pytest.approx(0.5, abs=1e-6)
    assert model.distortion_ >= 0.75 - 1e-12
    assert fantope_optimum(THREE_LINES, 1)[0] == pytest.approx(0.5, abs=1e-6)


def fantope_optimum(directions, k):
    """Return the relaxation's distortion and its dual weights, by an SDP solver."""
    d = directions.shape[1]
    matrix = cvxpy.Variable((d, d), PSD=True)
    level = cvxpy.Variable()
    kept = cvxpy.sum(cvxpy.multiply(directions @ matrix, directions), axis=1)
    covers = kept >= level
    limits = [np.eye(d) - matrix >> 0, cvxpy.trace(matrix) == k]
    problem = cvxpy.Problem(cvxpy.Maximize(level), [covers, *limits])
    problem.solve(solver=cvxpy.CLARABEL)
    weights = np.maximum(covers.dual_value, 0.0)
    return 1.0 - float(level.value), weights / weights.sum()


def dual_optimum(directions, k):
    """Return ``max g`` from the dual side, which knows no fantope."""
    weights = cvxpy.Variable(directions.shape[0], nonneg=True)
    moment = sum(w * np.outer(x, x) for w, x in zip(weights, directions, strict=True))
    objective = cvxpy.Minimize(cvxpy.lambda_sum_largest(moment, k))
    problem = cvxpy.Problem(objective, [cvxpy.sum(weights) == 1])
    return 1.0 - float(problem.solve(solver=cvxpy.CLARABEL))


INSTANCES = [(0, 6, 5, 1), (1, 7, 5, 2), (2, 8, 4, 3), (3, 9, 6, 2)]


@functools.cache
def solved(instance):
    seed, r, d, k = instance
    rows = cloud(seed, r, d)
    return rows, k, *fantope_optimum(directions_of(rows), k)


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_fantope_and_the_dual_have_the_same_optimum(instance):
    rows, k, optimum, _ = solved(instance)
    assert dual_optimum(directions_of(rows), k) == pytest.approx(optimum, abs=1e-5)


@pytest.mark.parametrize("instance", INSTANCES)
def test_the_bound_at_sdp_weights_is_the_sdp_value(instance):
    rows, k, optimum, weights = solved(instance)
    stated = bound(rows, every_pair(len(rows)), weights, k)
    assert stated == pytest.approx(optimum, abs=1e-4)
    assert stated <= optimum + 1e-6


@pytest.mark.parametrize("instance", INSTANCES)
def test_long_ascent_comes_close_to_the_sdp_and_stays_below(instance):
    rows, k, optimum, _ = solved(instance)
    points, pairs = prepare_pairs(rows, rotate=True)
    result = dual_ascent(pose(points, pairs, k), max_iter=3000)
    reached = lower_bound(points, result.dual.pairs, result.dual.weights, k)
    assert optimum - 4e-3 <= reached <= optimum + 1e-6


@given(seeds, st.integers(1, 4))
def test_the_corrected_theorem_1_bounds_the_dual_optimum(seed, k):
    rows = cloud(seed, 8, 5)
    points, pairs = prepare_pairs(rows, rotate=True)
    ratio = spectral_ratio(points, pairs, k)
    singular = np.linalg.svd(directions_of(rows), compute_uv=False)
    assert ratio == pytest.approx(1 / (1 - (singular[:k] ** 2).sum() / 28))


CHANGES = {
    "translation": lambda rows: rows + 100.0,
    "rotation": lambda rows: rows @ random_basis(5, rows.shape[1], rows.shape[1]),
    "scaling": lambda rows: rows * 1e-3,
    "more room": lambda rows: np.hstack([rows, np.zeros((len(rows), 3))]),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_bounds_do_not_change_with_the_frame_of_reference(change, form):
    rows = cloud(11, 10, 6)
    plain = NearIsometricProjection(2, solver="dual_ascent", max_iter=40).fit(rows)
    moved = NearIsometricProjection(2, solver="dual_ascent", max_iter=40).fit(
        form(CHANGES[change](rows))
    )
    assert moved.distortion_ == pytest.approx(plain.distortion_, abs=1e-6)
    assert moved.lower_bound_ == pytest.approx(plain.lower_bound_, abs=1e-6)


def test_bounds_do_not_change_with_the_order_of_points_or_features():
    rows = cloud(12, 10, 6)
    order, columns = np.random.default_rng(0).permutation(10), [3, 1, 5, 0, 2, 4]
    plain = NearIsometricProjection(2, solver="dual_ascent", max_iter=40).fit(rows)
    moved = NearIsometricProjection(2, solver="dual_ascent", max_iter=40).fit(
        rows[order][:, columns]
    )
    assert_allclose(moved.distortion_, plain.distortion_, atol=1e-6)
    assert_allclose(moved.lower_bound_, plain.lower_bound_, atol=1e-6)
