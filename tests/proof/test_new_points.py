from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.stats
from geometry import cloud

from isoproj import NearIsometricProjection
from isoproj.pairs.rule import PairRule
from isoproj.proof.heldout import Split, measure_heldout


def losses(components, rows, others):
    gaps = rows[:, None] - others
    kept = np.square(gaps @ components.T).sum(axis=2)
    return 1.0 - kept / np.square(gaps).sum(axis=2)


def measured(X, components, n_training, distortion, **rule):
    split = Split(np.arange(n_training), np.arange(n_training, len(X)))
    rule = PairRule(**rule)
    return measure_heldout(X, split, components, rule, distortion=distortion)


@pytest.mark.parametrize("rule", [{}, {"min_distance": 1.0}])
def test_the_guarantee_is_the_ranked_worst_loss_of_held_out_points(rule):
    X, linear = cloud(0, 70, 6), np.eye(2, 6)
    heldout = measured(X, linear, 31, 0.9, **rule)
    worst = losses(linear, X[31:], X[:31])
    far = np.linalg.norm(X[31:, None] - X[:31], axis=2) >= rule.get("min_distance", 0)
    worst = np.where(far, worst, 0.0).max(axis=1)
    np.testing.assert_allclose(heldout.point_losses, worst, atol=1e-12)
    assert heldout.guarantee(0.95).new_point == np.sort(heldout.point_losses)[37]
    assert heldout.pair_losses.size == 19
    n_more = (heldout.pair_losses > 0.9).sum()
    share = heldout.guarantee().new_pair_share
    assert scipy.stats.binom.cdf(n_more, 19, share) == pytest.approx(0.05)


def test_the_sentence_has_the_assumption_and_the_object_is_frozen():
    X = cloud(1, 60, 6)
    model = NearIsometricProjection(2, heldout=20, random_state=0, tol=0.5).fit(X)
    promise = model.heldout_.guarantee()
    assert "drawn like the points fitted" in str(promise)
    assert str(promise) in str(model.heldout_)
    assert "\n" not in str(promise)
    with pytest.raises(dataclasses.FrozenInstanceError):
        promise.new_point = 0.0


def test_too_few_points_name_the_number_needed():
    heldout = measured(cloud(2, 38, 5), np.eye(2, 5), 20, 0.5)
    with pytest.raises(ValueError, match="at least 19 held-out points; got 18"):
        heldout.guarantee()
    with pytest.raises(ValueError, match="at least 99 held-out"):
        heldout.guarantee(0.99)
    assert "needs at least 19" in str(heldout)
    with pytest.raises(ValueError, match="between 0 and 1"):
        heldout.guarantee(1.0)


def failures(n_trials):
    """Return how often the promise for a new point, and for new pairs, failed."""
    rng, scale = np.random.default_rng(0), 0.8 ** np.arange(6)
    failed = [0, 0]
    far = rng.standard_t(4, size=(2, 4000, 6)) * scale
    for _ in range(n_trials):
        X = rng.standard_t(4, size=(60, 6)) * scale
        fitted = X[:20] - X[:20].mean(axis=0)
        linear = np.linalg.svd(fitted, full_matrices=False)[2][:3]
        distortion = 0.9
        promise = measured(X[:59], linear, 20, distortion).guarantee(0.95)
        failed[0] += losses(linear, X[59:], X[:20]).max() > promise.new_point
        gaps = far[0] - far[1]
        lost = 1.0 - np.square(gaps @ linear.T).sum(axis=1) / np.square(gaps).sum(
            axis=1
        )
        failed[1] += (lost > distortion).mean() > promise.new_pair_share
    return failed


@pytest.mark.parametrize("n_trials", [200, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_promises_fail_as_rarely_as_stated(n_trials):
    point, pair = failures(n_trials)
    # 39 held-out points: the 38th of 40 exchangeable ranks fails in 5 % exactly.
    low, high = scipy.stats.binom.interval(0.999, n_trials, 0.05)
    assert low <= point <= high
    assert pair <= high
