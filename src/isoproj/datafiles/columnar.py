"""Tables of named columns: Parquet, Arrow and Feather, through pyarrow."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.datafiles.extras import needed
from isoproj.datafiles.formats import Format
from isoproj.datafiles.sources import (
    Content,
    Selection,
    Source,
    choose_columns,
    reading,
)
from isoproj.exceptions import FormatError

__all__ = ["column_contents", "read_columns"]


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
    source: Source, selection: Selection
) -> tuple[NDArray[Any], tuple[str, ...] | None, str]:
    """Read number columns side by side, or one column of lists.

    Parameters
    ----------
    source : Source
        A Parquet or Arrow file.
    selection : Selection
        Columns to read. Without a choice, the only column of lists if there is
        exactly one, otherwise every column, all of which must be numbers.

    Returns
    -------
    points : ndarray of shape (n_points, n_features)
        The values; missing ones are NaN.
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
        schema, _ = _schema(source)
        fields = list(schema)
    chosen = _chosen_fields(source, fields, selection)
    with reading(source):
        table = _table(source, [field.name for field in chosen])
        if _is_list(chosen[0]):
            return _stacked(source, table.column(0)), None, chosen[0].name
        columns = [_numbers(column) for column in table.columns]
        names = tuple(field.name for field in chosen)
        return np.column_stack(columns), names, ""


def _pyarrow(module: str, source: Source) -> Any:  # noqa: ANN401 - a module
    return needed(module, extra="io", purpose=source.format.title)


def _schema(source: Source) -> tuple[Any, int]:
    if source.format is Format.PARQUET:
        parquet = _pyarrow("pyarrow.parquet", source)
        with parquet.ParquetFile(source.plain_path()) as file:
            return file.schema_arrow, file.metadata.num_rows
    table = _arrow_table(source)
    return table.schema, table.num_rows


def _table(source: Source, names: list[str]) -> Any:  # noqa: ANN401 - pyarrow's
    if source.format is Format.PARQUET:
        parquet = _pyarrow("pyarrow.parquet", source)
        with parquet.ParquetFile(source.plain_path()) as file:
            table = file.read(columns=names)
    else:
        table = _arrow_table(source)
    table = table.select(names)
    # Offsets and lengths of a damaged file may point outside it.
    table.validate(full=True)
    return table


def _arrow_table(source: Source) -> Any:  # noqa: ANN401 - pyarrow's
    ipc = _pyarrow("pyarrow.ipc", source)
    with source.open() as stream:
        is_file = stream.read(6) == b"ARROW1"
        stream.seek(0)
        opened = ipc.open_file(stream) if is_file else ipc.open_stream(stream)
        return opened.read_all()


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
    values: NDArray[Any] = np.asarray(column.to_numpy())
    # Missing values of boolean columns arrive as objects.
    return values.astype(np.float64) if values.dtype.kind == "O" else values


def _stacked(source: Source, column: Any) -> NDArray[Any]:  # noqa: ANN401 - pyarrow's
    compute = _pyarrow("pyarrow.compute", source)
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        msg = f"{source.name}, row {row}: has no list. Drop or fill that row."
        raise FormatError(msg)
    lengths = np.asarray(compute.list_value_length(column))
    other = np.flatnonzero(lengths != lengths[:1])
    if other.size:
        row = int(other[0])
        msg = (
            f"{source.name}, row {row}: has {lengths[row]} numbers where row 0 has "
            f"{lengths[0]}. Every row must have as many; mend or drop it."
        )
        raise FormatError(msg)
    flat = _numbers(compute.list_flatten(column))
    width = int(lengths[0]) if lengths.size else 0
    return flat.reshape(lengths.size, width)
