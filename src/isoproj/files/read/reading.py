"""Read points from any file that people keep them in, or a built-in data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import Format
from isoproj.files.read.arrays import array_contents, is_model, read_array
from isoproj.files.read.columnar import column_contents, read_columns
from isoproj.files.read.sources import (
    Content,
    Selection,
    Source,
    choose_columns,
    locate,
)
from isoproj.files.read.text import read_text, text_names
from isoproj.numerics.arrays import Rows, checked_rows, is_sparse
from isoproj.numerics.storage import MEMORY_LIMIT, Storage, row_slices

__all__ = [
    "BUILT_IN",
    "DataFile",
    "contents_of",
    "holds_model",
    "read_pairs",
    "read_points",
]

BUILT_IN = ("breast_cancer", "diabetes", "digits", "iris", "wine")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class DataFile:
    """Points with what is known of where they came from.

    Parameters
    ----------
    name : str
        As the user gave it.
    format : str
        A ``Format``, or ``"built-in"``.
    points : ndarray or sparse array of shape (n_points, n_features)
        Finite numbers in the type of the file; .npy files are mapped.
    names : tuple of str or None
        Names of the features, where the file has any.
    chosen : str
        The array or column that was used, where there was a choice.
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
            f"{self.name} ({self.format}{part}): {n_points:,} points, {n_features:,} "
            f"features, {kind}{self.points.dtype}"
        )


def read_points(
    name: str,
    *,
    array: str | None = None,
    columns: str | None = None,
    header: str = "auto",
    min_rows: int = 1,
    memory_limit: float = MEMORY_LIMIT,
) -> DataFile:
    """Read points, one a row.

    Parameters
    ----------
    name : str
        A file, ``file:array``, ``"-"`` for standard input, or a name of ``BUILT_IN``.
    array : str or None
        Which array of the file, where it has several.
    columns : str or None
        Which columns: names, numbers from 0, ranges; ``"a,b"`` or ``"0,2:5"``.
    header : {"auto", "yes", "no"}
        Whether the first line of a text names the columns.
    min_rows : int
        Fewest points that make sense to the caller.
    memory_limit : float
        Bytes that points may take in memory. Beyond, tables, HDF5 and safetensors are
        read slice by slice into a scratch file; .npy and .fvecs are mapped anyway.

    Returns
    -------
    DataFile
        The points and where they came from.

    Raises
    ------
    FormatError
        If the file is not a whole table of finite numbers; the message says where.
    MissingExtraError
        If the format needs a library that is not installed.
    OSError
        If the file cannot be read.

    Examples
    --------
    >>> from isoproj.files.read.reading import read_points
    >>> print(read_points("wine"))
    wine (built-in): 178 points, 13 features, float64
    """
    selection = Selection(array=array, columns=columns, header=header)
    storage = Storage(memory_limit)
    if name in BUILT_IN:
        data = _built_in(name)
    else:
        data = _from_source(_located(name), selection, storage)
    points = _checked(data, min_rows)
    names = data.names
    if columns is not None and not _knows_columns(data):
        at = choose_columns(data.name, columns, names, points.shape[1])
        points = _columns_of(points, at, storage)
        names = None if names is None else tuple(names[c] for c in at)
    return DataFile(
        name=data.name,
        format=data.format,
        points=_checked_finite(data.name, points),
        names=names,
        chosen=data.chosen,
    )


def contents_of(name: str) -> tuple[str, list[Content]]:
    """Return the format of a data file and everything in it.

    Parameters
    ----------
    name : str
        A file or a name of ``BUILT_IN``.

    Returns
    -------
    format : str
        As in ``DataFile``.
    contents : list of Content
        Arrays or columns.

    Raises
    ------
    FormatError, MissingExtraError, OSError
        As ``read_points``.

    Examples
    --------
    >>> from isoproj.files.read.reading import contents_of
    >>> contents_of("wine")[0]
    'built-in'
    """
    if name in BUILT_IN:
        data = _built_in(name)
        dtype = data.points.dtype.str
        return data.format, [Content(name="", shape=data.points.shape, dtype=dtype)]
    source = _located(name)
    if source.format.is_text:
        names, n_columns = text_names(source, Selection(header="auto"))
        labels = names or [str(c) for c in range(n_columns)]
        return source.format.value, [
            Content(name=label, shape=(), dtype="text") for label in labels
        ]
    if source.format in (Format.PARQUET, Format.ARROW):
        return source.format.value, column_contents(source)
    return source.format.value, array_contents(source)


