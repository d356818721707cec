from __future__ import annotations

import errno
import os

import numpy as np
import pytest

from isoproj.cli.outputs import check_output
from isoproj.exceptions import FormatError
from isoproj.files.read.reading import read_points
from isoproj.files.write.writing import Blocks, write_blocks, write_points

FLOATS = [
    "a.npy",
    "a.npy.gz",
    "a.npz",
    "a.csv",
    "a.csv.gz",
    "a.tsv",
    "a.parquet",
    "a.pq",
    "a.arrow",
    "a.feather",
    "a.h5",
    "a.hdf5",
    "a.safetensors",
]
LIBRARY = {"parquet": "pyarrow", "pq": "pyarrow", "arrow": "pyarrow"}
LIBRARY |= {"feather": "pyarrow", "h5": "h5py", "hdf5": "h5py"}


def needs(name):
    library = LIBRARY.get(name.split(".")[1])
    if library:
        pytest.importorskip(library)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", FLOATS)
def test_every_format_reads_what_it_wrote(tmp_path, name, dtype):
    needs(name)
    rng = np.random.default_rng(2)
    points = (rng.normal(size=(50, 5)) * 10.0 ** rng.integers(-30, 30, (50, 5))).astype(
        dtype
    )
    write_points(tmp_path / name, points)
    back = read_points(str(tmp_path / name)).points
    assert name.split(".")[1] in ("csv", "tsv") or back.dtype == dtype
    np.testing.assert_array_equal(back, points)


@pytest.mark.parametrize("name", ["a.fvecs", "a.fvecs.gz"])
def test_fvecs_read_what_they_wrote(tmp_path, name):
    points = np.random.default_rng(2).normal(size=(50, 5)).astype(np.float32)
    write_points(tmp_path / name, points)
    np.testing.assert_array_equal(read_points(str(tmp_path / name)).points, points)


@pytest.mark.parametrize("name", ["a.bvecs", "a.ivecs", "a.bvecs.gz"])
def test_vectors_of_whole_numbers_read_what_they_wrote(tmp_path, name):
    points = np.random.default_rng(2).integers(0, 256, size=(50, 5))
    write_points(tmp_path / name, points)
    np.testing.assert_array_equal(read_points(str(tmp_path / name)).points, points)
    for bad in (points + 0.5, points - 2.0**40):
        with pytest.raises(FormatError, match="whole numbers"):
            write_points(tmp_path / name, bad)
    np.testing.assert_array_equal(read_points(str(tmp_path / name)).points, points)


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.parquet", "a.feather"])
def test_names_of_columns_are_kept(tmp_path, name):
    needs(name)
    names = ("plain", 'with "quotes"', "with, comma")
    write_points(tmp_path / name, np.eye(3), names=names)
    assert read_points(str(tmp_path / name)).names == names


@pytest.mark.parametrize("name", ["a.npy", "a.csv", "a.fvecs", "a.npz", "a.h5"])
def test_blocks_make_the_same_file_as_the_whole(tmp_path, name):
    needs(name)
    points = np.random.default_rng(2).normal(size=(50, 5)).astype(np.float32)
    parts = [points[:20], points[20:21], points[21:]]
    write_blocks(
        tmp_path / name,
        Blocks(shape=points.shape, dtype=points.dtype, parts=iter(parts)),
    )
    np.testing.assert_array_equal(read_points(str(tmp_path / name)).points, points)


def test_files_are_not_overwritten_unless_forced(tmp_path):
    path = tmp_path / "a.npy"
    write_points(path, np.eye(2))
    with pytest.raises(FileExistsError, match="--force"):
        check_output(path)
    check_output(path, force=True)
    write_points(path, np.eye(3))
    assert read_points(str(path)).points.shape == (3, 3)


def test_the_input_is_never_overwritten_not_even_by_another_name(tmp_path):
    path = tmp_path / "a.npy"
    write_points(path, np.eye(2))
    (tmp_path / "link.npy").symlink_to(path)
    with pytest.raises(FileExistsError, match="never overwritten"):
        check_output(tmp_path / "link.npy", inputs=[str(path)], force=True)


def test_devices_and_folders_are_never_replaced(tmp_path):
    # A pipe stands for devices: a test must not aim at a real one.
    os.mkfifo(tmp_path / "pipe.npy")
    with pytest.raises(OSError, match="device"):
        write_points(tmp_path / "pipe.npy", np.eye(2))
    assert (tmp_path / "pipe.npy").is_fifo()
    with pytest.raises(IsADirectoryError, match="directory"):
        check_output(tmp_path, force=True)


@pytest.mark.parametrize("name", ["a", "a.txt", "a.isoproj", "a.npz.gz"])
def test_names_without_a_format_are_refused(tmp_path, name):
    with pytest.raises(FormatError):
        write_points(tmp_path / name, np.eye(2))
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_the_old_file_and_no_rubbish(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    write_points(path, np.eye(2))

    def full(_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_points(path, np.eye(3))
    assert read_points(str(path)).points.shape == (2, 2)
    assert [p.name for p in tmp_path.iterdir()] == ["a.npy"]


def test_a_file_appears_only_when_it_is_whole(tmp_path):
    seen, path = [], tmp_path / "a.npy"

    def parts():
        for _ in range(3):
            seen.append(path.exists())
            yield np.eye(2)

    write_blocks(path, Blocks(shape=(6, 2), dtype=np.dtype(float), parts=parts()))
    assert seen == [False] * 3
    assert read_points(str(path)).points.shape == (6, 2)


def test_new_files_have_the_mode_of_ordinary_ones(tmp_path):
    (tmp_path / "plain").touch()
    write_points(tmp_path / "a.npy", np.eye(2))
    assert (tmp_path / "a.npy").stat().st_mode == (tmp_path / "plain").stat().st_mode
