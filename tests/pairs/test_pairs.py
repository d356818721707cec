"""Which pairs count: each word against brute force over exactly the pairs it names."""

from __future__ import annotations

import dataclasses
import functools
import sys
import types

import numpy as np
import pytest
import scipy.sparse
from geometry import QUICK, QUICK_CAPPED, brute_losses, cloud, every_pair
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from isoproj import Certificate, GuaranteedPCA, NearIsometricProjection, audit, verify
from isoproj.exceptions import ClaimError
from isoproj.pairs.points import Points
from isoproj.pairs.rule import PairRule, prepare_pairs
from isoproj.proof.bounds import lower_bound
from isoproj.proof.verify import check_claims
from isoproj.solvers.solve import solve

ROWS = cloud(3, 24, 6) + 1.5
CLASSES = np.arange(24) % 3
WITH_ORIGIN = np.vstack([ROWS, np.zeros(6)])
NORMS = np.column_stack([np.arange(24), np.full(24, 24)])
LIST = np.array([[0, 3], [2, 5], [1, 4], [7, 20], [8, 9]])


def lengths(rows, pairs):
    return np.linalg.norm(rows[pairs[:, 0]] - rows[pairs[:, 1]], axis=1)


def nearest(rows, k):
    table = np.linalg.norm(rows[:, None] - rows, axis=2)
    np.fill_diagonal(table, np.inf)
    near = np.argsort(table, axis=1)[:, :k]
    pairs = np.column_stack([np.repeat(np.arange(len(rows)), k), near.ravel()])
    return np.unique(np.sort(pairs, axis=1), axis=0)


def expected(kind):
    """Return the pairs that an option names, by the slowest way there is."""
    every = every_pair(24)
    same = CLASSES[every[:, 0]] == CLASSES[every[:, 1]]
    far = lengths(WITH_ORIGIN, every_pair(25)) >= 3.0
    return {
        "neighbors": nearest(ROWS, 3),
        "labels": every[~same],
        "within": every[same],
        "norms": every_pair(25),
        "far": every[lengths(ROWS, every) >= 3.0],
        "far+norms": every_pair(25)[far],
        "listed+norms": np.concatenate([LIST, NORMS]),
        "neighbors+far": nearest(ROWS, 3)[lengths(ROWS, nearest(ROWS, 3)) >= 2.5],
    }[kind]


OPTIONS = {
    "neighbors": {"pairs": "neighbors", "n_neighbors": 3},
    "labels": {"pairs": "labels"},
    "within": {"pairs": "within-labels"},
    "norms": {"include_norms": True},
    "far": {"min_distance": 3.0},
    "far+norms": {"min_distance": 3.0, "include_norms": True},
    "listed+norms": {"pairs": LIST, "include_norms": True},
    "neighbors+far": {"pairs": "neighbors", "n_neighbors": 3, "min_distance": 2.5},
}


def rule(kind):
    options = OPTIONS[kind]
    labelled = "label" in str(options.get("pairs", ""))
    return PairRule(**options, labels=CLASSES if labelled else None)


@functools.cache
def fitted(kind, estimator=NearIsometricProjection, **options):
    quick = QUICK if estimator is NearIsometricProjection else QUICK_CAPPED
    model = estimator(2, random_state=0, **OPTIONS[kind], **{**quick, **options})
    return model.fit(ROWS, CLASSES)


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
def test_exactly_the_named_pairs_are_selected(kind, form):
    points, pairs = prepare_pairs(form(ROWS), rule(kind), rotate=True)
    wanted = expected(kind)
    assert pairs.n_pairs == len(wanted)
    if pairs.listed is None:
        assert points.n_points == 25
    else:
        assert {*map(tuple, pairs.listed)} == {*map(tuple, wanted)}
    outside = np.array([p for p in every_pair(25) if p.tolist() not in wanted.tolist()])
    assert pairs.holds(wanted[:, ::-1], points.n_points).all()
    if outside.size:
        assert not pairs.holds(outside, points.n_points).any()


