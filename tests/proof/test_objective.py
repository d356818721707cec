from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import scipy.sparse
from geometry import brute_losses, cloud, every_pair, random_basis, seeds
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from isoproj.pairs.rule import prepare_pairs
from isoproj.proof.objective import (
    Objective,
    centred_rows,
    kept_bound,
    objective_matrix,
    share_kept,
)

KINDS = {"all": "all", "directions": "directions", "listed": [[0, 3], [2, 5], [1, 4]]}
kinds = st.sampled_from(sorted(KINDS))
objectives = st.sampled_from(list(Objective))


def brute_matrix(rows, objective, kind):
    """Return the objective's matrix from its definition."""
    if objective is Objective.VARIANCE:
        centred = rows - rows.mean(axis=0)
        return centred.T @ centred / (centred**2).sum()
    if kind == "directions":
        gaps = rows
    else:
        pairs = every_pair(len(rows)) if kind == "all" else np.array(KINDS[kind])
        gaps = rows[pairs[:, 0]] - rows[pairs[:, 1]]
    gaps = gaps[(gaps != 0).any(axis=1)]
    units = gaps / np.linalg.norm(gaps, axis=1)[:, None]
    return units.T @ units / len(units)


def counted(rows, kind):
    """Return rows and pairs for ``brute_losses``."""
    if kind == "directions":
        n = len(rows)
        pairs = np.column_stack([np.arange(n), np.full(n, n)])
        return np.vstack([rows, np.zeros(rows.shape[1])]), pairs
    return rows, None if kind == "all" else KINDS[kind]


@given(seeds, objectives, kinds, st.sampled_from([0.0, 1.0, 1e5]))
def test_a_share_is_what_its_definition_says(seed, objective, kind, distance):
    rows = cloud(seed, 9, 5) + distance
    components = random_basis(seed + 1, 5, 2).T
    points, pairs = prepare_pairs(rows, KINDS[kind], rotate=False)
    found = share_kept(points, pairs, objective, components)
    matrix = brute_matrix(rows, objective, kind)
    expected = np.trace(components @ matrix @ components.T)
    assert_allclose(found, expected, atol=1e-13 * (1 + distance))


@given(seeds)
def test_copies_and_close_pairs_count_as_their_differences_say(seed):
    rows = cloud(seed, 8, 4)
    rows[3], rows[5] = rows[0], rows[1] + 1e-7 * cloud(seed, 1, 4)[0]
    points, pairs = prepare_pairs(rows, rotate=False)
    found = objective_matrix(rows, Objective.DISTORTION, pairs, points.first_copy)
    expected = brute_matrix(rows, Objective.DISTORTION, "all")
    assert_allclose(found, expected, atol=1e-10)


@given(seeds, objectives, kinds, st.integers(1, 4), st.floats(0.0, 5.0))
def test_no_projection_keeps_more_than_any_multipliers_allow(
    seed, objective, kind, k, size
):
    rng = np.random.default_rng(seed)
    rows = cloud(seed, 8, 5) * np.geomspace(3.0, 1.0, 5)
    points, pairs = prepare_pairs(rows, KINDS[kind], rotate=False)
    support = every_pair(8) if pairs.listed is None else pairs.listed
    multipliers = size * rng.dirichlet(np.full(len(support), 0.3))
    for trial in range(5):
        components = random_basis([seed, trial], 5, k).T
        extended, counting = counted(rows, kind)
        cap = float(brute_losses(extended, components, counting)[1].max())
        bound = kept_bound(points, pairs, objective, k, cap, support, multipliers)
        kept = share_kept(points, pairs, objective, components)
        assert kept <= bound <= 1.0


