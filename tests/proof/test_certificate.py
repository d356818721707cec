from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from certificates import KINDS, assert_same_bits, data, fitted
from geometry import QUICK, cloud

from isoproj import Certificate, GuaranteedPCA, NearIsometricProjection, verify
from isoproj.exceptions import (
    ClaimError,
    DuplicatePointsWarning,
    FormatError,
    IsoprojError,
)
from isoproj.numerics.container import write_container
from isoproj.pairs.rule import PairKind, prepare_pairs
from isoproj.proof import file
from isoproj.proof.bounds import data_fingerprint, lower_bound, lower_bounds
from isoproj.proof.certificate import Exclusion, Guarantee
from isoproj.proof.hull import HullProof
from isoproj.proof.verify import check_claims


@pytest.fixture(params=list(KINDS))
def certificate(request):
    return fitted(request.param).certificate_


def test_an_honest_certificate_verifies(certificate):
    verify(certificate, data())
    claims = check_claims(certificate, data())
    assert len({claim.name for claim in claims}) == len(claims) >= 6


def test_a_saved_certificate_comes_back_bit_for_bit(certificate, tmp_path):
    certificate.save(tmp_path / "a.isoproj")
    back = Certificate.load(tmp_path / "a.isoproj")
    assert_same_bits(certificate, back)
    verify(back, data())


def test_a_float32_certificate_keeps_its_precision(tmp_path):
    rows = data().astype(np.float32)
    certificate = (
        NearIsometricProjection(2, solver="dual_ascent", max_iter=5)
        .fit(rows)
        .certificate_
    )
    certificate.save(tmp_path / "a.isoproj")
    back = Certificate.load(tmp_path / "a.isoproj")
    assert back.components.dtype == np.float32
    verify(back, rows)


def test_the_certificate_of_a_saved_model_is_the_models(tmp_path):
    model = fitted()
    model.save(tmp_path / "model.isoproj")
    back = Certificate.load(tmp_path / "model.isoproj")
    assert_same_bits(model.certificate_, back)


SCALARS = {
    "distortion": 0.1,
    "lower_bound": 0.9,
    "n_pairs": 7,
    "n_identical": 3,
    "n_points": 13,
    "n_features": 6,
    "fingerprint": "0" * 64,
    "spectral_ratio": 1.0,
}


@pytest.mark.parametrize("name", SCALARS)
def test_an_edited_number_does_not_verify_even_with_a_fresh_digest(name, tmp_path):
    path = tmp_path / "a.isoproj"
    scalars, tensors = fitted().certificate_.parts()
    write_container(path, {"certificate": {**scalars, name: SCALARS[name]}}, tensors)
    with pytest.raises(ClaimError):
        verify(Certificate.load(path), data())


