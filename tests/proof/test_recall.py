from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from attacks.exact import rational
from geometry import cloud, seeds
from hypothesis import given, settings
from sklearn.neighbors import NearestNeighbors

from isoproj import audit
from isoproj.numerics.progress import Walk, watching
from isoproj.pairs.nearness import Nearness

E = "euclidean"
METRICS = [E, "cosine", "inner_product"]


def neighbours(X, asked, metric):
    """Return all distances and numbers of neighbours by scikit-learn, nearest first."""
    if metric == "inner_product":
        products = asked @ X.T
        search = NearestNeighbors(metric="precomputed", algorithm="brute")
        search.fit(np.zeros((len(X), len(X))))
        return search.kneighbors(products.max() - products, len(X))
    search = NearestNeighbors(metric=metric, algorithm="brute").fit(X)
    return search.kneighbors(asked, len(X))


def expected_recall(X, linear, k, metric, n_queries):
    X = X.astype(np.float64)
    asked = X[:n_queries]
    tables = []
    for rows, few in ((X, asked), (X @ linear.T, asked @ linear.T)):
        distances, order = neighbours(rows, few, metric)
        table = np.empty_like(distances)
        np.put_along_axis(table, order, distances, axis=1)
        tables.append(table)
    before, after = tables
    found = np.argsort(after, axis=1, kind="stable")[:, :k]
    last = np.sort(before, axis=1)[:, k - 1 : k]
    hits = np.take_along_axis(before, found, axis=1) <= last + 1e-7 * before.max()
    return hits.mean()


def real(name, array):
    folder = Path(os.environ.get("ISOPROJ_DATA", "../shared/data"))
    if not (folder / name).exists():
        pytest.skip(f"needs {name}")
    return np.load(folder / name)[array][:1500].astype(np.float32)


SETS = {
    "twin": lambda: cloud(0, 900, 30).astype(np.float32),
    "mnist": lambda: real("mnist.npz", "train_images"),
    "text": lambda: real("text_embeddings_384d.npz", "embeddings"),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("name", SETS)
def test_recall_is_that_of_scikit_learn(name, metric):
    X = SETS[name]()
    linear = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1], 12)))[0].T
    asked = {"recall": (1, 10), "metric": metric, "queries": X[:200]}
    result = audit(X, linear, spread=False, **asked)
    for k in (1, 10):
        assert result.recall[k] == pytest.approx(
            expected_recall(X, linear, k, metric, 200), abs=1e-3
        )


def nearest(table, k):
    """Return the ``k`` nearest of every row but itself; the smaller number first."""
    return np.argsort(table, axis=1, kind="stable")[:, :k]


def scikit_learn_hits(X, linear, ks, metric):
    """Return per row how many neighbours scikit-learn finds again, for every k."""
    tables = []
    for rows in (X, X @ linear.T):
        distances, order = neighbours(rows, rows, metric)
        table = np.empty_like(distances)
        np.put_along_axis(table, order, distances, axis=1)
        np.fill_diagonal(table, np.inf)
        tables.append(table)
    before, after = tables
    size = float(np.abs(before[np.isfinite(before)]).max())
    hits = {}
    for k in ks:
        found = np.take_along_axis(before, nearest(after, k), axis=1)
        last = np.take_along_axis(before, nearest(before, k), axis=1)[:, -1:]
        # A tie costs nothing; products of scikit-learn round by less than this.
        hits[k] = (found <= last + 1e-9 * size).sum(axis=1)
    return hits


WHOLE = {
    "twin": lambda: cloud(5, 300, 20),
    "twin of whole numbers": lambda: np.rint(3.0 * cloud(6, 300, 12)),
    "mnist": lambda: real("mnist.npz", "train_images").astype(np.float64),
    "text": lambda: real("text_embeddings_384d.npz", "embeddings").astype(np.float64),
}


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if "twin" in name else pytest.mark.slow)
        for name in WHOLE
    ],
)
def test_every_row_finds_what_scikit_learn_finds(name, metric):
    X = WHOLE[name]()
    linear = np.linalg.qr(np.random.default_rng(0).normal(size=(X.shape[1], 9)))[0].T
    found = audit(X, linear, spread=False, recall=(1, 10), metric=metric)
    expected = scikit_learn_hits(X, linear, (1, 10), metric)
    for k in (1, 10):
        assert (found.neighbors.hits[k] == expected[k]).all()
        assert found.recall[k] == expected[k].sum() / (k * len(X))


@pytest.mark.parametrize("metric", METRICS)
def test_the_whole_space_keeps_every_neighbour_in_any_units(metric):
    for factor in (1.0, 1e-150, 1e150):
        X = cloud(1, 80, 6) * factor
        found = audit(X, np.eye(6), recall=(1, 5), metric=metric)
        assert found.recall == {1: 1.0, 5: 1.0}
        assert found.neighbors.nearest_changed == 0.0


def test_rows_are_not_their_own_neighbours_but_copies_are():
    X = np.array([[0.0, 0.0], [0.0, 5.0], [1.0, 0.0], [0.0, 0.0]])
    found = audit(X, [[1.0, 0.0]], recall=1)
    # Row 0 has its copy, row 3, nearest; rows 1 and 3 are mapped onto it, and the
    # smaller number is found. All others find row 0, which is among their nearest.
    assert found.neighbors.hits[1].tolist() == [0, 1, 1, 1]


def test_a_tie_costs_nothing():
    X = np.array([[0.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 1.0]])
    found = audit(X, [[0.5, 0.0], [0.0, 1.0]], recall=1, queries=[[0.0, 0.0]])
    assert found.recall == {1: 1.0}
    moved = audit(X[1:], [[1.0, 0.0], [0.0, 0.5]], recall=1, queries=[[0.0, 0.0]])
    assert moved.recall == {1: 1.0}


