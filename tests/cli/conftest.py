from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from isoproj import NearIsometricProjection


@pytest.fixture(scope="session")
def points():
    return np.random.default_rng(5).normal(size=(40, 6))


@pytest.fixture(scope="session")
def model(points):
    return NearIsometricProjection(2, solver="dual_ascent", max_iter=10).fit(points)


@pytest.fixture
def folder(tmp_path, points, model, monkeypatch):
    """A folder with data and a model, in which the commands run."""
    np.save(tmp_path / "points.npy", points)
    model.save(tmp_path / "model.isoproj")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def command():
    """Run the program as a shell would."""

    def call(*arguments, **options):
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-m", "isoproj", *map(str, arguments)],
            capture_output=True,
            timeout=120,
            check=False,
            env=environment,
            **options,
        )

    return call


@pytest.fixture
def checked():
    """Parse what a verb printed with --json and hold it against the schema."""
    jsonschema = pytest.importorskip("jsonschema")
    from isoproj.cli.payloads import schema_of

    def check(text):
        assert text.count("\n") == 1
        payload = json.loads(text)
        schema = schema_of(payload["verb"])
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.validate(payload, schema)
        return payload

    return check
