"""Balanced projections, and how many dimensions others need for the same promise."""

from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair
from numpy.testing import assert_allclose, assert_array_equal

from isoproj import (
    NearIsometricProjection,
    audit,
    johnson_lindenstrauss_comparison,
    verify,
)
from isoproj.cli.program import main

ROWS = cloud(11, 30, 8)


def fitted(dtype=np.float64, **options):
    options = {"solver": "dual_ascent", "max_iter": 30, **options}
    return NearIsometricProjection(3, **options).fit(ROWS.astype(dtype))


def ratios(rows, images):
    i, j = every_pair(len(rows)).T
    squares = [((x[i] - x[j]).astype(float) ** 2).sum(axis=1) for x in (rows, images)]
    return squares[1] / squares[0]


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_squared_lengths_stay_within_the_two_sided_constant(dtype):
    model = fitted(dtype, scale="balanced")
    kept = ratios(ROWS.astype(dtype), model.transform(ROWS.astype(dtype)))
    rounding = 1e-12 if dtype == np.float64 else 1e-5
    assert np.abs(kept - 1.0).max() <= model.isometry_ + rounding
    # The worst pair sits on the lower edge: no smaller constant is true of it.
    assert kept.min() == pytest.approx(1.0 - model.isometry_, abs=10 * rounding)
    eps = model.distortion_
    assert model.isometry_ == pytest.approx(eps / (2.0 - eps))
    assert model.scale_ == pytest.approx(1.0 / np.sqrt(1.0 - eps / 2.0))


def test_the_certificate_is_about_the_projection_itself(tmp_path):
    plain, model = fitted(), fitted(scale="balanced")
    assert_array_equal(plain.components_, model.components_)
    assert_allclose(model.components_ @ model.components_.T, np.eye(3), atol=1e-12)
    assert_allclose(model.transform(ROWS), plain.transform(ROWS) * model.scale_)
    assert (plain.scale_, plain.isometry_) == (1.0, model.isometry_)
    verify(model.certificate_, ROWS)
    model.save(tmp_path / "model")
    back = NearIsometricProjection.load(tmp_path / "model")
    assert_array_equal(back.transform(ROWS), model.transform(ROWS))


def test_inverse_transform_undoes_the_scale():
    plain, model = fitted(), fitted(scale="balanced")
    back = model.inverse_transform(model.transform(ROWS))
    assert_allclose(back, plain.inverse_transform(plain.transform(ROWS)), atol=1e-12)


def test_nothing_lost_is_nothing_scaled():
    with pytest.warns(UserWarning, match="span only"):
        model = NearIsometricProjection(3, scale="balanced").fit(np.eye(3)[:, :3])
    assert model.scale_ == pytest.approx(1.0)


def test_another_word_is_refused():
    with pytest.raises(ValueError, match="'balanced', None; got 'jl'"):
        fitted(scale="jl")


def test_the_command_line_and_exports_give_the_numbers_of_transform(
    tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", ROWS)
    words = "fit x.npy -k 3 --solver dual_ascent --max-iter 30 --scale balanced"
    assert main([*words.split(), "-o", "m.isoproj", "-q"]) == 0
    model = NearIsometricProjection.load("m.isoproj")
    assert model.scale_ > 1.0
    assert main(["transform", "m.isoproj", "x.npy", "-o", "z.npy", "-q"]) == 0
    assert_array_equal(np.load("z.npy"), model.transform(ROWS))
    assert main(["export", "m.isoproj", "--to", "npy", "-o", "c.npy", "-q"]) == 0
    assert_allclose(ROWS @ np.load("c.npy").T, model.transform(ROWS), atol=1e-12)
    assert main(["verify", "m.isoproj", "x.npy", "-q"]) == 0


@pytest.fixture(scope="module")
def needed():
    # Ten strong directions among forty weak ones.
    rows = cloud(2, 40, 50) * np.repeat([1.0, 0.05], [10, 40])
    return rows, johnson_lindenstrauss_comparison(rows, 0.3, n_draws=1)


def test_the_formula_is_asked_for_the_two_sided_promise(needed):
    _, found = needed
    delta = 0.3 / 1.7
    assert found.isometry == pytest.approx(delta)
    # Dasgupta and Gupta's bound, as scikit-learn has it.
    asked = 4.0 * np.log(40) / (delta**2 / 2.0 - delta**3 / 3.0)
    assert found.formula == int(asked)


def test_what_is_found_keeps_the_promise_and_one_less_is_proved_too_few(needed):
    rows, found = needed
    assert found.necessary <= found.found <= min(found.pca, found.random)
    model = NearIsometricProjection(found.found, scale="balanced", random_state=0)
    kept = ratios(rows, model.fit(rows).transform(rows))
    assert np.abs(kept - 1.0).max() <= found.isometry + 1e-3
    fewer = NearIsometricProjection(found.necessary - 1, random_state=0).fit(rows)
    assert fewer.distortion_ > 0.3


def test_principal_components_need_what_is_said(needed):
    rows, found = needed
    axes = np.linalg.svd(rows - rows.mean(axis=0))[2]
    for k, suffices in ((found.pca, True), (found.pca - 1, False)):
        kept = ratios(rows, rows @ axes[:k].T)
        spread = (kept.max() - kept.min()) / (kept.max() + kept.min())
        assert (spread <= found.isometry) == suffices
        assert (audit(rows, axes[:k]).distortion <= 0.3) or not suffices


def test_the_table_names_every_way(needed):
    text = str(needed[1])
    for word in (
        "Johnson-Lindenstrauss",
        "random",
        "PCA",
        "NuMax",
        "isoproj",
        "proved",
    ):
        assert word in text


@pytest.mark.parametrize("promise", [0.0, 1.0, -0.1, "little", np.nan])
def test_a_promise_that_is_none_is_refused(promise):
    with pytest.raises(ValueError, match="max_distortion must be a number between"):
        johnson_lindenstrauss_comparison(ROWS, promise)
