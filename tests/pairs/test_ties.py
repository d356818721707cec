"""Pairs that tie are told apart by their numbers, without measuring each of them."""

from __future__ import annotations

import numpy as np
import pytest

from isoproj import audit
from isoproj.pairs import full_scan, worst_pairs
from isoproj.pairs.full_scan import summarise
from isoproj.pairs.losses import exact_losses
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.settings import PairSettings
from isoproj.pairs.worst_pairs import find_worst

N, D = 150, 24
RNG = np.random.default_rng(0)
ROTATION = np.linalg.qr(RNG.normal(size=(D, D)))[0]
NORMAL = RNG.normal(size=(N, D))
FLAT = RNG.normal(size=(N, 5)) @ ROTATION[:5] + 7.0
ONE_HOT = np.zeros((N, D))
ONE_HOT[np.arange(N), 5 + np.arange(N) % 19] = 1.0 + np.arange(N) // 19

# Points and a map under which all or many pairs lose the same.
TIES = {
    "identity": (NORMAL, np.eye(D)),
    "rotation": (NORMAL, ROTATION),
    "all but a rounding": (NORMAL, ROTATION.astype(np.float32).astype(np.float64)),
    "identity far away": (NORMAL + 1e6, np.eye(D)),
    "twice the identity": (NORMAL, 2.0 * np.eye(D)),
    "span of the points": (FLAT, ROTATION[:5]),
    "everything is lost": (ONE_HOT, np.eye(5, D)),
}
# Fits rotate the points; their maps stretch nothing.
ROTATED = [case for case in TIES if case != "twice the identity"]
SMALL = PairSettings(block_rows=64, block_columns=96, n_settled=128)
SINGLE = PairSettings(block_rows=64, block_columns=96, n_settled=128, few_pairs=0)


@pytest.fixture
def measured(monkeypatch):
    """The numbers of pairs that were measured from their rows."""
    counts = []

    def count(points, pairs, components):
        counts.append(len(pairs))
        return exact_losses(points, pairs, components)

    monkeypatch.setattr(full_scan, "exact_losses", count)
    monkeypatch.setattr(worst_pairs, "exact_losses", count)
    return counts


def by_hand(rows, linear, n_worst):
    """Return the worst pairs and their losses from all differences."""
    i, j = np.triu_indices(len(rows), 1)
    gaps = rows[i] - rows[j]
    losses = 1.0 - ((gaps @ linear.T) ** 2).sum(axis=1) / (gaps**2).sum(axis=1)
    order = np.argsort(-np.round(losses / 1e-12), kind="stable")[:n_worst]
    return np.column_stack([i, j])[order], losses[order]


@pytest.mark.parametrize("settings", [SMALL, SINGLE])
@pytest.mark.parametrize(
    ("case", "rotate"),
    [(case, False) for case in TIES] + [(case, True) for case in ROTATED],
)
def test_ties_are_found_by_number_and_most_pairs_are_not_measured(
    measured, case, settings, rotate
):
    rows, linear = TIES[case]
    points, pairs = prepare_pairs(rows, rotate=rotate)
    found = summarise(points, pairs, linear, n_worst=5, settings=settings)
    expected, losses = by_hand(rows, linear, 5)
    np.testing.assert_allclose(found.worst_losses, losses, atol=1e-12)
    if case != "all but a rounding":
        assert found.worst_pairs.tolist() == expected.tolist()
    assert sum(measured) < pairs.n_pairs / 4


@pytest.mark.parametrize("case", ROTATED)
def test_the_sieve_finds_the_same_ties(measured, case):
    rows, linear = TIES[case]
    points, pairs = prepare_pairs(rows, rotate=True)
    found = find_worst(points, pairs, linear, n_worst=5, settings=SINGLE)
    expected, losses = by_hand(rows, linear, 5)
    np.testing.assert_allclose(found.worst_losses, losses, atol=1e-12)
    if case != "all but a rounding":
        assert found.worst_pairs.tolist() == expected.tolist()
    assert sum(measured) < pairs.n_pairs / 4


def test_a_map_that_is_even_for_all_but_one_point_is_not_taken_for_even():
    rows = np.vstack([FLAT, FLAT[:1] + ROTATION[7]])
    result = audit(rows, ROTATION[:5], orientation="rows")
    assert result.worst_pairs[0].tolist() == [0, N]
    assert result.distortion == pytest.approx(1.0, abs=1e-12)


def test_close_points_are_measured_even_if_all_others_tie():
    near = NORMAL[:1] + 1e-9 * ROTATION[0]
    rows = np.vstack([NORMAL, near])
    linear = ROTATION.copy()
    linear[0] *= 1.0 - 1e-13
    result = audit(rows, linear, orientation="rows")
    gap = rows[-1] - rows[0]
    lost = 1.0 - np.square(gap @ linear.T).sum() / np.square(gap).sum()
    assert lost > 1e-13
    assert result.worst_pairs[0].tolist() == [0, N]
    assert result.distortion == pytest.approx(lost, abs=1e-14)
