from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from geometry import brute_losses, cloud, every_pair, random_basis, seeds
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from isoproj import audit
from isoproj.numerics.progress import Walk, watching
from isoproj.pairs.full_scan import summarise
from isoproj.pairs.losses import N_BINS
from isoproj.pairs.rule import prepare_pairs
from isoproj.pairs.settings import PairSettings


def clusters():
    centres = np.repeat(cloud(1, 5, 8) * 1e3, 12, axis=0)
    return centres + cloud(2, 60, 8)


def near_copies(gap):
    rows = np.repeat(cloud(3, 30, 8), 2, axis=0)
    rows[1::2] += gap * cloud(4, 30, 8)
    return rows


def many_copies():
    which = np.random.default_rng(5).integers(0, 9, size=60)
    return cloud(6, 9, 8)[which]


def with_outliers():
    rows = cloud(7, 60, 8)
    rows[::20] *= 1e6
    return rows


def sparse_counts():
    rows = np.random.default_rng(8).poisson(0.3, size=(60, 8)).astype(float)
    return rows + np.eye(60, 8)


DATA = {
    "normal": cloud(0, 60, 8),
    "far from the origin": cloud(0, 60, 8) + 1e4,
    "clusters": clusters(),
    "near copies 1e-6": near_copies(1e-6),
    "near copies 1e-12": near_copies(1e-12),
    "outliers": with_outliers(),
    "many copies": many_copies(),
    "counts": sparse_counts(),
    "line": np.arange(60.0)[:, None] * np.ones(8),
    "constant columns": cloud(0, 60, 8) * np.eye(8)[2:6].sum(axis=0) + np.pi,
    "a huge constant": cloud(0, 60, 8) * np.arange(8) / 7 + 1e15 * np.eye(8)[0],
}
MAPS = {
    "orthonormal": random_basis(1, 8, 3).T,
    "one axis": np.eye(8)[:1],
    "everything": np.eye(8),
    "stretching": cloud(2, 3, 8),
    "shrinking": 1e-3 * cloud(3, 3, 8),
    "more rows than columns": cloud(4, 11, 8) / 4,
    "zero": np.zeros((2, 8)),
}


FLOAT64 = PairSettings()
FLOAT32 = PairSettings(few_pairs=0)


@pytest.fixture(params=[FLOAT64, FLOAT32], ids=["float64", "float32"])
def precision(request):
    return request.param


def in_small_blocks(settings):
    return replace(settings, block_rows=7, block_columns=11, n_settled=5)


def scanned(rows, components, settings, pairs="all", **options):
    points, selected = prepare_pairs(rows, pairs, rotate=False)
    return summarise(points, selected, components, settings=settings, **options)


def assert_agrees_with_brute_force(result, rows, components, pairs=None):
    """Compare with differences in extended precision; scale by the map's size."""
    pairs, losses = brute_losses(rows, components, pairs)
    size = max(1.0, np.linalg.norm(components, 2) ** 2)
    assert result.n_pairs == losses.size
    m = min(10, losses.size)
    assert_allclose(result.worst_losses, np.sort(losses)[::-1][:m], atol=1e-13 * size)
    found = {tuple(p): v for p, v in zip(pairs.tolist(), losses, strict=True)}
    named = [tuple(p) for p in result.worst_pairs.tolist()]
    assert len(set(named)) == m
    for pair, stated in zip(named, result.worst_losses, strict=True):
        assert abs(found[pair] - stated) <= 1e-13 * size
    gain = max(0.0, -losses.min())
    assert result.largest_gain == pytest.approx(gain, abs=2e-6, rel=1e-12)
    assert result.mean_loss == pytest.approx(losses.mean(), abs=2e-5 * size)
    assert result.counts.sum() == losses.size


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("linear", MAPS)
def test_the_scan_agrees_with_brute_force(data, linear, precision):
    result = scanned(DATA[data], MAPS[linear], precision)
    assert_agrees_with_brute_force(result, DATA[data], MAPS[linear])


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("linear", MAPS)
def test_an_audit_tells_what_the_scan_found(data, linear):
    summary = scanned(DATA[data], MAPS[linear], FLOAT64)
    result = audit(DATA[data], MAPS[linear])
    assert_array_equal(result.worst_pairs, summary.worst_pairs)
    assert_array_equal(result.worst_distortions, summary.worst_losses)
    assert_array_equal(result.histogram[0], summary.counts)
    assert result.n_pairs == summary.n_pairs
    assert result.stretch == summary.largest_gain
    assert result.mean == summary.mean_loss


