from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from geometry import brute_losses, cloud, random_basis, seeds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from test_full_scan import DATA, MAPS

from isoproj import audit
from isoproj.pairs.blocks import Workspace
from isoproj.pairs.full_scan import summarise
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.screening import Sieve
from isoproj.pairs.settings import PairSettings
from isoproj.pairs.worst_pairs import Effort, find_worst


@pytest.fixture(params=["narrow", "whole width"])
def screened(request):
    """Return settings that use a sieve however few pairs there are, in small blocks."""
    # Survivors that cost nothing make the narrowest product the best.
    cost = 0.0 if request.param == "narrow" else 1e9
    return PairSettings(
        block_rows=7,
        block_columns=11,
        n_settled=5,
        few_pairs=0,
        widths=(1, 2),
        survivor_cost=cost,
    )


def assert_worst(found, rows, components):
    pairs, losses = brute_losses(rows, components)
    size = max(1.0, np.linalg.norm(components, 2) ** 2)
    m = found.worst_losses.size
    assert m == min(10, losses.size)
    assert_allclose(
        found.worst_losses, np.sort(losses)[::-1][:m], atol=1e-13 * size, rtol=0
    )
    known = {tuple(p): v for p, v in zip(pairs.tolist(), losses, strict=True)}
    named = [tuple(p) for p in found.worst_pairs.tolist()]
    assert len(set(named)) == m
    for pair, stated in zip(named, found.worst_losses, strict=True):
        assert abs(known[pair] - stated) <= 1e-13 * size
    assert found.effort.n_pairs == losses.size


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("linear", MAPS)
def test_the_search_agrees_with_brute_force(data, linear, screened):
    points, pairs = prepare_pairs(DATA[data], rotate=False)
    found = find_worst(points, pairs, MAPS[linear], settings=screened)
    assert_worst(found, DATA[data], MAPS[linear])


