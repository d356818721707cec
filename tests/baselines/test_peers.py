from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from geometry import brute_losses, cloud, every_pair, mnist_digits, random_basis, seeds
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

from isoproj import NearIsometricProjection, audit
from isoproj.baselines import (
    Adagio,
    DualAscent,
    FairPCA,
    FroMax,
    NILEPro,
    NuMax,
    PCAProjection,
    RandomProjection,
    SDPProjection,
    SecantAvoidance,
    SequentialFairPCA,
    StablePCA,
)
from isoproj.baselines.isometry import Fit, balanced
from isoproj.baselines.nile_pro import largest_deviation_prox
from isoproj.baselines.numax import soft_threshold
from isoproj.baselines.secant_avoidance import turn_towards
from isoproj.comparison.referee import score_map
from isoproj.pairs.directions import quadratic_values
from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.settings import PairSettings
from isoproj.solvers.api import Status
from paper.datasets import load, sample

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


def curved(seed, n_points=30, n_features=9):
    """Return points whose spread falls off, as in real data."""
    return cloud(seed, n_points, n_features) * 0.8 ** np.arange(n_features)


# PCA and random maps ------------------------------------------------------------


def test_pca_of_points_is_scikit_learns():
    from sklearn.decomposition import PCA

    rows = curved(0)
    ours = PCAProjection(3).fit(rows).components_
    theirs = PCA(3).fit(rows).components_
    np.testing.assert_allclose(np.abs(ours @ theirs.T), np.eye(3), atol=1e-9)


@pytest.mark.parametrize("n_points", [510, 700])
def test_pca_is_exact_where_scikit_learns_approximates(n_points):
    X = cloud(0, n_points, 600)
    values = np.linalg.svd(X - X.mean(axis=0), compute_uv=False) ** 2
    images = PCAProjection(5).fit(X).transform(X)
    kept = ((images - images.mean(axis=0)) ** 2).sum()
    assert kept == pytest.approx(values[:5].sum(), rel=1e-9)


def test_pca_of_directions_keeps_most_on_average():
    rows = curved(1)
    model = PCAProjection(3, of="directions").fit(rows)
    mean = audit(rows, model).mean
    gaps = rows[every_pair(30)[:, 0]] - rows[every_pair(30)[:, 1]]
    gaps /= np.linalg.norm(gaps, axis=1)[:, None]
    best = np.linalg.svd(gaps, compute_uv=False)[:3] ** 2
    assert math.isclose(mean, 1 - best.sum() / len(gaps), rel_tol=1e-9)


def test_random_maps_keep_squared_lengths_on_average():
    rows, k, d, n = cloud(2, 2, 12), 4, 12, 150
    for kind, expected in [("orthonormal", k / d), ("gaussian", 1.0), ("sparse", 1.0)]:
        maps = [RandomProjection(k, kind=kind, random_state=s) for s in range(n)]
        kept = [1 - brute_losses(rows, m.fit(rows).components_)[1][0] for m in maps]
        # Three standard errors of what was seen, plus nothing: seeds are fixed.
        error = np.std(kept) / math.sqrt(n)
        assert abs(np.mean(kept) - expected) < 3.5 * error


@pytest.mark.parametrize("kind", ["orthonormal", "gaussian", "sparse"])
def test_the_best_scale_balances_loss_and_gain(kind):
    rows = cloud(3, 20, 10)
    model = RandomProjection(6, kind=kind, rescale=True, random_state=0).fit(rows)
    assert math.isclose(model.distortion_, model.stretch_, rel_tol=1e-9)
    plain = score_map(rows, RandomProjection(6, kind=kind, random_state=0).fit(rows))
    assert model.distortion_ <= plain.isometry + 1e-12


# ADAGIO -------------------------------------------------------------------------


