from __future__ import annotations

import io
import os
import tempfile
import threading

import numpy as np
import pytest
import scipy.sparse

from isoproj.exceptions import FormatError, ScratchError
from isoproj.files.read.reading import contents_of, read_pairs, read_points
from isoproj.files.write.writing import write_points
from isoproj.numerics.storage import Mapped, Storage

POINTS = np.random.default_rng(3).normal(size=(7, 4))


def read(path, **options):
    return read_points(str(path), **options)


def test_npy_is_mapped_and_read_only(tmp_path):
    np.save(tmp_path / "a.npy", POINTS)
    points = read(tmp_path / "a.npy").points
    assert isinstance(points, np.memmap)
    assert not points.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        points[0, 0] = 1.0


def test_column_order_and_foreign_byte_order_are_understood(tmp_path):
    np.save(tmp_path / "f.npy", np.asfortranarray(POINTS))
    np.save(tmp_path / "b.npy", POINTS.astype(">f8"))
    np.testing.assert_array_equal(read(tmp_path / "f.npy").points, POINTS)
    np.testing.assert_array_equal(read(tmp_path / "b.npy").points, POINTS)


@pytest.mark.parametrize("cut", [1, 8, 9, 60, 130, 200])
def test_a_truncated_npy_says_so(tmp_path, cut):
    np.save(tmp_path / "a.npy", POINTS)
    whole = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(whole[:-cut])
    with pytest.raises(FormatError, match="must be a whole NumPy"):
        read(tmp_path / "a.npy")


def test_npz_takes_the_only_matrix_or_the_one_named(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, x=POINTS, labels=np.arange(7))
    assert read(path).chosen == "x"
    np.savez_compressed(path, x=POINTS, y=2 * POINTS)
    with pytest.raises(FormatError, match=r"x 7x4, y 7x4.*--array x"):
        read(path)
    np.testing.assert_array_equal(read(path, array="y").points, 2 * POINTS)
    np.testing.assert_array_equal(read(f"{path}:y").points, 2 * POINTS)
    with pytest.raises(FormatError, match="must hold 'z'"):
        read(path, array="z")


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "dia"])
def test_sparse_npz_of_every_kind_is_read(tmp_path, kind):
    matrix = scipy.sparse.random_array(
        (9, 6), density=0.4, rng=np.random.default_rng(0)
    )
    scipy.sparse.save_npz(tmp_path / "a.npz", matrix.asformat(kind))
    points = read(tmp_path / "a.npz").points
    assert points.format == "csr"
    np.testing.assert_array_equal(points.toarray(), matrix.toarray())


def test_sparse_indices_outside_the_matrix_are_refused(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        format=np.array(b"csr"),
        shape=np.array([2, 2]),
        data=np.ones(2),
        indices=np.array([0, 10**9]),
        indptr=np.array([0, 1, 2]),
    )
    with pytest.raises(FormatError, match="must be a whole"):
        read(tmp_path / "a.npz")


