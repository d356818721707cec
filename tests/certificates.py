"""Small certificates of every kind, and what it means for two to be the same."""

from __future__ import annotations

import dataclasses
import importlib.util
from pathlib import Path

import numpy as np
from geometry import cloud

from isoproj import Certificate, NearIsometricProjection

KINDS = {"all": "all", "directions": "directions", "listed": [[0, 3], [2, 5], [1, 4]]}


def data():
    return cloud(0, 12, 5)


def load_checker():
    """Return the checker of the documentation, which uses no code of the package."""
    path = Path(__file__).parents[1] / "docs" / "independent_checker.py"
    spec = importlib.util.spec_from_file_location("independent_checker", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def fitted(kind="all", **options):
    options = {"solver": "dual_ascent", "max_iter": 20, **options}
    return NearIsometricProjection(2, pairs=KINDS[kind], **options).fit(data())


def assert_same_bits(left, right):
    for field in dataclasses.fields(Certificate):
        a, b = getattr(left, field.name), getattr(right, field.name)
        if isinstance(a, np.ndarray):
            assert (a.dtype, a.shape) == (b.dtype, b.shape)
            assert a.tobytes() == b.tobytes()
        else:
            assert a == b
