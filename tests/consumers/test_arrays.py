"""Tensors of torch and arrays of the array-API standard: in, out, the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from isoproj import NearIsometricProjection, audit


def torch_array(values):
    return pytest.importorskip("torch").tensor(values)


def standard_array(values):
    return pytest.importorskip("array_api_strict").asarray(values)


LIBRARIES = pytest.mark.parametrize("make", [torch_array, standard_array])


@LIBRARIES
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("which", ["model", "centred"])
def test_an_array_in_gives_an_array_of_its_library_out(
    make, dtype, which, request, points, consumer
):
    model, rows = request.getfixturevalue(which), points.astype(dtype)
    given = make(rows)
    found = model.transform(given)
    assert type(found) is type(given)
    assert found.dtype == given.dtype
    assert found.device == given.device
    expected = model.transform(rows)
    library = type(given).__module__.partition(".")[0].replace("_", "-")
    what = "arrays in, arrays out of `transform` and `inverse_transform`"
    assert consumer(library, what, found, expected) == 0.0
    back = model.inverse_transform(found)
    assert type(back) is type(given)
    np.testing.assert_array_equal(np.asarray(back), model.inverse_transform(expected))


@LIBRARIES
def test_fit_and_audit_take_the_same_arrays(make, points):
    rows = points[:40]
    options = {"solver": "dual_ascent", "max_iter": 5}
    plain = NearIsometricProjection(6, **options).fit(rows)
    other = NearIsometricProjection(6, **options).fit(make(rows))
    np.testing.assert_array_equal(plain.components_, other.components_)
    assert audit(make(rows), plain).distortion == audit(rows, plain).distortion


def test_tensors_with_gradients_or_of_half_precision_are_read(model, points):
    torch = pytest.importorskip("torch")
    tensor = torch.tensor(points, requires_grad=True)
    found = model.transform(tensor)
    assert not found.requires_grad
    np.testing.assert_array_equal(found.numpy(), model.transform(points))
    half = tensor.detach().to(torch.bfloat16)
    expected = model.transform(half.float().numpy())
    np.testing.assert_array_equal(model.transform(half).numpy(), expected)


def test_an_output_container_is_respected(model, points):
    pytest.importorskip("pandas")
    torch = pytest.importorskip("torch")
    frame = NearIsometricProjection(6, solver="dual_ascent", max_iter=5)
    frame.set_output(transform="pandas").fit(points[:40])
    found = frame.transform(torch.tensor(points[:40]))
    expected = frame.transform(points[:40])
    assert list(found.columns) == list(expected.columns)
    np.testing.assert_array_equal(found.to_numpy(), expected.to_numpy())


DISPATCHED = """
import numpy as np, torch, sklearn
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from isoproj import NearIsometricProjection
X = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
model = NearIsometricProjection(3, solver="dual_ascent", max_iter=5, tol=0.9)
pipeline = make_pipeline(MinMaxScaler(), model).fit(X)
with sklearn.config_context(array_api_dispatch=True):
    found = pipeline.transform(torch.tensor(X))
    refitted = model.fit(torch.tensor(X)).transform(torch.tensor(X))
assert isinstance(found, torch.Tensor) and isinstance(refitted, torch.Tensor)
"""


def test_array_api_dispatch_of_scikit_learn_may_be_on():
    pytest.importorskip("torch")
    pytest.importorskip("scipy", minversion="1.14")
    # scipy reads the variable when it is first imported.
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", DISPATCHED],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