@pytest.mark.parametrize("kind", OPTIONS)
def test_the_distortion_is_that_of_the_named_pairs(kind):
    model = fitted(kind)
    losses = brute_losses(WITH_ORIGIN, model.components_, expected(kind))[1]
    assert_allclose(model.distortion_, losses.max(), atol=1e-12)
    audited = audit(ROWS, model, **{**OPTIONS[kind], "labels": CLASSES})
    assert_allclose(audited.distortion, losses.max(), atol=1e-12)
    assert_allclose(audited.mean, losses.mean(), atol=1e-6)
    assert audited.n_pairs == model.certificate_.n_pairs == len(expected(kind))


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("solver", ["minimax", "dual_ascent"])
def test_the_lower_bound_holds_over_the_named_pairs_alone(kind, solver):
    model = fitted(kind, solver=solver)
    certificate = model.certificate_
    named = {tuple(sorted(p)) for p in expected(kind).tolist()}
    assert {tuple(sorted(p)) for p in certificate.weighted_pairs.tolist()} <= named
    assert {tuple(sorted(p)) for p in certificate.worst_pairs.tolist()} <= named
    for seed in range(40):
        other = np.linalg.qr(cloud(seed, 6, 2))[0].T
        worst = brute_losses(WITH_ORIGIN, other, expected(kind))[1].max()
        assert certificate.lower_bound <= worst
    assert certificate.lower_bound <= certificate.distortion


@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("estimator", [NearIsometricProjection, GuaranteedPCA])
def test_what_is_saved_verifies_on_its_data(kind, estimator, tmp_path):
    model = fitted(kind, estimator)
    verify(model.certificate_, ROWS)
    model.save(tmp_path / "model")
    back = estimator.load(tmp_path / "model")
    verify(back.certificate_, ROWS)
    for name in ("n_neighbors", "min_distance", "include_norms"):
        assert getattr(back, name) == getattr(model, name)
    pairs = np.unique(LIST, axis=0) if kind == "listed+norms" else model.pairs
    assert_array_equal(back.pairs, pairs)
    assert_array_equal(back.transform(ROWS), model.transform(ROWS))
    verify(Certificate.load(tmp_path / "model"), ROWS)


def shorter(certificate):
    worst = certificate.worst_pairs[0]
    listed = certificate.listed_pairs
    return listed[(listed != worst).any(axis=1)]


TAMPERED = {
    "a pair taken from the list": ("neighbors", lambda c: {"listed_pairs": shorter(c)}),
    "the worst pair swapped for one that counts": (
        "neighbors",
        lambda c: {"listed_pairs": np.vstack([shorter(c), [[0, 1]]])},
    ),
    "other classes": ("labels", lambda c: {"labels": np.sort(c.labels)}),
    "fewer classes": ("labels", lambda c: {"labels": c.labels[:-1]}),
    "another distance": ("far", lambda _: {"min_distance": 3.5}),
    "no distance": ("far", lambda _: {"min_distance": 0.0}),
    "a distance that is none": ("far", lambda _: {"min_distance": np.nan}),
    "another count of the close": ("far", lambda c: {"n_close": c.n_close + 1}),
    "norms that were not asked for": ("far", lambda _: {"include_norms": True}),
    "norms left out": ("norms", lambda _: {"include_norms": False}),
    "weight on a close pair": (
        "far",
        lambda c: {"weighted_pairs": close_pairs(c.weights.size)},
    ),
    "labels and no use for them": ("norms", lambda _: {"labels": CLASSES}),
    "labels missing": ("labels", lambda _: {"labels": None}),
}


def close_pairs(count):
    every = every_pair(24)
    return np.resize(every[lengths(ROWS, every) < 3.0], (count, 2))


@pytest.mark.parametrize("how", TAMPERED)
def test_a_certificate_that_names_other_pairs_is_found_out(how):
    kind, change = TAMPERED[how]
    honest = fitted(kind).certificate_
    forged = dataclasses.replace(honest, **change(honest))
    with pytest.raises(ClaimError):
        verify(forged, ROWS)


