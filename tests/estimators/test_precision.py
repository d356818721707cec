"""What transform returns keeps the certificate, or the fit warns with the figure."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
import scipy.sparse

from isoproj import GuaranteedPCA, NearIsometricProjection

ROWS = np.random.default_rng(0).normal(size=(60, 12)) * 0.7 ** np.arange(12)


def quick():
    """Return an estimator that takes the same few steps on every machine."""
    return NearIsometricProjection(3, solver="dual_ascent", max_iter=3)


def figures(caught):
    """Return the losses that warnings about rounding state: measured, certified."""
    texts = [str(w.message) for w in caught if "certified" in str(w.message)]
    return [tuple(map(float, re.findall(r"[01]\.\d{4}", text))) for text in texts]


def fit(model, rows):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(rows)
    return caught


def returned_loss(model, rows):
    """Return what the worst pair of the returned points loses."""
    i, j = np.triu_indices(len(rows), 1)
    images = model.transform(rows).astype(np.float64)
    exact = rows.astype(np.float64)
    kept = np.square(images[i] - images[j]).sum(axis=1)
    whole = np.square(exact[i] - exact[j]).sum(axis=1)
    return 1.0 - (kept[whole > 0.0] / whole[whole > 0.0]).min()


@pytest.mark.parametrize("method", [quick, lambda: GuaranteedPCA(3, max_iter=1)])
@pytest.mark.parametrize(
    ("dtype", "offsets"),
    [(np.float32, (3e6, 6e6)), (np.float64, (1e15, 2e15, 4e15))],
    ids=["single", "double"],
)
def test_a_fit_far_from_the_origin_keeps_its_certificate_or_warns_with_the_figure(
    method, dtype, offsets
):
    # Which pairs rounding brings together depends on the processor.
    for offset in offsets:
        rows = (ROWS + offset).astype(dtype)
        model = method()
        said = figures(fit(model, rows))
        met = returned_loss(model, rows)
        assert said or met <= model.distortion_ + 0.01
        for measured, certified in said:
            assert certified == pytest.approx(model.distortion_, abs=1e-4)
            assert certified < measured
            assert measured == pytest.approx(met, abs=0.01)
    # Numbers this large are half a unit apart: some projections coincide.
    assert said


@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_fit_near_the_origin_keeps_its_certificate_without_a_warning(
    dtype, scale, form
):
    rows = (ROWS * scale + scale).astype(dtype)
    model = quick()
    assert not figures(fit(model, form(rows)))
    assert returned_loss(model, rows) <= model.distortion_ + 1e-4


def test_the_remedies_work():
    rows = (ROWS + 3e6).astype(np.float32)
    assert figures(fit(quick(), rows))
    shifted = rows - rows.mean(axis=0)
    assert not figures(fit(quick(), shifted))
    wide = rows.astype(np.float64)
    assert not figures(fit(quick(), wide))


def test_an_update_far_from_the_origin_warns_too():
    rows = (ROWS + 3e6).astype(np.float32)
    model = NearIsometricProjection(3, random_state=0, max_iter=1)
    fit(model, rows[:50])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.update(rows[50:], rows[:50])
    assert figures(caught)
