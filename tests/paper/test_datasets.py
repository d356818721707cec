from __future__ import annotations

import gzip
import json
import struct

import numpy as np
import pytest
from numpy.testing import assert_array_equal

from isoproj.exceptions import IsoprojError
from paper import datasets
from paper.datasets import MissingDataError, held_out, load, sample

STEMS = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty data folder and an empty cache."""
    monkeypatch.setenv("ISOPROJ_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("SCIKIT_LEARN_DATA", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    load.cache_clear()
    yield tmp_path / "data"
    load.cache_clear()


@pytest.fixture
def images():
    rng = np.random.default_rng(0)
    return {
        "train_images": rng.integers(0, 256, (12, 28, 28), dtype=np.uint8),
        "train_labels": np.arange(12, dtype=np.uint8) % 3,
        "test_images": rng.integers(0, 256, (6, 28, 28), dtype=np.uint8),
        "test_labels": np.arange(6, dtype=np.uint8) % 3,
    }


@pytest.fixture
def known(images, monkeypatch):
    """Make the planted images those whose checksum is known."""
    digest = datasets._sha256([images[name] for name in STEMS])
    monkeypatch.setattr(datasets, "_MNIST_SHA256", digest)


def idx(array):
    head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
    return head + array.tobytes()


@pytest.mark.parametrize("packed", [False, True])
def test_idx_files_are_read(folder, images, known, packed):
    for name, stem in STEMS.items():
        content = idx(images[name])
        path = folder / (stem + ".gz" * packed)
        path.write_bytes(gzip.compress(content) if packed else content)
    got = load("mnist", offline=True)
    assert got.train.shape == (12, 784)
    assert_array_equal(got.train, images["train_images"].reshape(12, 784))
    assert_array_equal(got.test_labels, images["test_labels"])


@pytest.mark.parametrize(
    "names", [tuple(STEMS), ("x_train", "y_train", "x_test", "y_test")]
)
def test_npz_files_are_read_under_either_naming(folder, images, known, names):
    arrays = dict(zip(names, images.values(), strict=True))
    np.savez(folder / "mnist.npz", **arrays)
    assert_array_equal(load("mnist", offline=True).train_labels, images["train_labels"])


def test_other_images_under_the_name_of_mnist_are_refused(folder, images):
    np.savez(folder / "mnist.npz", **images)
    with pytest.raises(IsoprojError, match="checksum"):
        load("mnist", offline=True)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 not really", b"\x00" * 40])
def test_a_damaged_file_is_one_clear_line(folder, content):
    (folder / "mnist.npz").write_bytes(content)
    with pytest.raises(IsoprojError, match=r"mnist\.npz must hold") as caught:
        load("mnist", offline=True)
    assert "\n" not in str(caught.value)


def test_a_cut_idx_file_is_refused(folder, images):
    for name, stem in STEMS.items():
        (folder / stem).write_bytes(idx(images[name])[:-1])
    with pytest.raises(IsoprojError, match="whole IDX file"):
        load("mnist", offline=True)


@pytest.mark.parametrize(
    ("name", "file"), [("mnist", "mnist.npz"), ("news", "20news_two_groups.json.gz")]
)
def test_data_not_at_hand_says_which_file_goes_where(folder, name, file):
    with pytest.raises(MissingDataError, match=file) as caught:
        load(name, offline=True)
    assert str(folder) in str(caught.value)


def test_posts_of_another_split_are_refused(folder):
    groups = {group: {"ids": [1], "texts": ["a"]} for group in datasets.GROUPS}
    with gzip.open(folder / "20news_two_groups.json.gz", "wt") as file:
        json.dump({"train": groups, "test": groups}, file)
    with pytest.raises(IsoprojError, match="by-date split"):
        load("news", offline=True)


def test_samples_are_decided_by_their_seed_and_have_one_label():
    digits = load("digits")
    one, again, other = (sample(digits, (5,), 20, seed) for seed in (0, 0, 1))
    assert_array_equal(one, again)
    assert not np.array_equal(one, other)
    rows = {row.tobytes() for row in digits.train[digits.train_labels == 5]}
    assert all(row.tobytes() in rows for row in one)


def test_held_out_points_are_not_among_the_training_points():
    digits = load("digits")
    train = {row.tobytes() for row in sample(digits, (5,), None, 0)}
    assert not train & {row.tobytes() for row in held_out(digits, (5,))}


def test_a_sample_larger_than_its_class_is_refused():
    with pytest.raises(MissingDataError, match="smaller sample"):
        sample(load("digits"), (5,), 1000, 0)