def test_a_header_is_found_and_names_the_columns(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("height,width\n1,2\n3,4\n")
    data = read(path)
    assert data.names == ("height", "width")
    assert data.points.tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("head", [",a,b\n", "Unnamed: 0,a,b\n", ""])
def test_a_column_that_numbers_the_rows_is_noted_with_what_leaves_it_out(
    tmp_path, head
):
    (tmp_path / "a.csv").write_text(f"{head}0,5,6\n1,7,3\n2,9,1\n")
    with pytest.warns(UserWarning, match="column 0 of .* --columns 1:"):
        assert read(tmp_path / "a.csv").points.shape == (3, 3)
    assert read(tmp_path / "a.csv", columns="1:").points.shape == (3, 2)


def test_a_named_column_that_counts_is_a_feature(tmp_path):
    (tmp_path / "a.csv").write_text("day,b\n0,5\n1,7\n2,9\n")
    assert read(tmp_path / "a.csv").points.shape == (3, 2)


def test_without_a_header_the_first_line_is_a_point(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    data = read(tmp_path / "a.csv")
    assert data.names is None
    assert data.points.shape == (2, 2)


def test_a_first_line_that_counts_is_not_guessed_at(tmp_path):
    (tmp_path / "a.csv").write_text(",0,1,2\n5,6,7,8\n9,10,11,12\n")
    with pytest.raises(FormatError, match="--header yes or --header no"):
        read(tmp_path / "a.csv")
    assert read(tmp_path / "a.csv", header="yes").points.shape == (2, 4)


@pytest.mark.parametrize(
    "text",
    ["a;b\n1;2\n3;4\n", '"a","b"\n"1","2"\n3,4\n', "\ufeffa,b\r\n1,2\r\n3,4\r\n"],
)
def test_dialects_of_csv_are_understood(tmp_path, text):
    (tmp_path / "a.csv").write_bytes(text.encode())
    data = read(tmp_path / "a.csv")
    assert data.names == ("a", "b")
    assert data.points.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_columns_can_be_chosen_by_name_number_and_range(tmp_path):
    (tmp_path / "a.csv").write_text("id,x,y,z\nab,1,2,3\ncd,4,5,6\n")
    for spec in ("x,y,z", "1:4", "1:", "x,2:4"):
        data = read(tmp_path / "a.csv", columns=spec)
        assert data.points.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
        assert data.names == ("x", "y", "z")
    np.save(tmp_path / "a.npy", POINTS)
    np.testing.assert_array_equal(
        read(tmp_path / "a.npy", columns="3,0").points, POINTS[:, [3, 0]]
    )


@pytest.mark.parametrize("spec", ["w", "4", "2:9", "", "x,x", "-1", "3:1"])
def test_columns_that_are_not_there_are_named(tmp_path, spec):
    (tmp_path / "a.csv").write_text("x,y,z\n1,2,3\n4,5,6\n")
    with pytest.raises(FormatError):
        read(tmp_path / "a.csv", columns=spec)


def test_text_in_a_csv_is_placed_by_line_row_and_column(tmp_path):
    (tmp_path / "a.csv").write_text("x,city\n1,2\n3,Paris\n")
    with pytest.raises(
        FormatError, match=r"line 3 \(row 1\), column 1 \('city'\): 'Paris' is not a"
    ):
        read(tmp_path / "a.csv")


def test_an_empty_field_is_placed(tmp_path):
    (tmp_path / "a.csv").write_text("1,2\n3,\n")
    with pytest.raises(FormatError, match=r"line 2 \(row 1\), column 1: no value"):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("mark", [",", "\t", " "])
def test_mixed_widths_are_placed(tmp_path, mark):
    name = "a.tsv" if mark == "\t" else "a.csv"
    rows = [["1", "2", "3"], ["4", "5"], ["6", "7", "8"]]
    (tmp_path / name).write_text("\n".join(mark.join(r) for r in rows))
    with pytest.raises(FormatError, match=r"line 2 \(row 1\): has 2 columns where"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "empty"),
        (b"\n\n\n", "blank lines"),
        (b"a,b\n", "no rows"),
        ("ä,b\n1,2\n".encode("latin-1"), "UTF-8"),
        (b"1,2\n3,4\n\x00\x00", "something else"),
    ],
)
def test_texts_that_hold_no_points_say_why(tmp_path, content, match):
    (tmp_path / "a.csv").write_bytes(content)
    with pytest.raises(FormatError, match=match):
        read(tmp_path / "a.csv")


