from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
from geometry import brute_distortion, brute_losses, cloud, random_basis
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning

from isoproj import (
    DistortionCurve,
    GuaranteedPCA,
    NearIsometricProjection,
    audit,
    distortion_curve,
    guarantee_frontier,
    verify,
)
from isoproj.exceptions import ClaimError
from isoproj.numerics.storage import Mapped
from isoproj.pairs.points import Points
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import lower_bound


def stretched(seed, n_points, n_features):
    """Return a cloud whose spread falls from axis to axis."""
    return cloud(seed, n_points, n_features) * 0.75 ** np.arange(n_features)


@pytest.fixture(scope="module")
def _four():
    X = stretched(4, 60, 10)
    return X, NearIsometricProjection(4, random_state=0).fit(X)


@pytest.fixture
def four(_four):
    """Points and a model of them in four dimensions, which the test may update."""
    X, model = _four
    return X, copy.deepcopy(model)


def test_the_dimensions_found_are_enough_and_fewer_are_proved_too_few():
    X = stretched(0, 40, 12)
    model = NearIsometricProjection(max_distortion=0.4, random_state=0).fit(X)
    assert model.distortion_ <= 0.4
    assert brute_losses(X, model.components_)[1].max() <= 0.4
    excluded = model.n_components_lower_bound_ - 1
    assert 1 <= excluded < model.n_components_
    exclusion = model.certificate_.exclusion
    points = Points.prepare(X, rotate=False)
    bound = lower_bound(
        points, exclusion.excluding_pairs, exclusion.excluding_weights, excluded
    )
    assert bound > 0.4
    for seed in range(50):
        other = random_basis(seed, 12, excluded).T
        assert brute_losses(X, other)[1].max() > 0.4
    assert f"No projection to {excluded} or fewer" in str(model.certificate_)


def test_planted_dimensions_are_found_exactly():
    # Eight axes of which each pair with the origin is one: k of them lose 1 - k / 8.
    model = NearIsometricProjection(
        max_distortion=0.51, pairs="directions", random_state=0
    ).fit(np.eye(8))
    assert model.n_components_ == 4
    assert model.n_components_lower_bound_ == 4


def test_a_cap_that_all_dimensions_are_needed_for_keeps_everything():
    X = cloud(0, 30, 3)
    model = NearIsometricProjection(max_distortion=1e-6).fit(X)
    assert model.n_components_ == 3


def test_guaranteed_pca_finds_its_dimensions_too():
    X = stretched(1, 40, 12)
    model = GuaranteedPCA(None, max_distortion=0.4, random_state=0).fit(X)
    assert brute_losses(X, model.components_)[1].max() <= 0.4
    assert model.n_components_lower_bound_ <= model.n_components_
    verify(model.certificate_, X)


def test_an_exclusion_survives_saving_and_no_tampering(tmp_path):
    X = stretched(0, 30, 8)
    model = NearIsometricProjection(max_distortion=0.4, random_state=0).fit(X)
    model.save(tmp_path / "m.isoproj")
    again = NearIsometricProjection.load(tmp_path / "m.isoproj")
    assert again.n_components_lower_bound_ == model.n_components_lower_bound_
    verify(again.certificate_, X)
    exclusion = model.certificate_.exclusion
    for change in (
        {"n_components": exclusion.n_components + 1},
        {"cap": 0.9},
        {"excluding_weights": -exclusion.excluding_weights},
        {"excluding_pairs": exclusion.excluding_pairs + 1000},
    ):
        forged = dataclasses.replace(
            model.certificate_, exclusion=dataclasses.replace(exclusion, **change)
        )
        with pytest.raises(ClaimError, match="too few dimensions"):
            verify(forged, X)


@pytest.mark.parametrize("cap", [0.0, -0.1, 1.5, np.nan, "0.5", True])
def test_a_cap_that_is_none_is_refused(cap):
    with pytest.raises(ValueError, match="max_distortion must be"):
        NearIsometricProjection(max_distortion=cap).fit(cloud(0, 8, 4))


def test_a_cap_and_a_number_of_dimensions_together_are_refused():
    with pytest.raises(ValueError, match="GuaranteedPCA"):
        NearIsometricProjection(2, max_distortion=0.5).fit(cloud(0, 8, 4))