def test_a_worst_pair_that_does_not_count_is_found_out():
    # Twins: both pairs lose all, one of them is listed.
    rows = np.array([[0.0, 0, 1], [0, 0, -1], [5, 0, 1], [5, 0, -1], [0, 7, 0]])
    model = NearIsometricProjection(2, pairs=[[0, 1], [0, 4], [1, 2]], random_state=0)
    honest = model.fit(rows, None).certificate_
    worst = honest.worst_pairs.copy()
    at = np.flatnonzero((worst == [0, 1]).all(axis=1))
    worst[at] = [2, 3]
    forged = dataclasses.replace(honest, worst_pairs=worst)
    failed = [c.name for c in check_claims(forged, rows) if not c.holds]
    assert failed == ["worst pairs"]


@given(st.integers(0, 2**32 - 1), st.floats(0.0, 1e6), st.booleans())
def test_closer_is_decided_from_the_difference_itself(seed, shift, rotate):
    rng = np.random.default_rng(seed)
    # Integers: distances are exact, and many tie with the bound.
    rows = rng.integers(-3, 4, size=(20, 3)).astype(float) + np.floor(shift)
    every = every_pair(20)
    squares = ((rows[every[:, 0]] - rows[every[:, 1]]) ** 2).sum(axis=1)
    distance = np.sqrt(float(rng.choice(squares[squares > 0])))
    _, pairs = prepare_pairs(rows, PairRule(min_distance=distance), rotate=rotate)
    counts = (squares > 0) & (np.sqrt(squares) >= distance)
    assert_array_equal(pairs.listed, every[counts])
    assert pairs.n_identical == (squares == 0).sum()
    assert pairs.n_close == len(every) - counts.sum() - pairs.n_identical


@pytest.mark.parametrize("power", [-1000, -300, 0, 300, 1000, 1023])
def test_distances_keep_the_scale_of_the_data(power):
    rows = np.ldexp([[0.0, 0.0], [0.375, 0.5]], power)
    points = Points.prepare(rows, rotate=True)
    assert points.distances(np.array([[0, 1]]))[0] == np.ldexp(0.625, power)
    rule = PairRule(min_distance=float(np.ldexp(0.625, power)))
    assert prepare_pairs(rows, rule, rotate=True)[1].n_pairs == 1


def test_copies_are_no_neighbours():
    rows = np.repeat(cloud(1, 6, 3), 5, axis=0)
    _, pairs = prepare_pairs(rows, PairRule("neighbors", n_neighbors=2), rotate=True)
    assert pairs.n_identical == 0
    assert pairs.n_pairs == len(nearest(cloud(1, 6, 3), 2))
    assert (pairs.listed % 5 == 0).all()


@pytest.mark.slow  # Its compiler takes a minute.
def test_pynndescent_finds_about_the_same_neighbours():
    pytest.importorskip("pynndescent")
    rows = cloud(5, 400, 5)
    found = [
        prepare_pairs(rows, PairRule(word, n_neighbors=5), rotate=True)[1]
        for word in ("neighbors", "approximate-neighbors")
    ]
    shared = found[0].holds(found[1].listed, 400).sum()
    assert shared > 0.9 * found[0].n_pairs


def test_neighbours_that_pynndescent_names_become_pairs(monkeypatch):
    class Exact:
        """Stands for pynndescent; a neighbour that it does not find is -1."""

        def __init__(self, rows, n_neighbors, random_state):
            gaps = np.linalg.norm(rows[:, None] - rows, axis=2)
            near = np.argsort(gaps, axis=1)[:, :n_neighbors]
            near[0, -1] = -1
            self.neighbor_graph = near, None

    fake = types.SimpleNamespace(NNDescent=Exact)
    monkeypatch.setitem(sys.modules, "pynndescent", fake)
    rows = cloud(5, 30, 5)
    exact, approximate = (
        prepare_pairs(rows, PairRule(word, n_neighbors=5), rotate=True)[1]
        for word in ("neighbors", "approximate-neighbors")
    )
    assert exact.holds(approximate.listed, 30).all()
    # The neighbour left out may be found from its own side.
    assert exact.n_pairs - 1 <= approximate.n_pairs <= exact.n_pairs


def test_pynndescent_is_asked_for_in_one_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(ValueError, match=r"pip install 'isoproj\[neighbors\]'"):
        prepare_pairs(ROWS, PairRule("approximate-neighbors"), rotate=True)


