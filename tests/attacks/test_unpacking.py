"""Small files that unpack to much more do not go beyond the memory limit."""

from __future__ import annotations

import gzip
import tracemalloc

import numpy as np
import pytest
import scipy.sparse

from isoproj.exceptions import FormatError
from isoproj.files.read import sources
from isoproj.files.read.reading import read_points
from isoproj.numerics.storage import Mapped, Storage

LIMIT = 100_000


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(sources, "_SMALL", 0)


def packed(folder, name):
    zeros = np.zeros((20_000, 16))
    path = folder / name
    if name == "a.npz":
        np.savez_compressed(path, a=zeros)
    elif name == "columns.npz":
        np.savez_compressed(path, a=np.asfortranarray(zeros))
    elif name == "sparse.npz":
        scipy.sparse.save_npz(path, scipy.sparse.csr_array(zeros + 1.0))
    elif name == "tall.npz":
        one = scipy.sparse.coo_array(([1.0], ([5], [1])), shape=(10**8, 2))
        scipy.sparse.save_npz(path, one)
    else:
        with gzip.open(path, "wb") as file:
            np.save(file, zeros) if ".npy" in name else np.savetxt(file, zeros, "%d")
    assert path.stat().st_size < LIMIT
    return path


@pytest.mark.parametrize("name", ["a.npz", "columns.npz"])
def test_compressed_arrays_beyond_the_limit_lie_in_a_scratch_file(tmp_path, name):
    path = packed(tmp_path, name)
    tracemalloc.start()
    try:
        storage = Storage(LIMIT, slice_bytes=10_000)
        points = read_points(str(path), storage=storage).points
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert points.shape == (20_000, 16)
    assert Mapped.of(points) is not None
    assert peak < points.nbytes / 2


@pytest.mark.parametrize("name", ["sparse.npz", "tall.npz", "a.npy.gz", "a.csv.gz"])
def test_other_files_that_unpack_beyond_the_limit_are_refused(tmp_path, name):
    path = packed(tmp_path, name)
    with pytest.raises(FormatError, match="must unpack to at most"):
        read_points(str(path), storage=Storage(LIMIT))


def test_a_text_is_refused_by_the_memory_of_its_matrix(tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "_SMALL", 2**20)
    with gzip.open(tmp_path / "wide.csv.gz", "wb") as file:
        file.write((b"0," * 400_000 + b"0\n") * 2)
    tracemalloc.start()
    try:
        with pytest.raises(FormatError, match="must unpack to at most"):
            read_points(str(tmp_path / "wide.csv.gz"), storage=Storage(LIMIT))
        assert tracemalloc.get_traced_memory()[1] < 40_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("order", ["C", "F"])
def test_compressed_arrays_are_read_as_they_were_written(tmp_path, order):
    rows = np.asarray(np.random.default_rng(0).normal(size=(70, 5)), order=order)
    np.savez_compressed(tmp_path / "a.npz", a=rows)
    for storage in (Storage(), Storage(0, slice_bytes=333)):
        read = read_points(str(tmp_path / "a.npz"), storage=storage).points
        assert np.array_equal(read, rows)
