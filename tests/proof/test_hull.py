from __future__ import annotations

import dataclasses
import importlib.util
import itertools
from pathlib import Path

import numpy as np
import pytest
from certificates import load_checker
from sklearn.datasets import load_iris

from isoproj import Certificate, NearIsometricProjection, verify
from isoproj.exceptions import ClaimError
from isoproj.numerics.spectral import orthonormal
from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.bounds import lower_bound
from isoproj.proof.hull import (
    Facets,
    checked_inradius,
    hull_bound,
    hull_facets,
)
from isoproj.solvers.api import Status

ROUNDING = 1e-15


def directions(rows):
    i, j = np.triu_indices(len(rows), 1)
    gaps = rows[i] - rows[j]
    return np.column_stack([i, j]), gaps / np.linalg.norm(gaps, axis=1)[:, None]


def frame(rng, d, k):
    return orthonormal(rng.standard_normal((d, k)))


def cube(d):
    return np.array(list(itertools.product([-1.0, 1.0], repeat=d)))


def best_on_a_grid(x, k):
    """Return the least distortion over a fine grid of subspaces (d = 2 or 3)."""
    d = x.shape[1]
    if d == 2:
        angle = np.linspace(0.0, np.pi, 2000)
        dropped = np.column_stack([np.cos(angle), np.sin(angle)])
    else:
        angle, height = np.meshgrid(
            np.linspace(0, 2 * np.pi, 160), np.linspace(0, 1, 80)
        )
        around = np.sqrt(1.0 - height**2)
        dropped = np.stack([around * np.cos(angle), around * np.sin(angle), height], -1)
        dropped = dropped.reshape(-1, 3)
    squares = (dropped @ x.T) ** 2
    losses = squares if k == d - 1 else 1.0 - squares
    return float(losses.max(axis=1).min())


def hold_on_a_grid(d, k, count, seed):
    """Compare both bounds of random instances with the best projection of a grid."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        rows = rng.standard_normal((rng.integers(4, 9), d)) * rng.uniform(0.1, 1.0, d)
        pairs, x = directions(rows)
        points, _ = prepare_pairs(rows, rotate=False)
        best = best_on_a_grid(x, k)
        axes = frame(rng, d, k + 1).T
        assert hull_bound(points, axes, pairs) <= best
        assert lower_bound(points, pairs, rng.dirichlet(np.ones(len(pairs))), k) <= best


def hold_for_random_projections(d, count, seed):
    """Compare the hull bound of random instances with many random projections."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        k = int(rng.integers(1, d))
        rows = rng.standard_normal((12, d)) * rng.uniform(0.05, 1.0, d)
        pairs, x = directions(rows)
        some = rng.permutation(len(pairs))[: rng.integers(d + 2, len(pairs))]
        points, _ = prepare_pairs(rows, rotate=False)
        bound = hull_bound(points, frame(rng, d, k + 1).T, pairs[some])
        for _ in range(100):
            losses = 1.0 - ((x @ frame(rng, d, k)) ** 2).sum(axis=1)
            assert bound <= losses.max()


GRIDS = [(2, 1), (3, 1), (3, 2)]


@pytest.mark.parametrize(("d", "k"), GRIDS)
def test_both_bounds_stay_below_the_best_projection_on_a_fine_grid(d, k):
    hold_on_a_grid(d, k, 100, 10 * d + k)


@pytest.mark.slow
@pytest.mark.parametrize(("d", "k"), GRIDS)
def test_both_bounds_stay_below_a_fine_grid_thousands_of_times(d, k):
    hold_on_a_grid(d, k, 2_400, 1000 + 10 * d + k)


@pytest.mark.parametrize("d", [3, 4, 5, 6])
def test_no_projection_loses_less_than_any_hull_proves(d):
    hold_for_random_projections(d, 40, d)


@pytest.mark.slow
@pytest.mark.parametrize("d", [4, 5, 6])
def test_no_projection_of_thousands_loses_less_than_a_hull_proves(d):
    hold_for_random_projections(d, 1_000, 1000 + d)


