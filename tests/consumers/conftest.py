"""Every test here runs the real consumer; `make test-consumers` installs them."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from sklearn.decomposition import PCA

from isoproj import GuaranteedPCA, NearIsometricProjection, search_plan

HEAD = ["| system | version | what was run | largest difference |", "|---|---|---|---|"]


def pytest_addoption(parser):
    parser.addoption("--table", help="file for the table of consumers that passed")


def pytest_terminal_summary(terminalreporter, config):
    """Print what each consumer that passed was given and how far it was off."""
    largest = {}
    for report in terminalreporter.getreports("passed"):
        for name, value in report.user_properties:
            if name == "consumer":
                *row, difference = value
                key = tuple(row)
                largest[key] = max(difference, largest.get(key, 0.0))
    if not largest:
        return
    rows = [
        f"| {' | '.join(key)} | {f'{off:.0e}' if off else '0'} |"
        for key, off in sorted(largest.items(), key=lambda item: item[0][0].lower())
    ]
    terminalreporter.section("largest differences from transform")
    terminalreporter.write_line("\n".join(HEAD + rows))
    if path := config.getoption("--table", None):
        Path(path).write_text("\n".join(HEAD + rows) + "\n", encoding="utf-8")


@pytest.fixture
def consumer(record_property):
    """Return a function that notes how far a system's numbers are from ours."""

    def note(system, what, found, expected, *, release=None):
        difference = float(np.abs(np.asarray(found, np.float64) - expected).max())
        release = version(system) if release is None else release
        record_property("consumer", (system, release, what, difference))
        return difference

    return note


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


@pytest.fixture(scope="session")
def texts():
    folder = Path(os.environ.get("ISOPROJ_DATA", "../shared/data"))
    if not (folder / "text_embeddings_384d.npz").exists():
        pytest.skip("needs text_embeddings_384d.npz")
    return np.load(folder / "text_embeddings_384d.npz")["embeddings"][:3000]


@pytest.fixture(scope="session")
def pca(texts):
    return PCA(64, random_state=0).fit(texts)


@pytest.fixture(scope="session")
def small(texts, pca):
    return pca.transform(texts)


@pytest.fixture(scope="session")
def plan(texts, small):
    return search_plan(texts, reduced=small, n_neighbors=10)


@pytest.fixture(scope="session")
def failures(texts):
    """Return a function that counts the rows without their true ten.

    It takes, for every row from the first on, the numbers of the 11 rows that a system
    returned.
    """
    n = 10
    exact = texts.astype(np.float64)
    distances = cdist(exact, exact)
    others = distances.copy()
    np.fill_diagonal(others, np.inf)
    last = np.sort(others, axis=1)[:, :n]

    def count(found, first=0):
        failed = 0
        for i, row in enumerate(found, start=first):
            kept = [j for j in row if j != i][:n]
            # Rows that tie in float32 may stand for each other.
            is_true = np.abs(np.sort(distances[i, kept]) - last[i]) < 1e-6
            failed += not is_true.all()
        return failed

    return count
