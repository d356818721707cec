from __future__ import annotations

import numpy as np
import pytest

from isoproj import GuaranteedPCA, NearIsometricProjection

NAMES = [f"x{i}" for i in range(6)]


@pytest.fixture(scope="session")
def points():
    return np.random.default_rng(5).normal(size=(40, 6)) + 3.0


@pytest.fixture(scope="session")
def models(tmp_path_factory, points):
    """A folder with the data and a model of every class."""
    folder = tmp_path_factory.mktemp("models")
    np.save(folder / "points.npy", points)
    quick = {"solver": "dual_ascent", "max_iter": 10}
    listed = [[0, 1], [2, 5], [3, 4], [7, 9], [9, 11]]
    for name, model in {
        "near": NearIsometricProjection(2, **quick),
        "pca": GuaranteedPCA(2),
        "labels": NearIsometricProjection(2, pairs="labels", **quick),
        "listed": NearIsometricProjection(2, pairs=listed, **quick),
        "sampled": NearIsometricProjection(2, pairs="sample", **quick),
    }.items():
        model.fit(points, np.arange(40) % 7 % 3)
        model.feature_names_in_ = np.asarray(NAMES, dtype=object)
        model.save(folder / f"{name}.isoproj")
    return folder


@pytest.fixture
def figures(request, record_property):
    """Keep a line of figures for the end of the test run."""
    return lambda line: record_property("figures", f"{request.node.name}: {line}")


def pytest_terminal_summary(terminalreporter):
    """Print the figures of all tests, also of those that ran in other processes."""
    reports = [
        r for kind in ("passed", "failed") for r in terminalreporter.getreports(kind)
    ]
    kept = [v for r in reports for n, v in r.user_properties if n == "figures"]
    if kept and terminalreporter.config.option.markexpr == "attack":
        terminalreporter.section("figures")
        for line in sorted(set(kept)):
            terminalreporter.write_line(line)
