"""Data that do not fit in memory: the same numbers, and never more than the budget."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from geometry import cloud, random_basis
from numpy.testing import assert_array_equal

from isoproj import GuaranteedPCA, NearIsometricProjection, audit, verify
from isoproj.numerics.arrays import as_rows, check_points
from isoproj.numerics.storage import Mapped, Storage, row_slices
from isoproj.pairs.points import Points
from isoproj.pairs.rows import first_copies
from isoproj.pairs.rule import PairRule

COMPONENTS = random_basis(1, 12, 3).T
_FADING = 0.8 ** np.arange(12)
DATA = {
    "plain": cloud(0, 2100, 12) * _FADING,
    "float32": (cloud(1, 2100, 12) * _FADING).astype(np.float32),
    "far from the origin": cloud(2, 300, 12) + 1e4,
    "near-duplicates": np.vstack(
        [cloud(3, 150, 12), cloud(3, 150, 12) + 1e-6 * cloud(4, 150, 12)]
    ),
    "copies": np.tile(cloud(5, 20, 12), (3, 1)),
    "tiny": cloud(6, 60, 12) * 1e-200,
    "flat": cloud(7, 60, 3) @ cloud(8, 3, 12),
    "wide": cloud(9, 8, 12),
}


@pytest.fixture
def scratch(tmp_path, monkeypatch):
    """The folder in which scratch files are made."""
    folder = tmp_path / "scratch"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def mapped(path, rows):
    np.save(path, rows)
    return np.load(path, mmap_mode="r")


def assert_same_audit(first, second):
    assert_array_equal(first.worst_pairs, second.worst_pairs)
    assert_array_equal(first.worst_distortions, second.worst_distortions)
    assert_array_equal(first.histogram[0], second.histogram[0])
    np.testing.assert_equal(
        (first.mean, first.stretch, first.effort),
        (second.mean, second.stretch, second.effort),
    )


def test_arrays_that_are_let_go_make_room_again():
    storage = Storage(800)
    first = storage.empty((10, 10))
    assert Mapped.of(first) is None
    assert Mapped.of(storage.empty((1, 1))) is not None
    view = first[2:]
    del first
    assert storage.room == 0
    del view
    assert storage.room == 800


def test_a_scratch_file_has_no_name_unless_it_is_shared(scratch):
    private = Storage(0).empty((4, 4))
    assert list(scratch.iterdir()) == []
    private[:] = 7.0
    shared = Storage(0, is_shared=True).empty((4, 4))
    shared[:] = np.arange(16.0).reshape(4, 4)
    where = Mapped.of(shared[1:, 1:])
    assert [Path(where.path)] == list(scratch.iterdir())
    assert_array_equal(where.open(), shared[1:, 1:])
    del shared
    gc.collect()
    assert list(scratch.iterdir()) == []
    assert private.sum() == 7.0 * 16


def test_a_storage_travels_without_what_it_holds():
    storage = Storage(100)
    held = storage.empty((10,))
    for other in (pickle.loads(pickle.dumps(storage)), copy.deepcopy(storage)):
        assert (other.limit, other.room) == (100, 100)
    assert storage.room == 100 - held.nbytes


@pytest.mark.parametrize("kind", ["<f4", "<f8"])
def test_a_mapped_file_is_used_as_it_is(tmp_path, kind):
    rows = check_points(mapped(tmp_path / "a.npy", cloud(0, 9, 4).astype(kind)))
    assert Mapped.of(rows).path == str(tmp_path / "a.npy")
    assert_array_equal(Mapped.of(rows[3:]).open(), rows[3:])


@pytest.mark.parametrize("kind", ["i1", "u8", "?", "<f2", ">f4", ">f8"])
@pytest.mark.parametrize("limit", [0, 1e9])
def test_other_numbers_are_converted_slice_by_slice(tmp_path, kind, limit):
    # What a negative number becomes without a sign depends on the machine.
    given = (10 * np.abs(cloud(0, 9, 4))).astype(kind)
    rows = check_points(mapped(tmp_path / "a.npy", given), Storage(limit))
    assert rows.dtype == np.float64
    assert (Mapped.of(rows) is None) == (limit > 0)
    assert_array_equal(rows, given.astype(np.float64))


def test_columns_in_one_piece_become_rows_in_one_piece(tmp_path):
    given = np.asfortranarray(cloud(0, 9, 4))
    for rows in (given, mapped(tmp_path / "a.npy", given)):
        assert check_points(rows).flags.c_contiguous
        assert_array_equal(check_points(rows, Storage(0)), given)


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("rotate", [False, True])
def test_points_in_files_are_those_in_memory(name, rotate):
    rule = PairRule(include_norms=name == "plain")
    options = {"rotate": rotate, "with_origin": rule.has_origin}
    here = Points.prepare(DATA[name], **options)
    there = Points.prepare(DATA[name], **options, storage=Storage(0))
    assert Mapped.of(here.coordinates) is None
    assert Mapped.of(there.coordinates) is not None
    assert_array_equal(here.coordinates, there.coordinates)
    assert_array_equal(here.first_copy, there.first_copy)


def test_sparse_points_in_files_are_those_in_memory():
    draw = np.random.default_rng(0)
    dense = draw.uniform(size=(300, 12)) * (draw.uniform(size=(300, 12)) < 0.3)
    rows = scipy.sparse.coo_array(dense)
    for wanted in (rows.tocsr(), rows.tocsr()[:, [0, 1, 1]]):
        here = Points.prepare(wanted, rotate=True)
        there = Points.prepare(wanted, rotate=True, storage=Storage(0))
        assert Mapped.of(there.coordinates) is not None
        assert_array_equal(here.coordinates, there.coordinates)
        assert here.blur == there.blur


@pytest.mark.parametrize("spread", [True, False])
@pytest.mark.parametrize("name", DATA)
def test_an_audit_of_a_mapped_file_is_that_of_memory(tmp_path, name, spread):
    rows = mapped(tmp_path / "a.npy", DATA[name])
    here = audit(DATA[name], COMPONENTS, spread=spread)
    assert_same_audit(audit(rows, COMPONENTS, spread=spread, memory_limit=0), here)
    assert_same_audit(audit(rows, COMPONENTS, spread=spread), here)


@pytest.mark.parametrize(
    "options",
    [
        {"include_norms": True},
        {"pairs": "neighbors"},
        {"min_distance": 1.0},
        {"pairs": [[0, 1], [3, 200]]},
    ],
)
def test_the_budget_changes_no_pairs(tmp_path, options):
    given = DATA["far from the origin"]
    rows = mapped(tmp_path / "a.npy", given)
    there = audit(rows, COMPONENTS, memory_limit=0, **options)
    assert_same_audit(there, audit(given, COMPONENTS, **options))


@pytest.mark.parametrize("name", ["far from the origin", "near-duplicates", "float32"])
def test_a_fit_on_a_mapped_file_is_that_in_memory(tmp_path, name):
    rows = DATA[name][:300]
    # Below what distances need in either case, and in memory what all else needs.
    models = [
        NearIsometricProjection(
            3, random_state=0, tol=0.2, n_restarts=0, memory_limit=limit
        ).fit(given)
        for limit, given in (
            (3e5, rows),
            (0, rows),
            (0, mapped(tmp_path / "a.npy", rows)),
        )
    ]
    for model in models[1:]:
        assert_array_equal(model.components_, models[0].components_)
        assert model.distortion_ == models[0].distortion_
        assert model.lower_bound_ == models[0].lower_bound_
        assert_array_equal(model.transform(rows), models[0].transform(rows))
    verify(models[2].certificate_, rows, memory_limit=0)


@pytest.mark.parametrize("objective", ["variance", "distortion"])
def test_a_guaranteed_fit_on_a_mapped_file_is_that_in_memory(tmp_path, objective):
    rows = DATA["far from the origin"][:120]
    models = [
        GuaranteedPCA(
            3,
            objective=objective,
            include_norms=objective == "distortion",
            random_state=0,
            tol=0.1,
            memory_limit=limit,
        ).fit(given)
        for limit, given in ((5e4, rows), (0, mapped(tmp_path / "a.npy", rows)))
    ]
    for name in ("components_", "kept_", "kept_bound_", "explained_variance_"):
        assert_array_equal(getattr(models[0], name), getattr(models[1], name))
    assert models[0].distortion_ == models[1].distortion_


def test_runs_of_identical_rows_are_found_in_slices():
    rows = np.repeat(cloud(0, 3, 2), [9000, 1, 2], axis=0)
    assert_array_equal(first_copies(rows), np.repeat([0, 9000, 9001], [9000, 1, 2]))


@pytest.mark.parametrize("row", [0, 5])
def test_a_late_entry_that_is_not_finite_is_named(tmp_path, row):
    given = cloud(0, 6, 4)
    given[row, 2] = np.nan
    given[5, 3] = np.inf
    with pytest.raises(ValueError, match=f"row {row}, column 2 contains NaN"):
        check_points(mapped(tmp_path / "a.npy", given), Storage(0, slice_bytes=64))


def test_a_full_disk_is_told_in_one_line(scratch, monkeypatch):
    def full(descriptor, offset, size):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"scratch file of .* GB: No space left.*TMPDIR"):
        audit(DATA["plain"], COMPONENTS, memory_limit=0)
    assert list(scratch.iterdir()) == []


def test_a_system_that_reserves_no_space_fills_it(monkeypatch):
    monkeypatch.delattr(os, "posix_fallocate", raising=False)
    storage = Storage(0, slice_bytes=100)
    assert_array_equal(storage.empty((9, 9)), np.zeros((9, 9)))


def test_a_folder_that_cannot_be_written_is_told_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    with pytest.raises(OSError, match=r"must take a scratch file .* Set TMPDIR"):
        audit(DATA["plain"], COMPONENTS, memory_limit=0)


@pytest.mark.parametrize("limit", [-1, "2GB", None, True])
def test_a_budget_that_is_none_is_refused(limit):
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes"):
        audit(DATA["plain"], COMPONENTS, memory_limit=limit)
    with pytest.raises(ValueError, match="memory_limit must be a number of bytes"):
        NearIsometricProjection(2, memory_limit=limit).fit(DATA["plain"])


class Rows:
    """Stands for an array of a library: it gives slices, and nothing else."""

    def __init__(self, rows, chunks=None):
        self.rows, self.shape, self.dtype = rows, rows.shape, rows.dtype
        self.chunks, self.asked = chunks, []

    def __getitem__(self, rows):
        self.asked.append(rows)
        return self.rows[rows]


@pytest.mark.parametrize(
    ("chunks", "ends"),
    [
        (None, [4, 8, 10]),
        ((3, 5), [6, 10]),
        (((1, 1, 5, 3), (4,)), [7, 10]),
        (((10,), (2, 2)), [10]),
    ],
)
def test_slices_keep_chunks_whole(chunks, ends):
    given = Rows(cloud(0, 10, 4), chunks)
    assert_array_equal(as_rows(given, Storage(0, slice_bytes=4 * 4 * 8)), given.rows)
    assert [part.stop for part in given.asked] == ends
    assert [part.start for part in given.asked] == [0, *ends[:-1]]


def test_slices_cover_every_row_once():
    rows = np.empty((7, 3))
    assert [(s.start, s.stop) for s in row_slices(rows)] == [(0, 7)]


@pytest.mark.filterwarnings("ignore:Stopped early")
@pytest.mark.parametrize("kind", ["float64", "float32", "int16"])
def test_a_dask_array_is_read_slice_by_slice(kind):
    array = pytest.importorskip("dask.array")
    given = (100 * DATA["plain"][:500]).astype(kind)
    lazy = array.from_array(given, chunks=(130, 5))
    there = audit(lazy, COMPONENTS, memory_limit=0)
    assert_same_audit(there, audit(given, COMPONENTS))
    model = NearIsometricProjection(
        2, random_state=0, tol=0.5, n_restarts=0, max_iter=1, memory_limit=0
    )
    assert_array_equal(
        model.fit(lazy[:90]).components_, model.fit(given[:90]).components_
    )
    assert_array_equal(model.transform(lazy), model.transform(given))


def test_a_dask_array_of_unknown_length_is_refused_in_one_line():
    array = pytest.importorskip("dask.array")
    rows = array.from_array(DATA["wide"], chunks=(2, 12))
    with pytest.raises(ValueError, match=r"known number of rows.*compute_chunk_sizes"):
        audit(rows[rows[:, 0] > 0], COMPONENTS)


def test_a_dask_table_is_read_slice_by_slice():
    frames = pytest.importorskip("dask.dataframe")
    tables = pytest.importorskip("pandas")
    lazy = frames.from_pandas(tables.DataFrame(DATA["copies"]), npartitions=3)
    there = audit(lazy, COMPONENTS, memory_limit=0)
    assert_same_audit(there, audit(DATA["copies"], COMPONENTS))


def test_an_hdf5_dataset_is_read_slice_by_slice(tmp_path):
    h5py = pytest.importorskip("h5py")
    given = DATA["float32"][:500]
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("points", data=given, chunks=(64, 5))
        there = audit(file["points"], COMPONENTS, memory_limit=0)
    assert_same_audit(there, audit(given, COMPONENTS))


PROGRAM = """
import json, resource, sys
import numpy as np
from isoproj import NearIsometricProjection, audit
how, path, spare = sys.argv[1:]
rows = np.load(path, mmap_mode="r")
components = np.eye(4, rows.shape[1])
small = rows[:2200, :60]
model = lambda limit: NearIsometricProjection(
    1, random_state=0, tol=2.0, n_restarts=0, max_iter=1, memory_limit=limit
)
# Libraries and threads take their memory before it is counted.
import warnings
warnings.simplefilter("ignore")
model(0).fit(small)
audit(small, components[:, :60], memory_limit=0)
with open("/proc/self/status") as status:
    used = next(int(line.split()[1]) for line in status if line.startswith("VmData"))
