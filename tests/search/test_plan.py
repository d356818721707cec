"""A search plan says how many candidates suffice, exactly and for whom."""

from __future__ import annotations

import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import scipy.stats
from geometry import cloud
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from isoproj import NearIsometricProjection, search_plan
from isoproj.pairs.rule import PairKind
from isoproj.proof.bounds import data_fingerprint
from isoproj.proof.confidence import conformal_rank

METRICS = ["euclidean", "cosine", "inner_product"]


def nearness(rows, asked, metric):
    """Return a table of exact fractions; smaller is nearer."""

    def inner(a, b):
        return sum(x * y for x, y in zip(a, b, strict=True))

    def value(q, r):
        if metric == "euclidean":
            return sum((x - y) ** 2 for x, y in zip(q, r, strict=True))
        product = inner(q, r)
        if metric == "inner_product":
            return -product
        size = inner(q, q) * inner(r, r)
        # The square of the cosine with its sign orders as the cosine does.
        return -product * abs(product) / size if size else Fraction(0)

    return [[value(q, r) for r in rows] for q in asked]


def exact_candidates(X, before, after, k, *, own):
    """Return what every query needs, by the definition and nothing else."""
    found = []
    for i, (true, reduced) in enumerate(zip(before, after, strict=True)):
        others = [j for j in range(len(true)) if not (own and j == i)]
        last = sorted(true[j] for j in others)[k - 1]
        nearer = [j for j in others if true[j] < last]
        tied = [j for j in others if true[j] == last]
        are_copies = len({tuple(X[j]) for j in tied}) == 1
        spare = len(nearer) + len(tied) - k if are_copies else 0
        ranks = [sum(reduced[x] <= reduced[j] for x in others) for j in nearer + tied]
        found.append(max(r - spare * (i >= len(nearer)) for i, r in enumerate(ranks)))
    return found


def fractions(rows):
    return [[Fraction(float(value)) for value in row] for row in rows]


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("own", [True, False])
def test_candidates_are_those_of_exact_fractions_with_ties_and_copies(metric, own):
    for seed in range(25):
        rng = np.random.default_rng(seed)
        n, d = rng.integers(6, 14), rng.integers(1, 4)
        # Odd first entries: no image under the map is zero, which has no cosine.
        X = rng.integers(-2, 3, size=(n, d)).astype(float)
        X[:, 0] = 2 * X[:, 0] + 1
        asked = np.concatenate([X[:2], X + 2.0])
        linear = rng.integers(-1, 2, size=(rng.integers(1, d + 1), d)).astype(float)
        linear[0] = np.eye(d)[0]
        k = int(rng.integers(1, n - 1))
        plan = search_plan(
            X, linear, k, asked, metric, 0.5, orientation="rows", stored=own
        )
        found = plan.row_candidates if own else plan.query_candidates
        queries = X if own else asked
        tables = [
            nearness(fractions(rows), fractions(some), metric)
            for rows, some in ((X, queries), (X @ linear.T, queries @ linear.T))
        ]
        assert found.tolist() == exact_candidates(X, *tables, k, own=own)


def brute_candidates(X, Z, asked, asked_reduced, k, metric, score, *, own):
    """Return what every query needs, from whole tables in float64; no ties."""

    def table(rows, some, how):
        rows, some = rows.astype(np.float64), some.astype(np.float64)
        if how == "euclidean":
            found = np.stack([((rows - q) ** 2).sum(axis=1) for q in some])
        elif how == "cosine":
            units = [a / np.linalg.norm(a, axis=1)[:, None] for a in (some, rows)]
            found = -units[0] @ units[1].T
        else:
            found = -some @ rows.T
        if own:
            np.fill_diagonal(found, np.inf)
        return found

    before, after = table(X, asked, metric), table(Z, asked_reduced, score)
    # Room for the rounding of these tables.
    room = [1e-12 * np.abs(t[np.isfinite(t)]).max() for t in (before, after)]
    last = np.sort(before, axis=1)[:, k - 1 : k]
    reach = np.where(before <= last + room[0], after, -np.inf).max(axis=1)
    return (after <= reach[:, None] + room[1]).sum(axis=1)


def real(name, array):
    folder = Path(os.environ.get("ISOPROJ_DATA", "../shared/data"))
    if not (folder / name).exists():
        pytest.skip(f"needs {name}")
    return np.load(folder / name)[array][:600].astype(np.float32)


