"""The smoothed worst loss over all pairs, against sums over explicit directions."""

import numpy as np
import pytest

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import PairRule, prepare_pairs
from isoproj.pairs.settings import PairSettings
from isoproj.pairs.smoothed import SmoothedWorst


def explicit(points, pairs, factor, temperature):
    """Return worst loss, total and pulled matrix from directions formed one by one."""
    listed = pairs.listed
    if listed is None:
        listed = np.column_stack(np.triu_indices(points.n_points, 1))
    gaps = points.coordinates[listed[:, 0]] - points.coordinates[listed[:, 1]]
    lengths = np.linalg.norm(gaps, axis=1)
    directions = gaps[lengths > 0.0] / lengths[lengths > 0.0][:, None]
    images = directions @ factor
    losses = 1.0 - np.square(images).sum(axis=1)
    weights = np.exp((losses - losses.max()) / temperature)
    pulled = directions.T @ (weights[:, None] * images)
    return losses.max(), weights.sum(), pulled


def basis_of(n_dims, k, seed=1):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((n_dims, k)))[0]


def agrees(points, pairs, smoothed, factor, temperature):
    worst, total, pulled = explicit(points, pairs, factor, temperature)
    found = smoothed(factor, temperature)
    # A share is off by its accuracy at most, and a weight by that over a temperature.
    assert found.worst == pytest.approx(worst, abs=3e-3)
    scale = np.exp((found.worst - worst) / temperature)
    assert found.total * scale == pytest.approx(total, rel=2e-2)
    size = np.abs(pulled).max()
    np.testing.assert_allclose(found.pulled * scale, pulled, atol=2e-2 * size)


@pytest.mark.parametrize("temperature", [0.5, 0.02, 0.001])
@pytest.mark.parametrize("n_points", [30, 300])
def test_value_and_gradient_are_those_of_the_sum_over_all_pairs(n_points, temperature):
    rows = np.random.default_rng(0).standard_normal((n_points, 7))
    points, pairs = prepare_pairs(rows, rotate=True)
    agrees(points, pairs, SmoothedWorst(points, pairs), basis_of(7, 3), temperature)


def test_identical_and_very_close_points_are_treated_as_everywhere():
    rows = np.random.default_rng(0).standard_normal((60, 5))
    rows[3] = rows[4]
    rows[5] = rows[6] + 1e-5
    points, pairs = prepare_pairs(rows, rotate=True)
    agrees(points, pairs, SmoothedWorst(points, pairs), basis_of(5, 2), 0.05)


def test_where_most_pairs_are_close_the_sum_is_in_double_precision():
    rng = np.random.default_rng(0)
    rows = 1e5 * np.eye(40, 4)[rng.integers(4, size=40)]
    rows += rng.standard_normal(rows.shape)
    points, pairs = prepare_pairs(rows, rotate=True)
    smoothed = SmoothedWorst(points, pairs)
    assert smoothed.dtype == np.float64
    agrees(points, pairs, smoothed, basis_of(4, 2), 0.05)


def test_only_listed_pairs_count():
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((50, 6))
    labels = rng.integers(2, size=50)
    rule = PairRule.of("labels", labels=labels)
    points, pairs = prepare_pairs(rows, rule, rotate=True)
    assert pairs.listed is not None
    agrees(points, pairs, SmoothedWorst(points, pairs), basis_of(6, 2), 0.05)


def test_few_or_scattered_pairs_are_not_smoothed_all_at_once():
    rows = np.random.default_rng(0).standard_normal((100, 5))
    listed = np.column_stack([np.arange(99), np.arange(1, 100)])
    search = PairSearch(*prepare_pairs(rows, PairRule.of(listed), rotate=True))
    assert not search.has_smoothed
    search = PairSearch(*prepare_pairs(rows, rotate=True))
    assert search.has_smoothed
    few = PairSettings(most_smoothed=99)
    many = PairSearch(*prepare_pairs(rows, rotate=True), settings=few)
    assert many.is_large
    assert not many.has_smoothed


@pytest.mark.parametrize("temperature", [0.05, 0.0005])
def test_pairs_that_are_listed_and_products_of_stripes_give_the_same(
    temperature, monkeypatch
):
    rows = np.random.default_rng(0).standard_normal((300, 7))
    points, pairs = prepare_pairs(rows, rotate=True)
    smoothed, factor = SmoothedWorst(points, pairs), basis_of(7, 2)
    monkeypatch.setattr("isoproj.pairs.smoothed._FEW_ENTRIES", 0)
    found = []
    # No stripe lists its pairs, or every stripe does.
    for sparse in (1e9, 0.0):
        monkeypatch.setattr("isoproj.pairs.smoothed._SPARSE", sparse)
        found.append(smoothed(factor, temperature))
    first, second = found
    assert first.worst == second.worst
    assert first.total == pytest.approx(second.total, rel=1e-4)
    np.testing.assert_allclose(
        first.pulled, second.pulled, atol=1e-4 * np.abs(first.pulled).max()
    )