@given(seeds, st.integers(2, 40), st.integers(2, 6), st.sampled_from([0.0, 1e4]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_lattice_points_with_many_ties_are_searched_right(screened, seed, r, d, shift):
    rows = np.random.default_rng(seed).integers(-2, 3, size=(r, d)).astype(float)
    rows[0] = 7.0
    rows += shift
    components = random_basis(seed, d, d - 1).T
    points, pairs = prepare_pairs(rows, rotate=bool(seed % 2))
    found = find_worst(points, pairs, components, settings=screened)
    assert_worst(found, rows, components)


@pytest.mark.parametrize("data", DATA)
def test_suspects_and_threads_decide_nothing(data, screened, monkeypatch):
    points, pairs = prepare_pairs(DATA[data], rotate=False)
    found, efforts, linear = [], [], MAPS["orthonormal"]
    first = points.first_copy
    suspects = np.array([[3, 1], [2, 5]])
    suspects = suspects[first[suspects[:, 0]] != first[suspects[:, 1]]]
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("ISOPROJ_NUM_THREADS", threads)
        answer = find_worst(points, pairs, linear, settings=screened)
        efforts.append(answer.effort)
        found.append(answer)
        found.append(
            find_worst(points, pairs, linear, suspects=suspects, settings=screened)
        )
    for other in found[1:]:
        assert_array_equal(other.worst_pairs, found[0].worst_pairs)
        assert_array_equal(other.worst_losses, found[0].worst_losses)
    assert len(set(efforts)) == 1


# Just above the two million pairs from which a sieve pays, in three stripes of blocks.
N_POINTS = 2100


def real_rows(name):
    root = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get("ISOPROJ_DATA", root.parent / "shared" / "data"))
    file, key = {
        "mnist": ("mnist.npz", "train_images"),
        "embeddings": ("text_embeddings_384d.npz", "embeddings"),
    }[name]
    if not (folder / file).exists():
        pytest.skip(f"needs {file}")
    with np.load(folder / file) as stored:
        rows = stored[key][:N_POINTS].astype(np.float32)
    # Fewer columns: the reference forms the difference of each pair.
    return rows[:, ::4] if name == "mnist" else rows[:, ::2]


def generated():
    """Return points in clusters whose spread decays from one dimension to the next."""
    centres = np.repeat(cloud(20, 30, 60), N_POINTS // 30, axis=0)
    rows = (centres + 0.5 * cloud(21, N_POINTS, 60)) * 0.9 ** np.arange(60)
    return rows.astype(np.float32)


def generated_near_copies():
    rows, half = generated().astype(np.float64), N_POINTS // 2
    rows[half:] = rows[:half] + 1e-6 * cloud(22, half, 60)
    return rows


def far_away():
    rows = real_rows("mnist").astype(np.float64)
    return rows + 1e4 * rows.std()


def near_copies():
    rows, half = real_rows("mnist").astype(np.float64) / 255, N_POINTS // 2
    rows[half:] = rows[:half] + 1e-6 * cloud(0, half, 196) / 14
    return rows


@pytest.mark.parametrize(
    "make",
    [
        generated,
        generated_near_copies,
        lambda: real_rows("mnist"),
        lambda: real_rows("embeddings"),
        far_away,
        near_copies,
    ],
    ids=[
        "generated",
        "generated near copies",
        "mnist",
        "embeddings",
        "far from the origin",
        "near copies",
    ],
)
def test_two_thousand_points_agree_with_float64_differences(make):
    rows = make()
    exact = rows.astype(np.float64)
    centred = exact - exact.mean(axis=0)
    components = np.linalg.svd(centred[::4], full_matrices=False)[2][:20]
    result = audit(rows, components, spread=False)
    full = audit(rows, components)
    assert_array_equal(result.worst_pairs, full.worst_pairs)
    assert_array_equal(result.worst_distortions, full.worst_distortions)
    worst = []
    for i in range(len(exact) - 1):
        gaps = exact[i] - exact[i + 1 :]
        kept = np.square(gaps @ components.T).sum(axis=1)
        lengths = np.einsum("ij,ij->i", gaps, gaps)
        losses = np.where(lengths > 0, 1 - kept / np.maximum(lengths, 1e-300), -1)
        order = np.argpartition(-losses, min(9, losses.size - 1))[:10]
        worst += [(losses[j], i, i + 1 + j) for j in order]
    worst.sort(reverse=True)
    assert_allclose(result.worst_distortions, [w[0] for w in worst[:10]], atol=1e-12)
    assert {tuple(p) for p in result.worst_pairs} == {w[1:] for w in worst[:10]}
    assert result.effort.n_pairs == result.n_pairs


@pytest.mark.parametrize("make", [generated, lambda: real_rows("mnist")])
def test_most_pairs_are_ruled_out_by_the_product(make):
    rows = make()
    components = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:20]
    effort = audit(rows, components, spread=False).effort
    assert effort.by_product > 0.99 * effort.n_pairs
    assert effort.measured < 0.001 * effort.n_pairs


def test_an_audit_without_spread_says_so():
    result = audit(DATA["normal"], MAPS["orthonormal"], spread=False)
    assert np.isnan(result.mean)
    assert result.quantiles == {}
    assert result.histogram[0].size == 0
    assert "mean" not in str(result)
    assert result.distortion == audit(DATA["normal"], MAPS["orthonormal"]).distortion


def test_stretch_is_told_without_spread():
    result = audit(DATA["normal"], MAPS["stretching"], spread=False)
    assert result.stretch == audit(DATA["normal"], MAPS["stretching"]).stretch > 0


@given(seeds, st.floats(0.0, 1.2), st.sampled_from([1e-9, 1.0, 1e4]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_pair_at_the_level_is_ruled_out(screened, seed, level, shift):
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(40, 9)) * 0.5 ** np.arange(9)
    rows[20:] = rows[:20] + shift * 1e-6 * rng.normal(size=(20, 9))
    linear = random_basis(seed, 9, 3) * rng.uniform(0.1, 1.0, size=3)
    points, _ = prepare_pairs(rows, rotate=False)
    sieve = Sieve.of(points.coordinates, linear, settings=screened)
    pairs, losses = brute_losses(rows, linear.T)
    assert (sieve.least(pairs) <= 1 - losses + 1e-12).all()
    workspace = Workspace()
    screen = sieve.screen(level)
    left = {
        tuple(pair)
        for start in range(0, 40, 7)
        for found, _ in screen.survivors(points, start, workspace)
        for pair in found.tolist()
    }
    wanted = pairs[1 - losses <= level - 1e-12]
    assert {tuple(p) for p in wanted.tolist()} <= left


def test_effort_is_told_in_shares():
    assert "50.0000% of 4 pairs" in str(Effort(2, 1, 1))


def test_summaries_and_searches_name_the_same_pairs(screened):
    rows = cloud(3, 200, 12) * 0.7 ** np.arange(12)
    points, pairs = prepare_pairs(rows, rotate=True)
    components = random_basis(4, 12, 4).T
    full = summarise(points, pairs, components)
    found = find_worst(points, pairs, components, settings=screened)
    assert_array_equal(found.worst_pairs, full.worst_pairs)


@pytest.mark.parametrize("rank", [1, 2, 5, 12])
@pytest.mark.parametrize("k", [1, 4, 11])
def test_directions_are_orthonormal_whatever_the_points_span(rank, k):
    rows = cloud(rank, 50, rank) @ cloud(9, rank, 12)
    directions = Sieve.of(rows, random_basis(k, 12, k)).directions
    gram = directions.T @ directions
    assert_allclose(gram, np.eye(directions.shape[1]), atol=1e-12)
    inside = Sieve.of(rows, np.linalg.svd(rows)[2][: min(k, rank)].T).directions
    assert_allclose(inside.T @ inside, np.eye(inside.shape[1]), atol=1e-12)


@pytest.mark.parametrize("power", [21.0, 22.0, 22.5, 23.0, 161.0, 162.0])
def test_points_that_two_others_dwarf_are_not_ruled_out(power, screened):
    rng = np.random.default_rng(int(power))
    components = random_basis(rng, 4, 2).T
    rows = cloud(rng, 40, 4)
    # Their mean is that of the others, whose squares then nearly vanish in float32.
    rows[0] = 10.0**power * components[0]
    rows[1] = -rows[0]
    points, pairs = prepare_pairs(rows, rotate=False)
    found = find_worst(points, pairs, components, settings=screened)
    float32 = PairSettings(few_pairs=0)
    whole = summarise(points, pairs, components, settings=float32)
    expected = np.sort(brute_losses(rows, components)[1])[::-1][:10]
    assert_allclose(found.worst_losses, expected, atol=1e-13, rtol=0)
    assert_allclose(whole.worst_losses, expected, atol=1e-13, rtol=0)
