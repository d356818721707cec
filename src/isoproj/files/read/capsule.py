"""Read rows from any object that exports Arrow data through a PyCapsule."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.read.columnar import batch_rows, choose_fields, rows_dtype
from isoproj.files.read.sources import Selection
from isoproj.numerics.arrays import checked_rows, not_finite
from isoproj.numerics.extras import needed
from isoproj.numerics.storage import Storage

_NAME = "the Arrow data"


def from_arrow(
    data: Any,  # noqa: ANN401 - of any library
    *,
    columns: str | Sequence[str] | None = None,
    memory_limit: float = float("inf"),
) -> NDArray[Any]:
    """Read the rows of a table of another library as a matrix, batch by batch.

    Any object with ``__arrow_c_stream__`` or ``__arrow_c_array__`` will do: tables and
    readers of pyarrow, data frames of polars and pandas, relations of DuckDB, tables of
    LanceDB (as ``table.search().to_arrow()`` or ``to_batches()``), data sets of Hugging
    Face (``dataset.data.table``). Needs pyarrow: ``pip install 'isoproj[io]'``.

    Parameters
    ----------
    data : object with ``__arrow_c_stream__`` or ``__arrow_c_array__``
        A table of columns. A stream is read once and to its end.
    columns : str or sequence of str, optional
        Columns to read: several columns of numbers, or one column of lists of equal
        length. Without them the only column of lists, else all columns.
    memory_limit : float, default=inf
        Bytes that the rows may take in memory; beyond it they lie in a scratch file.

    Returns
    -------
    ndarray of shape (n_rows, n_features)
        Finite numbers, in the smallest type that holds those of all columns.

    Raises
    ------
    FormatError
        If there is no such column, if lists differ in length, or if a value is missing
        or not finite.

    Examples
    --------
    >>> import pyarrow
    >>> table = pyarrow.table({"id": [7, 8], "embedding": [[1.0, 2.0], [3.0, 4.0]]})
    >>> from_arrow(table)
    array([[1., 2.],
           [3., 4.]])
    >>> from_arrow(table, columns="id")
    array([[7],
           [8]])
    """
    spec = columns if columns is None or isinstance(columns, str) else ",".join(columns)
    reader = _reader(data)
    fields = choose_fields(_NAME, list(reader.schema), Selection(columns=spec))
    storage = Storage(memory_limit)
    rows = _gathered(_blocks(reader, fields, storage), fields, storage)
    try:
        return np.asarray(checked_rows(rows, _NAME))
    except ValueError as error:
        raise FormatError(str(error)) from None


def _reader(data: Any) -> Any:  # noqa: ANN401 - pyarrow's
    """Return a reader of record batches; raise TypeError if there are none."""
    pyarrow = needed("pyarrow", extra="io", purpose="Arrow data")
    if hasattr(data, "__arrow_c_stream__"):
        return pyarrow.RecordBatchReader.from_stream(data)
    if hasattr(data, "__arrow_c_array__"):
        batch = pyarrow.record_batch(data)
        return pyarrow.RecordBatchReader.from_batches(batch.schema, [batch])
    msg = (
        "data must export Arrow (__arrow_c_stream__ or __arrow_c_array__); got "
        f"{type(data).__name__}. Pass a table, a data frame or a reader."
    )
    raise TypeError(msg)


def _blocks(
    reader: Any,  # noqa: ANN401 - pyarrow's
    fields: list[Any],
    storage: Storage,
) -> Iterator[NDArray[Any]]:
    """Yield matrices of the chosen columns, a slice of a batch at a time."""
    names = [field.name for field in fields]
    dtype = rows_dtype(fields)
    start, width = 0, None
    for batch in reader:
        for part in _parts(batch.select(names), dtype.itemsize, storage.slice_bytes):
            block = batch_rows(_NAME, part, fields, start, width)
            if not np.can_cast(block.dtype, dtype):
                row, column = np.argwhere(np.isnan(block))[0].tolist()
                raise FormatError(not_finite(start + row, column, np.nan, _NAME))
            yield block.astype(dtype, copy=False)
            start, width = start + block.shape[0], block.shape[1]


def _parts(batch: Any, itemsize: int, slice_bytes: int) -> Iterator[Any]:  # noqa: ANN401
    """Yield slices of about ``slice_bytes`` of a batch, without copies."""
    if not batch.num_rows:
        return
    per_row = max(itemsize, batch.nbytes // batch.num_rows)
    step = max(1, slice_bytes // per_row)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _gathered(
    blocks: Iterator[NDArray[Any]], fields: list[Any], storage: Storage
) -> NDArray[Any]:
    """Return all blocks as one matrix, which doubles its room when it is full."""
    filled = 0
    rows = np.empty((0, len(fields)), dtype=rows_dtype(fields))
    for block in blocks:
        n_rows = block.shape[0]
        if not filled:
            rows = storage.empty((n_rows, block.shape[1]), block.dtype)
        elif filled + n_rows > rows.shape[0]:
            larger = storage.empty((2 * filled + n_rows, rows.shape[1]), rows.dtype)
            larger[:filled] = rows[:filled]
            rows = larger
        rows[filled : filled + n_rows] = block
        filled += n_rows
    return rows[:filled]