@pytest.mark.parametrize("exponent", np.arange(1.0, 9.5, 0.5))
@pytest.mark.parametrize("linear", ["orthonormal", "one axis", "stretching"])
def test_one_far_point_hides_no_pair_of_the_others(exponent, linear, precision):
    rows = cloud(0, 60, 8)
    rows[-1] *= 10.0**exponent
    losses = np.sort(brute_losses(rows, MAPS[linear])[1])[::-1]
    worst = scanned(rows, MAPS[linear], precision).worst_losses
    assert_allclose(worst, losses[:10], atol=1e-12)
    for spread in (True, False):
        worst = audit(rows, MAPS[linear], spread=spread).worst_distortions
        assert_allclose(worst, losses[:10], atol=1e-12)


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("linear", ["orthonormal", "stretching"])
def test_many_small_blocks_give_the_same_answer(data, linear, precision):
    result = scanned(DATA[data], MAPS[linear], in_small_blocks(precision))
    assert_agrees_with_brute_force(result, DATA[data], MAPS[linear])


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("linear", MAPS)
def test_sparse_rows_give_the_same_answer(data, linear, precision):
    rows = scipy.sparse.csr_array(DATA[data])
    result = scanned(rows, MAPS[linear], precision)
    assert_agrees_with_brute_force(result, DATA[data], MAPS[linear])


@pytest.mark.parametrize("data", ["normal", "near copies 1e-6", "counts"])
def test_wide_sparse_rows_give_the_same_answer(data, precision):
    wide = DATA[data].reshape(12, 40)
    components = random_basis(9, 40, 4).T
    result = scanned(scipy.sparse.csr_array(wide), components, precision)
    assert_agrees_with_brute_force(result, wide, components)


@given(
    seeds, st.integers(2, 40), st.integers(1, 6), st.sampled_from([FLOAT64, FLOAT32])
)
def test_lattice_points_with_many_ties_are_scanned_right(seed, r, d, settings):
    rows = np.random.default_rng(seed).integers(-2, 3, size=(r, d)).astype(float)
    rows[0] = 7.0
    rows[1] = 5.0
    components = random_basis(seed, d, max(1, d - 1)).T
    result = scanned(rows, components, settings)
    assert_agrees_with_brute_force(result, rows, components)


@pytest.mark.parametrize("data", DATA)
def test_the_order_of_the_points_does_not_matter(data, precision):
    order = np.random.default_rng(0).permutation(60)
    small = in_small_blocks(precision)
    straight = scanned(DATA[data], MAPS["orthonormal"], small)
    shuffled = scanned(DATA[data][order], MAPS["orthonormal"], small)
    worst = straight.worst_losses[0]
    assert shuffled.worst_losses[0] == pytest.approx(worst, abs=1e-14)
    assert shuffled.mean_loss == pytest.approx(straight.mean_loss, abs=2e-5)


@pytest.mark.parametrize("data", DATA)
def test_the_number_of_threads_does_not_matter(data, precision, monkeypatch):
    results = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("ISOPROJ_NUM_THREADS", threads)
        small = in_small_blocks(precision)
        results.append(scanned(DATA[data], MAPS["orthonormal"], small))
    one, *others = results
    for other in others:
        assert_allclose(other.worst_losses, one.worst_losses, atol=1e-14)
        assert_array_equal(other.counts, one.counts)
        assert other.mean_loss == pytest.approx(one.mean_loss, abs=1e-14)