def test_a_curve_is_exact_monotone_and_above_its_floor():
    X, ks = stretched(2, 40, 12), [1, 3, 6, 9, 12]
    curve = distortion_curve(X, ks, random_state=0)
    assert curve.ks.tolist() == ks
    assert len(curve.certificates) == 5
    for certificate in curve.certificates:
        exact = brute_losses(X, certificate.components)[1].max()
        assert certificate.distortion == pytest.approx(float(exact), abs=1e-9)
        verify(certificate, X)
    assert (np.diff(curve.distortion) <= 1e-9).all()
    assert (np.diff(curve.lower_bound) <= 1e-9).all()
    assert (curve.lower_bound <= curve.distortion).all()
    assert curve.lower_bound[-1] == 0.0
    assert curve.distortion[-1] <= 1e-12
    assert curve.components(12).shape == (12, 12)
    # One fit says the same.
    model = NearIsometricProjection(6, random_state=0).fit(X)
    assert curve.distortion[2] <= 1.005 * model.distortion_
    assert curve.lower_bound[2] <= model.distortion_
    assert curve.components(6).shape == (6, 12)
    with pytest.raises(ValueError, match="one of the curve's"):
        curve.components(40)


@pytest.mark.parametrize(
    "options",
    [
        {"pairs": "neighbors", "n_neighbors": 3},
        {"pairs": "labels", "labels": np.arange(20) % 2},
        {"min_distance": 1.5},
        {"include_norms": True},
    ],
)
def test_curve_and_frontier_are_over_the_pairs_that_are_named(options):
    X = stretched(6, 20, 6)
    curve = distortion_curve(X, [2, 4], tol=1.0, random_state=0, **options)
    found = guarantee_frontier(X, 2, 2, tol=1.0, random_state=0, **options)
    for certificate in (*curve.certificates, *found.certificates):
        exact = audit(X, certificate.components, **options)
        assert certificate.n_pairs == exact.n_pairs != 20 * 19 // 2
        assert certificate.distortion == pytest.approx(exact.distortion, abs=1e-12)
        verify(certificate, X)


def test_a_curve_says_what_suffices_and_where_it_bends():
    ks = np.arange(1, 11)
    falling = np.array([1.0, 0.6, 0.3, 0.1, 0.08, 0.06, 0.05, 0.04, 0.03, 0.02])
    curve = DistortionCurve(ks=ks, distortion=falling, lower_bound=0.9 * falling)
    assert curve.needed(0.1) == (4, 3)
    assert curve.needed(0.001) == (None, 10)
    assert curve.needed(1.0) == (1, 0)
    assert 4 in curve.knees
    straight = DistortionCurve(ks=ks, distortion=1 - ks / 10, lower_bound=0 * falling)
    assert straight.knees == ()


@pytest.mark.parametrize("ks", [[0], [], [1.5], ["two"], [5], [True]])
def test_a_curve_over_nonsense_is_refused(ks):
    with pytest.raises(ValueError, match="ks must hold"):
        distortion_curve(cloud(0, 8, 4), ks)


def test_a_frontier_runs_from_minimax_to_pca_below_its_bound():
    X = stretched(3, 40, 10)
    found = guarantee_frontier(X, 3, 4, random_state=0)
    assert len(list(found)) == 4
    assert (np.diff(found.max_distortion) > 0).all()
    assert (np.diff(found.kept) >= -1e-6).all()
    assert (found.kept <= found.kept_bound + 1e-12).all()
    assert (found.distortion <= found.max_distortion + 1e-12).all()
    assert found.kept[-1] == pytest.approx(found.kept_bound[-1], abs=1e-9)
    for certificate in found.certificates:
        verify(certificate, X)


@pytest.mark.parametrize(
    ("k", "n_points", "objective", "part"),
    [
        (0, 3, "variance", "k must be"),
        (4, 3, "variance", "k must be"),
        (2, 1, "variance", "n_points must be"),
        (2, 3, "beauty", "objective must be"),
    ],
)
def test_a_frontier_of_nonsense_is_refused(k, n_points, objective, part):
    with pytest.raises(ValueError, match=part):
        guarantee_frontier(cloud(0, 12, 4), k, n_points, objective=objective)


def test_new_points_inside_leave_the_projection_as_it_was(four):
    X, model = four
    before, bound = model.distortion_, model.lower_bound_
    components = model.components_.copy()
    # The middle of a pair makes two shorter pairs of the same direction; of these
    # middles we take the first that loses no more with the other points either.
    middles = ((X[0] + X[j]) / 2 for j in range(1, 60))
    together = (np.vstack([X, middle]) for middle in middles)
    grown = next(Y for Y in together if brute_distortion(Y, components) <= before)
    model.update(grown[60:], X)
    assert model.updated_ == "kept"
    assert (model.components_ == components).all()
    assert model.distortion_ == pytest.approx(before, abs=1e-9)
    assert model.lower_bound_ == pytest.approx(bound, abs=1e-9)
    assert model.certificate_.n_points == 61
    verify(model.certificate_, grown)


