from __future__ import annotations

import gzip
import pickle

import numpy as np
import pytest

from isoproj.exceptions import FormatError
from isoproj.files.read.reading import read_points

POINTS = np.arange(12.0).reshape(4, 3) ** 1.5


def test_the_extension_may_be_missing_when_the_content_is_clear(tmp_path):
    np.save(tmp_path / "a.npy", POINTS)
    (tmp_path / "a.npy").rename(tmp_path / "a")
    data = read_points(str(tmp_path / "a"))
    assert data.format == "npy"
    np.testing.assert_array_equal(data.points, POINTS)


@pytest.mark.parametrize("wrong", ["csv", "npz", "parquet", "h5", "fvecs", "arrow"])
def test_a_name_that_contradicts_the_content_is_an_error(tmp_path, wrong):
    np.save(tmp_path / "a.npy", POINTS)
    path = (tmp_path / "a.npy").rename(tmp_path / f"a.{wrong}")
    with pytest.raises(FormatError, match=r"is named like .* content is NumPy \.npy"):
        read_points(str(path))


@pytest.mark.parametrize("wrong", ["npy", "npz", "fvecs", "safetensors"])
def test_text_under_a_binary_name_is_an_error(tmp_path, wrong):
    path = tmp_path / f"a.{wrong}"
    path.write_text("1,2\n3,4\n")
    with pytest.raises(FormatError, match="content is text"):
        read_points(str(path))


def test_gzip_must_be_named_so(tmp_path):
    hidden = tmp_path / "a.csv"
    hidden.write_bytes(gzip.compress(b"1,2\n3,4\n"))
    with pytest.raises(
        FormatError, match=r"is not named \.gz, but its content is gzip"
    ):
        read_points(str(hidden))
    false = tmp_path / "b.csv.gz"
    false.write_text("1,2\n3,4\n")
    with pytest.raises(FormatError, match="is not gzip"):
        read_points(str(false))


def test_tabs_in_a_csv_and_commas_in_a_tsv_are_errors(tmp_path):
    (tmp_path / "a.csv").write_text("1\t2\n3\t4\n")
    with pytest.raises(FormatError, match="separated by tabs"):
        read_points(str(tmp_path / "a.csv"))
    (tmp_path / "a.tsv").write_text("1,2\n3,4\n")
    with pytest.raises(FormatError, match="separated by commas"):
        read_points(str(tmp_path / "a.tsv"))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("name", ["a.npy", "a.pkl", "a", "a.isoproj", "a.csv"])
def test_a_pickle_is_refused_whatever_its_name(tmp_path, name, protocol):
    path = tmp_path / name
    path.write_bytes(pickle.dumps(POINTS, protocol=protocol))
    with pytest.raises(FormatError, match="never loads pickles"):
        read_points(str(path))


def test_a_pickle_inside_an_npy_or_npz_is_refused(tmp_path):
    objects = np.array([[1, "a"], [{}, 2]], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    with pytest.raises(FormatError, match="pickle"):
        read_points(str(tmp_path / "a.npy"))
    np.savez(tmp_path / "a.npz", x=objects)
    with pytest.raises(FormatError, match="pickle"):
        read_points(str(tmp_path / "a.npz"))


def test_wide_bvecs_are_not_taken_for_pickles(tmp_path):
    from isoproj.files.write.writing import write_points

    wide = np.zeros((2, 0x0280), dtype=np.uint8)
    wide[1] = 7
    write_points(tmp_path / "a.bvecs", wide)
    np.testing.assert_array_equal(read_points(str(tmp_path / "a.bvecs")).points, wide)


def test_unknown_binary_content_lists_what_can_be_read(tmp_path):
    path = tmp_path / "a.bin"
    path.write_bytes(b"\x01\x02\x00\x99" * 9)
    with pytest.raises(FormatError, match=r"Use one of .*\.npy"):
        read_points(str(path))


def test_a_built_in_name_that_is_also_a_file_is_an_error(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "wine").write_text("1,2\n3,4\n")
    with pytest.raises(FormatError, match=r"Write \./wine"):
        read_points("wine")
    assert read_points("./wine").points.shape == (2, 2)


@pytest.mark.parametrize(
    "name", ["breast_cancer", "diabetes", "digits", "iris", "wine"]
)
def test_built_in_data_sets_have_their_names(name):
    assert read_points(name).points.shape[0] > 100


def test_a_missing_library_names_the_extra(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "h5py", None)
    path = tmp_path / "a.h5"
    path.write_bytes(b"\x89HDF\r\n\x1a\n" + b"\x00" * 100)
    with pytest.raises(ImportError, match=r"pip install 'isoproj\[io\]'"):
        read_points(str(path))
