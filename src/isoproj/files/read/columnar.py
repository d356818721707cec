"""Read tables of named columns (Parquet, Arrow, Feather) with pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import Format
from isoproj.files.read.sources import (
    Content,
    Selection,
    Source,
    choose_columns,
    parsing,
)
from isoproj.numerics.arrays import checked_rows, not_finite
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Foreign
from isoproj.numerics.storage import Storage, check_exact


def column_contents(source: Source) -> list[Content]:
    """Return name, length and type of every column of a table."""
    with parsing(source):
        schema, n_rows = _schema(source)
    return [Content(f.name, (n_rows,), str(f.type)) for f in schema]


def read_columns(
    source: Source, selection: Selection, storage: Storage
) -> tuple[NDArray[Any], tuple[str, ...] | None, str]:
    """Return points, names of their columns or None, and name of a column of lists.

    The chosen columns must be numbers, or one column of lists of equal length. Without
    a choice the only column of lists is read if there is one, else all columns.
    """
    with parsing(source):
        schema, n_rows = _schema(source)
    chosen = choose_fields(source.name, list(schema), selection)
    names, is_list = tuple(field.name for field in chosen), _is_list(chosen[0])
    with parsing(source):
        # Length of a list that the size of a batch of lists is computed with.
        width = 2**11 if is_list else len(names)
        step = max(1, storage.slice_bytes // (8 * width))
        batches = _batches(source, names, step)
        points = gathered_rows(source.name, batches, chosen, storage, n_rows)
        if points.shape[0] != n_rows:
            msg = f"it promises {n_rows} rows, and {points.shape[0]} follow"
            raise ValueError(msg)
    return (points, None, names[0]) if is_list else (points, names, "")


def gathered_rows(
    name: str,
    batches: Iterable[Any],
    fields: list[Any],
    storage: Storage,
    n_rows: int = 0,
) -> NDArray[Any]:
    """Return the chosen columns of all batches as one matrix.

    There is room for ``n_rows`` at first; it doubles when it is full.
    """
    is_list, kinds = _is_list(fields[0]), [field.type for field in fields]
    kinds = [kinds[0].value_type] if is_list else kinds
    # The smallest type that holds the numbers of all columns.
    dtype = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
    rows, filled = np.empty((0, len(fields)), dtype), 0
    for batch in batches:
        chosen = batch.select([field.name for field in fields])
        # In damaged data offsets and lengths may point outside the buffers.
        chosen.validate(full=True)
        for part in _parts(chosen, dtype.itemsize, storage.slice_bytes):
            width = rows.shape[1] if filled else None
            block = (
                _stacked(name, part.column(0), filled, width)
                if is_list
                else _beside(name, part.columns, filled, dtype)
            )
            if not np.can_cast(block.dtype, dtype):
                row, column = np.argwhere(np.isnan(block))[0].tolist()
                raise FormatError(not_finite(filled + row, column, np.nan, name))
            end = filled + block.shape[0]
            if end > rows.shape[0]:
                room = max(n_rows, filled + end)
                larger = storage.empty((room, block.shape[1]), dtype)
                larger[:filled] = rows[:filled]
                rows = larger
            rows[filled:end] = block
            filled = end
    return rows[:filled]


def _parts(batch: Foreign, itemsize: int, slice_bytes: int) -> Iterator[Any]:
    """Yield slices of about ``slice_bytes`` of a batch, without copies."""
    if not batch.num_rows:
        return
    per_row = max(itemsize, batch.nbytes // batch.num_rows)
    step = max(1, slice_bytes // per_row)
    for start in range(0, batch.num_rows, step):
        yield batch.slice(start, step)


def _pyarrow(module: str, source: Source) -> Foreign:
    """Return a module of pyarrow, or raise MissingExtraError."""
    return needed(module, extra="io", purpose=source.format.title)


def _schema(source: Source) -> tuple[Any, int]:
    """Return the schema of a table and its number of rows."""
    if source.format is Format.PARQUET:
        parquet = _pyarrow("pyarrow.parquet", source)
        with parquet.ParquetFile(source.plain_path()) as file:
            return file.schema_arrow, file.metadata.num_rows
    schema: list[Any] = []
    n_rows = sum(batch.num_rows for batch in _arrow_batches(source, [], schema))
    return schema[0], n_rows


def _batches(source: Source, names: Sequence[str], step: int) -> Iterator[Any]:
    """Yield batches with the named columns, those of Parquet of ``step`` rows."""
    if source.format is not Format.PARQUET:
        yield from _arrow_batches(source, names, [])
        return
    parquet = _pyarrow("pyarrow.parquet", source)
    with parquet.ParquetFile(source.plain_path(), memory_map=True) as file:
        yield from file.iter_batches(batch_size=step, columns=list(names))


def _arrow_batches(
    source: Source, names: Sequence[str], schema: list[Any]
) -> Iterator[Any]:
    """Yield the batches of an Arrow file or stream; append its schema to a list."""
    ipc = _pyarrow("pyarrow.ipc", source)
    with source.open() as stream:
        is_file = stream.read(6) == b"ARROW1"
    opener = ipc.open_file if is_file else ipc.open_stream
    with _pyarrow("pyarrow", source).memory_map(source.plain_path()) as stream:
        whole = opener(stream).schema
        schema.append(whole)
        stream.seek(0)
        # Other columns are not decoded. One column is needed to count the rows.
        at = [i for i, name in enumerate(whole.names) if name in names] or [0]
        options = ipc.IpcReadOptions(included_fields=at[: len(whole.names)])
        opened = opener(stream, options=options)
        if not is_file:
            yield from opened
            return
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)


def _is_number(field: Foreign) -> bool:
    """Return whether a column holds numbers."""
    types = needed("pyarrow.types", extra="io", purpose="Arrow")
    kinds = (types.is_floating, types.is_integer, types.is_boolean)
    return any(is_kind(field.type) for is_kind in kinds)


def _is_list(field: Foreign) -> bool:
    """Return whether a column holds lists of numbers."""
    types = needed("pyarrow.types", extra="io", purpose="Arrow")
    kinds = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    is_list = any(is_kind(field.type) for is_kind in kinds)
    return is_list and _is_number(field.type.value_field)


def choose_fields(source: str, fields: list[Any], selection: Selection) -> list[Any]:
    """Return the columns to read; raise FormatError if they are not numbers."""
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        msg = (
            f"{source} must have different names for its columns; it has "
            f"{', '.join(names)}. Rename one."
        )
        raise FormatError(msg)
    spec = selection.columns or selection.array
    lists = [field for field in fields if _is_list(field)]
    if spec is not None:
        at = choose_columns(source, spec, names, len(names))
        fields = [fields[c] for c in at]
    elif len(lists) == 1:
        fields = lists
    if not fields:
        msg = f"{source} must have columns; it has none. Choose another file."
        raise FormatError(msg)
    other = [field for field in fields if not _is_number(field)]
    if not other or (len(fields) == 1 and _is_list(fields[0])):
        return fields
    numbers = [field.name for field in fields if _is_number(field)]
    example = ",".join(numbers[:3]) or "NAME"
    msg = (
        f"{source} must have columns of numbers or one column of lists; column "
        f"{other[0].name!r} is {other[0].type}. Choose with --columns {example}."
    )
    raise FormatError(msg)


def _numbers(column: Foreign) -> NDArray[Any]:
    """Return a column as an array; missing values are NaN."""
    values: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False))
    # A boolean column with missing values comes as objects.
    return values.astype(np.float64) if values.dtype.kind == "O" else values


def _beside(
    source: str, columns: list[Any], start: int, dtype: np.dtype[Any]
) -> NDArray[Any]:
    """Return columns of numbers as rows, the first of them row ``start``."""
    arrays = [_numbers(column) for column in columns]
    for array in arrays:
        check_exact(array, dtype, source, first_row=start)
    return np.column_stack(arrays)


def _stacked(
    source: str, column: Foreign, start: int, width: int | None
) -> NDArray[Any]:
    """Return a column of lists as rows; raise FormatError if lengths differ.

    The first list is row ``start`` of the table. ``width`` is the length of the lists
    before it, or None.
    """
    compute = needed("pyarrow.compute", extra="io", purpose="Arrow")
    if column.null_count:
        row = start + int(np.flatnonzero(np.asarray(column.is_null()))[0])
        msg = f"{source}, row {row}: has no list. Drop or fill that row."
        raise FormatError(msg)
    lengths = np.asarray(compute.list_value_length(column))
    width = int(lengths[0]) if width is None else width
    other = np.flatnonzero(lengths != width)
    if other.size:
        row = int(other[0])
        msg = (
            f"{source}, row {start + row}: has {lengths[row]} numbers where row 0 "
            f"has {width}. Every row must have as many; correct or drop it."
        )
        raise FormatError(msg)
    flat = _numbers(compute.list_flatten(column))
    return flat.reshape(lengths.size, width)


_NAME = "the Arrow data"


def from_arrow(
    data: Foreign,
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


def _reader(data: Foreign) -> Foreign:
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