@pytest.mark.parametrize("name", ["distortion", "lower_bound", "spectral_ratio"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_an_edited_bound_that_is_no_number_does_not_verify(name, value):
    edited = dataclasses.replace(fitted().certificate_, **{name: value})
    with pytest.raises(ClaimError):
        verify(edited, data())


@pytest.mark.parametrize("nudge", [1e-6, -1e-6])
@pytest.mark.parametrize("name", ["distortion", "lower_bound"])
def test_bounds_are_checked_to_nine_digits_either_way(name, nudge):
    honest = fitted().certificate_
    edited = dataclasses.replace(honest, **{name: getattr(honest, name) + nudge})
    with pytest.raises(ClaimError, match=name.replace("_", " ")):
        verify(edited, data())


def changed(array, at, value):
    array = array.copy()
    array[at] = value
    return array


ARRAYS = {
    "components scaled": lambda c: {"components": c.components * 1.01},
    "components swapped for axes": lambda c: {"components": np.eye(2, 5)},
    "components not finite": lambda c: {"components": c.components * np.nan},
    "components empty": lambda c: {"components": c.components[:0]},
    "components too wide": lambda c: {"components": np.eye(2, 6)},
    "weights negative": lambda c: {"weights": changed(c.weights, 0, -1.0)},
    "weights NaN": lambda c: {"weights": changed(c.weights, 0, np.nan)},
    "weights doubled": lambda c: {"weights": c.weights * 2},
    "weights all zero": lambda c: {"weights": c.weights * 0},
    "weights too few": lambda c: {"weights": c.weights[1:]},
    "weights none": lambda c: {
        "weights": c.weights[:0],
        "weighted_pairs": c.weighted_pairs[:0],
    },
    "pair outside": lambda c: {"weighted_pairs": changed(c.weighted_pairs, 0, 99)},
    "pair negative": lambda c: {"weighted_pairs": changed(c.weighted_pairs, 0, -1)},
    "pair with itself": lambda c: {"weighted_pairs": changed(c.weighted_pairs, 0, 4)},
    "pairs of three": lambda c: {"weighted_pairs": np.zeros((len(c.weights), 3), int)},
    "worst pair another": lambda c: {"worst_pairs": c.worst_pairs[::-1].copy()},
    "worst pair outside": lambda c: {"worst_pairs": c.worst_pairs + 99},
    "worst pairs of three": lambda c: {"worst_pairs": np.zeros((10, 3), int)},
    "worst pairs none": lambda c: {
        "worst_pairs": c.worst_pairs[:0],
        "worst_distortions": c.worst_distortions[:0],
    },
    "worst losses lower": lambda c: {"worst_distortions": c.worst_distortions / 2},
    "other pairs count": lambda c: {
        "pair_kind": PairKind.LISTED,
        "listed_pairs": np.array([[0, 1]]),
    },
    "listed pairs outside": lambda c: {
        "pair_kind": PairKind.LISTED,
        "listed_pairs": np.array([[0, 99]]),
    },
    "listed pairs none": lambda c: {
        "pair_kind": PairKind.LISTED,
        "listed_pairs": np.zeros((0, 2), int),
    },
}


@pytest.mark.parametrize("edit", ARRAYS)
def test_an_edited_array_does_not_verify_even_with_a_fresh_digest(edit, tmp_path):
    path = tmp_path / "a.isoproj"
    honest = fitted().certificate_
    dataclasses.replace(honest, **ARRAYS[edit](honest)).save(path)
    with pytest.raises((ClaimError, FormatError)):
        verify(Certificate.load(path), data())


def forged(honest, rows, **changes):
    """Return an edited certificate whose lower bound follows from its weights."""
    edited = dataclasses.replace(honest, **changes)
    points, _ = prepare_pairs(rows, honest.pairs, rotate=False)
    follows = lower_bound(points, edited.weighted_pairs, edited.weights, 2)
    return dataclasses.replace(edited, lower_bound=follows)


@pytest.mark.parametrize("kind", ["listed", "directions"])
def test_weight_on_a_pair_that_does_not_count_does_not_verify(kind):
    honest = fitted(kind).certificate_
    verify(forged(honest, data()), data())
    moved = changed(honest.weighted_pairs, 0, [0, 1])
    with pytest.raises(ClaimError, match="does not count"):
        verify(forged(honest, data(), weighted_pairs=moved), data())


def test_a_row_counted_from_the_end_does_not_verify():
    honest = fitted().certificate_
    moved = changed(honest.weighted_pairs, 0, [-1, 3])
    with pytest.raises(ClaimError, match="outside"):
        verify(forged(honest, data(), weighted_pairs=moved), data())


def test_a_pair_may_carry_its_weight_either_way_round():
    honest = fitted("listed").certificate_
    turned = honest.weighted_pairs[:, ::-1].copy()
    verify(forged(honest, data(), weighted_pairs=turned), data())


def test_weight_on_identical_points_does_not_verify():
    rows = np.vstack([data(), data()[:1]])
    with pytest.warns(DuplicatePointsWarning):
        honest = (
            NearIsometricProjection(2, solver="dual_ascent", max_iter=5)
            .fit(rows)
            .certificate_
        )
    verify(honest, rows)
    moved = changed(honest.weighted_pairs, 0, [0, 12])
    with pytest.raises(ClaimError, match="identical"):
        verify(dataclasses.replace(honest, weighted_pairs=moved), rows)


OTHER_DATA = {
    "one value": lambda rows: changed(rows, (3, 2), rows[3, 2] + 1e-9),
    "rows in another order": lambda rows: rows[::-1].copy(),
    "one row less": lambda rows: rows[1:],
    "one column less": lambda rows: rows[:, 1:],
    "the same values in another shape": lambda rows: rows.reshape(5, 12),
}


@pytest.mark.parametrize("change", OTHER_DATA)
def test_a_certificate_holds_for_its_own_data_alone(certificate, change):
    with pytest.raises(ClaimError, match=r"fingerprint|shape"):
        verify(certificate, OTHER_DATA[change](data()))


def test_equal_values_have_one_fingerprint_whatever_their_form():
    rows = np.round(data(), 1).astype(np.float32)
    rows[0, 0] = 0.0
    forms = [
        rows,
        rows.astype(np.float64),
        np.asfortranarray(rows),
        rows[::-1][::-1],
        scipy.sparse.csr_array(rows),
        scipy.sparse.csr_matrix(rows.astype(np.float64)),
        changed(rows, (0, 0), -0.0),
        rows.astype(">f8"),
    ]
    assert len({data_fingerprint(form) for form in forms}) == 1


def test_a_certificate_verifies_on_equal_values_in_another_form():
    certificate = fitted().certificate_
    verify(certificate, scipy.sparse.csr_array(data()))
    verify(certificate, data().tolist())


def test_the_gap_is_relative_to_the_bound():
    certificate = fitted().certificate_
    gap = certificate.distortion / certificate.lower_bound - 1
    assert certificate.optimality_gap == pytest.approx(gap)
    no_bound = dataclasses.replace(certificate, lower_bound=0.0)
    assert no_bound.optimality_gap == float("inf")
    nothing_lost = dataclasses.replace(certificate, distortion=0.0, lower_bound=0.0)
    assert nothing_lost.optimality_gap == 0.0


def test_a_certificate_says_its_own_numbers():
    certificate = fitted().certificate_
    assert "66 distances" in str(certificate)
    exact = dataclasses.replace(certificate, distortion=0.64, lower_bound=0.5)
    assert "at least 36.00% of" in str(exact)
    assert "more than 50.00%." in str(exact)


def test_what_a_certificate_says_is_rounded_so_that_it_holds():
    certificate = dataclasses.replace(
        fitted().certificate_, distortion=0.600001, lower_bound=0.599999
    )
    assert "at least 39.99% of" in str(certificate)
    assert "more than 40.01%." in str(certificate)


def test_weights_prove_a_bound_at_every_number_of_dimensions():
    points, _ = prepare_pairs(data(), rotate=False)
    certificate = fitted().certificate_
    pairs, weights = certificate.weighted_pairs, certificate.weights
    ks = range(1, data().shape[1] + 1)
    bounds = lower_bounds(points, pairs, weights, ks)
    assert (np.diff(bounds) <= 0.0).all()
    for k, bound in zip(ks, bounds, strict=True):
        again = lower_bound(points, pairs, weights, k)
        assert bound == pytest.approx(again, abs=1e-12)
        best = NearIsometricProjection(k, random_state=0).fit(data())
        assert bound <= best.distortion_


def test_claims_can_be_checked_without_a_walk_over_all_pairs():
    certificate = fitted().certificate_
    names = {claim.name for claim in check_claims(certificate, data(), scan=False)}
    assert "lower bound" in names
    assert "distortion" not in names
    wrong = dataclasses.replace(certificate, lower_bound=0.99)
    assert not all(c.holds for c in check_claims(wrong, data(), scan=False))


def test_our_errors_share_a_base():
    assert issubclass(ClaimError, IsoprojError)
    assert issubclass(FormatError, IsoprojError)
    assert issubclass(FormatError, ValueError)


@pytest.fixture(scope="module")
def sampled():
    """Points and a certificate over a sample of their pairs."""
    rows = cloud(0, 14, 5)
    model = NearIsometricProjection(2, pairs="sample", random_state=0, **QUICK)
    return rows, model.fit(rows).certificate_


@pytest.mark.parametrize("share", [0.0, 2e-5, -1e-5, 1.0, np.nan])
def test_verify_refuses_another_share_of_a_sample(sampled, share):
    rows, certificate = sampled
    verify(certificate, rows)
    with pytest.raises(ClaimError, match="share of all pairs"):
        verify(dataclasses.replace(certificate, sampled_share=share), rows)


def test_verify_refuses_a_sampled_share_where_nothing_was_sampled():
    rows = cloud(0, 14, 5)
    model = NearIsometricProjection(2, random_state=0, **QUICK)
    certificate = model.fit(rows).certificate_
    with pytest.raises(ClaimError, match="share of all pairs"):
        verify(dataclasses.replace(certificate, sampled_share=1.0), rows)


def test_verify_refuses_weights_whose_sum_overflows():
    rows = cloud(0, 14, 5)
    model = NearIsometricProjection(2, random_state=0, **QUICK)
    certificate = model.fit(rows).certificate_
    huge = np.full(certificate.weights.size, 1e308)
    with pytest.raises(ClaimError, match="not finite"):
        verify(dataclasses.replace(certificate, weights=huge), rows)


@pytest.mark.parametrize("cap", [1.5, np.inf])
def test_verify_refuses_a_cap_above_all(cap):
    rows = cloud(0, 14, 5)
    certificate = GuaranteedPCA(2, random_state=0).fit(rows).certificate_
    forged = dataclasses.replace(certificate.guarantee, cap=cap)
    with pytest.raises(ClaimError, match="cap on every pair"):
        verify(dataclasses.replace(certificate, guarantee=forged), rows)


def test_weights_on_very_many_pairs_are_drawn_and_still_prove(monkeypatch):
    monkeypatch.setattr("isoproj.proof.bounds._MOST_WEIGHTS", 400)
    rows = cloud(0, 60, 8)
    model = NearIsometricProjection(3, solver="dual_ascent", max_iter=1).fit(rows)
    drawn = model.certificate_
    assert drawn.weights.size <= 400 < model.history_[0].n_working
    assert drawn.lower_bound > 0.9 * model.history_[0].lower_bound
    verify(drawn, rows)


@pytest.mark.parametrize("kind", [Certificate, Exclusion, Guarantee, HullProof])
def test_every_field_of_a_certificate_is_stored(kind):
    parts = {"guarantee", "exclusion", "hull", "prefixes"}
    for field in dataclasses.fields(kind):
        stored = {*file._ENTRIES, *file._ARRAYS}
        assert field.type in stored or field.name in parts, field.name
