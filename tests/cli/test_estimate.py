from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud

from isoproj import NearIsometricProjection
from isoproj.estimators.estimate import FitEstimate


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", cloud(0, 40, 6))
    return tmp_path


def test_an_estimate_names_what_else_there_is_and_fits_nothing(folder, run, checked):
    words = ("fit", "points.npy", "-k", 2, "-o", "m.isoproj", "--estimate")
    status, out, _ = run(*words)
    assert status == 0
    assert "40 x 6 points, 780 pairs" in out
    for other in ("--time-limit", "--pairs sample", "approximate-neighbors", "Dask"):
        assert other in out
    assert not (folder / "m.isoproj").exists()
    assert checked(run(*words, "--json")[1])["n_pairs"] == 780


def test_more_points_take_longer():
    few, many = (FitEstimate.of(n, 64, 16) for n in (2000, 1_000_000))
    assert not few.is_long
    assert many.is_long
    assert many.scan_seconds > 1e3 * few.scan_seconds
    assert FitEstimate.of(10**6, 64, 16, n_pairs=1000).fit_seconds < 60.0


def test_a_long_fit_is_told_before_it_works_and_a_short_one_is_not(
    folder, run, monkeypatch
):
    words = ("fit", "points.npy", "-k", 2)
    assert "walk over all of them" not in run(*words)[2]
    monkeypatch.setattr("isoproj.estimators.estimate.LONG", 0.0)
    err = run(*words)[2]
    assert err.index("walk over all of them takes about") < err.index("not saved")
    assert "Instead: --time-limit 600; --pairs sample;" in err


def test_python_tells_of_a_long_fit_in_a_record_and_if_verbose(
    caplog, capsys, monkeypatch
):
    monkeypatch.setattr("isoproj.estimators.estimate.LONG", 0.0)
    caplog.set_level("INFO", logger="isoproj")
    NearIsometricProjection(2, verbose=1).fit(cloud(0, 30, 5))
    assert any("walk over all of them" in each.message for each in caplog.records)
    assert "walk over all of them" in capsys.readouterr().err


def test_lines_of_progress_say_what_is_aimed_at_and_the_time_left(folder, run):
    words = ("fit", "points.npy", "-k", 2, "-v", "--time-limit", 1000)
    lines = [line for line in run(*words)[2].splitlines() if line.startswith("step")]
    assert lines
    assert all("aims at 1%, at most 17 min left" in line for line in lines)


def test_a_checkpoint_of_the_command_line_is_gone_on_from(folder, run):
    words = ("fit", "points.npy", "-k", 2, "--checkpoint", "state")
    steps = []
    for _ in range(2):
        status, _, err = run(*words, "-v")
        assert status == 0
        steps.append(sum(line.startswith("step") for line in err.splitlines()))
    assert steps[1] < steps[0]
    status, _, err = run(*words, "--method", "guaranteed-pca")
    assert status == 2
    assert "--checkpoint has no effect" in err


def test_the_frontier_takes_a_time_limit(folder, run, checked):
    words = ("frontier", "points.npy", "-k", 2, "--n-points", 3, "--time-limit", 20)
    status, out, _ = run(*words, "--json")
    assert status == 0
    assert len(checked(out)["frontier"]) == 3
