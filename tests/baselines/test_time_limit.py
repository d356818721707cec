"""Time limits by a clock that the tests set, so that nothing here is timed."""

from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud
from sklearn.base import clone

from isoproj.baselines import (
    DualAscent,
    FairPCA,
    FroMax,
    NILEPro,
    NuMax,
    SDPProjection,
    SecantAvoidance,
    SequentialFairPCA,
    StablePCA,
    sdp,
)
from isoproj.numerics.progress import Step, watching
from isoproj.pairs.moments import AllPairsDual
from isoproj.solvers import api

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

LIMITED = [
    DualAscent(3, time_limit=1.0),
    SDPProjection(3, tol=1e-9, time_limit=1.0),
    SecantAvoidance(3, time_limit=1.0),
    FairPCA(3, time_limit=1.0),
    SequentialFairPCA(3, time_limit=1.0),
    StablePCA(3, time_limit=1.0),
    NuMax(0.1, max_iter=20, time_limit=1.0, random_state=0),
    NILEPro(3, time_limit=1.0),
    FroMax(3, time_limit=1.0),
]
ROWS = cloud(8, 70, 14)


class Hands:
    """Stands in for the module ``time``: the hands stand still until they are moved."""

    now = 0.0
    readings = 0
    jump_after = np.inf

    def perf_counter(self):
        self.readings += 1
        return self.now if self.readings <= self.jump_after else 100.0


@pytest.fixture
def hands(monkeypatch):
    hands = Hands()
    monkeypatch.setattr(api, "time", hands)
    return hands


@pytest.mark.parametrize("estimator", LIMITED, ids=repr)
@pytest.mark.parametrize("last", [1, 2])
def test_no_step_is_told_after_the_limit(estimator, last, hands):
    steps = []

    def told(step):
        steps.append(step)
        if len(steps) == last:
            hands.now = 100.0

    with watching(told, Step):
        model = clone(estimator).fit(ROWS)
    assert len(steps) == last
    assert str(model.status_) == "time_limit"


@pytest.mark.parametrize(
    "estimator", [e for e in LIMITED if not isinstance(e, DualAscent)], ids=repr
)
def test_set_up_work_counts_and_leaves_time_for_one_step_at_most(estimator, hands):
    # The first reading starts the clock; the limit has passed at the second.
    hands.jump_after = 1
    model = clone(estimator).fit(ROWS)
    assert model.n_iter_ <= 1
    assert str(model.status_) == "time_limit"
    assert np.isfinite(model.components_).all()


@pytest.mark.parametrize("rounding", ["randomized", "binned"])
def test_random_roundings_stop_drawing_at_the_limit(rounding, hands):
    class Counted(np.random.RandomState):
        draws = 0

        def uniform(self, *args, **kwargs):
            self.draws += 1
            return super().uniform(*args, **kwargs)

    generator = Counted(0)

    def told(_):
        hands.now = 100.0

    model = SDPProjection(
        3, rounding=rounding, n_rounds=50, time_limit=1.0, random_state=generator
    )
    with watching(told, Step):
        model.fit(ROWS)
    assert generator.draws == 1
    assert str(model.status_) == "time_limit"


def test_draws_that_were_cut_short_are_told_of(hands):
    class Late(np.random.RandomState):
        def uniform(self, *args, **kwargs):
            hands.now = 100.0
            return super().uniform(*args, **kwargs)

    model = SDPProjection(
        3, rounding="randomized", tol=0.1, time_limit=1.0, random_state=Late(0)
    )
    assert str(model.fit(ROWS).status_) == "time_limit"


@pytest.mark.parametrize("estimator", [DualAscent(3), FairPCA(3)], ids=repr)
def test_few_walks_over_all_pairs_follow_the_limit(estimator, hands, monkeypatch):
    late = []
    honest = AllPairsDual.retained

    def counted(self, basis):
        if hands.now:
            late.append(basis.shape)
        return honest(self, basis)

    def told(_):
        hands.now = 100.0

    monkeypatch.setattr(AllPairsDual, "retained", counted)
    with watching(told, Step):
        clone(estimator).set_params(time_limit=1.0).fit(ROWS)
    # The average, or the rounded matrix and the relaxed one; nothing iterates.
    assert len(late) <= 2


def test_a_conic_solver_is_not_started_out_of_time(hands, monkeypatch):
    def refuse(*_):
        pytest.fail("the conic solver was started")

    monkeypatch.setattr(sdp, "needed", lambda *_, **__: None)
    monkeypatch.setattr(sdp, "run_scs", refuse)
    hands.jump_after = 1
    model = SDPProjection(3, solver="scs", time_limit=1.0).fit(ROWS)
    assert str(model.status_) == "time_limit"
    assert model.lower_bound_ <= model.distortion_


def test_a_bisection_that_ran_out_of_time_is_told_of(hands):
    rows = cloud(10, 10, 4) * 0.8 ** np.arange(4)
    steps = []
    with watching(steps.append, Step):
        whole = NuMax(n_components=3, random_state=0).fit(rows)
    assert str(whole.status_) == "converged"
    last = len(steps) - 1

    def told(step):
        steps.append(step)
        if len(steps) == last:
            hands.now = 100.0

    steps.clear()
    with watching(told, Step):
        model = NuMax(n_components=3, random_state=0, time_limit=1.0).fit(rows)
    assert len(steps) == last
    assert str(model.status_) == "time_limit"
    assert max(model.distortion_, model.stretch_) <= model.delta_
