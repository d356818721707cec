from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud
from sklearn.exceptions import ConvergenceWarning

from isoproj import GuaranteedPCA, NearIsometricProjection, verify
from isoproj.numerics.progress import Step, watching
from isoproj.solvers import api
from isoproj.solvers.api import Status

ESTIMATORS = [NearIsometricProjection, GuaranteedPCA]


def listed(model, rows):
    return model.fit(rows).certificate_.listed_pairs


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_the_seed_reaches_the_sample_of_pairs(estimator):
    rows = cloud(0, 700, 4)
    first, again, other = (
        listed(estimator(1, pairs="sample", random_state=seed, tol=0.5), rows)
        for seed in (0, 0, 1)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


class Ticking:
    """A clock that a look at moves on by a tenth of a second."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 0.1
        return self.now


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_one_limit_holds_for_the_search_for_dimensions_and_for_the_rest(
    estimator, monkeypatch
):
    ticking = Ticking()
    monkeypatch.setattr(api.time, "perf_counter", ticking)
    rows = cloud(1, 60, 20) * 0.8 ** np.arange(20)
    limited = estimator(None, max_distortion=0.3, random_state=0, time_limit=4.0)
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = limited.fit(rows)
    # Each phase notices within a few looks: it does not get four seconds of its own.
    assert ticking.now < 2 * 4.0
    verify(model.certificate_, rows)


def test_rounds_are_numbered_through_the_whole_fit():
    steps = []
    with watching(steps.append, Step):
        model = GuaranteedPCA(3, random_state=0).fit(cloud(2, 20, 8))
    numbers = [step.iteration for step in steps]
    assert numbers == list(range(len(steps)))
    assert model.n_iter_ == model.history_[-1].iteration == numbers[-1]


def test_both_sides_are_told_before_anything_else_is_done():
    steps = []
    with watching(steps.append, Step):
        NearIsometricProjection(4, random_state=0).fit(cloud(3, 80, 30))
    first = steps[0]
    assert np.isfinite(first.distortion)
    assert 0.0 < first.lower_bound <= first.distortion
    assert all(np.isfinite(step.distortion) for step in steps)
    assert all(step.phase for step in steps)


@pytest.mark.parametrize("status", list(Status))
def test_every_status_says_what_ended_the_fit(status):
    assert status.meaning.endswith(".")
    is_cut_short = status in (Status.MAX_ITER, Status.TIME_LIMIT, Status.INTERRUPTED)
    assert bool(status.advice) is is_cut_short


def test_a_tolerance_that_is_met_ends_the_fit():
    rows = cloud(4, 60, 40)
    coarse = NearIsometricProjection(15, random_state=0, tol=0.2).fit(rows)
    fine = NearIsometricProjection(15, random_state=0, tol=1e-3).fit(rows)
    assert coarse.certificate_.optimality_gap <= 0.2
    assert len(coarse.history_) < len(fine.history_)
    assert coarse.status_ is Status.CONVERGED
    assert fine.lower_bound_ >= coarse.lower_bound_ - 1e-6


def test_an_update_that_stops_early_says_so():
    old, new = cloud(0, 40, 8), cloud(1, 20, 8)
    new[:, -1] *= 40.0
    model = NearIsometricProjection(3, tol=0.1, random_state=0).fit(old)
    model.set_params(max_iter=1)
    with pytest.warns(ConvergenceWarning, match="Stopped early"):
        model.update(new, old)
    assert model.updated_ == "refined"
