from __future__ import annotations

import dataclasses
import re

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


RULES = {
    "all": {},
    "sample": {"pairs": "sample"},
    "neighbors": {"pairs": "neighbors", "n_neighbors": 3},
    "labels": {"pairs": "labels"},
    "within-labels": {"pairs": "within-labels"},
    "far": {"min_distance": 1.5},
    "far neighbors": {"pairs": "neighbors", "n_neighbors": 5, "min_distance": 0.7},
    "far labels": {"pairs": "labels", "min_distance": 1.5},
}


def meant(words, lengths, same):
    """Return which distances a promise is about, read off its words."""
    found = np.ones(lengths.shape, dtype=bool)
    if nearest := re.search(r"its (\d+) nearest", words):
        found &= lengths <= np.sort(lengths)[int(nearest[1]) - 1]
    if least := re.search(r"at least (\S+) (away|apart)", words):
        found &= lengths >= float(least[1])
    if "own class" in words or "one class" in words:
        found &= same
    if "another class" in words or "different classes" in words:
        found &= ~same
    return found


def drawn(rng, *shape):
    """Return points in three clusters, close ones in each, and their classes."""
    y = rng.integers(3, size=shape)
    X = rng.standard_t(4, size=(*shape, 6)) * 0.8 ** np.arange(6)
    return X * (y == 0)[..., None] + 0.3 * X[..., ::-1] * (y > 0)[..., None] + y[
        ..., None
    ] * np.eye(6)[0], y


def failures(rule, n_trials):
    """Return how often the promise for a new point, and for new pairs, failed.

    What the promises are about is read off their own words.
    """
    rng = np.random.default_rng(0)
    failed = np.zeros(2, dtype=int)
    far, classes = drawn(rng, 2, 4000)
    gaps, is_same = far[0] - far[1], classes[0] == classes[1]
    for _ in range(n_trials):
        X, y = drawn(rng, 60)
        labels = {"labels": y[:59]} if "labels" in rule.get("pairs", "") else {}
        linear = np.linalg.svd(X[:20] - X[:20].mean(axis=0))[2][:3]
        promise = measured(X[:59], linear, 20, 0.9, **rule, **labels).guarantee(0.95)
        lengths = np.linalg.norm(X[:20] - X[59], axis=1)
        counts = meant(promise.fitted, lengths, y[:20] == y[59])
        lost = losses(linear, X[59:], X[:20])[0][counts]
        failed[0] += lost.max(initial=0.0) > promise.new_point + 1e-12
        assert promise.fitted in str(promise)
        if np.isnan(promise.new_pair_share):
            continue
        counts = meant(promise.new_pairs, np.linalg.norm(gaps, axis=1), is_same)
        kept = np.square(gaps @ linear.T).sum(axis=1) / np.square(gaps).sum(axis=1)
        failed[1] += (1.0 - kept > 0.9)[counts].mean() > promise.new_pair_share
        assert promise.new_pairs in str(promise)
    return failed


@pytest.mark.parametrize("kind", RULES)
@pytest.mark.parametrize("n_trials", [100, pytest.param(2000, marks=pytest.mark.slow)])
def test_the_promises_fail_as_rarely_as_stated(kind, n_trials):
    point, pair = failures(RULES[kind], n_trials)
    # 39 held-out points: the 38th of 40 exchangeable ranks fails in 5 % exactly.
    low, high = scipy.stats.binom.interval(0.999, n_trials, 0.05)
    assert low <= point <= high
    assert pair <= high


@pytest.mark.parametrize("pairs", ["directions", [[0, 1], [2, 3]]])
def test_nothing_is_promised_where_no_distance_of_a_new_point_counts(pairs):
    model = NearIsometricProjection(2, pairs=pairs, heldout=20, tol=0.5)
    with pytest.raises(ValueError, match=r"none counts|must be a word"):
        model.fit(cloud(3, 60, 6)).heldout_.guarantee()
