"""Tables of named columns: Parquet, Arrow and Feather, through pyarrow."""

from __future__ import annotations

from collections.abc import Iterator
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
    reading,
)
from isoproj.numerics.arrays import not_finite
from isoproj.numerics.extras import needed
from isoproj.numerics.storage import Storage

__all__ = ["column_contents", "read_columns"]

# Numbers, or lists of numbers, that are taken from a table at a time.
_BATCH = 2**21
_LISTS = 2**10


def column_contents(source: Source) -> list[Content]:
    """Return the columns of a table, one entry each.

    Parameters
    ----------
    source : Source
        A Parquet or Arrow file.

    Returns
    -------
    list of Content
        Name, length and type.

    Raises
    ------
    FormatError
        If the file is damaged.
    MissingExtraError
        If pyarrow is not installed.
    """
    with reading(source):
        schema, n_rows = _schema(source)
    return [Content(name=f.name, shape=(n_rows,), dtype=str(f.type)) for f in schema]


def read_columns(
    source: Source, selection: Selection, storage: Storage
) -> tuple[NDArray[Any], tuple[str, ...] | None, str]:
    """Read number columns side by side, or one column of lists.

    Parameters
    ----------
    source : Source
        A Parquet or Arrow file.
    selection : Selection
        Columns to read. Without a choice, the only column of lists if there is
        exactly one, otherwise every column, all of which must be numbers.
    storage : Storage
        Where the points go; they are read batch by batch.

    Returns
    -------
    points : ndarray of shape (n_points, n_features)
        The values; missing ones are NaN where the type has it.
    names : tuple of str or None
        Names of number columns.
    chosen : str
        Name of the column of lists.

    Raises
    ------
    FormatError
        If the columns are not numbers or lists of one width.
    MissingExtraError
        If pyarrow is not installed.
    """
    with reading(source):
        schema, n_rows = _schema(source)
        fields = list(schema)
    chosen = _chosen_fields(source, fields, selection)
    with reading(source):
        points = _read(source, chosen, n_rows, storage)
    if _is_list(chosen[0]):
        return points, None, chosen[0].name
    return points, tuple(field.name for field in chosen), ""


