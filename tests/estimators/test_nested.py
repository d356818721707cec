from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from certificates import load_checker
from geometry import cloud
from sklearn.base import clone

from isoproj import (
    Certificate,
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    report,
    verify,
)
from isoproj.baselines import PCAProjection
from isoproj.cli.program import main
from isoproj.exceptions import ClaimError, FormatError
from isoproj.numerics.container import read_container, write_container

X = cloud(0, 60, 16) * np.linspace(3.0, 0.5, 16)


@pytest.fixture(scope="module")
def near():
    return NearIsometricProjection(12, nested=(9,), random_state=0).fit(X)


@pytest.fixture(scope="module")
def capped():
    return GuaranteedPCA(12, nested=(9,), random_state=0).fit(X)


@pytest.fixture(scope="module")
def alone():
    return {k: NearIsometricProjection(k, random_state=0).fit(X) for k in (9, 12)}


@pytest.fixture(params=["near", "capped"])
def model(request):
    return request.getfixturevalue(request.param)


def test_every_prefix_is_certified_on_the_rows_that_ship(model):
    assert list(model.certificates_) == [9, 12]
    assert model.certificates_[12] is model.certificate_
    for k, certificate in model.certificates_.items():
        rows = model.components_[:k]
        assert (certificate.components == rows).all()
        assert audit(X, rows, orientation="rows").distortion == pytest.approx(
            certificate.distortion, abs=1e-12
        )
        assert certificate.lower_bound <= certificate.distortion
    verify(model, X)
    assert np.allclose(model.components_ @ model.components_.T, np.eye(12), atol=1e-12)


def test_prefixes_are_near_separate_fits_and_better_than_pca(near, alone):
    for k, certificate in near.certificates_.items():
        assert certificate.distortion <= 1.1 * alone[k].distortion_
        assert certificate.distortion < PCAProjection(k).fit(X).distortion_
        # Where a separate fit ends is where the bound of the prefix comes from.
        assert certificate.lower_bound == pytest.approx(alone[k].lower_bound_)


def test_a_heavier_prefix_pays_less_for_being_nested(alone):
    excess = {}
    for weights in ((1.0, 10.0), (10.0, 1.0)):
        model = NearIsometricProjection(
            12, nested=(9,), nested_weights=weights, random_state=0
        ).fit(X)
        excess[weights] = [
            model.certificates_[k].distortion / alone[k].distortion_ for k in (9, 12)
        ]
    light, heavy = excess[1.0, 10.0], excess[10.0, 1.0]
    assert heavy[0] < light[0]
    assert heavy[1] > light[1]


def test_every_prefix_is_under_its_cap_and_keeps_no_more_than_its_bound(capped):
    for certificate in capped.certificates_.values():
        guarantee = certificate.guarantee
        assert certificate.distortion <= guarantee.cap
        assert 0.95 * guarantee.kept_bound <= guarantee.kept <= guarantee.kept_bound


def test_one_file_holds_all_prefixes_and_another_program_checks_them(model, tmp_path):
    path = tmp_path / "m.isoproj"
    model.save(path)
    again = type(model).load(path)
    assert again.get_params() == model.get_params()
    for k, certificate in again.certificates_.items():
        assert (certificate.components == model.components_[:k]).all()
        assert str(certificate) == str(model.certificates_[k])
    verify(again, X)
    verify(Certificate.load(path), X)
    load_checker().check(path, X)


@pytest.mark.parametrize(
    ("name", "value"), [("distortion", 0.01), ("lower_bound", 0.99)]
)
def test_a_forged_prefix_is_found(near, name, value, tmp_path):
    path = tmp_path / "m.isoproj"
    near.save(path)
    header, tensors = read_container(path)
    header["certificate"]["prefixes"][0][name] = value
    write_container(path, header, tensors)
    with pytest.raises(ClaimError, match="first 9"):
        verify(Certificate.load(path), X)
    with pytest.raises(AssertionError):
        load_checker().check(path, X)


@pytest.mark.parametrize("prefixes", [7, [{"n_components": 12}], [{}], [None], {}])
def test_a_file_with_damaged_prefixes_is_refused(near, prefixes, tmp_path):
    path = tmp_path / "m.isoproj"
    near.save(path)
    header, tensors = read_container(path)
    header["certificate"]["prefixes"] = prefixes
    write_container(path, header, tensors)
    with pytest.raises(FormatError):
        NearIsometricProjection.load(path)


def test_a_file_without_parameters_is_refused(near, tmp_path):
    path = tmp_path / "m.isoproj"
    near.save(path)
    header, tensors = read_container(path)
    write_container(path, {**header, "parameters": None}, tensors)
    with pytest.raises(FormatError, match="whole model"):
        NearIsometricProjection.load(path)


def test_a_model_and_its_parameter_must_name_the_same_prefixes(near, tmp_path):
    path = tmp_path / "m.isoproj"
    near.save(path)
    header, tensors = read_container(path)
    header["parameters"]["nested"] = [8]
    write_container(path, header, tensors)
    with pytest.raises(FormatError, match=r"nested=\(8,\)"):
        NearIsometricProjection.load(path)