def test_new_points_outside_are_taken_in(four):
    X, model = four
    new = stretched(5, 20, 10)[:, ::-1] * 2.0
    stale = brute_losses(np.vstack([X, new]), model.components_)[1].max()
    model.update(new, X)
    assert model.updated_ == "refined"
    everything = np.vstack([X, new])
    assert model.distortion_ < stale
    exact = brute_losses(everything, model.components_)[1].max()
    assert model.distortion_ == pytest.approx(float(exact), abs=1e-9)
    verify(model.certificate_, everything)
    again = NearIsometricProjection(4, random_state=0).fit(everything)
    assert model.distortion_ <= 1.1 * again.distortion_
    assert model.lower_bound_ >= 0.99 * again.lower_bound_


def test_an_update_closes_the_gap_that_new_points_of_the_same_kind_open():
    X = load_digits().data[:310]
    model = NearIsometricProjection(8, random_state=0).fit(X[:300])
    gap, bound = model.certificate_.optimality_gap, model.lower_bound_
    stale = brute_losses(X, model.components_)[1].max()
    model.update(X[300:], X[:300])
    assert model.updated_ == "refined"
    assert stale / bound - 1.0 > gap + 0.02
    assert model.certificate_.optimality_gap <= gap + 1.01 * model.tol
    assert model.lower_bound_ >= bound - 1e-12
    verify(model.certificate_, X)


def test_new_points_that_still_fit_whole_are_lost_nothing_of():
    X = np.zeros((20, 6))
    X[:, :2] = cloud(0, 20, 2)
    new = np.zeros((5, 6))
    new[:, 4] = cloud(1, 5, 1)[:, 0]
    with pytest.warns(UserWarning, match="span only 2 dimensions"):
        model = NearIsometricProjection(3, random_state=0).fit(X)
    model.update(new, X)
    assert model.updated_ == "refined"
    assert model.distortion_ < 1e-9
    verify(model.certificate_, np.vstack([X, new]))


def test_an_update_that_loses_something_is_not_called_optimal():
    X = cloud(0, 30, 2) @ cloud(1, 2, 8)
    model = NearIsometricProjection(2, random_state=0, max_iter=1).fit(X)
    assert model.status_ == "optimal"
    with pytest.warns(ConvergenceWarning, match="Stopped early"):
        model.update(cloud(2, 20, 8), X)
    assert model.lower_bound_ < model.distortion_
    assert model.status_ == "max_iter"


def test_an_update_lies_in_files_where_memory_has_no_room(four):
    X, model = four
    new = stretched(5, 20, 10)[:, ::-1] * 2.0
    model.set_params(memory_limit=0)
    given = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "isoproj.estimators.geometry.prepare_pairs",
            lambda rows, *args, **options: (
                given.append(rows) or prepare_pairs(rows, *args, **options)
            ),
        )
        model.update(new, X)
    assert Mapped.of(given[0]) is not None
    verify(model.certificate_, np.vstack([X, new]))


def test_dimensions_next_to_all_are_tried_too():
    # Four dimensions hold these points but for noise.
    X = cloud(0, 18, 4) @ random_basis(0, 5, 4).T + 1e-4 * cloud(100, 18, 5)
    model = NearIsometricProjection(max_distortion=0.5, random_state=0).fit(X)
    assert model.n_components_ <= 4
    assert model.distortion_ <= 0.5


@pytest.mark.parametrize("estimator", [NearIsometricProjection, GuaranteedPCA])
def test_a_small_cap_holds_of_the_matrix_that_ships(estimator):
    X = cloud(2, 14, 8) * 10.0 ** (-0.7 * np.arange(8))
    X[:, 4:] = X[:, :4] @ cloud(3, 4, 4) + 1e-3 * cloud(4, 14, 4)
    X = X.astype(np.float32)
    for k in (5, 6, 7):
        least = NearIsometricProjection(k, random_state=0).fit(X).distortion_
        cap = float(least) - 1e-8
        model = estimator(None, max_distortion=cap, random_state=0).fit(X)
        assert model.distortion_ <= max(cap, 4e-7)


def test_an_update_of_other_data_is_refused():
    X = stretched(4, 30, 6)
    model = NearIsometricProjection(2, random_state=0).fit(X)
    with pytest.raises(ValueError, match="fingerprint differs"):
        model.update(X[:3] + 1.0, X[::-1])
    listed = NearIsometricProjection(2, pairs=[[0, 1], [1, 2], [2, 3]]).fit(X)
    with pytest.raises(ValueError, match="Fit again"):
        listed.update(X[:3] + 1.0, X)
