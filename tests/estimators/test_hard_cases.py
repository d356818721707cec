"""Inputs that once broke a claim or a solver."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import scipy.sparse
from geometry import cloud

from isoproj import NearIsometricProjection, audit, verify
from isoproj.exceptions import ClaimError

pytestmark = pytest.mark.filterwarnings(
    "ignore::isoproj.exceptions.DuplicatePointsWarning"
)


def grid():
    return np.stack(np.meshgrid(*[np.arange(6.0)] * 3), axis=-1).reshape(-1, 3)


def one_unit_in_the_last_place(seed):
    rows = cloud(seed, 20, 5)
    rows[0] = rows[1]
    rows[0, 0] = np.nextafter(rows[1, 0], 9.0)
    return rows


HARD = {
    "grid": (2, grid()),
    "one-hot rows": (6, np.eye(39)[:, :9]),
    "copies of a diagonal": (2, np.repeat(np.diag([1.0, 2.0, 3.0, 4.0]), 9, axis=0)),
    "almost only copies": (1, np.vstack([np.zeros((4000, 3)), np.eye(3)])),
    "a gap of one bit": (2, one_unit_in_the_last_place(3)),
    "another gap of one bit": (2, one_unit_in_the_last_place(0)),
}


# Where a gap is one bit of its rows, their projections may be equal.
@pytest.mark.filterwarnings("ignore:In float64 the projections:UserWarning")
@pytest.mark.parametrize("solver", ["minimax", "dual_ascent"])
@pytest.mark.parametrize("name", HARD)
def test_degenerate_points_are_fitted_and_verified(name, solver):
    k, rows = HARD[name]
    if solver == "dual_ascent":
        # It keeps a weight for every pair, so that 4,000 copies would take minutes.
        rows = rows[-300:]
    model = NearIsometricProjection(k, solver=solver, random_state=0).fit(rows)
    assert model.lower_bound_ <= model.distortion_
    verify(model.certificate_, rows)


def test_a_listed_pair_of_one_point_is_left_out_and_verified():
    rows = cloud(0, 6, 3)
    pairs = [[0, 1], [1, 2], [2, 3], [4, 4]]
    model = NearIsometricProjection(1, pairs=pairs, random_state=0).fit(rows)
    assert model.certificate_.n_identical == 1
    verify(model.certificate_, rows)


@pytest.mark.parametrize("seed", range(6))
def test_sparse_rows_hide_no_worst_pair_in_a_small_direction(seed):
    n = 100
    rows = np.zeros((n, n))
    rows[:, 0], rows[:, 1] = np.arange(n) % 2, np.arange(n) // 2
    rows[:, -1] = 3e-6 * np.random.default_rng(seed).uniform(-1, 1, n)
    components = np.zeros((2, n))
    components[0, 0], components[0, -1], components[1, 1] = 0.3, 0.9, 0.9
    dense = audit(rows, components, n_worst=1)
    sparse = audit(scipy.sparse.csr_array(rows), components, n_worst=1)
    assert sparse.distortion == pytest.approx(dense.distortion, abs=1e-13)


def test_the_spectral_ratio_is_right_for_rows_of_very_different_size():
    size = 10.0 ** np.random.default_rng(0).uniform(-10, 10, size=(12, 1))
    rows = np.random.default_rng(0).normal(size=(12, 5)) * size
    model = NearIsometricProjection(2, solver="dual_ascent", pairs="directions")
    ratio = model.fit(rows).certificate_.spectral_ratio
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    energies = np.linalg.eigvalsh(unit.T @ unit / 12)
    assert ratio == pytest.approx(1.0 / (1.0 - energies[-2:].sum()))


def test_a_map_that_stretches_a_little_is_no_projection():
    rows = np.eye(2)
    model = NearIsometricProjection(1, pairs="directions", random_state=0).fit(rows)
    honest = model.certificate_
    longer = honest.components * (1.0 + 4e-11)
    result = audit(rows, longer, pairs="directions", n_worst=2)
    forged = dataclasses.replace(
        honest,
        components=longer,
        distortion=result.distortion,
        worst_pairs=result.worst_pairs,
        worst_distortions=result.worst_distortions,
    )
    with pytest.raises(ClaimError, match="orthonormal rows"):
        verify(forged, rows)


def test_a_list_under_another_kind_is_refused():
    rows = cloud(1, 8, 3)
    honest = NearIsometricProjection(1, random_state=0).fit(rows).certificate_
    forged = dataclasses.replace(honest, listed_pairs=np.array([[0, 1]]))
    with pytest.raises(ClaimError, match="list"):
        verify(forged, rows)


def test_huge_maps_are_measured_or_refused_in_one_line():
    rows = cloud(2, 2100, 4)
    components = np.eye(2, 4)
    plain = audit(rows, components)
    large = audit(rows, 1e20 * components)
    assert large.distortion == pytest.approx(1 - 1e40 * (1 - plain.distortion))
    with pytest.raises(ValueError, match="Scale the map") as error:
        audit(rows, 1e160 * components)
    assert "\n" not in str(error.value)


def test_ties_come_in_the_order_of_their_indices():
    rows = np.repeat(cloud(3, 100, 10), 7, axis=0)
    components = np.eye(3, 10)
    first = audit(rows, components, n_worst=60)
    assert first.worst_pairs.tolist() == sorted(
        first.worst_pairs.tolist(),
        key=lambda p: (-round(audit(rows, components, pairs=[p]).distortion, 10), p),
    )
    again = audit(rows, components, n_worst=60)
    assert (first.worst_pairs == again.worst_pairs).all()
    assert (first.worst_distortions == again.worst_distortions).all()
