from __future__ import annotations

import numpy as np
import pytest
from geometry import QUICK, cloud
from sklearn.exceptions import DataConversionWarning

from isoproj import GuaranteedPCA, NearIsometricProjection, verify
from isoproj.pairs.rule import PairRule
from isoproj.proof.heldout import Split, measure_heldout, split_rows


def loss(components, first, second):
    gap = first - second
    image = components @ gap
    return 1.0 - (image @ image) / (gap @ gap)


@pytest.mark.parametrize("estimator", [NearIsometricProjection, GuaranteedPCA])
@pytest.mark.parametrize("size", [0.25, 9])
def test_held_out_pairs_are_measured_on_the_split_alone(estimator, size):
    X = cloud(0, 36, 6)
    model = estimator(2, heldout=size, random_state=3).fit(X)
    found = model.heldout_
    assert found.n_points == 9
    assert sorted([*found.rows, *found.training]) == list(range(36))
    within = [
        loss(model.components_, X[i], X[j])
        for i in found.rows
        for j in found.rows
        if i < j
    ]
    across = [
        loss(model.components_, X[i], X[j]) for i in found.rows for j in found.training
    ]
    assert found.distortion_within == pytest.approx(max(within), abs=1e-12)
    assert found.distortion_to_training == pytest.approx(max(across), abs=1e-12)
    assert found.within.mean == pytest.approx(np.mean(within), abs=1e-9)
    assert found.to_training.mean == pytest.approx(np.mean(across), abs=1e-9)
    assert (found.within.n_pairs, found.to_training.n_pairs) == (36, 9 * 27)
    for result in (found.within, found.to_training):
        i, j = result.worst_pairs[0]
        worst = loss(model.components_, X[i], X[j])
        assert worst == pytest.approx(result.distortion, abs=1e-12)


def test_the_certificate_is_over_the_fitted_rows_alone():
    X = cloud(1, 40, 6)
    model = NearIsometricProjection(2, heldout=0.2, random_state=0, **QUICK).fit(X)
    fitted = X[model.heldout_.training]
    verify(model.certificate_, fitted)
    alone = NearIsometricProjection(2, random_state=0, **QUICK).fit(fitted)
    assert model.n_features_in_ == 6
    assert model.certificate_.fingerprint == alone.certificate_.fingerprint
    assert "does not cover" in str(model.heldout_)
    assert "the worst loses" in str(model.heldout_)


def test_the_split_follows_the_random_state_and_a_plain_fit_has_none():
    X = cloud(2, 30, 5)
    model = NearIsometricProjection(2, heldout=5, **QUICK)
    rows = [
        model.set_params(random_state=seed).fit(X).heldout_.rows for seed in (0, 0, 1)
    ]
    assert (rows[0] == rows[1]).all()
    assert (rows[0] != rows[2]).any()
    assert model.set_params(heldout=None).fit(X).heldout_ is None


def test_a_model_read_from_a_file_or_updated_says_nothing_of_held_out_points(tmp_path):
    X = cloud(3, 30, 5)
    model = NearIsometricProjection(2, heldout=0.2, random_state=0, **QUICK).fit(X)
    model.save(tmp_path / "m.isoproj")
    again = NearIsometricProjection.load(tmp_path / "m.isoproj")
    assert again.heldout_ is None
    assert again.heldout == 0.2
    again.update(X[model.heldout_.rows], X[model.heldout_.training])
    assert again.heldout_ is None


def test_labels_name_the_held_out_pairs_that_count():
    X, y = cloud(4, 40, 5), np.arange(40) % 3
    options = {"heldout": 0.25, "random_state": 0, **QUICK}
    for pairs, same in (("labels", False), ("within-labels", True)):
        model = NearIsometricProjection(2, pairs=pairs, **options).fit(X, y)
        found = model.heldout_
        across = [
            loss(model.components_, X[i], X[j])
            for i in found.rows
            for j in found.training
            if (y[i] == y[j]) is np.bool_(same)
        ]
        assert found.to_training.n_pairs == len(across)
        assert found.distortion_to_training == pytest.approx(max(across), abs=1e-12)
        within = [
            loss(model.components_, X[i], X[j])
            for i in found.rows
            for j in found.rows
            if i < j and (y[i] == y[j]) is np.bool_(same)
        ]
        assert found.distortion_within == pytest.approx(max(within), abs=1e-12)


def worst_of_nearest(X, split, components, count):
    """Return what held-out rows lose at most with their nearest fitted ones."""
    return max(
        loss(components, X[i], X[j])
        for i in split.heldout
        for j in split.training[
            np.argsort(np.linalg.norm(X[split.training] - X[i], axis=1))[:count]
        ]
    )


