"""Every kind of cell on bundled digits and generated posts, which are always there."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from paper import cells, datasets
from paper.cells import measure_cell
from paper.datasets import MissingDataError, load, sample
from paper.table import Cell, Subject

N_POSTS = {"train": (24, 20), "test": (6, 5)}


def generated_posts(group, count, seed):
    """Return texts whose words follow Zipf's law; half of the words are the group's."""
    rng = np.random.default_rng([seed, group])
    common = [f"common{i}" for i in range(200)]
    own = [f"group{group}word{i}" for i in range(200)]
    shares = 1.0 / np.arange(1, 401)
    words = [word for both in zip(common, own, strict=True) for word in both]
    return [
        " ".join(rng.choice(words, 80, p=shares / shares.sum())) for _ in range(count)
    ]


@pytest.fixture
def posts(tmp_path, monkeypatch):
    """A folder of generated posts in the place of 20 Newsgroups."""
    monkeypatch.setenv("ISOPROJ_DATA", str(tmp_path))
    monkeypatch.setattr(datasets, "_N_POSTS", N_POSTS)
    content = {
        part: {
            name: {"texts": generated_posts(group, counts[group], seed)}
            for group, name in enumerate(datasets.GROUPS)
        }
        for seed, (part, counts) in enumerate(N_POSTS.items())
    }
    with gzip.open(tmp_path / "20news_two_groups.json.gz", "wt") as file:
        json.dump(content, file)
    load.cache_clear()
    yield content
    load.cache_clear()


def test_posts_become_counts_of_words_commonest_first(posts):
    news = load("news", offline=True)
    assert np.bincount(news.train_labels).tolist() == [24, 20]
    assert np.bincount(news.test_labels).tolist() == [6, 5]
    totals = np.asarray(news.train.sum(axis=0)).ravel()
    assert (np.diff(totals) <= 0).all()
    # A post has 80 words, and no word is left out where there are few.
    assert (np.asarray(news.train.sum(axis=1)).ravel() == 80).all()
    assert news.test.shape[1] == news.train.shape[1]


def test_a_sample_of_posts_is_dense_and_of_its_group(posts):
    news = load("news", offline=True)
    rows = {row.tobytes() for row in news.train[:24].toarray()}
    drawn = sample(news, (0,), 10, seed=0)
    assert drawn.shape[0] == 10
    assert all(row.tobytes() in rows for row in drawn)
    with pytest.raises(MissingDataError, match="must have 30 points of label 1"):
        sample(news, (1,), 30, seed=0)


def test_the_dimension_of_posts_is_varied_by_their_commonest_words(posts, monkeypatch):
    monkeypatch.setattr(cells, "_WIDTHS", (20, 100))
    found = measure_cell(Cell("dimension", Subject("news", (1,)), 15, 3, 0))
    assert found["facts"]["n_pairs"] == 15 * 14 // 2
    assert list(found["scores"]) == ["20", "100"]
    for score in found["scores"].values():
        assert all(seconds >= 0.0 for seconds in score.values())


def test_the_grid_runs_on_posts(posts):
    found = measure_cell(Cell("figure2-news", Subject("news", (0,)), 20, 4, 0))
    scores = found["scores"]
    floor = scores["minimax"]["lower_bound"]
    assert all("error" not in score for score in scores.values())
    assert all(score["distortion"] >= floor - 1e-9 for score in scores.values())


def test_sdp_is_stopped_at_growing_times_until_it_converges(monkeypatch):
    limits = []
    honest = cells.measure

    def spy(name, *arguments, time_limit=None, **options):
        limits.append((name, time_limit))
        return honest(name, *arguments, time_limit=time_limit, **options)

    monkeypatch.setattr(cells, "measure", spy)
    monkeypatch.setattr(cells, "_at_hand", lambda _: ["sdp+dr"])
    found = measure_cell(Cell("figure3", Subject("digits", (5,)), 46, 10, 0))
    own = found["scores"]["dual_ascent"]["seconds"]
    (first, unlimited), *others = limits
    assert (first, unlimited) == ("dual_ascent", None)
    multiples = [limit / own for _, limit in others]
    np.testing.assert_allclose(multiples, cells._OUR_TIMES[: len(multiples)], rtol=1e-6)
    *cut, last = [s for n, s in found["scores"].items() if n != "dual_ascent"]
    assert all(score["status"] == "time_limit" for score in cut)
    if len(multiples) < len(cells._OUR_TIMES):
        assert last["status"] in ("converged", "settled")


def test_pictures_show_every_embedding_and_count_neighbours():
    found = measure_cell(Cell("figure4", Subject("digits", (2, 5)), 80, 10, 0))
    scores = found["scores"]
    assert found["facts"]["labels"] == [2] * 40 + [5] * 40
    assert scores["original"]["neighbours_kept"] == 1.0
    assert {"dual_ascent", "sdp+dr", "sdp+rr", "pca", "minimax"} <= set(scores)
    for name, score in scores.items():
        assert np.shape(score["picture"]) == (80, 2)
        # By chance 0.13 of the neighbours, and half of the trust.
        assert name == "original" or 0.5 < score["neighbours_kept"] < 1.0
        assert 0.9 < score["trustworthiness"] <= 1.0


def test_whole_classes_of_digits_are_measured_exactly():
    found = measure_cell(Cell("classes", Subject("digits", (5,)), 0, 10, 0))
    n = found["facts"]["n_points"]
    assert found["facts"]["n_pairs"] == n * (n - 1) // 2
    assert (
        found["scores"]["minimax"]["distortion"] < found["scores"]["pca"]["distortion"]
    )