def test_norms_keep_inner_products():
    # Points far from the origin: distances alone let the common part go.
    model = fitted("norms")
    plain = NearIsometricProjection(2, random_state=0, **QUICK).fit(ROWS)
    kept = [(m.transform(ROWS) ** 2).sum(1) / (ROWS**2).sum(1) for m in (model, plain)]
    assert kept[0].min() >= 1.0 - model.distortion_ > kept[1].min()


def test_a_warm_start_forgets_pairs_that_no_longer_count(monkeypatch):
    model = NearIsometricProjection(2, random_state=0, warm_start=True, **QUICK)
    model.fit(ROWS)
    counted = np.vstack([LIST, model.certificate_.weighted_pairs[:2]])
    passed = []

    def spy(problem):
        passed.append(problem.dual.pairs)
        return solve(problem)

    monkeypatch.setattr("isoproj.solvers.solve.solve", spy)
    model.set_params(pairs=counted).fit(ROWS)
    known = {*map(tuple, np.sort(passed[0], axis=1).tolist())}
    assert known
    assert known <= {*map(tuple, np.sort(counted, axis=1).tolist())}
    verify(model.certificate_, ROWS)


@pytest.mark.parametrize("kind", ["norms", "far", "neighbors", "labels"])
def test_an_update_is_for_all_pairs_alone(kind):
    with pytest.raises(ValueError, match="update needs pairs='all'"):
        fitted(kind).update(ROWS[:2] + 1.0, ROWS)


def test_a_checkpoint_of_other_pairs_is_not_gone_on_with():
    listed = [prepare_pairs(ROWS, LIST + shift, rotate=True)[1] for shift in (0, 1)]
    assert listed[0].n_pairs == listed[1].n_pairs
    assert listed[0].fingerprint != listed[1].fingerprint


def test_labels_may_be_words_and_score_takes_them():
    words = np.array(["a", "b", "c"])[CLASSES]
    model = NearIsometricProjection(2, pairs="labels", random_state=0, **QUICK)
    model.fit(ROWS, words)
    assert model.distortion_ == fitted("labels").distortion_
    assert_allclose(model.score(ROWS, words), -model.distortion_, atol=1e-12)
    assert model.score(ROWS) <= model.score(ROWS, words)


def test_the_bound_of_norms_is_the_bound_of_pairs_with_the_origin():
    # The paper's solver proves by weights alone.
    model = fitted("norms", solver="dual_ascent", max_iter=20)
    certificate = model.certificate_
    points = Points.prepare(WITH_ORIGIN, rotate=False)
    again = lower_bound(points, certificate.weighted_pairs, certificate.weights, 2)
    assert_allclose(certificate.lower_bound, again, atol=1e-12)
    assert "distances and lengths" in str(certificate)


def test_files_without_the_later_entries_still_load():
    scalars, tensors = fitted("neighbors").certificate_.parts()
    for name in ("n_close", "min_distance", "include_norms"):
        del scalars[name]
    verify(Certificate.from_parts(scalars, tensors), ROWS)


BAD = {
    "pairs must be 'all', .* 'labels', 'within-labels', 'queries' or": {
        "pairs": "near"
    },
    "it takes neither min_distance nor": {"pairs": "sample", "include_norms": True},
    "n_neighbors must be a whole number above 0; got 0": {"n_neighbors": 0},
    "n_neighbors must be a whole number above 0; got 2.5": {"n_neighbors": 2.5},
    "below the number of distinct points, 24; got 24": {
        "pairs": "neighbors",
        "n_neighbors": 24,
    },
    "min_distance must be a finite number, 0 or more; got -1": {"min_distance": -1.0},
    "min_distance must be a finite number, 0 or more; got nan": {
        "min_distance": np.nan
    },
    "min_distance must leave some pair; all 276 are": {"min_distance": 1e9},
    "include_norms must be True or False; got 'yes'": {"include_norms": "yes"},
    "requires y to be passed": {"pairs": "labels"},
}