def _read(
    source: Source, chosen: list[Any], n_rows: int, storage: Storage
) -> NDArray[Any]:
    """Return the points, put together batch by batch."""
    kinds = [field.type for field in chosen]
    if _is_list(chosen[0]):
        kinds = [kinds[0].value_type]
    dtype = np.result_type(*(kind.to_pandas_dtype() for kind in kinds))
    points = np.empty((0, len(chosen)), dtype=dtype)
    start = 0
    names = [field.name for field in chosen]
    step = _LISTS if _is_list(chosen[0]) else max(1, _BATCH // len(names))
    for batch in _batches(source, names, step):
        # Offsets and lengths of a damaged file may point outside it.
        batch.validate(full=True)
        if _is_list(chosen[0]):
            width = points.shape[1] if start else None
            block = _stacked(source, batch.column(0), start, width)
        else:
            block = np.column_stack([_numbers(column) for column in batch.columns])
        if not start:
            points = storage.empty((n_rows, block.shape[1]), dtype)
        if not np.can_cast(block.dtype, dtype):
            row, column = np.argwhere(np.isnan(block))[0].tolist()
            fault = not_finite(start + row, column, np.nan).removeprefix("X ")
            msg = f"{source.name}: {fault}"
            raise FormatError(msg)
        points[start : start + block.shape[0]] = block
        start += block.shape[0]
    if start != n_rows:
        msg = f"it promises {n_rows} rows, and {start} follow"
        raise ValueError(msg)
    return points


def _pyarrow(module: str, source: Source) -> Any:  # noqa: ANN401 - a module
    return needed(module, extra="io", purpose=source.format.title)


def _schema(source: Source) -> tuple[Any, int]:
    if source.format is Format.PARQUET:
        parquet = _pyarrow("pyarrow.parquet", source)
        with parquet.ParquetFile(source.plain_path()) as file:
            return file.schema_arrow, file.metadata.num_rows
    schema: list[Any] = []
    n_rows = sum(batch.num_rows for batch in _arrow_batches(source, [], schema))
    return schema[0], n_rows


def _batches(source: Source, names: list[str], step: int) -> Iterator[Any]:
    """Yield the columns asked for, some rows at a time."""
    if source.format is Format.PARQUET:
        parquet = _pyarrow("pyarrow.parquet", source)
        with parquet.ParquetFile(source.plain_path(), memory_map=True) as file:
            for batch in file.iter_batches(batch_size=step, columns=names):
                yield batch.select(names)
        return
    for batch in _arrow_batches(source, names, []):
        for start in range(0, batch.num_rows, step):
            yield batch.slice(start, step).select(names)


def _arrow_batches(
    source: Source, names: list[str], schema: list[Any]
) -> Iterator[Any]:
    """Yield the batches of an Arrow file; put its schema into a list."""
    ipc = _pyarrow("pyarrow.ipc", source)
    with source.open() as stream:
        is_file = stream.read(6) == b"ARROW1"
    opener = ipc.open_file if is_file else ipc.open_stream
    with _pyarrow("pyarrow", source).memory_map(source.plain_path()) as stream:
        whole = opener(stream).schema
        schema.append(whole)
        stream.seek(0)
        # Columns that nobody asks for stay packed; without any, rows have no number.
        at = [i for i, name in enumerate(whole.names) if name in names] or [0]
        options = ipc.IpcReadOptions(included_fields=at[: len(whole.names)])
        opened = opener(stream, options=options)
        if not is_file:
            yield from opened
            return
        for number in range(opened.num_record_batches):
            yield opened.get_batch(number)


def _is_number(field: Any) -> bool:  # noqa: ANN401 - pyarrow's
    types = needed("pyarrow.types", extra="io", purpose="Arrow")
    kind = field.type
    return bool(
        types.is_floating(kind) or types.is_integer(kind) or types.is_boolean(kind)
    )


def _is_list(field: Any) -> bool:  # noqa: ANN401 - pyarrow's
    types = needed("pyarrow.types", extra="io", purpose="Arrow")
    kind = field.type
    is_list = (
        types.is_list(kind)
        or types.is_large_list(kind)
        or types.is_fixed_size_list(kind)
    )
    return bool(is_list and _is_number(kind.value_field))


def _chosen_fields(
    source: Source, fields: list[Any], selection: Selection
) -> list[Any]:
    names = [field.name for field in fields]
    if len(set(names)) != len(names):
        msg = f"{source.name} must name every column once; it has {', '.join(names)}."
        raise FormatError(msg)
    spec = selection.columns or selection.array or source.array
    lists = [field for field in fields if _is_list(field)]
    if spec is not None:
        at = choose_columns(source.name, spec, names, len(names))
        fields = [fields[c] for c in at]
    elif len(lists) == 1:
        fields = lists
    if not fields:
        msg = f"{source.name} must have columns; it has none. Choose another file."
        raise FormatError(msg)
    other = [field for field in fields if not _is_number(field)]
    if not other or (len(fields) == 1 and _is_list(fields[0])):
        return fields
    numbers = [field.name for field in fields if _is_number(field)]
    example = ",".join(numbers[:3]) or "NAME"
    msg = (
        f"{source.name} must have columns of numbers or one column of lists; column "
        f"{other[0].name!r} is {other[0].type}. Choose with --columns {example}."
    )
    raise FormatError(msg)


def _numbers(column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow's
    values: NDArray[Any] = np.asarray(column.to_numpy(zero_copy_only=False))
    # Missing values of boolean columns arrive as objects.
    return values.astype(np.float64) if values.dtype.kind == "O" else values


def _stacked(
    source: Source,
    column: Any,  # noqa: ANN401 - pyarrow's
    start: int,
    width: int | None,
) -> NDArray[Any]:
    """Return lists from row ``start`` on as rows, all of a width if that is known."""
    compute = _pyarrow("pyarrow.compute", source)
    if column.null_count:
        row = start + int(np.flatnonzero(np.asarray(column.is_null()))[0])
        msg = f"{source.name}, row {row}: has no list. Drop or fill that row."
        raise FormatError(msg)
    lengths = np.asarray(compute.list_value_length(column))
    width = int(lengths[0]) if width is None else width
    other = np.flatnonzero(lengths != width)
    if other.size:
        row = int(other[0])
        msg = (
            f"{source.name}, row {start + row}: has {lengths[row]} numbers where row 0 "
            f"has {width}. Every row must have as many; mend or drop it."
        )
        raise FormatError(msg)
    flat = _numbers(compute.list_flatten(column))
    return flat.reshape(lengths.size, width)
