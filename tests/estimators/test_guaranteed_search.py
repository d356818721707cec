"""What capped fits find, held against brute force."""

from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair
from numpy.testing import assert_allclose
from test_guaranteed_pca import MOVES, OBJECTIVES, model, stretched

from isoproj import GuaranteedPCA


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("cap", [0.55, 0.7])
def test_planes_of_space_are_searched_as_by_brute_force(cap, objective):
    X = stretched(11, 8, 3)
    normals = cloud(1, 200_000, 3)
    normals /= np.linalg.norm(normals, axis=1)[:, None]
    pairs = every_pair(8)
    gaps = X[pairs[:, 0]] - X[pairs[:, 1]]
    units = gaps / np.linalg.norm(gaps, axis=1)[:, None]
    lost = (units @ normals.T) ** 2
    kept = 1.0 - lost.mean(axis=0)
    if objective == "variance":
        centred = X - X.mean(axis=0)
        kept = 1.0 - ((centred @ normals.T) ** 2).sum(axis=0) / (centred**2).sum()
    best = kept[lost.max(axis=0) <= cap].max()
    fitted = model(max_distortion=cap, objective=objective).fit(X)
    assert best <= fitted.kept_bound_
    assert fitted.kept_ >= best - 1e-3
    assert fitted.kept_ <= best + 1e-2


@pytest.mark.parametrize("seed", [0, 52, 79])
def test_axes_of_the_plane_are_searched_on_every_side_of_what_the_cap_forbids(seed):
    X, y = cloud(seed, 8, 2) * [1.0, 0.8], np.arange(8) % 2
    angles = np.linspace(0.0, np.pi, 20_001)
    axes = np.column_stack([np.cos(angles), np.sin(angles)])
    pairs = every_pair(8)
    gaps = np.subtract(*X[pairs[y[pairs[:, 0]] != y[pairs[:, 1]]]].transpose(1, 0, 2))
    shares = (gaps @ axes.T) ** 2 / (gaps**2).sum(axis=1)[:, None]
    losses = 1.0 - shares.min(axis=0)
    cap = 0.5 + 0.5 * losses.min()
    moment = np.cov(X.T)
    kept = ((axes @ moment) * axes).sum(axis=1) / np.trace(moment)
    model = GuaranteedPCA(1, max_distortion=cap, pairs="labels", random_state=0)
    guarantee = model.fit(X, y).certificate_.guarantee
    assert guarantee.kept == pytest.approx(kept[losses <= cap].max(), abs=1e-3)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_local_optima_are_left_in_any_coordinates(objective):
    X = stretched(1, 9, 3)
    settings = {"max_distortion": 0.45, "objective": objective}
    expected = model(**settings).fit(X)
    for move in MOVES.values():
        fitted = model(**settings).fit(move(X))
        assert_allclose(fitted.kept_, expected.kept_, rtol=1e-3)
        assert_allclose(fitted.kept_bound_, expected.kept_bound_, rtol=2e-3)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_outliers_do_not_keep_the_search_above_the_cap(seed):
    # A few points carry most of the variance, and local multipliers exceed by far those
    # of the relaxation.
    rows = np.random.default_rng(seed).standard_t(2.0, (120, 16))
    model = GuaranteedPCA(8, random_state=0).fit(rows)
    minimax = next(step.kept for step in model.history_ if step.kept > 0.0)
    assert model.kept_ - minimax >= 0.4 * (model.kept_bound_ - minimax)


def test_a_finer_tol_keeps_no_less_and_brings_the_bound_nearer():
    rows = cloud(3, 80, 30) * 0.9 ** np.arange(30)
    coarse, fine = (
        GuaranteedPCA(12, max_distortion=0.5, tol=tol, random_state=0).fit(rows)
        for tol in (1e-1, 1e-3)
    )
    assert fine.kept_ >= coarse.kept_ - 1e-4
    assert fine.kept_bound_ <= coarse.kept_bound_ + 1e-4
    assert coarse.kept_ >= 0.9 * coarse.kept_bound_
