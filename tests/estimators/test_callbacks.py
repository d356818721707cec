"""Callbacks of scikit-learn 1.9 and newer; older versions have none."""

from __future__ import annotations

import importlib.util
import io
import sys

import numpy as np
import pytest
from geometry import cloud
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from isoproj import GuaranteedPCA, NearIsometricProjection, verify
from isoproj.estimators import base
from isoproj.numerics.progress import Step, watching

callback = pytest.importorskip("sklearn.callback")
QUIET = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
X = cloud(0, 40, 8)
QUICK = NearIsometricProjection(3, solver="dual_ascent", max_iter=5, tol=0.9)


class Recorder:
    """Remembers what was called; stops after so many steps."""

    def __init__(self, stop_after=None):
        self.calls, self.fitted, self.stop_after = [], None, stop_after

    def setup(self, estimator, context):
        self.calls.append("setup")

    def teardown(self, estimator, context):
        self.calls.append("teardown")

    def on_fit_task_begin(self, estimator, context, *, X=None):
        assert X is not None
        self.calls.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        self.calls.append(f"end {context.task_name}")
        if context.task_name == "fit":
            self.fitted = fitted_estimator
        return self.calls.count("end step") == self.stop_after


def test_a_callback_sees_the_fit_and_every_step_of_it():
    recorder, steps = Recorder(), []
    model = clone(QUICK).set_callbacks(recorder)
    with watching(steps.append, Step):
        model.fit(X)
    inner = ["begin step", "end step"] * len(steps)
    assert len(steps) > 0
    assert recorder.calls == ["setup", "begin fit", *inner, "end fit", "teardown"]
    np.testing.assert_array_equal(recorder.fitted.components_, model.components_)


def test_callbacks_change_no_number():
    plain = clone(QUICK).fit(X)
    seen = clone(plain).set_callbacks(Recorder()).fit(X)
    np.testing.assert_array_equal(plain.components_, seen.components_)
    assert plain.lower_bound_ == seen.lower_bound_


@QUIET
@pytest.mark.parametrize(
    "model",
    [
        NearIsometricProjection(3, tol=1e-4),
        NearIsometricProjection(3, solver="dual_ascent"),
        NearIsometricProjection(max_distortion=0.5),
        GuaranteedPCA(3),
    ],
    ids=repr,
)
def test_a_callback_that_asks_for_it_stops_the_fit_at_a_valid_certificate(model):
    recorder = Recorder(stop_after=1)
    model = clone(model).set_callbacks(recorder).fit(X)
    assert recorder.calls.count("end step") == 1
    assert recorder.calls[-1] == "teardown"
    assert str(model.status_) == "interrupted"
    assert model.lower_bound_ <= model.distortion_
    verify(model.certificate_, X)


def test_callbacks_are_cleared_up_after_a_fit_that_fails():
    recorder = Recorder()
    model = NearIsometricProjection(99).set_callbacks(recorder)
    with pytest.raises(ValueError, match="99"):
        model.fit(X)
    assert recorder.calls == ["setup", "begin fit", "teardown"]
    assert not hasattr(model, "_callback_fit_ctx")


def test_the_progress_bar_of_scikit_learn_draws_us_within_a_pipeline(monkeypatch):
    drawn = io.StringIO()
    monkeypatch.setattr(sys, "stdout", drawn)
    model = make_pipeline(StandardScaler(), clone(QUICK))
    model.set_callbacks(callback.ProgressBar()).fit(X)
    monkeypatch.undo()
    assert "NearIsometricProjection - fit" in drawn.getvalue()


def test_nothing_is_needed_where_scikit_learn_has_no_callbacks(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.callback", None)
    spec = importlib.util.spec_from_file_location("older", base.__file__)
    older = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(older)

    class Plain(older.CallbackSupport):
        def fit(self):
            with older.calling_back(self, None, None):
                return "fitted"

    assert Plain().fit() == "fitted"
    assert not hasattr(Plain(), "set_callbacks")
