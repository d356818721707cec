"""The exported folder as the last module of a real SentenceTransformer."""

from __future__ import annotations

import numpy as np
import pytest

from isoproj import NearIsometricProjection
from isoproj.cli.program import main

library = pytest.importorskip("sentence_transformers")
tokenizers = pytest.importorskip("tokenizers")
torch = pytest.importorskip("torch")

WORDS = [f"w{i}" for i in range(200)]


@pytest.fixture(scope="module")
def encoder():
    """Return a model that needs no download: one vector a word, averaged."""
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    known = {word: i for i, word in enumerate(["[UNK]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(
        tokenizers.models.WordLevel(known, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    weights = np.random.default_rng(0).normal(size=(len(known), 32))
    module = StaticEmbedding(tokenizer, embedding_weights=weights.astype(np.float32))
    return library.SentenceTransformer(modules=[module], device="cpu")


@pytest.fixture(scope="module")
def sentences():
    draw = np.random.default_rng(1)
    return [" ".join(draw.choice(WORDS, size=5)) for _ in range(80)]


@pytest.mark.parametrize("options", [{}, {"scale": "balanced"}])
def test_the_dense_module_gives_the_numbers_of_transform(
    encoder, sentences, options, tmp_path, monkeypatch, consumer
):
    from sentence_transformers.sentence_transformer.modules import Dense

    monkeypatch.chdir(tmp_path)
    full = encoder.encode(sentences)
    model = NearIsometricProjection(8, random_state=0, **options).fit(full)
    model.save("m.isoproj")
    words = ["--to", "sentence-transformers", "-o", "dense", "-q"]
    assert main(["export", "m.isoproj", *words]) == 0
    reduced = library.SentenceTransformer(
        modules=[*encoder, Dense.load("dense")], device="cpu"
    )
    found = reduced.encode(sentences)
    difference = consumer(
        "sentence-transformers",
        "exported folder as last module; saved and loaded",
        found,
        model.transform(full),
    )
    assert found.shape == (80, 8)
    assert difference < 1e-5
    reduced.save("whole")
    again = library.SentenceTransformer("whole", device="cpu").encode(sentences)
    np.testing.assert_array_equal(again, found)


def test_dot_products_of_unit_vectors_move_at_most_by_the_distortion(
    encoder, sentences
):
    full = encoder.encode(sentences, normalize_embeddings=True)
    model = NearIsometricProjection(8, include_norms=True, random_state=0).fit(full)
    small = model.transform(full).astype(np.float64)
    before, after = full.astype(np.float64) @ full.T, small @ small.T
    lost = model.distortion_
    slack = 1e-6
    assert (after >= before - lost - slack).all()
    assert (after <= before + lost * (1 - before) + slack).all()
