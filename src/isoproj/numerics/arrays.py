"""What arrays must satisfy before any mathematics sees them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from isoproj.numerics.spectral import Array, Indices
from isoproj.numerics.storage import Storage, row_slices

__all__ = [
    "Rows",
    "as_dense",
    "as_rows",
    "check_map",
    "check_pair_list",
    "check_points",
    "check_real",
    "checked_rows",
    "is_sparse",
    "not_finite",
]

# Points as given: dense (float32 or float64) or scipy CSR, one point a row.
Rows: TypeAlias = Any

_LARGEST_MAP = 1e100


def is_sparse(rows: Rows) -> bool:
    """Return whether rows are a scipy sparse array or matrix.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.arrays import is_sparse
    >>> is_sparse(np.eye(2))
    False
    """
    return bool(scipy.sparse.issparse(rows))


def as_dense(block: Rows) -> NDArray[Any]:
    """Return a block as an ndarray, whatever it was.

    Examples
    --------
    >>> import scipy.sparse
    >>> from isoproj.numerics.arrays import as_dense
    >>> as_dense(scipy.sparse.eye_array(2)).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    return np.asarray(block.toarray() if is_sparse(block) else block)


def check_real(data: ArrayLike | Rows) -> None:
    """Raise if the data are complex numbers, or some of them are masked.

    Raises
    ------
    ValueError
        If so.

    Examples
    --------
    >>> from isoproj.numerics.arrays import check_real
    >>> check_real([[1.0, 2.0]])
    """
    kind = getattr(data, "dtype", None)
    plain = isinstance(data, list | tuple) and np.iscomplexobj(data)
    if plain or getattr(kind, "kind", "") == "c":
        msg = (
            "Complex data not supported: X must hold real numbers; got "
            f"{kind or 'complex entries'}. Pass real and imaginary parts as columns."
        )
        raise ValueError(msg)
    if isinstance(data, np.ma.MaskedArray) and np.ma.is_masked(data):
        msg = (
            f"X must hold all its numbers; got {int(np.sum(data.mask))} of {data.size} "
            "masked. Fill them (X.filled(...)) or leave those rows out."
        )
        raise ValueError(msg)


def as_rows(data: ArrayLike | Rows, storage: Storage) -> ArrayLike | Rows:
    """Return a matrix with its rows in one piece each, whatever it lies in.

    Arrays of floats with whole rows, mapped files among them, are returned as they are.
    All others that give their rows by slices (arrays of Dask, HDF5 or Zarr, mapped
    files of integers) are copied slice by slice to where ``storage`` has room. What is
    no matrix of numbers is returned as it is, for others to refuse.

    Parameters
    ----------
    data : array-like or sparse matrix
        Anything.
    storage : Storage
        Where copies go.

    Returns
    -------
    array-like or sparse matrix
        A float ndarray if ``data`` is a matrix of numbers.

    Raises
    ------
    ValueError
        If the number of rows is not known.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.storage import Storage
    >>> from isoproj.numerics.arrays import as_rows
    >>> as_rows(np.eye(2, dtype=np.int8), Storage()).dtype
    dtype('float64')
    """
    if hasattr(data, "to_dask_array"):
        data = data.to_dask_array(lengths=True)
    kind, shape = _dtype_of(data), tuple(getattr(data, "shape", ()))
    plain = type(data) in (np.ndarray, np.memmap)
    other = isinstance(data, np.ndarray) or not hasattr(data, "__getitem__")
    if kind is None or len(shape) != 2 or is_sparse(data) or (other and not plain):
        return data
    if not all(isinstance(n, int | np.integer) for n in shape):
        msg = (
            f"X must have a known number of rows and columns; got shape {shape}. "
            "Call X.compute_chunk_sizes() first."
        )
        raise ValueError(msg)
    floats = kind in (np.dtype(np.float64), np.dtype(np.float32))
    rows: Any = data
    if plain and floats and rows.strides[1] == kind.itemsize and rows.flags.aligned:
        return np.asarray(rows)
    if 0 in shape:
        return np.empty(shape)
    n_rows, n_columns = shape
    return storage.filled(rows, (n_rows, n_columns), kind if floats else np.float64)


def _dtype_of(data: object) -> np.dtype[Any] | None:
    """Return the type of an array of real numbers, None for whatever else."""
    named = getattr(data, "dtype", None)
    try:
        kind = None if named is None else np.dtype(named)
    except TypeError:
        return None
    return kind if kind is not None and kind.kind in "biuf" else None


def check_points(data: ArrayLike | Rows, storage: Storage | None = None) -> Rows:
    """Return ``data`` as float rows, dense or CSR, or say what is wrong with it.

    Parameters
    ----------
    data : array-like or sparse matrix of shape (n_points, n_features)
        Any numbers; float32 and float64 are kept as they are. What gives its rows by
        slices, as Dask and HDF5 do, is read slice by slice.
    storage : Storage or None
        Where copies go; None means memory.

    Returns
    -------
    ndarray or sparse array of shape (n_points, n_features)
        Finite floats. Not copied where that can be avoided.

    Raises
    ------
    ValueError
        If there are fewer than two rows, no columns, or entries that are not finite
        real numbers.

    Examples
    --------
    >>> from isoproj.numerics.arrays import check_points
    >>> check_points([[1, 2], [3, 4]]).dtype
    dtype('float64')
    """
    check_real(data)
    storage = storage or Storage()
    rows = check_array(
        as_rows(data, storage),
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        ensure_min_samples=2,
    )
    # Tables become arrays whose columns lie in one piece.
    return checked_rows(as_rows(rows, storage))


