from __future__ import annotations

import numpy as np
import pytest

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.cli.program import main

NAMES = [f"x{i}" for i in range(6)]


@pytest.fixture(scope="session")
def points():
    return np.random.default_rng(5).normal(size=(40, 6)) + 3.0


@pytest.fixture(scope="session")
def models(tmp_path_factory, points):
    """A folder with the data and a model of every class."""
    folder = tmp_path_factory.mktemp("models")
    np.save(folder / "points.npy", points)
    for name, model in {
        "near": NearIsometricProjection(2, solver="dual_ascent", max_iter=10),
        "pca": GuaranteedPCA(2),
    }.items():
        model.fit(points)
        model.feature_names_in_ = np.asarray(NAMES, dtype=object)
        model.save(folder / f"{name}.isoproj")
    return folder


@pytest.fixture
def run(capsys):
    """Run the program inside this process: status, standard output and error."""

    def call(*arguments):
        status = main([str(a) for a in arguments])
        out, err = capsys.readouterr()
        return status, out, err

    return call