def holds_model(name: str) -> bool:
    """Return whether a file is an isoproj model rather than data.

    Parameters
    ----------
    name : str
        A file.

    Returns
    -------
    bool
        Also True for damaged models.

    Examples
    --------
    >>> from isoproj.files.read.reading import holds_model
    >>> holds_model("wine")
    False
    """
    return name not in BUILT_IN and name != "-" and is_model(_located(name))


def read_pairs(name: str) -> NDArray[np.int64]:
    """Read pairs of row numbers from a file with two columns of whole numbers.

    Parameters
    ----------
    name : str
        Any file that ``read_points`` reads.

    Returns
    -------
    ndarray of shape (n_pairs, 2)
        Row numbers, counted from 0.

    Raises
    ------
    FormatError
        If the numbers are not whole or there are not two columns.
    """
    values = read_points(name).points
    if is_sparse(values) or values.shape[1] != 2:
        msg = (
            f"{name} must have two columns of row numbers; it has "
            f"{values.shape[1]}. Write one pair a row."
        )
        raise FormatError(msg)
    whole = np.asarray(values)
    # Beyond 2^53 a float no longer names one row.
    if (np.abs(whole) > 2.0**53).any() or (whole != np.floor(whole)).any():
        msg = f"{name} must hold whole row numbers; it has others. Count rows from 0."
        raise FormatError(msg)
    return whole.astype(np.int64)


def _built_in(name: str) -> DataFile:
    if Path(name).exists():
        msg = (
            f"{name!r} is a built-in data set and also a file here. "
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


def _located(name: str) -> Source:
    try:
        return locate(name)
    except FileNotFoundError as error:
        if Path(name).suffix or "/" in name:
            raise
        msg = f"{error} Built-in data sets are {', '.join(BUILT_IN)}."
        raise FileNotFoundError(msg) from None


def _columns_of(points: Rows, at: list[int], storage: Storage) -> Rows:
    if is_sparse(points):
        return points[:, at]
    chosen = storage.empty((points.shape[0], len(at)), points.dtype)
    for chunk in row_slices(points):
        chosen[chunk] = points[chunk][:, at]
    return chosen


def _from_source(source: Source, selection: Selection, storage: Storage) -> DataFile:
    names: Sequence[str] | None = None
    chosen = ""
    points: Rows
    if source.format.is_text:
        points, names = read_text(source, selection)
    elif source.format in (Format.PARQUET, Format.ARROW):
        points, names, chosen = read_columns(source, selection, storage)
    else:
        points, chosen = read_array(source, selection, storage)
    return DataFile(
        name=source.name,
        format=source.format.value,
        points=points,
        names=None if names is None else tuple(names),
        chosen=chosen,
    )


def _knows_columns(data: DataFile) -> bool:
    """Whether the reader itself has taken the columns asked for."""
    return data.format in (Format.CSV, Format.TSV, Format.PARQUET, Format.ARROW)


def _checked(data: DataFile, min_rows: int) -> Rows:
    """Return points as CSR or a matrix of numbers, or say what is missing."""
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
        msg = f"{data.name} must hold {need}; it has {shape[0]} row(s). Add rows."
        raise FormatError(msg)
    return points


def _checked_finite(name: str, points: Rows) -> Rows:
    if points.dtype.kind != "f" and not is_sparse(points):
        return points
    try:
        return checked_rows(points)
    except ValueError as error:
        msg = f"{name}: {str(error).removeprefix('X ')}"
        raise FormatError(msg) from None
