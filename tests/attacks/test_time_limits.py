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
