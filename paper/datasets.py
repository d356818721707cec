"""The data of the paper: MNIST, 20 Newsgroups, and bundled digits in their place.

Files are read from the folder that ``ISOPROJ_DATA`` names, or from ``shared/data``
beside the clone. Where they are missing, scikit-learn downloads the data unless
``offline`` is set. Images are checked against a checksum, posts by their number.
"""

from __future__ import annotations

import functools
import gzip
import hashlib
import json
import os
import socket
import struct
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from isoproj.exceptions import IsoprojError
from isoproj.numerics.arrays import as_dense
from isoproj.numerics.container import write_atomically
from isoproj.numerics.spectral import Array, Indices

GROUPS = ("alt.atheism", "comp.os.ms-windows.misc")
N_WORDS = 8000
_IMAGES = ("train_images", "train_labels", "test_images", "test_labels")
# SHA-256 of the pixels and labels of all 70,000 images in their original order.
_MNIST_SHA256 = "06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16"
_IDX = {
    "train_images": "train-images-idx3-ubyte",
    "train_labels": "train-labels-idx1-ubyte",
    "test_images": "t10k-images-idx3-ubyte",
    "test_labels": "t10k-labels-idx1-ubyte",
}
# Other libraries' names of the same arrays.
_KERAS = dict(zip(("x_train", "y_train", "x_test", "y_test"), _IMAGES, strict=True))
_N_POSTS = {"train": (480, 591), "test": (319, 394)}
_NEWS_FILE = "20news_two_groups.json.gz"
_NETWORK_SECONDS = 20.0


class MissingDataError(IsoprojError):
    """A data set is missing; the message says which file to put where."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Collection:
    """Labelled points for fitting, and others held out.

    Points are dense or CSR rows; a label is a digit or the number of a newsgroup.
    ``source`` says where the points came from, ``fingerprint`` is their SHA-256.
    """

    name: str
    train: Any
    train_labels: Indices
    test: Any
    test_labels: Indices
    source: str
    fingerprint: str


def data_folder() -> Path:
    """Return the folder from which data files are read."""
    asked = os.environ.get("ISOPROJ_DATA")
    return Path(asked) if asked else Path(__file__).parents[2] / "shared" / "data"


@functools.lru_cache(maxsize=3)
def load(name: str, *, offline: bool = False) -> Collection:
    """Return MNIST, the newsgroups ("news") or the bundled digits, checked.

    Raises ``MissingDataError`` where a data set is missing and cannot be downloaded.
    """
    loaders: dict[str, Callable[[bool], Collection]] = {
        "mnist": _mnist,
        "news": _news,
        "digits": _digits,
    }
    if name not in loaders:
        msg = f"data must be one of {', '.join(loaders)}; got {name!r}. Use 'mnist'."
        raise ValueError(msg)
    return loaders[name](offline)


def sample(
    collection: Collection, labels: tuple[int, ...], r: int | None, seed: int
) -> Array:
    """Return training points of the given labels as dense rows, ``r`` at random.

    Several labels share ``r`` equally; None means all points in their order. Raises
    ``MissingDataError`` where a label has too few points.
    """
    rng = np.random.default_rng(seed)
    chosen = []
    for label in labels:
        rows = np.flatnonzero(collection.train_labels == label)
        count = rows.size if r is None else r // len(labels)
        if count > rows.size:
            msg = (
                f"{collection.name} must have {count} points of label {label}; it has "
                f"{rows.size}. Take a smaller sample."
            )
            raise MissingDataError(msg)
        chosen.append(rows if r is None else rng.choice(rows, count, replace=False))
    return _dense(collection.train[np.concatenate(chosen)])


def held_out(collection: Collection, labels: tuple[int, ...]) -> Array:
    """Return all test points of the given labels as dense rows."""
    return _dense(collection.test[np.isin(collection.test_labels, labels)])


def _dense(rows: Any) -> Array:  # noqa: ANN401 - dense or sparse
    """Return rows as a dense array of float64."""
    return np.asarray(as_dense(rows), dtype=np.float64)


def _digits(_: bool) -> Collection:
    """Return the digits that scikit-learn bundles."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    is_test = np.arange(labels.size) % 4 == 3
    return Collection(
        name="digits",
        train=images[~is_test],
        train_labels=labels[~is_test],
        test=images[is_test],
        test_labels=labels[is_test],
        source="bundled with scikit-learn; every fourth image held out",
        fingerprint=_sha256([images.astype(np.uint8), labels.astype(np.uint8)]),
    )


