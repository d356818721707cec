"""Checks of what users pass: numbers, points, linear maps and lists of pairs."""

from __future__ import annotations

import copy
import datetime
import sys
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, NDArray
from sklearn.utils import check_array

from isoproj.numerics.spectral import Array, Foreign, Indices
from isoproj.numerics.storage import (
    SLICE_BYTES,
    Storage,
    check_exact,
    rounded_away,
    row_slices,
)

# Points in rows: a dense array (float32 or float64) or a scipy CSR array.
Rows: TypeAlias = Any

# Squares of larger entries could overflow.
_LARGEST_MAP = 1e100


def is_sparse(rows: Rows) -> bool:
    """Return whether the rows are a scipy sparse array or matrix."""
    return bool(scipy.sparse.issparse(rows))


def as_dense(block: Rows) -> NDArray[Any]:
    """Return a dense or sparse block as an ndarray."""
    return np.asarray(block.toarray() if is_sparse(block) else block)


# Entries that stand for a time, of Python, NumPy and pandas.
_DATES = (datetime.date, datetime.timedelta, np.datetime64, np.timedelta64)


def check_real(data: ArrayLike | Rows) -> None:
    """Raise ValueError if the data are complex or masked, or would be rounded."""
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
            f"X must have no masked entries; got {int(np.sum(data.mask))} of "
            f"{data.size} masked. Fill them (X.filled(...)) or leave those rows out."
        )
        raise ValueError(msg)
    if is_sparse(data):
        _check_layout(data)
    _check_whole(data)


def _check_layout(rows: Rows) -> None:
    """Raise ValueError if indices of a sparse array point outside of it.

    Compiled code of scipy would read and write other memory.
    """
    try:
        if rows.format == "coo":
            # scipy 1.12 has no ``coords``.
            coords = getattr(rows, "coords", None) or (rows.row, rows.col)
            scipy.sparse.coo_array((rows.data, coords), shape=rows.shape)
        else:
            stored = rows if hasattr(rows, "check_format") else rows.tocsr()
            # The check trims arrays, and these are the caller's.
            copy.copy(stored).check_format(full_check=True)
    except ValueError:
        msg = (
            f"X must be a valid sparse array; its indices point outside of its shape "
            f"{rows.shape}. Build it again."
        )
        raise ValueError(msg) from None


def _check_whole(data: Foreign) -> None:
    """Raise ValueError if float64 would round numbers of lists, tables or CSR arrays.

    Other arrays are checked slice by slice when they are copied.
    """
    if is_sparse(data):
        stored = data.tocoo().data if not hasattr(data, "data") else data.data
        if np.asarray(stored).dtype.kind != "O":
            check_exact(np.asarray(stored), np.float64, "X.data")
    elif isinstance(data, list | tuple):
        _check_entries(data)
    elif hasattr(data, "columns") and hasattr(data, "dtypes"):
        for name in data.columns:
            column = np.asarray(data[name])
            _check_no_dates(column.ravel(), f"column {name!r} of X")
            if column.ndim == 1 and column.dtype.kind == "O":
                _check_entries([[value] for value in column])
            elif column.ndim == 1:
                check_exact(column, np.float64, f"column {name!r} of X")
    elif isinstance(data, np.ndarray) and data.dtype.kind == "O" and data.ndim == 2:
        _check_entries(data)
    elif isinstance(data, np.ndarray):
        _check_no_dates(data[:1], "X")


def _check_no_dates(values: NDArray[Any], name: str) -> None:
    """Raise ValueError if there are dates or spans of time among some values."""
    if values.dtype.kind in "mM" or (
        values.dtype.kind == "O" and any(isinstance(v, _DATES) for v in values.flat)
    ):
        msg = (
            f"{name} must hold numbers; it holds dates or times. Leave it out, or make "
            "a number of it, such as days since a first day."
        )
        raise ValueError(msg)


def _check_entries(rows: Foreign) -> None:
    """Raise ValueError if a row holds a Python integer that float64 would round."""
    for i, row in enumerate(rows):
        if not isinstance(row, list | tuple | np.ndarray):
            continue
        if isinstance(row, np.ndarray) and row.dtype.kind != "O":
            check_exact(row, np.float64, f"row {i} of X")
            continue
        for j, value in enumerate(row):
            if isinstance(value, _DATES):
                _check_no_dates(np.array([value], object), f"row {i}, column {j} of X")
            whole = isinstance(value, int | np.integer) and abs(int(value)) > 2**53
            if whole and abs(int(value)) < 2**1023 and int(float(value)) != value:
                raise ValueError(rounded_away(f"row {i}, column {j}", value))