@pytest.mark.parametrize(("k", "p"), [(1, 0), (2, 1), (7, 3), (8, 4)])
def test_adagio_is_made_of_two_blocks(k, p):
    rows = curved(4, 40, 12)
    model = Adagio(k, random_state=0).fit(rows)
    assert model.n_principal_ == p
    principal, signs = model.components_[:p], model.components_[p:]
    np.testing.assert_allclose(principal @ principal.T, np.eye(p), atol=1e-12)
    np.testing.assert_allclose(signs @ principal.T, 0.0, atol=1e-12)
    # On what the principal block leaves, the random block is signs over sqrt(k - p).
    left = np.eye(12) - principal.T @ principal
    scaled = signs * math.sqrt(k - p)
    drawn = np.random.RandomState(0).uniform(size=(12, k - p)) < 0.5
    np.testing.assert_allclose(scaled, np.where(drawn, -1, 1).T @ left, atol=1e-10)


def test_adagio_keeps_every_squared_length_on_average():
    rows, n = curved(5, 6, 10), 300
    shares = []
    for seed in range(n):
        _, losses = brute_losses(
            rows, Adagio(4, random_state=seed).fit(rows).components_
        )
        shares.append(1 - losses)
    error = np.std(shares, axis=0) / math.sqrt(n)
    assert (np.abs(np.mean(shares, axis=0) - 1) < 4 * error).all()


# Proximal maps and least squares ------------------------------------------------


@given(seeds)
def test_proximal_points_are_optimal(seed):
    rng = np.random.default_rng(seed)
    values = rng.normal(1.0, 1.0, 6)
    point = largest_deviation_prox(values, 0.7)

    def cost(q):
        return 0.7 * np.abs(q - 1).max() + 0.5 * ((q - values) ** 2).sum()

    for _ in range(20):
        assert cost(point) <= cost(point + rng.normal(0, 0.1, 6)) + 1e-12
    matrix = rng.normal(size=(4, 4))
    matrix += matrix.T
    near = soft_threshold(matrix, 0.5)

    def matrix_cost(p):
        return 0.5 * np.trace(p) + 0.5 * ((p - matrix) ** 2).sum()

    other = random_basis(seed, 4, 4) * rng.uniform(0, 2, 4)
    assert matrix_cost(near) <= matrix_cost(other @ other.T) + 1e-12


@given(seeds)
def test_the_fit_solves_its_normal_equations(seed):
    rng = np.random.default_rng(seed)
    directions = rng.normal(size=(5, 3))
    base, target = rng.normal(size=(3, 3)), rng.normal(size=5)
    base += base.T
    found = Fit(directions).solve(base, target)
    residual = quadratic_values(directions, found) - target
    gradient = (directions.T * residual) @ directions + found - base
    assert np.abs(gradient).max() < 1e-8


# NuMax, NILE-Pro, FroMax ---------------------------------------------------------


@pytest.mark.parametrize("delta", [0.05, 0.2, 0.4, 0.7])
def test_numax_reaches_its_delta_on_every_pair(delta):
    rows = curved(6, 40, 12)
    model = NuMax(delta, random_state=0).fit(rows)
    losses = brute_losses(rows, model.components_)[1]
    assert np.abs(losses).max() <= delta
    assert str(model.status_) == "converged"


def test_numax_needs_fewer_dimensions_for_a_larger_delta():
    rows = curved(7, 40, 12)
    models = [NuMax(d, random_state=0).fit(rows) for d in (0.05, 0.2, 0.5, 0.8)]
    ranks = [model.n_components_ for model in models]
    traces = [float((model.components_**2).sum()) for model in models]
    assert ranks == sorted(ranks, reverse=True)
    assert ranks[0] > ranks[-1]
    # Wider bands hold the narrower ones, so the least trace falls: a theorem.
    assert all(a > b for a, b in itertools.pairwise(traces))