@pytest.mark.parametrize("n_worst", [1, 50, 1770, 10_000])
def test_every_pair_can_be_asked_for_worst_first(n_worst, precision):
    rows, components = DATA["normal"], MAPS["orthonormal"]
    result = scanned(rows, components, in_small_blocks(precision), n_worst=n_worst)
    losses = np.sort(brute_losses(rows, components)[1])[::-1][:n_worst]
    assert_allclose(result.worst_losses, losses, atol=1e-13)
    assert len(np.unique(result.worst_pairs, axis=0)) == losses.size


def test_the_histogram_counts_each_pair_in_its_bin():
    rows, components = DATA["normal"], MAPS["orthonormal"]
    counts, edges = audit(rows, components).histogram
    losses = brute_losses(rows, components)[1]
    assert_array_equal(counts, np.histogram(losses, edges)[0])


def test_the_histogram_of_a_stretching_map_reaches_its_gains():
    rows, components = DATA["normal"], MAPS["stretching"]
    counts, edges = audit(rows, components).histogram
    losses = brute_losses(rows, components)[1]
    assert edges[0] <= losses.min()
    assert_array_equal(counts, np.histogram(losses, edges)[0])


def test_rounding_takes_no_pair_out_of_the_histogram(precision):
    # Close pairs across the axis keep nothing; in float32 less than nothing.
    rows, components = np.repeat(cloud(0, 300, 2), 2, axis=0), np.eye(1, 2)
    rows[1::2, 1] += np.linspace(0.01, 0.03, 300)
    result = scanned(rows, components, precision)
    assert_agrees_with_brute_force(result, rows, components)


@pytest.mark.parametrize("data", DATA)
def test_a_quantile_is_an_upper_bound_within_one_bin(data):
    result = audit(DATA[data], MAPS["orthonormal"])
    losses = brute_losses(DATA[data], MAPS["orthonormal"])[1]
    for q, stated in result.quantiles.items():
        true = np.quantile(losses, q, method="inverted_cdf")
        assert true - 1e-12 <= stated <= true + 1.0 / N_BINS + 1e-12


@pytest.mark.parametrize("data", ["normal", "near copies 1e-12", "many copies"])
@pytest.mark.parametrize("linear", MAPS)
def test_listed_pairs_alone_are_looked_at(data, linear):
    pairs = every_pair(60)[::7]
    small = in_small_blocks(FLOAT64)
    result = scanned(DATA[data], MAPS[linear], small, pairs)
    assert_agrees_with_brute_force(result, DATA[data], MAPS[linear], pairs)


def test_a_listed_pair_counts_once_whichever_way_round():
    rows = DATA["normal"]
    result = audit(rows, MAPS["orthonormal"], pairs=[[3, 1], [1, 3], [1, 3], [2, 5]])
    assert result.n_pairs == 2


def test_directions_are_measured_from_the_origin():
    rows = DATA["normal"]
    result = audit(rows, MAPS["orthonormal"], pairs="directions")
    kept = ((rows @ MAPS["orthonormal"].T) ** 2).sum(1) / (rows**2).sum(1)
    assert result.distortion == pytest.approx(1 - kept.min(), abs=1e-14)
    assert result.worst_pairs[0].tolist() == [kept.argmin(), 60]


def test_progress_ends_at_all_pairs():
    seen = []
    with watching(seen.append, Walk):
        scanned(DATA["normal"], MAPS["orthonormal"], in_small_blocks(FLOAT64))
    done = [walk.done for walk in seen]
    assert len(done) > 2
    assert done[0] == 0
    assert done == sorted(done)
    assert seen[-1] == Walk(1770, 1770)


def test_an_audit_prints_its_own_numbers():
    text = str(audit(DATA["normal"], MAPS["orthonormal"]))
    assert "1,770" in text
    assert "worst pair loses" in text