@pytest.mark.parametrize("metric", METRICS)
def test_sparse_rows_have_the_same_neighbours(metric):
    X = cloud(2, 60, 7)
    dense = audit(X, np.eye(3, 7), recall=4, metric=metric)
    sparse = audit(scipy.sparse.csr_array(X), np.eye(3, 7), recall=4, metric=metric)
    assert (sparse.neighbors.hits[4] == dense.neighbors.hits[4]).all()


def exact_keys(queries, rows, metric):
    """Return for every query what orders the rows, in fractions."""

    def key(q, x):
        if metric == "euclidean":
            return sum((a - b) ** 2 for a, b in zip(q, x, strict=True))
        product = sum(a * b for a, b in zip(q, x, strict=True))
        if metric == "inner_product" or product == 0:
            return -product
        # |q| changes no order; squares keep it.
        return -product * abs(product) / sum(b * b for b in x)

    return [[key(q, x) for x in rows] for q in queries]


def exact_hits(X, linear, k, metric, queries=None):
    """Return the hits of all queries in exact arithmetic; None asks for the rows."""
    rows, asked = rational(X), rational(X if queries is None else queries)
    matrix = rational(linear)
    images, asked_images = (
        [[sum(w * x for w, x in zip(r, row, strict=True)) for r in matrix] for row in q]
        for q in (rows, asked)
    )
    before = exact_keys(asked, rows, metric)
    after = exact_keys(asked_images, images, metric)
    hits = []
    for i in range(len(asked)):
        others = [j for j in range(len(rows)) if queries is not None or j != i]
        last = sorted(before[i][j] for j in others)[k - 1]
        found = sorted(others, key=lambda j: (after[i][j], j))[:k]
        hits.append(sum(before[i][j] <= last for j in found))
    return hits


def test_ties_are_decided_by_the_numbers_and_not_by_rounding():
    X = np.array([[0, 2], [2, 0], [2, 2], [1, 2], [0, 3], [0, 1]], dtype=float)
    found = audit(X, [[1.0, 0.0]], recall=1).neighbors
    assert found.hits[1].tolist() == [1, 1, 0, 1, 1, 1] == exact_hits(X, [[1, 0]], 1, E)


@pytest.mark.parametrize("metric", METRICS)
@given(seeds)
@settings(max_examples=25)
def test_recall_is_that_of_exact_fractions(metric, seed):
    rng = np.random.default_rng(seed)
    n, d = rng.integers(4, 12), rng.integers(1, 5)
    size = rng.choice(["whole", "tenths", "tiny", "shifted", "spread", "single"])
    X = rng.integers(-3, 4, (n, d)) * {"tenths": 0.1, "tiny": 1e-170}.get(size, 1.0)
    X = X + 1e8 * (size == "shifted")
    X = X * 10.0 ** rng.integers(-300, 300, (n, 1)) if size == "spread" else X
    X = (0.1 * X).astype(np.float32) if size == "single" else X
    X[0] += 1.0
    linear = rng.integers(-2, 3, (rng.integers(1, d + 1), d)).astype(float)
    linear[0, 0] = rng.choice([1.0, 1 / 3])
    queries = None if rng.random() < 0.5 else X[:3] * rng.choice([0.0, 1.0, -1.0])
    k = int(rng.integers(1, n))
    asked = {"recall": k, "metric": metric, "orientation": "rows"}
    for of in (np.asarray, scipy.sparse.csr_array):
        q = None if queries is None else of(queries)
        found = audit(of(X), linear, queries=q, **asked).neighbors
        assert found.hits[k].tolist() == exact_hits(X, linear, k, metric, queries)


def test_more_neighbours_are_measured_only_where_float32_leaves_them_open(monkeypatch):
    measured = []
    exact = Nearness.exact

    def counted(self, queries, rows):
        measured.append(queries.size)
        return exact(self, queries, rows)

    monkeypatch.setattr(Nearness, "exact", counted)
    audit(cloud(4, 500, 30), np.eye(9, 30), recall=(10, 100), spread=False)
    assert sum(measured) < 500


def test_the_walk_that_looks_for_neighbours_has_a_name_of_its_own():
    walks = []
    with watching(walks.append, Walk):
        audit(cloud(3, 40, 5), np.eye(2, 5), recall=3)
    assert {walk.name for walk in walks} == {"", "neighbours"}
    assert walks[-1].done == walks[-1].total == 40 * 40


def test_the_most_distorted_neighbours_are_named():
    X = cloud(3, 40, 5)
    found = audit(X, np.eye(2, 5), recall=3).neighbors
    i, j = found.distorted[0]
    gap = X[i] - X[j]
    loss = 1.0 - (gap[:2] @ gap[:2]) / (gap @ gap)
    assert found.distortions[0] == pytest.approx(loss, abs=1e-12)
    assert (np.diff(found.distortions) <= 0).all()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"recall": 40}, "from 1 to 39"),
        ({"recall": 0}, "from 1 to 39"),
        ({"recall": ()}, "a number of neighbours"),
        ({"recall": 1, "metric": "hamming"}, "metric must be"),
        ({"queries": np.ones((1, 5))}, "queries needs recall"),
        ({"recall": 1, "queries": np.ones((1, 4))}, "5 features"),
    ],
)
def test_what_cannot_be_asked_is_one_line(options, reason):
    with pytest.raises(ValueError, match=reason):
        audit(cloud(3, 40, 5), np.eye(2, 5), **options)