@pytest.mark.parametrize("message", BAD)
@pytest.mark.parametrize("estimator", [NearIsometricProjection, GuaranteedPCA])
def test_bad_rules_are_refused_in_one_line(message, estimator):
    with pytest.raises(ValueError, match=message) as told:
        estimator(2, **BAD[message]).fit(ROWS)
    assert "\n" not in str(told.value)
    with pytest.raises(ValueError, match=message):
        audit(ROWS, np.eye(2, 6), **BAD[message])


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (np.zeros(24), "must name at least one pair; y has 1 classes in 24 rows"),
        (np.arange(5), "inconsistent numbers of samples"),
        (cloud(0, 24, 1).ravel(), "Unknown label type"),
        (np.full(24, np.nan), "NaN"),
    ],
)
def test_bad_labels_are_refused(labels, message):
    with pytest.raises(ValueError, match=message):
        NearIsometricProjection(2, pairs="labels").fit(ROWS, labels)


def test_lists_beyond_the_memory_are_refused_before_they_are_made():
    rows = np.arange(20_000.0).reshape(-1, 1)
    with pytest.raises(ValueError, match=r"at most 20,000,000; got 199,990,000"):
        prepare_pairs(rows, PairRule(min_distance=1.0), rotate=False)
    with pytest.raises(ValueError, match=r"at most 20,000,000; got 100,000,000"):
        prepare_pairs(rows, PairRule("labels", rows[:, 0] % 2), rotate=False)


@pytest.mark.parametrize(("scale", "offset"), [(1, 1e8), (1e160, 0), (1e-170, 0)])
@pytest.mark.parametrize("n_features", [5, 20])
def test_neighbors_are_nearest_wherever_the_points_are(n_features, scale, offset):
    rows = np.random.default_rng(0).normal(size=(60, n_features)) * scale + offset
    gaps = (rows[:, None] - rows) / scale
    squares = (gaps**2).sum(axis=2)
    np.fill_diagonal(squares, np.inf)
    near = np.argsort(squares, axis=1)[:, :3]
    expected = {tuple(sorted((i, int(j)))) for i in range(60) for j in near[i]}
    rule = PairRule("neighbors", n_neighbors=3)
    _, pairs = prepare_pairs(rows, rule, rotate=False)
    assert {tuple(pair) for pair in pairs.listed.tolist()} == expected


def test_neighbours_in_tight_clusters_far_apart_are_the_nearest():
    # Products of such rows, however centred, cancel to the last digit.
    rows = 1e-9 * cloud(0, 30, 20)
    rows[15:] += 1.0
    found = prepare_pairs(rows, PairRule("neighbors", n_neighbors=3), rotate=False)[1]
    gaps = np.linalg.norm(rows[:, None] - rows, axis=2)
    near = np.argsort(gaps, axis=1)[:, 1:4]
    wanted = {tuple(sorted((i, j))) for i in range(30) for j in near[i].tolist()}
    assert set(map(tuple, found.listed.tolist())) == wanted


@pytest.mark.parametrize("solver", ["minimax", "dual_ascent"])
def test_with_queries_only_pairs_of_a_query_and_another_row_count(solver, tmp_path):
    is_query = np.arange(24) % 4 == 0
    model = NearIsometricProjection(2, pairs="queries", random_state=0, **QUICK)
    model.set_params(solver=solver).fit(ROWS, is_query)
    every = every_pair(24)
    named = every[is_query[every[:, 0]] != is_query[every[:, 1]]]
    losses = brute_losses(ROWS, model.components_, named)[1]
    assert_allclose(model.distortion_, losses.max(), atol=1e-12)
    assert model.certificate_.n_pairs == len(named) == 6 * 18
    for seed in range(40):
        other = np.linalg.qr(cloud(seed, 6, 2))[0].T
        assert model.lower_bound_ <= brute_losses(ROWS, other, named)[1].max()
    model.save(tmp_path / "m.isoproj")
    again = NearIsometricProjection.load(tmp_path / "m.isoproj")
    assert again.certificate_.pair_kind == "queries"
    assert "of a query and another row" in again.certificate_.scope
    verify(again, ROWS)
    labels = np.roll(again.certificate_.labels, 1)
    with pytest.raises(ClaimError):
        verify(dataclasses.replace(again.certificate_, labels=labels), ROWS)


def test_queries_are_marked_by_two_values():
    model = NearIsometricProjection(2, pairs="queries")
    with pytest.raises(ValueError, match="a y of two values"):
        model.fit(ROWS, np.arange(24) % 3)
    with pytest.raises(ValueError, match="requires y"):
        model.fit(ROWS)