def test_a_prefix_of_another_projection_is_found(near):
    other = replace(near.certificates_[9], components=near.components_[3:12])
    with pytest.raises(ClaimError, match="first 9: rows"):
        verify(replace(near.certificate_, prefixes=(other,)), X)
    elsewhere = replace(near.certificates_[9], n_pairs=3)
    with pytest.raises(ClaimError, match="first 9: rows"):
        verify(replace(near.certificate_, prefixes=(elsewhere,)), X)


def test_all_dimensions_lose_nothing_and_the_prefix_is_as_good_as_alone(alone):
    model = NearIsometricProjection(16, nested=(12,), random_state=0).fit(X)
    verify(model, X)
    assert model.distortion_ < 1e-9
    assert model.certificates_[12].distortion == pytest.approx(
        alone[12].distortion_, rel=0.02
    )


def test_float32_and_a_time_limit_leave_valid_certificates():
    rows = X.astype(np.float32)
    model = GuaranteedPCA(12, nested=(5, 9), random_state=0, time_limit=1e-3)
    with pytest.warns(UserWarning, match="time_limit"):
        model.fit(rows)
    assert model.components_.dtype == np.float32
    assert list(model.certificates_) == [5, 9, 12]
    verify(model, rows)


def test_pairs_that_are_chosen_are_chosen_for_every_prefix():
    model = NearIsometricProjection(
        6,
        nested=(3,),
        pairs="neighbors",
        n_neighbors=2,
        random_state=0,
        time_limit=1e-3,
    )
    with pytest.warns(UserWarning, match="time_limit"):
        model.fit(X)
    verify(model, X)
    assert model.certificates_[3].n_pairs == model.certificate_.n_pairs < 120


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"nested": (12,)}, "below n_components=12"),
        ({"nested": (9, 4)}, "ascending"),
        ({"nested": (0,)}, "from 1"),
        ({"nested": 9}, "ascending whole numbers"),
        ({"nested": (2.5,)}, "whole numbers"),
        ({"nested": (True,)}, "whole numbers"),
        ({"nested": "39"}, "whole numbers"),
        ({"nested": (9,), "nested_weights": (1.0,)}, "must be 2 numbers above 0"),
        ({"nested": (9,), "nested_weights": (1.0, 0.0)}, "2 numbers above 0"),
        ({"nested_weights": (1.0, 1.0)}, "None without nested"),
        ({"nested": (9,), "n_components": None}, "n_components=None"),
        ({"nested": (9,), "solver": "dual_ascent"}, "combined with solver"),
        ({"nested": (9,), "init": np.eye(12, 16)}, "combined with init"),
        ({"nested": (9,), "warm_start": True}, "combined with warm_start"),
    ],
)
def test_what_cannot_be_nested_is_refused_in_one_line(options, reason):
    model = NearIsometricProjection(**{"n_components": 12, **options})
    with pytest.raises(ValueError, match=reason) as found:
        model.fit(X)
    assert "\n" not in str(found.value)


def test_a_cap_of_ones_own_and_updates_exclude_nesting(near):
    with pytest.raises(ValueError, match="combined with max_distortion"):
        GuaranteedPCA(12, nested=(9,), max_distortion=0.9).fit(X)
    with pytest.raises(ValueError, match="nested=None; got"):
        clone_of(near).update(X[:2], X)


def test_prefixes_may_come_as_an_array():
    model = NearIsometricProjection(12, nested=np.array([3, 9]), tol=0.5).fit(X)
    assert [part.n_components for part in model.certificate_.prefixes] == [3, 9]


def clone_of(model):
    fresh = clone(model)
    fresh._adopt(model.certificate_)
    return fresh


def test_the_report_draws_every_prefix_beside_those_of_pca(near):
    pytest.importorskip("jinja2")
    made = report(near, X)
    facts = made.to_dict()
    assert [prefix["k"] for prefix in facts["nested"]] == [9, 12]
    for prefix in facts["nested"]:
        pca = PCAProjection(prefix["k"]).fit(X).distortion_
        assert prefix["pca"] == pytest.approx(pca, abs=1e-9)
        at = facts["curve"]["ks"].index(prefix["k"])
        assert facts["curve"]["floor"][at] >= prefix["lower_bound"] - 1e-12
    assert "its first 9 dimensions: the worst pair loses" in made.html()
    assert f"| first 9 | {near.certificates_[9].distortion:.4f} |" in made.markdown()
    assert facts["history"][-1]["upper"] == pytest.approx(near.distortion_, abs=1e-9)


def test_the_command_line_fits_tells_and_checks_prefixes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X[:25])
    words = ["--nested", "8", "9", "--nested-weights", "1", "2", "1", "--seed", "0"]
    assert main(["fit", "x.npy", "-k", "11", "-o", "m.isoproj", *words]) == 0
    assert "first 8 " in capsys.readouterr().out
    assert main(["verify", "m.isoproj", "x.npy"]) == 0
    assert "first 9: lower bound" in capsys.readouterr().out
    assert main(["info", "m.isoproj"]) == 0
    assert "first 9      loses" in capsys.readouterr().out
    assert main(["audit", "m.isoproj", "x.npy", "--recall", "3"]) == 0
    assert "first 8" in capsys.readouterr().out
    assert main(["fit", "x.npy", "--nested", "3", "--max-distortion", "0.5"]) == 2
    assert "--nested needs -k" in capsys.readouterr().err