SETS = {
    "twin": lambda: cloud(0, 600, 30).astype(np.float32),
    "digits": lambda: load_digits().data[:600],
    "mnist": lambda: real("mnist.npz", "train_images"),
    "text": lambda: real("text_embeddings_384d.npz", "embeddings"),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", SETS)
def test_candidates_are_those_of_whole_tables(name, metric):
    X, asked = np.split(SETS[name](), [500])
    pca = PCA(8).fit(X)
    vectors = X, pca.transform(X), asked, pca.transform(asked)
    score = "euclidean" if metric == "euclidean" else "cosine"
    plan = search_plan(X, pca, 10, asked, metric, score=score)
    expected = brute_candidates(*vectors, 10, metric, score, own=False)
    assert (plan.query_candidates == expected).all()
    vectors = X, vectors[1], X, vectors[1]
    expected = brute_candidates(*vectors, 10, metric, score, own=True)
    assert (plan.row_candidates == expected).all()
    assert plan.every_row == expected.max()
    assert plan.recall(plan.every_row) == (1.0, plan.recall(plan.every_row).queries)
    assert plan.row_candidates[plan.hardest_rows[0]] == plan.every_row


def test_small_distances_far_from_the_origin_are_told_apart():
    X = cloud(4, 200, 6) * 1e-5 + 1e3
    plan = search_plan(X, np.eye(4, 6), 5)
    near = (X - X[0]) * 1e5
    Z = near[:, :4]
    assert (
        plan.row_candidates
        == brute_candidates(near, Z, near, Z, 5, "euclidean", "euclidean", own=True)
    ).all()


@pytest.mark.parametrize("metric", METRICS)
def test_a_factor_of_the_map_or_the_data_changes_no_number(metric):
    X = cloud(11, 120, 6)
    plain = search_plan(X, np.eye(3, 6), metric=metric).row_candidates
    for factor, scale in ((1e90, 1.0), (1e-90, 1.0), (1.0, 1e150), (1e-60, 1e-150)):
        plan = search_plan(X * scale, factor * np.eye(3, 6), metric=metric)
        assert (plan.row_candidates == plain).all()


def test_signs_tie_in_crowds_and_every_tie_counts():
    X = cloud(1, 400, 24)
    signs = np.sign(X)
    plan = search_plan(X, reduced=signs)
    expected = brute_candidates(
        X, signs, X, signs, 10, "euclidean", "euclidean", own=True
    )
    assert (plan.row_candidates == expected).all()


def test_any_of_the_copies_of_a_row_will_do():
    X = np.concatenate([np.zeros((50, 3)), cloud(2, 30, 3) + 9.0])
    plan = search_plan(X, np.eye(1, 3), 10)
    # A copy finds ten others at once; all 49 tie with them.
    assert (plan.row_candidates[:50] == 10).all()
    moved = np.array([[0.0, 1.0, 0.0]])
    asked = search_plan(X, np.eye(3), 10, np.repeat(moved, 19, axis=0), stored=False)
    assert (asked.query_candidates == 10).all()


def test_reduced_rows_may_be_lists():
    X = cloud(3, 40, 5)
    plan = search_plan(X, reduced=X[:, :2].tolist(), n_neighbors=3)
    assert plan.every_row == search_plan(X, np.eye(2, 5), 3).every_row


def test_the_whole_space_needs_no_more_than_the_neighbours():
    plan = search_plan(cloud(3, 60, 5), np.eye(5), 7)
    assert plan.every_row == 7
    assert plan.recall(7).rows == 1.0
    assert plan.recall(6).rows == pytest.approx(6 / 7)


def test_a_share_of_the_neighbours_needs_fewer_candidates():
    X = cloud(5, 300, 20)
    whole = search_plan(X, np.eye(5, 20))
    most = search_plan(X, np.eye(5, 20), share=0.9)
    assert (most.row_candidates == np.maximum(whole.row_ranks[:, 8], 10)).all()
    assert most.every_row < whole.every_row


@pytest.mark.parametrize("metric", METRICS)
def test_sparse_rows_need_as_many(metric):
    X = cloud(6, 80, 7)
    dense = search_plan(X, np.eye(3, 7), 4, metric=metric)
    sparse = search_plan(scipy.sparse.csr_array(X), np.eye(3, 7), 4, metric=metric)
    assert (dense.row_candidates == sparse.row_candidates).all()


def test_an_image_of_length_zero_has_no_cosine_and_counts_against_the_plan():
    X = np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 0.0], [1.0, 1.0], [2.0, 1.0]])
    plan = search_plan(X, [[1.0, 0.0]], 1, metric="cosine")
    assert plan.row_candidates[0] == plan.row_candidates[1] == 4


