"""Every test here runs the real consumer; `make test-consumers` installs them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from isoproj import GuaranteedPCA, NearIsometricProjection


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.consumers)


@pytest.fixture(scope="session")
def points():
    return np.random.default_rng(3).normal(size=(300, 24)).astype(np.float32)


@pytest.fixture(scope="session")
def model(points):
    return NearIsometricProjection(6, solver="dual_ascent", max_iter=20).fit(points)


@pytest.fixture(scope="session")
def expected(model, points):
    return model.transform(points)


@pytest.fixture(scope="session")
def centred(points):
    """Return a model that subtracts a mean which cannot be overlooked."""
    return GuaranteedPCA(6, max_distortion=1.0).fit(points + 5.0)
