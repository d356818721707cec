"""One stream of progress events, in words and in the log."""

from __future__ import annotations

import logging
import math
from dataclasses import replace

import pytest
from geometry import cloud

from isoproj import NearIsometricProjection, audit
from isoproj.baselines import FairPCA, NILEPro, SDPProjection, SecantAvoidance
from isoproj.numerics.progress import Step, Walk, tell, watching

STEP = Step(iteration=3, distortion=0.5, lower_bound=0.4, seconds=1.25)


def test_listeners_hear_every_event_of_their_kind_until_they_leave():
    steps, walks, all_events = [], [], []
    with watching(all_events.append), watching(steps.append, Step):
        tell(STEP)
        with watching(walks.append, Walk):
            tell(Walk(1, 2))
    tell(STEP)
    assert steps == [STEP]
    assert walks == [Walk(1, 2)]
    assert all_events == [STEP, Walk(1, 2)]


def test_a_fit_tells_steps_and_walks_in_one_stream():
    events = []
    with watching(events.append):
        NearIsometricProjection(n_components=1).fit(cloud(0, 9, 4))
    kinds = {type(event) for event in events}
    assert kinds == {Step, Walk}
    walks = [event for event in events if isinstance(event, Walk)]
    assert walks[0].done == 0
    assert walks[-1] == Walk(36, 36)


@pytest.mark.parametrize("spread", [True, False])
def test_the_progress_of_an_audit_reaches_its_argument_and_all_listeners(spread):
    called, walks = [], []
    with watching(walks.append, Walk):
        audit(
            cloud(1, 9, 4),
            [[1.0, 0.0, 0.0, 0.0]],
            spread=spread,
            progress=lambda done, n_pairs: called.append((done, n_pairs)),
        )
    assert called[0] == (0, 36)
    assert called[-1] == (36, 36)
    assert [(walk.done, walk.total) for walk in walks] == called


@pytest.mark.parametrize(
    "estimator",
    [
        FairPCA(2, max_iter=3, tol=1.0),
        NILEPro(2, max_iter=25),
        SDPProjection(2, tol=0.1),
        SecantAvoidance(2, max_iter=3),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_baselines_tell_the_same_stream_and_their_verbose_lines(estimator, capfd):
    steps = []
    with watching(steps.append, Step):
        estimator.set_params(verbose=1).fit(cloud(2, 20, 6))
    lines = capfd.readouterr().err.splitlines()
    name = type(estimator).__name__
    assert lines == [f"[{name}] {step.line()}" for step in steps]
    assert lines


def test_a_step_in_words_has_number_phase_bounds_gap_and_seconds():
    words = replace(STEP, phase="polishing").line(9)
    assert words == (
        "step 3 of 9: polishing, worst pair loses 0.5000, lower bound 0.4000, "
        "gap 25.00%, 1.2 s"
    )


@pytest.mark.parametrize("distortion", [math.inf, math.nan, 0.0, 0.5])
@pytest.mark.parametrize("lower_bound", [-math.inf, math.nan, 0.0, 0.25])
@pytest.mark.parametrize(
    "kept", [{}, {"kept": 0.5}, {"kept_bound": 0.9}, {"kept": 0.5, "kept_bound": 0.6}]
)
def test_what_is_not_known_is_said_in_words(distortion, lower_bound, kept):
    step = replace(STEP, distortion=distortion, lower_bound=lower_bound, **kept)
    words = step.line()
    assert "inf" not in words
    assert "nan" not in words
    assert ("no projection yet" in words) == (not math.isfinite(distortion))
    if not kept:
        is_known = lower_bound > 0.0 or (lower_bound == 0.0 and distortion == 0.0)
        assert ("no lower bound yet" in words) == (not is_known)


def test_a_share_kept_is_told_with_its_own_gap():
    words = replace(STEP, kept=0.8, kept_bound=0.9).bounds
    assert words.endswith("keeps 0.8000 of at most 0.9000, gap 12.50%")


def test_every_step_is_a_debug_record_and_a_fit_two_of_information(caplog):
    steps = []
    with caplog.at_level(logging.DEBUG, logger="isoproj"), watching(steps.append, Step):
        NearIsometricProjection(n_components=1).fit(cloud(0, 9, 4))
    debug = [r.getMessage() for r in caplog.records if r.levelno == logging.DEBUG]
    assert debug == [step.line() for step in steps]
    begin, end = (r.getMessage() for r in caplog.records if r.levelno == logging.INFO)
    assert begin == "NearIsometricProjection: begins"
    assert end.startswith("NearIsometricProjection: ends, ")
    assert end.endswith(steps[-1].bounds)


def test_a_fit_that_fails_says_so_in_the_log(caplog):
    with (
        caplog.at_level(logging.INFO, logger="isoproj"),
        pytest.raises(ValueError, match="n_components"),
    ):
        NearIsometricProjection(n_components=7).fit(cloud(0, 9, 4))
    assert "fails with ValueError" in caplog.records[-1].getMessage()


def test_nothing_is_printed_without_a_handler(capfd):
    logger = logging.getLogger("isoproj")
    assert any(isinstance(each, logging.NullHandler) for each in logger.handlers)
    NearIsometricProjection(n_components=1).fit(cloud(0, 9, 4))
    assert capfd.readouterr() == ("", "")