@pytest.mark.parametrize("d", [2, 3, 4, 5])
def test_the_hull_is_exact_at_one_dimension_less(d):
    rows = np.random.default_rng(d).standard_normal((14, d))
    model = NearIsometricProjection(d - 1, random_state=0).fit(rows)
    assert model.status_ is Status.OPTIMAL
    assert 0.0 <= model.distortion_ - model.lower_bound_ <= 1e-9
    verify(model.certificate_, rows)


def test_three_lines_at_sixty_degrees_lose_three_quarters():
    rows = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    model = NearIsometricProjection(1, random_state=0).fit(rows)
    assert model.lower_bound_ == pytest.approx(0.75, abs=1e-12)
    assert model.certificate_.proof == "hull"


def test_iris_is_proved_optimal_in_three_dimensions_and_close_in_two():
    rows = np.unique(load_iris().data, axis=0)
    three = NearIsometricProjection(3, random_state=0).fit(rows)
    two = NearIsometricProjection(2, random_state=0).fit(rows)
    assert three.status_ is Status.OPTIMAL
    assert three.distortion_ - three.lower_bound_ <= 1e-9
    assert two.lower_bound_ >= 0.95


def test_a_rotation_and_another_scale_change_no_hull_bound():
    rng = np.random.default_rng(1)
    rows, turn = rng.standard_normal((15, 4)), frame(rng, 4, 4)
    pairs, _ = directions(rows)
    axes = frame(rng, 4, 3).T
    points, _ = prepare_pairs(rows, rotate=False)
    turned, _ = prepare_pairs(1e3 * rows @ turn + 5.0, rotate=False)
    found = hull_bound(points, axes, pairs)
    assert found > 0.0
    assert hull_bound(turned, axes @ turn, pairs) == pytest.approx(found, abs=1e-10)
    mixed = frame(rng, 3, 3) @ axes
    assert hull_bound(points, mixed, pairs[:, ::-1]) == pytest.approx(found, abs=1e-12)


@pytest.mark.parametrize("d", [2, 3, 4])
def test_the_inradius_of_cubes_and_cross_polytopes_is_known(d):
    for corners, radius in ((cube(d), 1.0), (np.eye(d), d**-0.5)):
        found = checked_inradius(corners, hull_facets(corners), ROUNDING)
        assert radius - 1e-13 <= found <= radius


def test_a_flat_hull_proves_nothing():
    rows = np.random.default_rng(0).standard_normal((10, 2)) @ np.eye(2, 4)
    pairs, _ = directions(rows)
    points, _ = prepare_pairs(rows, rotate=False)
    assert hull_bound(points, np.eye(4)[:3], pairs) == 0.0
    assert hull_bound(points, np.eye(4)[:3], pairs) == 0.0
    assert hull_bound(points, np.eye(4)[:2], pairs) > 0.0


@pytest.mark.parametrize("d", [2, 3, 5])
def test_facets_that_do_not_surround_the_origin_prove_nothing(d):
    rng = np.random.default_rng(d)
    y = rng.standard_normal((30, d))
    whole = hull_facets(y)
    assert checked_inradius(y, whole, ROUNDING) > 0.0
    n = len(whole.offsets)
    nearest = int(whole.offsets.argmin())
    for keep in (np.delete(np.arange(n), nearest), np.append(np.arange(n), nearest)):
        some = Facets(whole.corners[keep], whole.normals[keep], whole.offsets[keep])
        assert checked_inradius(y, some, ROUNDING) == 0.0
    # A closed surface beside the origin: all rays that meet it meet it twice.
    beside = hull_facets(y).corners
    aside = np.vstack([y, -y]) + 100.0
    away = np.ones((n, d)) / np.sqrt(d)
    # Numbers below 2 * 30 are points themselves here, not their negatives.
    moved = Facets(beside, away, whole.offsets)
    assert checked_inradius(aside, moved, ROUNDING) == 0.0


def test_a_normal_of_another_plane_only_lowers_the_inradius():
    y = np.random.default_rng(3).standard_normal((30, 3))
    whole = hull_facets(y)
    turned = whole.normals + 0.01 * np.random.default_rng(4).standard_normal(
        whole.normals.shape
    )
    found = checked_inradius(y, Facets(whole.corners, turned, whole.offsets), ROUNDING)
    assert 0.0 < found < checked_inradius(y, whole, ROUNDING)