@pytest.mark.parametrize("name", ["a.npy", "a.csv", "a.fvecs", "a.npz"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_row_of_a_value_that_is_not_finite_is_named(tmp_path, name, value):
    from isoproj.files.write.writing import write_points

    points = np.ones((900, 3), dtype=np.float32)
    points[812, 1] = value
    if name == "a.fvecs":
        records = np.empty(900, dtype=[("n", "<i4"), ("v", "<f4", 3)])
        records["n"], records["v"] = 3, points
        (tmp_path / name).write_bytes(records.tobytes())
    else:
        write_points(tmp_path / name, points)
    with pytest.raises(FormatError, match="row 812, column 1"):
        read(tmp_path / name)


@pytest.mark.parametrize(
    ("array", "match"),
    [
        (np.zeros((3, 0)), "must have columns"),
        (np.zeros((0, 3)), "must hold points"),
        (np.zeros(5), "Reshape it"),
        (np.zeros((2, 3, 4)), "Reshape it"),
        (np.float64(3.0), "Reshape it"),
        (np.zeros((2, 2), dtype=complex), "real numbers"),
        (np.array([["a"]]), "real numbers"),
        (np.zeros(3, dtype=[("a", "f8")]), "real numbers"),
    ],
)
def test_arrays_that_are_no_points_say_why(tmp_path, array, match):
    np.save(tmp_path / "a.npy", array)
    with pytest.raises(FormatError, match=match):
        read(tmp_path / "a.npy")


def test_one_row_is_too_few_where_pairs_are_needed(tmp_path):
    np.save(tmp_path / "a.npy", POINTS[:1])
    assert read(tmp_path / "a.npy").points.shape == (1, 4)
    with pytest.raises(FormatError, match=r"at least 2 points; it has 1 row"):
        read(tmp_path / "a.npy", min_rows=2)


def test_vectors_of_several_widths_are_placed(tmp_path):
    first = np.array([2, 0, 0], dtype="<i4").tobytes()
    (tmp_path / "a.ivecs").write_bytes(
        first + first + np.array([1, 0, 0], dtype="<i4").tobytes()
    )
    with pytest.raises(FormatError, match="row 2 has width 1, row 0 has 2"):
        read(tmp_path / "a.ivecs")


def test_directories_missing_files_and_devices_are_told_apart(tmp_path):
    with pytest.raises(IsADirectoryError, match="it is a directory"):
        read(tmp_path)
    np.save(tmp_path / "embeddings.npy", POINTS)
    with pytest.raises(FileNotFoundError, match=r"Did you mean .*embeddings\.npy"):
        read(tmp_path / "embedings.npy")
    with pytest.raises(FileNotFoundError, match="no folder"):
        read(tmp_path / "no" / "a.npy")
    with pytest.raises(OSError, match="device"):
        read("/dev/zero")


def test_a_named_pipe_is_read_once(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=("1,2\n3,4\n",))
    writer.start()
    assert read(pipe).points.shape == (2, 2)
    writer.join()


@pytest.mark.parametrize("form", ["npy", "csv"])
def test_standard_input_is_read(monkeypatch, form):
    stream = io.BytesIO()
    if form == "npy":
        np.save(stream, POINTS)
    else:
        np.savetxt(stream, POINTS, delimiter=",", fmt="%.17g")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stream.getvalue())))
    np.testing.assert_array_equal(read("-").points, POINTS)


def test_a_zip_archive_cannot_come_through_a_pipe(monkeypatch):
    stream = io.BytesIO()
    np.savez(stream, POINTS)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stream.getvalue())))
    with pytest.raises(FormatError, match="plain file"):
        read("-")


def test_benchmark_files_give_their_training_points(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "sift.hdf5", "w") as file:
        file["train"], file["test"] = POINTS, POINTS[:2]
        file["neighbors"] = np.zeros((2, 3), dtype=int)
        file["nested/other"] = POINTS[:3]
    path = tmp_path / "sift.hdf5"
    assert read(path).chosen == "train"
    np.testing.assert_array_equal(read(f"{path}:test").points, POINTS[:2])
    np.testing.assert_array_equal(read(path, array="/nested/other").points, POINTS[:3])
    assert {c.name for c in contents_of(str(path))[1]} >= {"train", "nested/other"}


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
@pytest.mark.parametrize("fixed", [True, False])
def test_a_column_of_lists_is_an_embedding(tmp_path, name, fixed):
    pyarrow = pytest.importorskip("pyarrow")
    kind = pyarrow.list_(pyarrow.float32(), 4 if fixed else -1)
    lists = pyarrow.array(POINTS.astype(np.float32).tolist(), type=kind)
    table = pyarrow.table({"text": list("abcdefg"), "embedding": lists})
    write_table(pyarrow, table, tmp_path / name)
    data = read(tmp_path / name)
    assert data.chosen == "embedding"
    assert data.points.dtype == np.float32
    np.testing.assert_array_equal(data.points, POINTS.astype(np.float32))


def write_table(pyarrow, table, path):
    import pyarrow.parquet

    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(table, path)
        return
    # A stream without the file's frame, as Hugging Face writes it.
    with pyarrow.ipc.new_stream(str(path), table.schema) as writer:
        writer.write_table(table)


