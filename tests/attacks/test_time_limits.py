"""A fit that is out of time returns the best that it knew."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from isoproj import NearIsometricProjection, audit


def test_a_search_for_dimensions_that_is_out_of_time_is_no_worse_than_pca():
    rows = np.random.default_rng(0).normal(size=(60, 20)) * np.linspace(1.0, 0.1, 20)
    axes = np.linalg.svd(rows - rows.mean(axis=0))[2]
    losses = [
        audit(rows, axes[:k], orientation="rows", n_worst=1).distortion
        for k in range(1, 21)
    ]
    enough = 1 + next(k for k, lost in enumerate(losses) if lost <= 0.599)
    assert enough < 20
    with pytest.warns(ConvergenceWarning, match="time_limit"):
        model = NearIsometricProjection(
            None, max_distortion=0.6, time_limit=1e-6, random_state=0
        ).fit(rows)
    assert model.n_components_ <= enough
    assert model.distortion_ <= 0.6


@pytest.mark.attack
@pytest.mark.parametrize("limit", ["1e-6", "0.2", "2"])
@pytest.mark.parametrize(
    "line",
    [
        "fit x.npy -k 3 -o m.isoproj --force",
        "fit x.npy -k 3 --nested 1 2 -o m.isoproj --force",
        "fit x.npy -k 3 --heldout 30 -o m.isoproj --force",
        "fit x.npy --max-distortion 0.6 -o m.isoproj --force",
        "fit x.npy -k 3 --pairs neighbors -o m.isoproj --force",
        "fit x.npy -k 3 --method guaranteed-pca -o m.isoproj --force",
        "curve x.npy -k 1 3 20",
        "frontier x.npy -k 3 --n-points 3",
        "compare x.npy -k 3 --methods minimax guaranteed pca",
        "plan x.npy --recall 0.9 --queries q.npy -k 3",
    ],
)
def test_every_verb_ends_within_any_limit_with_claims_that_hold(
    line, limit, tmp_path, run, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(0).normal(size=(500, 20)) * np.linspace(1.0, 0.1, 20)
    np.save("x.npy", rows[:400])
    np.save("q.npy", rows[400:])
    status, out, err = run(*line.split(), "--time-limit", limit, "--seed", 0)
    assert status == 0, (out, err)
    assert "Traceback" not in err
    if "m.isoproj" in line and "heldout" not in line:
        assert run("verify", "m.isoproj", "x.npy")[0] == 0