def test_numax_finds_the_least_trace():
    cvxpy = pytest.importorskip("cvxpy")
    rows, delta = curved(8, 14, 6), 0.3
    points, pairs = prepare_pairs(rows, rotate=True)
    directions = PairSearch(points, pairs).directions(every_pair(14))
    matrix = cvxpy.Variable((6, 6), PSD=True)
    kept = cvxpy.sum(cvxpy.multiply(directions @ matrix, directions), axis=1)
    problem = cvxpy.Problem(
        cvxpy.Minimize(cvxpy.trace(matrix)), [kept <= 1 + delta, kept >= 1 - delta]
    )
    problem.solve(solver="CLARABEL")
    model = NuMax(delta, random_state=0, tol=1e-5).fit(rows)
    trace = float((model.components_**2).sum())
    assert problem.value * (1 - 1e-4) <= trace <= problem.value * (1 + 5e-3)


def test_numax_with_labels_bounds_each_kind_of_pair_on_its_own_side():
    rows = curved(9, 30, 10)
    labels = np.repeat(["a", "b", "c"], 10)
    delta = 0.2
    model = NuMax(delta, labelled=True, random_state=0).fit(rows, labels)
    pairs, losses = brute_losses(rows, model.components_)
    same = labels[pairs[:, 0]] == labels[pairs[:, 1]]
    assert (-losses[same]).max() <= delta
    assert losses[~same].max() <= delta
    # The freedom is used: some pair of one class shrinks by more than the band.
    assert losses[same].max() > delta
    trace = float((model.components_**2).sum())
    both_sides = NuMax(delta, random_state=0).fit(rows)
    assert trace < float((both_sides.components_**2).sum())


def test_numax_can_be_asked_for_a_dimension():
    rows = curved(10, 25, 8)
    model = NuMax(n_components=7, random_state=0).fit(rows)
    assert model.n_components_ <= 7
    assert max(model.distortion_, model.stretch_) <= model.delta_
    narrower = NuMax(model.delta_ * 0.97, random_state=0).fit(rows)
    assert narrower.n_components_ > 7
    with pytest.warns(ConvergenceWarning, match="has 6 dimensions at every large"):
        cut = NuMax(n_components=2, random_state=0).fit(rows)
    assert cut.n_components_ == 2
    assert math.isnan(cut.delta_)
    assert math.isclose(cut.distortion_, cut.stretch_, rel_tol=1e-9)


def test_fromax_reaches_a_delta_that_its_rank_allows():
    rows = curved(11, 30, 10)
    wide = NuMax(0.3, random_state=0).fit(rows)
    k = wide.n_components_ + 1
    model = FroMax(k, delta=0.3).fit(rows)
    assert max(model.distortion_, model.stretch_) <= 0.304
    # The least trace over all ranks, nearly reached, bounds the squared norm.
    ratio = (model.components_**2).sum() / (wide.components_**2).sum()
    assert 0.99 <= ratio <= 1.02


def test_nile_pro_is_nearer_to_an_isometry_than_pca_and_random_maps():
    rows = curved(12, 30, 10)
    for k in (3, 5, 8):
        model = NILEPro(k).fit(rows)
        assert math.isclose(model.distortion_, model.stretch_, rel_tol=1e-6)
        for other in (PCAProjection(k), RandomProjection(k, random_state=0)):
            assert model.distortion_ < score_map(rows, other.fit(rows)).isometry


def test_nile_pro_with_numaxs_rank_is_as_near_to_an_isometry():
    # NuMax shows that this rank reaches delta; NILE-Pro minimises over that rank.
    rows = curved(13, 30, 10)
    numax = NuMax(0.3, random_state=0).fit(rows)
    model = NILEPro(numax.n_components_, max_iter=1000).fit(rows)
    assert model.distortion_ <= 0.33


# Methods with our objective -------------------------------------------------------


@given(seeds, st.integers(1, 4), st.floats(0.01, 0.5))
def test_a_turn_keeps_the_basis_orthonormal_and_helps_its_secant(seed, k, step):
    basis = random_basis(seed, 6, k)
    direction = cloud(seed + 1, 1, 6)[0]
    direction /= np.linalg.norm(direction)
    turned = turn_towards(basis, direction, step)
    np.testing.assert_allclose(turned.T @ turned, np.eye(k), atol=1e-10)
    before = np.linalg.norm(basis.T @ direction)
    # Mixing rotates towards the secant as long as it does not overshoot it.
    lost = math.sqrt(1 - before**2)
    if (1 - step) * before >= step * lost * 1e-3 and step * lost <= (1 - step) * lost:
        assert np.linalg.norm(turned.T @ direction) >= before - 1e-12