def test_new_queries_are_missed_as_rarely_as_promised():
    """Of 500 fresh draws of queries and a new one, at most 10 % need more."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(200, 8))
    asked = rng.normal(size=(10_000, 8))
    plan = search_plan(X, np.eye(3, 8), 5, asked, confidence=0.9, stored=False)
    needed = plan.query_candidates.reshape(500, 20)
    rank = conformal_rank(19, 0.9)
    missed = (needed[:, 19] > np.sort(needed[:, :19], axis=1)[:, rank - 1]).sum()
    # Ten of twenty with ties would not fail; chance alone exceeds this once in 1e4.
    assert missed <= scipy.stats.binom.ppf(1.0 - 1e-4, 500, 0.1)
    few = search_plan(X, np.eye(3, 8), 5, asked[:19], confidence=0.9, stored=False)
    assert few.new_query == np.sort(needed[0, :19])[rank - 1]


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.slow)])
def test_the_ratio_holds_at_every_rank(count):
    tight = 0.0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        n, d = rng.integers(4, 12), rng.integers(2, 6)
        X = rng.normal(size=(n, d)) * rng.uniform(0.05, 1.0, size=d)
        linear = np.linalg.qr(rng.normal(size=(d, rng.integers(1, d + 1))))[0].T
        before, after = (
            np.linalg.norm(some[:, None] - some, axis=2) for some in (X, X @ linear.T)
        )
        kept = (after[before > 0.0] / before[before > 0.0]).min() ** 2
        certificate = SimpleNamespace(
            pair_kind=PairKind.ALL,
            min_distance=0.0,
            n_points=n,
            fingerprint=data_fingerprint(X),
            components=linear,
            distortion=1.0 - kept,
        )
        model = SimpleNamespace(
            certificate_=certificate, transform=linear.T.__rmatmul__
        )
        plan = search_plan(X, model, 2)
        for i in range(n):
            others = np.delete(np.arange(n), i)
            returned = others[np.argsort(after[i, others])]
            share = before[i, returned] / np.sort(before[i, others])
            assert share.max() <= (1.0 + 1e-9) / plan.ratio
            tight = max(tight, share.max() * plan.ratio)
    assert tight > 0.9


def test_the_ratio_is_told_only_where_a_certificate_proves_it():
    X = cloud(8, 60, 6)
    model = NearIsometricProjection(3, solver="dual_ascent", max_iter=5).fit(X)
    plan = search_plan(X, model)
    assert plan.ratio == pytest.approx(np.sqrt(1.0 - model.distortion_))
    assert "Proved: the i-th row" in str(plan)
    assert search_plan(X + 1e-3, model).ratio is None
    assert search_plan(X, model, metric="cosine").ratio is None
    assert search_plan(X, model, score="inner_product").ratio is None
    labels = np.arange(60) % 2
    model.set_params(pairs="labels").fit(X, labels)
    assert search_plan(X, model).ratio is None


def test_a_plan_prints_what_it_promises_and_for_whom():
    X, asked = np.split(cloud(9, 300, 12), [250])
    plan = search_plan(X, np.eye(4, 12), 5, asked)
    text = str(plan)
    most = f"Fetch {plan.every_row:,} besides the row itself: then every stored row has"
    assert f"{most} all its 5 neighbours" in text
    assert f"Fetch {plan.new_query:,}: then a new query has all its 5" in text
    assert "at least 95 %, if it is drawn like these 50 queries" in text
    html = plan._repr_html_()
    assert f"<td>{plan.every_row:,}</td>" in html
    assert f"<td>{plan.new_query:,}</td>" in html
    alone = search_plan(X, np.eye(4, 12), 5, asked, stored=False)
    assert alone.every_row is alone.hardest_rows is alone.row_candidates is None
    assert "stored row" not in str(alone)
    assert alone.new_query == plan.new_query


def test_what_is_found_is_told_as_the_least_however_ties_fall():
    X = cloud(9, 300, 12)
    plan = search_plan(X, np.zeros((2, 12)), share=0.9)
    assert "has at least 9 of its 10 neighbours among them" in str(plan)
    assert "is at least 0.0000 (stored rows)" in str(plan)
    ranks = np.tile(np.arange(1, 11), (3000, 1))
    ranks[0, -1] = 11
    nearly = replace(plan, row_ranks=ranks)
    assert nearly.recall(10).rows == 1.0 - 1.0 / 30_000
    assert "is at least 0.9999 (stored rows)" in str(nearly)
    assert nearly._table()[1][0][-1] == "0.9999"


@pytest.mark.parametrize("stored", [True, False])
def test_settings_fetch_at_least_the_planned_number(stored):
    X, asked = np.split(cloud(10, 300, 12), [250])
    plan = search_plan(X, np.eye(4, 12), 7, asked)
    m = (plan.every_row if stored else plan.new_query) + stored
    found = plan.settings(stored=stored)
    for system, name in (
        ("faiss", "k_factor"),
        ("qdrant", "oversampling"),
        ("elasticsearch", "oversample"),
        ("opensearch", "oversample_factor"),
    ):
        assert int((7 + stored) * np.float32(found[system][name])) == m
    assert found["qdrant"]["limit"] == found["pgvector"]["LIMIT"] == m
    assert found["sqlite-vec"]["k"] == found["lancedb"]["limit"] == m
    assert m <= found["lancedb"]["refine_factor"] * (7 + stored) < m + 7 + stored
    asked_for = plan.settings(stored=stored, candidates=m + 3)
    assert asked_for["pgvector"]["LIMIT"] == m + 3 + stored


@pytest.mark.parametrize(
    ("n", "number", "left_out"),
    [
        (50, 4096, set()),
        (50, 4097, {"sqlite-vec"}),
        (1000, 10_000, {"sqlite-vec"}),
        (1000, 10_001, {"sqlite-vec", "elasticsearch", "opensearch"}),
        (10, 999, set()),
        (10, 1000, {"opensearch"}),
    ],
)
def test_settings_leave_out_systems_that_cannot_fetch_as_many(n, number, left_out):
    X, asked = np.split(cloud(10, 300, 12), [250])
    plan = search_plan(X, np.eye(4, 12), 7, asked, stored=False)
    plan = replace(plan, n_neighbors=n, query_ranks=np.full((50, n), number))
    assert set(search_plan(X, np.eye(4, 12)).settings()) - set(plan.settings()) == (
        left_out
    )


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, "a map or reduced"),
        ({"map": np.eye(5), "reduced": np.ones((40, 2))}, "a map or reduced"),
        ({"map": np.eye(5), "n_neighbors": 40}, "from 1 to 39"),
        ({"map": np.eye(5), "metric": "hamming"}, "metric must be"),
        ({"map": np.eye(5), "score": "hamming"}, "score must be"),
        ({"map": np.eye(5), "share": 0.0}, "share must be"),
        ({"map": np.eye(5), "confidence": 1.0}, "confidence must be"),
        ({"map": np.eye(5), "queries": np.ones((5, 5))}, "at least 19 for confidence"),
        ({"map": np.eye(5), "queries": np.ones((20, 4))}, "5 features"),
        ({"map": np.eye(5), "stored": False}, "needs queries"),
        ({"map": np.eye(5), "queries": [[np.nan] * 5]}, "^queries must be finite; row"),
        ({"reduced": [[np.nan] * 5] * 40}, "^reduced rows must be finite; row"),
        ({"reduced": np.ones((39, 2))}, "one row for each of X, 40; got 39"),
        ({"reduced": (np.eye(40), np.eye(40))}, "one for each that you pass"),
    ],
)
def test_what_cannot_be_planned_is_one_line(options, reason):
    with pytest.raises(ValueError, match=reason):
        search_plan(cloud(3, 40, 5), **options)


def test_settings_of_queries_that_were_not_given_say_so():
    with pytest.raises(ValueError, match="a plan for new queries"):
        search_plan(cloud(3, 40, 5), np.eye(5)).settings(stored=False)
