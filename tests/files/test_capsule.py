"""Arrow data of any library are read as rows through the PyCapsule interface."""

from __future__ import annotations

import numpy as np
import pytest

from isoproj import from_arrow
from isoproj.exceptions import FormatError

pyarrow = pytest.importorskip("pyarrow")


class Only:
    """An object that has one method of the interface, and nothing else."""

    def __init__(self, inner, method):
        setattr(type(self), method, lambda _, *given: getattr(inner, method)(*given))


@pytest.fixture
def rows():
    return np.random.default_rng(0).normal(size=(50, 4)).astype(np.float32)


def lists(rows, kind):
    values = pyarrow.array(rows.ravel())
    if kind == "fixed":
        return pyarrow.FixedSizeListArray.from_arrays(values, rows.shape[1])
    make = pyarrow.ListArray if kind == "list" else pyarrow.LargeListArray
    return make.from_arrays(np.arange(0, rows.size + 1, rows.shape[1]), values)


@pytest.mark.parametrize("kind", ["fixed", "list", "large"])
def test_a_stream_of_batches_of_lists_is_read_as_rows(rows, kind):
    table = pyarrow.table({"id": np.arange(50), "v": lists(rows, kind)})
    reader = pyarrow.RecordBatchReader.from_batches(
        table.schema, table.to_batches(max_chunksize=7)
    )
    stream = type("Stream", (Only,), {})(reader, "__arrow_c_stream__")
    found = from_arrow(stream)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, rows)


def test_one_batch_through_the_array_interface(rows):
    batch = pyarrow.record_batch({f"c{i}": rows[:, i] for i in range(4)})
    only = type("Batch", (Only,), {})(batch, "__arrow_c_array__")
    np.testing.assert_array_equal(from_arrow(only), rows)
    np.testing.assert_array_equal(
        from_arrow(only, columns=["c3", "c0"]), rows[:, [3, 0]]
    )


def test_polars_frames_are_read(rows):
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"name": ["x"] * 50, "v": rows})
    np.testing.assert_array_equal(from_arrow(frame), rows)
    wide = polars.DataFrame(rows, schema=["a", "b", "c", "d"])
    np.testing.assert_array_equal(from_arrow(wide), rows)


def test_rows_beyond_the_memory_limit_lie_in_a_file(rows):
    table = pyarrow.table({"v": lists(rows, "fixed")})
    batches = pyarrow.Table.from_batches(table.to_batches(max_chunksize=3))
    found = from_arrow(batches, memory_limit=0)
    np.testing.assert_array_equal(found, rows)
    base = found
    while isinstance(base, np.ndarray) and not isinstance(base, np.memmap):
        base = base.base
    assert isinstance(base, np.memmap)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"v": [[1.0, 2.0], [1.0]]}, "row 1: has 1 numbers"),
        ({"v": [[1.0], None]}, "row 1: has no list"),
        ({"v": [1.0, float("nan")]}, "row 1"),
        ({"v": [1, None]}, "row 1"),
        ({"v": ["a", "b"]}, "columns of numbers"),
    ],
)
def test_faults_are_named_with_their_row(columns, message):
    with pytest.raises(FormatError, match=message):
        from_arrow(pyarrow.table(columns))


def test_other_objects_are_refused():
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        from_arrow([[1.0, 2.0]])