def as_rows(data: ArrayLike | Rows, storage: Storage) -> ArrayLike | Rows:
    """Return a matrix whose rows are contiguous floats, copied only where needed.

    Dask, HDF5 and Zarr arrays are copied into ``storage`` slice by slice. Data that are
    not a matrix of real numbers are returned unchanged; ``check_array`` rejects them.
    """
    if hasattr(data, "to_dask_array"):
        data = data.to_dask_array(lengths=True)
    kind, shape = _dtype_of(data), tuple(getattr(data, "shape", ()))
    plain = type(data) in (np.ndarray, np.memmap)
    other = isinstance(data, np.ndarray) or not hasattr(data, "__getitem__")
    if kind is None or len(shape) != 2 or is_sparse(data) or (other and not plain):
        return data
    is_known = all(isinstance(n, int | np.integer) for n in shape)
    what = "have a known number of rows and columns"
    require(is_known, "X", shape, what, "Call X.compute_chunk_sizes() first.")
    floats = kind in (np.dtype(np.float64), np.dtype(np.float32))
    rows: Any = data
    if plain and floats and rows.strides[1] == kind.itemsize and rows.flags.aligned:
        return np.asarray(rows)
    if 0 in shape:
        return np.empty(shape)
    n_rows, n_columns = shape
    return storage.filled(rows, (n_rows, n_columns), kind if floats else np.float64)


def _dtype_of(data: object) -> np.dtype[Any] | None:
    """Return the dtype of an array of real numbers, or None for anything else."""
    named = getattr(data, "dtype", None)
    try:
        kind = None if named is None else np.dtype(named)
    except TypeError:
        return None
    return kind if kind is not None and kind.kind in "biuf" else None


def check_points(
    data: ArrayLike | Rows,
    storage: Storage | None = None,
    *,
    min_rows: int = 2,
    name: str = "X",
) -> Rows:
    """Return data as finite float rows, dense or CSR; else raise ValueError."""
    if hasattr(data, "components_"):
        msg = f"X must hold numbers; got {type(data).__name__}. Pass the data first."
        raise ValueError(msg)
    data = on_host(data)
    check_real(data)
    storage = storage or Storage()
    rows = check_array(
        as_rows(data, storage),
        accept_sparse="csr",
        dtype=[np.float64, np.float32],
        ensure_all_finite=False,
        ensure_min_samples=min_rows,
    )
    # A data frame becomes an array with contiguous columns, so its rows are copied.
    return checked_rows(as_rows(rows, storage), name, storage.slice_bytes)


def checked_rows(rows: Rows, name: str = "X", slice_bytes: float = SLICE_BYTES) -> Rows:
    """Return finite rows, without duplicate sparse entries; else raise ValueError.

    The error names the first entry that is not finite; ``name`` is its subject.
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
            column = int(rows.indices[at])
            raise ValueError(not_finite(row, column, values[at], name))
        return rows
    for chunk in row_slices(rows, slice_bytes=slice_bytes):
        for row, column in np.argwhere(~np.isfinite(rows[chunk]))[:1].tolist():
            row += chunk.start
            raise ValueError(not_finite(row, column, rows[row, column], name))
    return rows


def not_finite(row: int, column: int, value: float, name: str = "X") -> str:
    """Return the error message for an entry that is NaN or infinite."""
    found = "NaN" if np.isnan(value) else "infinity (inf)"
    remedy = ", or fill them: sklearn.impute.SimpleImputer" if np.isnan(value) else ""
    return (
        f"{name} must be finite; row {row}, column {column} contains {found}. "
        f"Drop such rows{remedy}."
    )


def check_map(components: ArrayLike, n_features: int) -> Array:
    """Return a linear map as finite float64 rows of ``n_features``; else ValueError."""
    rows: Array = as_numbers(components).astype(np.float64, copy=False)
    fits = rows.ndim == 2 and rows.shape[1] == n_features and rows.size > 0
    what = f"have two axes, and one column per feature, {n_features}"
    advice = "Pass one component a row, as in scikit-learn's components_."
    require(fits, "components", rows.shape, what, advice)
    if not np.isfinite(rows).all():
        msg = "components must be finite; got NaN or infinity. Refit the map."
        raise ValueError(msg)
    largest = float(np.abs(rows).max())
    what = f"be at most {_LARGEST_MAP:.0e} in size, so that squares do not overflow"
    require(largest <= _LARGEST_MAP, "components", largest, what, "Scale the map.")
    return rows


def as_numbers(components: ArrayLike | Rows) -> NDArray[Any]:
    """Return an array or tensor of any device as an array of real numbers."""
    try:
        matrix = as_dense(on_host(components))
    except (ValueError, TypeError):
        matrix = np.empty(0, dtype=object)
    if matrix.dtype.kind not in "biuf":
        kind = type(components).__name__
        msg = (
            "components must be a matrix of numbers, or something linear that holds "
            f"one; got {kind}. Pass an array."
        )
        raise ValueError(msg)
    return matrix


def check_pair_list(pairs: ArrayLike, n_points: int) -> Indices:
    """Return distinct pairs of row numbers, sorted, smaller first; else ValueError."""
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
    low, high = listed.min(axis=1).astype(np.intp), listed.max(axis=1)
    # Numbers sort many times faster than rows of numbers.
    codes = distinct(low * n_points + high.astype(np.intp))
    return np.column_stack(np.divmod(codes, n_points))


def on_host(data: Foreign) -> Foreign:
    """Return another library's array as a numpy array, and other data unchanged."""
    if _is_tensor(data):
        tensor = data.detach().cpu()
        # numpy has no bfloat16; float32 holds its values exactly.
        is_brain = "bfloat16" in str(getattr(tensor, "dtype", ""))
        return (tensor.float() if is_brain else tensor).numpy()
    if not _is_standard(data):
        return data
    try:
        return np.from_dlpack(data)
    except (BufferError, RuntimeError, TypeError):
        # Memory that another device, or a read-only array, does not lend.
        return np.asarray(data)