limit = used * 1024 + int(spare)
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
# Less than all distances take, so that both look for pairs in the same way.
budget = 0 if how == "files" else 1.5 * len(rows) ** 2
try:
    fitted = model(budget).fit(rows)
    audits = [audit(rows, components, spread=spread, memory_limit=budget)
              for spread in (False, True)]
    told = [audits[0].distortion, audits[1].mean, fitted.distortion_,
            fitted.lower_bound_, fitted.components_.tolist()]
except MemoryError:
    told = "MemoryError"
print(json.dumps(told))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_DATA")
def test_a_fit_keeps_within_memory_that_its_data_exceed(tmp_path):
    n_points, n_features = 8_000, 700
    fading = (0.9 ** np.arange(n_features)).astype(np.float32)
    rng = np.random.default_rng(0)
    rows = rng.standard_normal((n_points, n_features), dtype=np.float32) * fading
    np.save(tmp_path / "a.npy", rows)
    in_float64 = 8 * n_points * n_features

    def run(how, spare):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, how, tmp_path / "a.npy", str(int(spare))],
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
            env={**os.environ, "ISOPROJ_NUM_THREADS": "1"},
        )
        return done.stdout

    # Files take 0.57 of the data's size here and memory more than twice that size,
    # so that what a machine's libraries set aside decides nothing.
    tight = run("files", 0.95 * in_float64)
    assert tight != '"MemoryError"\n'
    assert run("memory", 0.95 * in_float64) == '"MemoryError"\n'
    assert run("memory", 100 * in_float64) == tight