@pytest.mark.parametrize("k", [3, 5, 8])
def test_sap_and_fair_pca_lie_between_pca_and_the_lower_bound(k):
    rows = curved(14, 40, 14)
    pca = PCAProjection(k).fit(rows).distortion_
    bound = SDPProjection(k).fit(rows).lower_bound_
    for method in (SecantAvoidance(k), FairPCA(k)):
        assert bound <= method.fit(rows).distortion_ <= pca


def images(data):
    """Return 46 images of the digit 5, bundled or the paper's."""
    if data == "digits":
        return sample(load("digits"), (5,), 46, seed=0)
    rows = mnist_digits(5, 46)
    if rows is None:
        pytest.skip("MNIST is not at hand; the bundled digits take its place")
    return rows


@pytest.mark.parametrize("data", ["digits", "mnist"])
@pytest.mark.parametrize("k", [10, 20])
def test_sap_and_fair_pca_lie_between_pca_and_the_lower_bound_on_images(data, k):
    rows = images(data)
    pca = PCAProjection(k).fit(rows).distortion_
    bound = SDPProjection(k).fit(rows).lower_bound_
    for method in (SecantAvoidance(k), FairPCA(k)):
        assert bound <= method.fit(rows).distortion_ < pca


def test_fair_pca_closes_its_gap_and_certifies_it():
    model = FairPCA(3, rate=0.3, tol=0.02, max_iter=5000).fit(curved(15))
    assert str(model.status_) == "converged"
    assert model.relaxed_ <= 1.021 * model.lower_bound_
    assert model.lower_bound_ <= model.distortion_


def test_dual_ascent_is_the_papers_algorithm():
    rows = curved(16)
    ours = NearIsometricProjection(3, solver="dual_ascent").fit(rows)
    alias = DualAscent(3).fit(rows)
    np.testing.assert_array_equal(alias.components_, ours.components_)
    assert "solver" not in alias.get_params()


@settings(max_examples=6)
@given(seeds, st.integers(1, 4))
def test_no_method_goes_below_the_certified_lower_bound(seed, k):
    rows = curved(seed, 14, 6)
    bound = SDPProjection(k).fit(rows).lower_bound_
    minimax = NearIsometricProjection(k, random_state=0).fit(rows)
    bound = max(bound, minimax.lower_bound_)
    methods = [
        PCAProjection(k),
        PCAProjection(k, of="directions"),
        RandomProjection(k, random_state=0),
        DualAscent(k, max_iter=50),
        SDPProjection(k),
        SDPProjection(k, rounding="randomized", random_state=0),
        SDPProjection(k, rounding="binned", random_state=0),
        SecantAvoidance(k),
        FairPCA(k, max_iter=50),
    ]
    for method in methods:
        assert method.fit(rows).distortion_ >= bound - 1e-12, method
        assert getattr(method, "lower_bound_", 0.0) <= minimax.distortion_, method
    # Maps that stretch are comparable once scaled to stretch nothing.
    for method in (Adagio(k, random_state=0), NILEPro(k, max_iter=50), FroMax(k)):
        assert score_map(rows, method.fit(rows)).contracted >= bound - 1e-9, method


# The working-set engine ----------------------------------------------------------