@pytest.mark.parametrize("cap", [0.05, 0.2, 0.6])
def test_the_right_multiplier_proves_the_optimum_of_a_plane(cap):
    # Variance 0.9 across, 0.1 upright, and a cap on one upright pair: the best line
    # leans as far as the cap allows. The multiplier makes both directions equal.
    rows = np.array([[-3.0, 0.0], [3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    points, pairs = prepare_pairs(rows, [[2, 3]], rotate=False)
    proof = np.array([[2, 3]]), np.array([0.8])
    bound = kept_bound(points, pairs, Objective.VARIANCE, 1, cap, *proof)
    angles = np.linspace(0.0, np.pi, 100_001)
    allowed = np.cos(angles) ** 2 <= cap
    kept = 0.9 * np.cos(angles) ** 2 + 0.1 * np.sin(angles) ** 2
    best = kept[allowed].max()
    assert best <= bound <= best + 1e-4


@given(seeds, st.integers(1, 4))
def test_without_multipliers_the_bound_is_what_pca_keeps(seed, k):
    rows = cloud(seed, 9, 5)
    points, pairs = prepare_pairs(rows, rotate=False)
    none = np.empty((0, 2), dtype=int), np.empty(0)
    bound = kept_bound(points, pairs, Objective.VARIANCE, k, 0.5, *none)
    sizes = np.linalg.svd(rows - rows.mean(axis=0), compute_uv=False) ** 2
    assert_allclose(bound, sizes[:k].sum() / sizes.sum(), atol=1e-12)
    assert bound >= sizes[:k].sum() / sizes.sum()


def test_multipliers_that_prove_less_than_none_do_not_hurt():
    rows = cloud(0, 9, 5)
    points, pairs = prepare_pairs(rows, rotate=False)
    heavy = every_pair(9), np.full(36, 100.0)
    none = np.empty((0, 2), dtype=int), np.empty(0)
    bounds = [
        kept_bound(points, pairs, Objective.VARIANCE, 2, 0.9, *proof)
        for proof in (heavy, none)
    ]
    assert bounds[0] == bounds[1]


def test_sparse_rows_are_too_many_before_memory_ends():
    rows = scipy.sparse.csr_array(cloud(0, 9, 9))
    points, pairs = prepare_pairs(rows, rotate=False)
    with pytest.raises(ValueError, match="sparse X must have at most"):
        centred_rows(points, pairs, Objective.VARIANCE, largest_dense=80)


@pytest.mark.parametrize("offset", [1e10, 1e12, 1e14, 1e15])
def test_variance_is_kept_and_bounded_far_from_the_origin(offset):
    rows = cloud(0, 200, 3) * [3.0, 2.0, 1.0] + offset
    points, pairs = prepare_pairs(rows, rotate=False)
    components = random_basis(1, 3, 2).T
    exact = [[Fraction(value) for value in row] for row in rows.tolist()]
    mean = [sum(column) / len(exact) for column in zip(*exact, strict=True)]
    gaps = np.array(
        [[float(v - m) for v, m in zip(row, mean, strict=True)] for row in exact]
    )
    matrix = gaps.T @ gaps / np.vdot(gaps, gaps)
    kind, none = Objective.VARIANCE, (np.empty((0, 2), dtype=int), np.empty(0))
    kept = share_kept(points, pairs, kind, components)
    assert abs(kept - np.vdot(components, components @ matrix)) < 1e-13
    bound = kept_bound(points, pairs, kind, 2, 1.0, *none)
    assert bound >= np.linalg.eigvalsh(matrix)[1:].sum() - 1e-15


@pytest.mark.parametrize("kind", ["all", "listed"])
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("data", ["next to each other", "dwarfed"])
def test_mean_loss_is_exact_however_close_the_points(kind, form, data):
    rows = cloud(0, 6, 3)
    if data == "dwarfed":
        rows[0] *= 1e161
        rows[1] = -rows[0]
    else:
        # Centred, these two would be one point.
        rows[:2] = [1e-9, 2.0, 2.0]
        rows[1, 0] = np.nextafter(rows[0, 0], 9.0)
    named = "all" if kind == "all" else every_pair(6)
    points, pairs = prepare_pairs(form(rows), named, rotate=False)
    components = random_basis(1, 3, 1).T
    _, losses = brute_losses(rows, components)
    objective = Objective.DISTORTION
    kept = share_kept(points, pairs, objective, components)
    assert abs(1.0 - kept - losses.mean()) < 1e-12