def test_lists_of_several_widths_and_missing_ones_are_placed(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    write_table(pyarrow, pyarrow.table({"e": [[1.0, 2.0], [3.0]]}), path)
    with pytest.raises(FormatError, match="row 1: has 1 numbers where row 0 has 2"):
        read(path)
    write_table(pyarrow, pyarrow.table({"e": [[1.0, 2.0], None]}), path)
    with pytest.raises(FormatError, match="row 1: has no list"):
        read(path)
    write_table(pyarrow, pyarrow.table({"e": [[1.0, 2.0], [None, 1.0]]}), path)
    with pytest.raises(FormatError, match="row 1, column 0 contains NaN"):
        read(path)


def test_text_columns_must_be_left_out_by_name(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "a.parquet"
    table = pyarrow.table({"id": ["a", "b"], "x": [1.0, 2.0], "y": [3, 4]})
    write_table(pyarrow, table, path)
    with pytest.raises(FormatError, match=r"column 'id' is string.*--columns x,y"):
        read(path)
    data = read(path, columns="y,x")
    assert data.names == ("y", "x")
    assert data.points.tolist() == [[3.0, 1.0], [4.0, 2.0]]


def test_a_model_is_not_data(model, tmp_path):
    for name in ("m.isoproj", "m.safetensors"):
        model.save(tmp_path / name)
        with pytest.raises(FormatError, match="it is an isoproj model"):
            read(tmp_path / name)


def test_pairs_are_whole_row_numbers(tmp_path):
    path = tmp_path / "pairs.csv"
    path.write_text("0,1\n2,3\n")
    assert read_pairs(str(path)).tolist() == [[0, 1], [2, 3]]
    path.write_text("0,1.5\n")
    with pytest.raises(FormatError, match="whole row numbers"):
        read_pairs(str(path))
    path.write_text("0,5,2\n")
    with pytest.raises(FormatError, match="two columns"):
        read_pairs(str(path))


LIBRARY = {".parquet": "pyarrow", ".feather": "pyarrow", ".arrow": "pyarrow"}
LIBRARY |= {".h5": "h5py"}


@pytest.mark.parametrize("suffix", [*LIBRARY, ".safetensors"])
@pytest.mark.parametrize("kind", ["<f4", "<f8", "<i4", "?"])
def test_points_beyond_the_budget_are_read_batch_by_batch(tmp_path, suffix, kind):
    if suffix in LIBRARY:
        pytest.importorskip(LIBRARY[suffix])
    points, path = (10 * POINTS).astype(kind), tmp_path / f"a{suffix}"
    write_points(path, points)
    assert Mapped.of(read(path).points) is None
    for columns, wanted in ((None, points), ("2:4", points[:, 2:])):
        data = read(path, storage=Storage(0, slice_bytes=64), columns=columns)
        assert Mapped.of(data.points) is not None
        assert data.points.dtype == points.dtype
        np.testing.assert_array_equal(data.points, wanted)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_faults_of_late_batches_are_placed(tmp_path, name):
    pyarrow = pytest.importorskip("pyarrow")
    small = Storage(0, slice_bytes=4 * 8)
    path = tmp_path / name
    whole = [1, 2, 3, 4, 5]
    write_table(pyarrow, pyarrow.table({"x": whole, "y": [1, 2, 3, 4, None]}), path)
    with pytest.raises(
        FormatError, match=r"a\.\w+ must be finite; row 4, column 1 .*NaN"
    ):
        read(path, storage=small)
    lists = [[float(n), 0.0] for n in whole]
    write_table(pyarrow, pyarrow.table({"e": lists}), path)
    np.testing.assert_array_equal(read(path, storage=small).points, lists)
    write_table(pyarrow, pyarrow.table({"e": [*lists, [1.0]]}), path)
    with pytest.raises(FormatError, match="row 5: has 1 numbers where row 0 has 2"):
        read(path, storage=small)
    write_table(pyarrow, pyarrow.table({"e": [*lists, None]}), path)
    with pytest.raises(FormatError, match="row 5: has no list"):
        read(path, storage=small)


def test_chosen_columns_of_a_mapped_file_keep_the_budget(tmp_path):
    np.save(tmp_path / "a.npy", POINTS)
    data = read(tmp_path / "a.npy", columns="3,0", storage=Storage(0))
    assert Mapped.of(data.points) is not None
    np.testing.assert_array_equal(data.points, POINTS[:, [3, 0]])


def test_no_room_for_a_scratch_file_is_not_taken_for_a_damaged_file(
    tmp_path, monkeypatch
):
    pytest.importorskip("h5py")
    write_points(tmp_path / "a.h5", POINTS)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(ScratchError, match="scratch file"):
        read(tmp_path / "a.h5", storage=Storage(0))