def _sha256(arrays: list[NDArray[np.uint8]]) -> str:
    """Return the SHA-256 of some arrays, one after the other."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _cache_folder() -> Path:
    """Return the folder in which downloaded data are kept."""
    from sklearn.datasets import get_data_home

    return Path(get_data_home()) / "isoproj"


def _mnist(offline: bool) -> Collection:
    """Return MNIST, checked against its checksum."""
    arrays, source = _mnist_arrays(offline)
    for name, array in arrays.items():
        if name.endswith("images"):
            arrays[name] = array.reshape(array.shape[0], -1)
    fingerprint = _sha256([arrays[name] for name in _IMAGES])
    if fingerprint != _MNIST_SHA256:
        msg = (
            f"{source} must hold the 70,000 images of MNIST in their original order; "
            f"its checksum is {fingerprint[:12]}, not {_MNIST_SHA256[:12]}. "
            "Download it again."
        )
        raise IsoprojError(msg)
    return Collection(
        name="mnist",
        train=arrays["train_images"],
        train_labels=arrays["train_labels"].astype(np.intp),
        test=arrays["test_images"],
        test_labels=arrays["test_labels"].astype(np.intp),
        source=source,
        fingerprint=fingerprint,
    )


def _mnist_arrays(offline: bool) -> tuple[dict[str, NDArray[np.uint8]], str]:
    """Return the four arrays, and the name of the source that has them."""
    for folder in (data_folder(), _cache_folder()):
        for path in (folder / "mnist.npz", folder / "mnist_784.npz"):
            if path.is_file():
                return _from_npz(path), path.name
        found = {name: _idx_file(folder, stem) for name, stem in _IDX.items()}
        if all(path is not None for path in found.values()):
            arrays = {name: _from_idx(path) for name, path in found.items() if path}
            return arrays, "IDX files"
    if not offline:
        fetched = _fetched_mnist()
        if fetched is not None:
            return fetched, "OpenML mnist_784"
    msg = (
        "MNIST is missing: put mnist.npz, or the four IDX files "
        f"({', '.join(_IDX.values())}; .gz will do), into {data_folder()}, or name "
        "their folder in ISOPROJ_DATA."
    )
    raise MissingDataError(msg)


def _from_npz(path: Path) -> dict[str, NDArray[np.uint8]]:
    """Return the four arrays of an NPZ file, under either naming."""
    try:
        with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
            named = {_KERAS.get(name, name): name for name in file.files}
            return {name: np.asarray(file[named[name]], np.uint8) for name in _IMAGES}
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        msg = (
            f"{path.name} must hold the arrays {', '.join(_IMAGES)}; reading it fails: "
            f"{error}. Download it again."
        )
        raise IsoprojError(msg) from None


def _idx_file(folder: Path, stem: str) -> Path | None:
    """Return the IDX file of a name in a folder, None where there is none."""
    # Some copies write the dot of the old file names.
    names = [stem, f"{stem}.gz", stem.replace("-idx", ".idx")]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _from_idx(path: Path) -> NDArray[np.uint8]:
    """Return the array of an IDX file: two zeros, type, rank, sizes, bytes."""
    try:
        content = path.read_bytes()
        if path.suffix == ".gz":
            content = gzip.decompress(content)
        rank = content[3]
        sizes = struct.unpack_from(f">{rank}I", content, 4)
        if content[:3] != b"\x00\x00\x08":
            raise ValueError  # noqa: TRY301 - the one answer to all faults is below
        return np.frombuffer(content, np.uint8, offset=4 + 4 * rank).reshape(sizes)
    except (IndexError, struct.error, ValueError, EOFError, gzip.BadGzipFile):
        msg = (
            f"{path.name} must be a whole IDX file of bytes; it is not. "
            "Download it again."
        )
        raise IsoprojError(msg) from None


def _fetched_mnist() -> dict[str, NDArray[np.uint8]] | None:
    """Return the images from OpenML and keep a copy; None where that fails."""
    from sklearn.datasets import fetch_openml

    try:
        with _network_timeout():
            got = fetch_openml(
                "mnist_784", version=1, as_frame=False, parser="liac-arff", n_retries=1
            )
    except Exception:  # of whatever kind: the data are missing
        return None
    images, labels = got.data.astype(np.uint8), got.target.astype(np.uint8)
    parts = (images[:60000], labels[:60000], images[60000:], labels[60000:])
    arrays = dict(zip(_IMAGES, parts, strict=True))
    buffer = BytesIO()
    np.savez_compressed(buffer, **arrays)
    _cache_folder().mkdir(parents=True, exist_ok=True)
    write_atomically(_cache_folder() / "mnist_784.npz", buffer.getvalue())
    return arrays


@contextmanager
def _network_timeout() -> Iterator[None]:
    """Limit how long a connection may stay silent; what is missing is said later."""
    before = socket.getdefaulttimeout()
    socket.setdefaulttimeout(_NETWORK_SECONDS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        socket.setdefaulttimeout(before)


def _news(offline: bool) -> Collection:
    """Return word counts of the two newsgroups, commonest words first."""
    posts, source = _posts(offline)
    counts = {part: tuple(len(group) for group in posts[part]) for part in posts}
    if counts != _N_POSTS:
        msg = (
            f"{source} must hold the by-date split of {' and '.join(GROUPS)}, "
            f"{_N_POSTS} posts; it holds {counts}. Download it again."
        )
        raise IsoprojError(msg)
    from sklearn.feature_extraction.text import CountVectorizer

    counter = CountVectorizer(max_features=N_WORDS, dtype=np.float64)
    texts = {part: [text for group in posts[part] for text in group] for part in posts}
    train = scipy.sparse.csr_array(counter.fit_transform(texts["train"]))
    # Columns by falling frequency, so that the first d are the d commonest words.
    order = np.argsort(-np.asarray(train.sum(axis=0)).ravel(), kind="stable")
    test = scipy.sparse.csr_array(counter.transform(texts["test"]))
    content = json.dumps(posts, sort_keys=True).encode()
    return Collection(
        name="news",
        train=train[:, order],
        train_labels=np.repeat(np.arange(2), counts["train"]),
        test=test[:, order],
        test_labels=np.repeat(np.arange(2), counts["test"]),
        source=source,
        fingerprint=hashlib.sha256(content).hexdigest(),
    )


def _posts(offline: bool) -> tuple[dict[str, list[list[str]]], str]:
    """Return the posts by part and group, and the name of their source."""
    path = data_folder() / _NEWS_FILE
    if path.is_file():
        try:
            with gzip.open(path, "rt", encoding="utf-8") as file:
                whole = json.load(file)
            return (
                {p: [whole[p][g]["texts"] for g in GROUPS] for p in ("train", "test")},
                path.name,
            )
        except (KeyError, ValueError, OSError, EOFError) as error:
            msg = (
                f"{path.name} must hold posts by split and group; reading it fails: "
                f"{error}. Download it again."
            )
            raise IsoprojError(msg) from None
    fetched = _fetched_posts(download=not offline)
    if fetched is not None:
        return fetched, "scikit-learn fetch_20newsgroups"
    msg = (
        f"20 Newsgroups is missing: put {_NEWS_FILE} into {data_folder()}, or name "
        "its folder in ISOPROJ_DATA."
    )
    raise MissingDataError(msg)


def _fetched_posts(*, download: bool) -> dict[str, list[list[str]]] | None:
    """Return the posts by scikit-learn's fetcher; None where that fails."""
    from sklearn.datasets import fetch_20newsgroups

    posts = {}
    try:
        with _network_timeout():
            for part in ("train", "test"):
                posts[part] = [
                    list(
                        fetch_20newsgroups(
                            subset=part,
                            categories=[group],
                            shuffle=False,
                            download_if_missing=download,
                            n_retries=1,
                        ).data
                    )
                    for group in GROUPS
                ]
    except Exception:  # of whatever kind: the data are missing
        return None
    return posts