def test_neighbours_of_a_held_out_point_are_sought_on_either_side():
    X = cloud(5, 40, 4)
    split = split_rows(40, 10, PairRule("neighbors"), 0)
    components = np.eye(2, 4)
    rule = PairRule("neighbors", n_neighbors=3)
    found = measure_heldout(X, split, components, rule, distortion=0.5)
    assert found.to_training.n_pairs == 30
    worst = worst_of_nearest(X, split, components, 3)
    assert found.distortion_to_training == pytest.approx(worst, abs=1e-12)


@pytest.mark.parametrize(("factor", "offset"), [(1.0, 1e9), (1e200, 0.0), (1e-200, 0)])
def test_neighbours_of_a_held_out_point_are_those_in_any_units(factor, offset):
    X = cloud(1, 60, 20) * factor + offset
    split = split_rows(60, 10, PairRule("neighbors"), 0)
    components = np.eye(2, 20)
    rule = PairRule("neighbors", n_neighbors=3)
    found = measure_heldout(X, split, components, rule, distortion=0.5)
    X = (X - offset) / factor
    worst = worst_of_nearest(X, split, components, 3)
    assert found.distortion_to_training == pytest.approx(worst, abs=1e-12)


def test_copies_of_a_held_out_point_are_not_its_neighbours():
    X = cloud(7, 20, 4)
    split = Split(np.arange(15), np.arange(15, 20))
    X[16] = X[17] = X[15] = X[3]
    rule = PairRule("neighbors", n_neighbors=4)
    found = measure_heldout(X, split, np.eye(2, 4), rule, distortion=0.5)
    assert (found.within.n_pairs, found.to_training.n_pairs) == (3, 20)
    X[15:] = X[3]
    assert measure_heldout(X, split, np.eye(2, 4), rule, distortion=0.5).within is None


def test_labels_in_a_column_name_the_held_out_pairs_too():
    X, y = cloud(8, 20, 4), np.arange(20) % 3
    split = split_rows(20, 6, PairRule(), 0)
    flat = measure_heldout(
        X, split, np.eye(2, 4), PairRule("labels", labels=y), distortion=0.5
    )
    with pytest.warns(DataConversionWarning):
        column = measure_heldout(
            X,
            split,
            np.eye(2, 4),
            PairRule("labels", labels=y[:, None]),
            distortion=0.5,
        )
    assert column.to_training.n_pairs == flat.to_training.n_pairs
    assert column.distortion_to_training == flat.distortion_to_training


def test_rows_as_directions_have_no_pairs_with_fitted_ones():
    X = cloud(6, 20, 4)
    model = NearIsometricProjection(
        2, pairs="directions", heldout=5, random_state=0
    ).fit(X)
    kept = np.linalg.norm(X @ model.components_.T, axis=1) ** 2
    losses = 1.0 - kept / np.linalg.norm(X, axis=1) ** 2
    worst = losses[model.heldout_.rows].max()
    assert model.heldout_.distortion_within == pytest.approx(worst, abs=1e-12)
    assert np.isnan(model.heldout_.distortion_to_training)
    assert "no pair counts" in str(model.heldout_)


def test_held_out_copies_have_no_pair_that_counts():
    X = np.vstack([np.eye(4), np.ones((2, 4))])
    split = Split(np.arange(4), np.array([4, 5]))
    found = measure_heldout(X, split, np.eye(2, 4), PairRule(), distortion=0.5)
    assert found.within is None
    assert found.to_training is not None


@pytest.mark.parametrize("size", [0.0, 1.0, -0.1, 1, 0, 19, 100, True, "0.2", np.nan])
def test_a_share_that_is_none_is_refused(size):
    with pytest.raises(ValueError, match="heldout must be"):
        NearIsometricProjection(2, heldout=size).fit(cloud(0, 20, 4))


def test_a_list_of_pairs_and_too_many_pairs_are_refused():
    X = cloud(0, 20, 4)
    with pytest.raises(ValueError, match="pairs must be a word"):
        NearIsometricProjection(2, pairs=[[0, 1], [1, 2]], heldout=0.2).fit(X)
    with pytest.raises(ValueError, match="Hold out 200 rows or fewer"):
        split_rows(100_000, 0.2, PairRule())


@pytest.mark.parametrize("pairs", ["all", "sample", "labels", "within-labels"])
def test_too_many_pairs_between_both_parts_are_refused_beforehand(pairs):
    with pytest.raises(ValueError, match="at most 20,000,000"):
        split_rows(10_000, 0.5, PairRule(pairs))