def like(found: NDArray[Any], data: Foreign) -> NDArray[Any]:
    """Return a numpy array in the library and on the device of the data given."""
    other: Any = found
    if _is_tensor(data):
        other = sys.modules["torch"].from_numpy(found).to(data.device)
    elif _is_standard(data):
        other = data.__array_namespace__().asarray(found, device=data.device)
    # Callers are told numpy's type, which is what they get for what numpy knows.
    return other  # type: ignore[no-any-return]


def _is_tensor(data: object) -> bool:
    """Return whether the data are a torch tensor: nothing else can be detached."""
    # A column of a table may have the name, but cannot be called.
    return callable(getattr(data, "detach", None))


def _is_standard(data: object) -> bool:
    """Return whether the data are an array of the standard, other than numpy's."""
    # numpy's own arrays and scalars name their namespace too.
    is_numpy = isinstance(data, np.ndarray | np.generic)
    return hasattr(data, "__array_namespace__") and not is_numpy


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a real number of Python or numpy."""
    kinds = int | float | np.integer | np.floating
    return isinstance(value, kinds) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer of Python or numpy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def require(
    holds: bool | np.bool_, name: str, value: object, must: str, advice: str
) -> None:
    """Raise ValueError unless something holds of a parameter's value."""
    if not holds:
        msg = f"{name} must {must}; got {value!r}. {advice}"
        raise ValueError(msg)


def check_choice(name: str, value: object, choices: tuple[str | None, ...]) -> None:
    """Raise ValueError unless an option is one of its choices."""
    # An array is equal to nothing.
    is_known = isinstance(value, str | None) and value in choices
    listed = ", ".join(repr(choice) for choice in choices)
    require(is_known, name, value, f"be one of {listed}", f"Use {choices[0]!r}.")


def check_memory_limit(limit: object) -> None:
    """Raise ValueError unless the limit is a number of bytes, 0 or more."""
    fits = is_number(limit) and float(limit) >= 0.0
    what = "be a number of bytes, 0 or more"
    require(fits, "memory_limit", limit, what, "Use 2e9.")


def distinct(*numbers: Indices) -> Indices:
    """Return the distinct numbers in order; ten times faster than ``numpy.unique``."""
    ordered = np.sort(np.concatenate([some.ravel() for some in numbers]))
    is_first = np.ones(ordered.size, dtype=bool)
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    return ordered[is_first]


def compacted(numbers: Indices, count: int) -> tuple[Indices, Indices]:
    """Return the distinct numbers below ``count``, and each one's place among them."""
    is_there = np.zeros(count, dtype=bool)
    is_there[numbers] = True
    places = np.cumsum(is_there) - 1
    return np.flatnonzero(is_there), places[numbers]