@pytest.mark.parametrize("labelled", [False, True])
def test_blocks_find_the_same_extremes_as_one_table(labelled):
    rows = curved(17, 50, 8)
    rows[7] = rows[3]
    points, pairs = prepare_pairs(rows, rotate=True)
    labels = np.arange(50) % 3 if labelled else None
    factor = cloud(18, 8, 2)
    kept = PairSearch(points, pairs, labels=labels)
    table = kept.extremes(factor, n_low=20, n_high=20)
    walked = PairSearch(
        points,
        pairs,
        memory_limit=0.0,
        labels=labels,
        settings=PairSettings(block_rows=6),
    )
    blocks = walked.extremes(factor, n_low=20, n_high=20)
    np.testing.assert_array_equal(blocks.low_pairs, table.low_pairs)
    np.testing.assert_array_equal(blocks.high_pairs, table.high_pairs)
    np.testing.assert_allclose(blocks.low, table.low, rtol=1e-6)
    np.testing.assert_allclose(
        walked.uniform_moment(), kept.uniform_moment(), atol=1e-10
    )


def test_the_best_scale_is_the_best():
    rows = cloud(19, 15, 6)
    points, pairs = prepare_pairs(rows, rotate=True)
    factor = cloud(20, 6, 3)
    pool = PairSearch(points, pairs)
    scaled, constant = balanced(factor, pool.extremes(factor, n_low=1, n_high=1))
    kept = ((pool.directions(every_pair(15)) @ scaled) ** 2).sum(1)
    worst = [np.abs(kept * s**2 - 1).max() for s in (0.99, 1.0, 1.01)]
    assert worst[1] == min(worst)
    assert math.isclose(worst[1], constant, rel_tol=1e-9)


def test_mirror_prox_closes_the_gap_of_the_relaxation():
    X = curved(12)
    model = StablePCA(3, tol=0.02, max_iter=5000).fit(X)
    reference = SDPProjection(3).fit(X)
    assert model.status_ is Status.CONVERGED
    assert model.relaxed_ >= reference.lower_bound_ - 1e-9
    assert model.lower_bound_ <= reference.relaxed_ + 1e-9
    assert model.relaxed_ <= 1.021 * model.lower_bound_


# Fair PCA one component at a time ------------------------------------------------


def test_components_chosen_one_at_a_time_are_nested():
    X = curved(13)
    few, more = (SequentialFairPCA(k, max_iter=30).fit(X) for k in (2, 4))
    np.testing.assert_allclose(more.components_[:2], few.components_, atol=1e-10)
    np.testing.assert_allclose(more.losses_[:2], few.losses_, atol=1e-10)
    assert more.losses_[-1] == pytest.approx(more.distortion_, abs=1e-9)
    assert (np.diff(more.losses_) < 0.0).all()
    assert (more.component_bounds_ <= more.losses_).all()


def test_each_component_is_held_to_every_other_choice_after_those_before():
    # In three dimensions the second component lies on a circle: try all of it.
    X = curved(14, n_points=20, n_features=3)
    model = SequentialFairPCA(2, tol=1e-3, max_iter=300).fit(X)
    first = model.components_[0]
    circle = np.linalg.svd(first[None])[2][1:]
    angles = np.linspace(0.0, np.pi, 721)
    tried = np.column_stack([np.cos(angles), np.sin(angles)]) @ circle
    gaps = X[every_pair(20)[:, 0]] - X[every_pair(20)[:, 1]]
    gaps /= np.linalg.norm(gaps, axis=1)[:, None]
    kept = (gaps @ first)[:, None] ** 2 + (gaps @ tried.T) ** 2
    best = 1.0 - kept.min(axis=0).max()
    assert model.component_bounds_[1] <= best + 1e-9
    # The relaxation mixes directions; the best one that it met is near the best of all.
    assert best - 1e-3 <= model.losses_[1] <= 1.1 * best


def test_no_line_keeps_more_than_the_first_bound():
    X = curved(15, n_points=15, n_features=2)
    model = SequentialFairPCA(1, tol=1e-3, max_iter=300).fit(X)
    angles = np.linspace(0.0, np.pi, 721)
    lines = np.column_stack([np.cos(angles), np.sin(angles)])
    least = min(brute_losses(X, line[None])[1].max() for line in lines)
    assert model.component_bounds_[0] <= least + 1e-9
    assert SDPProjection(1).fit(X).lower_bound_ <= model.losses_[0]
