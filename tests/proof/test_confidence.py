from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.stats
from geometry import brute_losses, cloud, random_basis

from isoproj import Certificate, NearIsometricProjection, verify
from isoproj.exceptions import ClaimError
from isoproj.pairs import rule as pairs
from isoproj.pairs.points import Points
from isoproj.proof.confidence import drawn_losses, largest_share, share_of


@pytest.fixture
def few(monkeypatch):
    monkeypatch.setattr(pairs, "_SAMPLE", 300)


@pytest.mark.parametrize(("seen", "drawn"), [(0, 10), (3, 50), (49, 50), (7, 100_000)])
def test_the_largest_share_is_that_of_clopper_and_pearson(seen, drawn):
    share = largest_share(seen, drawn)
    assert scipy.stats.binom.cdf(seen, drawn, share) == pytest.approx(0.05)


def test_confidence_holds_as_often_as_it_says():
    rows, components = cloud(0, 60, 8), random_basis(1, 8, 3).T
    losses = brute_losses(rows, components)[1]
    level = float(np.quantile(losses, 0.93))
    true = float((losses > level).mean())
    points = Points.prepare(rows, rotate=False)
    draws = (drawn_losses(points, components, seed, 200) for seed in range(300))
    shares = [share_of(drawn, level) for drawn in draws]
    held = np.mean(np.array(shares) >= true)
    assert 0.9 <= held <= 1.0
    assert np.median(shares) < 2 * true


def test_pairs_of_distinct_points_are_drawn_evenly():
    rows = np.array([[0.0], [1.0], [1.0], [2.0]])
    points = Points.prepare(rows, rotate=False)
    drawn = pairs.sample_pairs(points, 5000, seed=3)
    codes, counts = np.unique(drawn @ [10, 1], return_counts=True)
    assert codes.tolist() == [1, 2, 3, 13, 23]
    assert scipy.stats.chisquare(counts).pvalue > 1e-4


def test_a_sampled_fit_says_so_and_can_be_verified(few, tmp_path):
    rows = cloud(4, 300, 12) * 0.8 ** np.arange(12)
    model = NearIsometricProjection(3, pairs="sample", random_state=0).fit(rows)
    certificate = model.certificate_
    assert certificate.n_pairs <= 300
    assert "sampled distances" in str(certificate)
    assert "95 % confidence" in str(certificate)
    losses = brute_losses(rows, model.components_)[1]
    true = float((losses > model.distortion_).mean())
    # One sample in twenty says less than the truth, and rounding decides which is
    # drawn; none is off by ten standard deviations.
    assert true - 0.01 <= certificate.sampled_share <= true + 0.01
    verify(certificate, rows)
    model.save(tmp_path / "model.isoproj")
    again = Certificate.load(tmp_path / "model.isoproj")
    assert again.sampled_share == certificate.sampled_share
    verify(again, rows)
    assert NearIsometricProjection.load(tmp_path / "model.isoproj").pairs == "sample"
    for share in (0.0, None):
        with pytest.raises(ClaimError, match="sampled"):
            verify(replace(certificate, sampled_share=share), rows)


def test_another_random_state_draws_another_sample(few):
    rows = cloud(4, 100, 6)
    first, second = (
        NearIsometricProjection(2, pairs="sample", random_state=i, n_restarts=0)
        .fit(rows)
        .certificate_.listed_pairs
        for i in (0, 1)
    )
    assert first.shape != second.shape or (first != second).any()
