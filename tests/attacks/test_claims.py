"""``verify`` checks all that ``transform`` and the exports use."""

from __future__ import annotations

import numpy as np
import pytest

from attacks.forging import forge
from isoproj import GuaranteedPCA, verify
from isoproj.exceptions import ClaimError, FormatError
from isoproj.proof.verify import check_claims

MEANS = {
    "huge": lambda tensor: tensor.fill(1e30),
    "shifted": lambda tensor: tensor.__iadd__(1e-6),
    "one entry": lambda tensor: tensor.__setitem__(0, tensor[0] * 1.001),
}
STATED = ("explained_variance", "explained_variance_ratio", "singular_values")


@pytest.mark.parametrize("change", MEANS)
def test_a_forged_mean_does_not_verify(models, points, tmp_path, run, change):
    forged = forge(
        models / "pca.isoproj",
        tmp_path / "forged.isoproj",
        lambda _, tensors: MEANS[change](tensors["mean"]),
    )
    status, out, _ = run("verify", forged, models / "points.npy")
    assert status == 1
    assert "NOT verified" in out
    with pytest.raises(ClaimError, match="mean that transform subtracts"):
        verify(GuaranteedPCA.load(forged), points)
    with pytest.raises(ClaimError, match="mean that transform subtracts"):
        GuaranteedPCA.load(forged).report(points)


@pytest.mark.parametrize("factor", [1.01, -1.0])
@pytest.mark.parametrize("name", STATED)
def test_a_forged_variance_does_not_verify(models, points, tmp_path, name, factor):
    def change(_, tensors):
        tensors[name][-1] *= factor

    forged = forge(models / "pca.isoproj", tmp_path / "forged.isoproj", change)
    with pytest.raises(ClaimError, match="explained variances"):
        verify(GuaranteedPCA.load(forged), points)


@pytest.mark.parametrize("name", ["mean", *STATED])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_not_loaded(models, tmp_path, name, value):
    forged = forge(
        models / "pca.isoproj",
        tmp_path / "forged.isoproj",
        lambda _, tensors: tensors[name].fill(value),
    )
    with pytest.raises(FormatError, match="finite"):
        GuaranteedPCA.load(forged)


def test_forged_feature_names_do_not_verify(models, points, tmp_path, run):
    def change(header, _):
        header["fitted"]["feature_names"][:2] = ["x1", "x0"]

    forged = forge(models / "near.isoproj", tmp_path / "forged.isoproj", change)
    table = tmp_path / "points.csv"
    names = ",".join(f"x{i}" for i in range(6))
    np.savetxt(table, points, delimiter=",", header=names, comments="", fmt="%.17g")
    assert run("verify", models / "near.isoproj", table)[0] == 0
    status, out, _ = run("verify", forged, table)
    assert status == 1
    assert "names of the features" in out


def test_an_unknown_scale_is_not_loaded(models, tmp_path, run):
    def change(header, _):
        header["parameters"]["scale"] = "huge"

    forged = forge(models / "near.isoproj", tmp_path / "forged.isoproj", change)
    status, _, err = run("info", forged)
    assert status == 2
    assert "scale must be" in err


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0.0, 1e3, 1e6])
def test_honest_models_verify_wherever_the_data_lie(dtype, offset):
    rows = np.random.default_rng(0).normal(size=(60, 5)) + offset
    model = GuaranteedPCA(2).fit(rows.astype(dtype))
    assert all(claim.holds for claim in check_claims(model, rows.astype(dtype)))


def test_an_excluded_dimension_counts_only_for_the_cap_it_was_proved_for(
    points, tmp_path
):
    from isoproj import NearIsometricProjection

    path = tmp_path / "model.isoproj"
    honest = NearIsometricProjection(None, max_distortion=0.5).fit(points)
    assert honest.n_components_lower_bound_ > 1
    honest.save(path)

    def change(header, _):
        header["parameters"]["max_distortion"] = 0.99

    forged = forge(path, tmp_path / "forged.isoproj", change)
    assert NearIsometricProjection.load(path).n_components_lower_bound_ > 1
    assert NearIsometricProjection.load(forged).n_components_lower_bound_ == 1


def test_a_model_without_a_name_is_no_certificate(models, tmp_path, run):
    forged = forge(
        models / "near.isoproj",
        tmp_path / "forged.isoproj",
        lambda header, _: header.__setitem__("estimator", None),
    )
    status, _, err = run("verify", forged, models / "points.npy")
    assert status == 2
    assert err.count("\n") == 1
