from __future__ import annotations

import numpy as np
import pytest

from isoproj import NearIsometricProjection


@pytest.fixture(scope="session")
def points():
    return np.random.default_rng(5).normal(size=(30, 6))


@pytest.fixture(scope="session")
def model(points):
    return NearIsometricProjection(2, solver="dual_ascent", max_iter=10).fit(points)
