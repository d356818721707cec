"""Read points from a file of any known format, or a built-in data set."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import BUILT_IN, VECTOR_TYPES, Format
from isoproj.files.read.sources import (
    Content,
    Selection,
    Source,
    choose_columns,
    locate,
)
from isoproj.numerics.arrays import Rows, checked_rows, is_sparse
from isoproj.numerics.rounding import counted
from isoproj.numerics.storage import MEMORY_LIMIT, Storage, row_slices

# Formats whose readers select columns themselves.
_TABLES = {Format.CSV, Format.TSV, Format.PARQUET, Format.ARROW}
# Formats of one array, which has no name.
_NAMELESS = {Format.CSV, Format.TSV, Format.NPY, *VECTOR_TYPES}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DataFile:
    """Points and their origin.

    ``format`` is a ``Format`` or "built-in". ``names`` are those of the features, if
    the file has any. ``chosen`` is the array or column that was read, if the file has
    several.
    """

    name: str
    format: str
    points: Rows
    names: tuple[str, ...] | None
    chosen: str

    def __str__(self) -> str:
        n_points, n_features = self.points.shape
        part = f", {self.chosen!r}" if self.chosen else ""
        kind = "sparse " if is_sparse(self.points) else ""
        return (
            f"{self.name} ({self.format}{part}): {counted(n_points, 'point')}, "
            f"{counted(n_features, 'feature')}, {kind}{self.points.dtype}"
        )


def read_points(
    name: str,
    *,
    array: str | None = None,
    columns: str | None = None,
    header: str = "auto",
    min_rows: int = 1,
    storage: Storage | None = None,
) -> DataFile:
    """Read finite points, one a row; raise FormatError if the file holds none.

    ``name`` is a file, ``file:array``, "-" for standard input, or a name of
    ``BUILT_IN``. The next three parameters are those of ``Selection``. Tables, HDF5 and
    safetensors are read into ``storage``; .npy and .fvecs files are mapped.
    """
    selection = Selection(array=array, columns=columns, header=header)
    storage = storage or Storage()
    if name in BUILT_IN:
        data = _built_in(name)
    else:
        data = _from_source(_located(name, storage.limit), selection, storage)
    points, names = _checked(data, min_rows), data.names
    if columns is None:
        _note_row_numbers(data.name, points, names)
    elif data.format not in _TABLES:
        at = choose_columns(data.name, columns, names, points.shape[1])
        points = _columns_of(points, at, storage)
        names = None if names is None else tuple(names[c] for c in at)
    if points.dtype.kind == "f" or is_sparse(points):
        try:
            points = checked_rows(points, data.name)
        except ValueError as error:
            raise FormatError(str(error)) from None
    return replace(data, points=points, names=names)


def contents_of(name: str) -> tuple[str, list[Content]]:
    """Return the format of a data file and all arrays or columns in it."""
    if name in BUILT_IN:
        data = _built_in(name)
        dtype = data.points.dtype.str
        return data.format, [Content("", data.points.shape, dtype)]
    source = _located(name)
    if source.format.is_text:
        from isoproj.files.read.text import text_names

        names, n_columns = text_names(source)
        labels = names or [str(c) for c in range(n_columns)]
        return source.format.value, [Content(label, (), "text") for label in labels]
    if source.format.is_table:
        from isoproj.files.read.columnar import column_contents

        return source.format.value, column_contents(source)
    from isoproj.files.read.arrays import array_contents

    return source.format.value, array_contents(source)


def holds_model(name: str) -> bool:
    """Return whether a file is an isoproj model, whole or damaged, and not data."""
    if name in BUILT_IN or name == "-":
        return False
    from isoproj.files.read.arrays import is_model

    return is_model(_located(name))


def read_pairs(name: str) -> NDArray[np.int64]:
    """Read pairs of row numbers, counted from 0, from a file with two columns."""
    values = read_points(name).points
    if is_sparse(values) or values.shape[1] != 2:
        msg = (
            f"{name} must have two columns of row numbers; it has "
            f"{values.shape[1]}. Write one pair a row."
        )
        raise FormatError(msg)
    whole = np.asarray(values)
    # Larger floats are not exact integers.
    if (np.abs(whole) > 2.0**53).any() or (whole != np.floor(whole)).any():
        msg = f"{name} must hold whole row numbers; it has others. Count rows from 0."
        raise FormatError(msg)
    return whole.astype(np.int64)


def _built_in(name: str) -> DataFile:
    """Return a data set that ships with scikit-learn."""
    if Path(name).exists():
        msg = (
            f"{name!r} must be either a built-in data set or a file; it is both. "
            f"Write ./{name} for the file."
        )
        raise FormatError(msg)
    import sklearn.datasets

    bunch: Any = getattr(sklearn.datasets, f"load_{name}")()
    named = getattr(bunch, "feature_names", None)
    return DataFile(
        name=name,
        format="built-in",
        points=bunch.data,
        names=None if named is None else tuple(str(n) for n in named),
        chosen="",
    )


def _located(name: str, limit: float = MEMORY_LIMIT) -> Source:
    """Return ``locate(name)``; list the built-in data sets if the file is missing."""
    try:
        return locate(name, limit)
    except FileNotFoundError as error:
        if Path(name).suffix or "/" in name:
            raise
        msg = f"{error} Built-in data sets are {', '.join(BUILT_IN)}."
        raise FileNotFoundError(msg) from None


def _columns_of(points: Rows, at: list[int], storage: Storage) -> Rows:
    """Return a copy of some columns, made slice by slice."""
    if is_sparse(points):
        return points[:, at]
    chosen = storage.empty((points.shape[0], len(at)), points.dtype)
    for chunk in row_slices(points):
        chosen[chunk] = points[chunk][:, at]
    return chosen


def _from_source(source: Source, selection: Selection, storage: Storage) -> DataFile:
    """Read a file with the reader of its format."""
    if source.array is not None and source.format in _NAMELESS:
        msg = (
            f"{source.name} must hold {source.array!r}; it holds one array, without a "
            "name. Leave the name out."
        )
        raise FormatError(msg)
    selection = replace(selection, array=selection.array or source.array)
    names: tuple[str, ...] | None = None
    chosen = ""
    points: Rows
    # Only the reader that is needed is imported.
    if source.format.is_text:
        from isoproj.files.read.text import read_text

        points, names = read_text(source, selection, storage.limit)
    elif source.format.is_table:
        from isoproj.files.read.columnar import read_columns

        points, names, chosen = read_columns(source, selection, storage)
    else:
        from isoproj.files.read.arrays import read_array

        points, chosen = read_array(source, selection, storage)
    return DataFile(
        name=source.name,
        format=source.format.value,
        points=points,
        names=names,
        chosen=chosen,
    )


def _note_row_numbers(name: str, points: Rows, names: Sequence[str] | None) -> None:
    """Warn if the first column numbers the rows, as tables of pandas are saved."""
    n_rows, n_features = points.shape
    title = None if names is None else names[0]
    is_nameless = title in (None, "", "Unnamed: 0", "__index_level_0__")
    if is_sparse(points) or n_features < 2 or n_rows < 3 or not is_nameless:
        return
    for chunk in row_slices(points):
        if not (points[chunk][:, 0] == np.arange(n_rows)[chunk]).all():
            return
    warnings.warn(
        f"column 0 of {name} numbers the rows, and counts as a feature. Leave it out "
        "with --columns 1:",
        UserWarning,
        stacklevel=3,
    )


def _checked(data: DataFile, min_rows: int) -> Rows:
    """Return a matrix of real numbers, dense or CSR; else raise FormatError."""
    points = data.points
    if is_sparse(points):
        points = points.tocsr()
    kind, shape = points.dtype.kind, tuple(points.shape)
    if kind not in "biuf":
        msg = f"{data.name} must hold real numbers; it holds {points.dtype}. Cast them."
        raise FormatError(msg)
    if len(shape) != 2:
        msg = (
            f"{data.name} must be a matrix with one point a row; its shape is {shape}. "
            "Reshape it to two axes."
        )
        raise FormatError(msg)
    if shape[1] == 0:
        msg = f"{data.name} must have columns; its shape is {shape}. Add features."
        raise FormatError(msg)
    if shape[0] < min_rows:
        need = f"at least {min_rows} points" if min_rows > 1 else "points"
        have = counted(shape[0], "row")
        msg = f"{data.name} must hold {need}; it has {have}. Add rows."
        raise FormatError(msg)
    return points
