"""Read rows from any object that exports Arrow data through a PyCapsule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.read.columnar import choose_fields, gathered_rows
from isoproj.files.read.sources import Selection
from isoproj.numerics.arrays import checked_rows
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
    rows = gathered_rows(_NAME, reader, fields, Storage(memory_limit))
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