def honest():
    rows = np.random.default_rng(5).standard_normal((25, 4))
    return rows, NearIsometricProjection(2, random_state=0).fit(rows).certificate_


def edits(hull):
    other = np.random.default_rng(0).standard_normal(hull.hull_axes.shape)
    yield "other axes", {"hull_axes": orthonormal(other.T).T}
    yield "longer axes", {"hull_axes": 1.1 * hull.hull_axes}
    yield "repeated axes", {"hull_axes": hull.hull_axes[[0, 0, 1]]}
    yield "axes of fewer dimensions", {"hull_axes": hull.hull_axes[:2]}
    yield "no numbers", {"hull_axes": np.full_like(hull.hull_axes, np.nan)}
    yield "fewer pairs", {"hull_pairs": hull.hull_pairs[: len(hull.hull_pairs) // 2]}
    yield "no pairs", {"hull_pairs": hull.hull_pairs[:0]}
    yield "pairs outside", {"hull_pairs": hull.hull_pairs + 1000}
    yield "identical rows", {"hull_pairs": hull.hull_pairs[:, [0, 0]]}
    yield "another bound", {"bound": hull.bound + 1e-6}
    yield "no bound", {"bound": float("nan")}


def test_an_edited_hull_does_not_verify(tmp_path):
    rows, certificate = honest()
    checker = load_checker()
    assert certificate.proof == "hull"
    verify(certificate, rows)
    certificate.save(tmp_path / "honest.isoproj")
    checker.check(tmp_path / "honest.isoproj", rows)
    for name, change in edits(certificate.hull):
        hull = dataclasses.replace(certificate.hull, **change)
        forged = dataclasses.replace(certificate, hull=hull)
        with pytest.raises(ClaimError, match="lower bound"):
            verify(forged, rows)
        if "no " in name:
            continue
        forged.save(tmp_path / "forged.isoproj")
        with pytest.raises((AssertionError, IndexError)):
            checker.check(tmp_path / "forged.isoproj", rows)


def test_a_bound_above_that_of_its_hull_does_not_verify():
    rows, certificate = honest()
    for bound in (certificate.lower_bound + 1e-6, certificate.lower_bound - 1e-6):
        with pytest.raises(ClaimError, match="lower bound"):
            verify(dataclasses.replace(certificate, lower_bound=bound), rows)
    with pytest.raises(ClaimError, match="lower bound"):
        verify(dataclasses.replace(certificate, hull=None), rows)


def test_a_saved_hull_comes_back_and_a_file_without_one_loads(tmp_path):
    rows, certificate = honest()
    certificate.save(tmp_path / "a.isoproj")
    back = Certificate.load(tmp_path / "a.isoproj")
    np.testing.assert_array_equal(back.hull.hull_axes, certificate.hull.hull_axes)
    np.testing.assert_array_equal(back.hull.hull_pairs, certificate.hull.hull_pairs)
    verify(back, rows)
    points, _ = prepare_pairs(rows, rotate=False)
    fantope = lower_bound(points, certificate.weighted_pairs, certificate.weights, 2)
    older = dataclasses.replace(certificate, hull=None, lower_bound=fantope)
    older.save(tmp_path / "b.isoproj")
    back = Certificate.load(tmp_path / "b.isoproj")
    assert back.hull is None
    assert back.proof == "fantope"
    verify(back, rows)


def test_an_update_that_changes_nothing_keeps_the_hull_proof():
    rows, certificate = honest()
    model = NearIsometricProjection(2, random_state=0).fit(rows)
    model.update(rows[:1] + 1e-12, rows)
    assert model.certificate_.proof == "hull"
    assert model.lower_bound_ >= certificate.lower_bound - 1e-9
    verify(model.certificate_, np.vstack([rows, rows[:1] + 1e-12]))


def independent_checker():
    path = Path(__file__).parents[2] / "docs" / "independent_checker.py"
    spec = importlib.util.spec_from_file_location("independent_checker", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