def checked_rows(rows: Rows) -> Rows:
    """Return rows with each entry stored once, or name one that is not finite.

    Parameters
    ----------
    rows : ndarray or CSR array of shape (n_points, n_features)
        Floats.

    Returns
    -------
    ndarray or CSR array of shape (n_points, n_features)
        The argument itself, unless it is sparse with an entry stored in parts.

    Raises
    ------
    ValueError
        If an entry is NaN or infinite.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.arrays import checked_rows
    >>> checked_rows(np.array([[1.0], [np.nan]]))
    Traceback (most recent call last):
        ...
    ValueError: X must be finite; row 1, column 0 contains NaN. Drop or fill that row.
    """
    if is_sparse(rows) and not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    values = rows.data if is_sparse(rows) else rows
    # A finite sum proves every term finite and is one pass without a mask.
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(values, dtype=np.float64)
    if np.isfinite(total):
        return rows
    if is_sparse(rows):
        for at in np.flatnonzero(~np.isfinite(values))[:1].tolist():
            row = int(np.searchsorted(rows.indptr, at, side="right")) - 1
            raise ValueError(not_finite(row, int(rows.indices[at]), values[at]))
        return rows
    for chunk in row_slices(rows):
        for row, column in np.argwhere(~np.isfinite(rows[chunk]))[:1].tolist():
            row += chunk.start
            raise ValueError(not_finite(row, column, rows[row, column]))
    return rows


def not_finite(row: int, column: int, value: float) -> str:
    """Return what to say of an entry that is not finite.

    Examples
    --------
    >>> from isoproj.numerics.arrays import not_finite
    >>> not_finite(0, 2, float("nan"))
    'X must be finite; row 0, column 2 contains NaN. Drop or fill that row.'
    """
    name = "NaN" if np.isnan(value) else "infinity (inf)"
    return (
        f"X must be finite; row {row}, column {column} contains {name}. "
        "Drop or fill that row."
    )


def check_map(components: ArrayLike, n_features: int) -> Array:
    """Return a linear map as float64 rows, or say why it does not fit.

    Parameters
    ----------
    components : array-like of shape (k, n_features)
        One output coordinate a row.
    n_features : int
        Width of the data the map is for.

    Returns
    -------
    ndarray of shape (k, n_features)
        The map in float64.

    Raises
    ------
    ValueError
        If the shape does not fit the data or an entry is not finite.

    Examples
    --------
    >>> from isoproj.numerics.arrays import check_map
    >>> check_map([[1, 0]], n_features=2).shape
    (1, 2)
    """
    try:
        rows: Array = check_array(
            components,
            dtype=np.float64,
            ensure_all_finite=False,
            input_name="components",
        )
    except TypeError:
        msg = (
            "components must be numbers in rows; got "
            f"{type(components).__name__}. Pass an array."
        )
        raise ValueError(msg) from None
    if rows.shape[1] != n_features:
        msg = (
            f"components must have one column per feature, {n_features}; got shape "
            f"{rows.shape}. Pass rows as scikit-learn's components_ has them."
        )
        raise ValueError(msg)
    if not np.isfinite(rows).all():
        msg = "components must be finite; got NaN or infinity. Refit the map."
        raise ValueError(msg)
    largest = float(np.abs(rows).max())
    if largest > _LARGEST_MAP:
        msg = (
            f"components must be at most {_LARGEST_MAP:.0e} in size, so that squares "
            f"can be told; got {largest:.1e}. Scale the map."
        )
        raise ValueError(msg)
    return rows


def check_pair_list(pairs: ArrayLike, n_points: int) -> Indices:
    """Return pairs of row numbers as integers with the smaller first.

    Parameters
    ----------
    pairs : array-like of shape (n_pairs, 2)
        Row numbers.
    n_points : int
        Every index must be below it.

    Returns
    -------
    ndarray of shape (n_pairs, 2)
        Distinct pairs, sorted.

    Raises
    ------
    ValueError
        If the list is empty, not integral, or points outside the data.

    Examples
    --------
    >>> from isoproj.numerics.arrays import check_pair_list
    >>> check_pair_list([[2, 0], [0, 2]], n_points=3).tolist()
    [[0, 2]]
    """
    try:
        listed: NDArray[Any] = np.asarray(pairs)
    except ValueError:
        msg = (
            "pairs must be an integer array of shape (n_pairs, 2); got rows of "
            "different lengths. Pass two row numbers per pair."
        )
        raise ValueError(msg) from None
    if listed.size == 0:
        msg = (
            "pairs must name at least one pair of points; got an empty list. "
            "Pass pairs='all' for every pair."
        )
        raise ValueError(msg)
    if listed.ndim != 2 or listed.shape[1] != 2 or listed.dtype.kind not in "iu":
        msg = (
            "pairs must be an integer array of shape (n_pairs, 2); got shape "
            f"{listed.shape} of {listed.dtype}. Pass one row number per column."
        )
        raise ValueError(msg)
    if listed.min() < 0 or listed.max() >= n_points:
        msg = (
            f"pairs must hold row numbers from 0 to {n_points - 1}; got "
            f"{listed.min()} to {listed.max()}. Count rows from 0."
        )
        raise ValueError(msg)
    ordered = np.sort(listed.astype(np.intp), axis=1)
    return np.unique(ordered, axis=0)
