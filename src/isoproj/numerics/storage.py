"""Room for arrays as large as the data: memory within a budget, scratch files beyond.

A scratch array is an ordinary ndarray whose bytes lie in a mapped file of the folder
for temporary files (``TMPDIR``). The system keeps in memory what is in use, and takes
it back when others need it. Whoever computes with it need not know, and gets the same
numbers.
"""

from __future__ import annotations

import math
import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from isoproj.exceptions import ScratchError

__all__ = ["MEMORY_LIMIT", "Mapped", "Storage", "check_memory_limit", "row_slices"]

# Bytes that arrays may take in memory unless told otherwise.
MEMORY_LIMIT = 2e9
# Bytes of a slice of rows that is worked on at once.
_SLICE = 2**24


class Storage:
    """Gives room for arrays: in memory while they fit a budget, in files beyond.

    Arrays count as long as somebody holds them. A file is gone with its array, and
    with the process, however that ends.

    Parameters
    ----------
    limit : float
        Bytes in memory, all arrays together.
    is_shared : bool
        Whether other processes may open the files by their names; then a process that
        is killed leaves them behind.

    Examples
    --------
    >>> from isoproj.numerics.storage import Mapped, Storage
    >>> storage = Storage(1000)
    >>> small, large = storage.empty((10, 10)), storage.empty((100, 10))
    >>> Mapped.of(small) is None, Mapped.of(large) is None
    (True, False)
    >>> storage.room
    200.0
    """

    def __init__(self, limit: float = math.inf, *, is_shared: bool = False) -> None:
        self.limit = float(limit)
        self.is_shared = is_shared
        self._held: list[weakref.ref[NDArray[Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        # What is held here is not held there.
        return Storage, (self.limit,)

    @property
    def room(self) -> float:
        """Bytes of memory that are left."""
        self._held = [held for held in self._held if held() is not None]
        arrays = [held() for held in self._held]
        return self.limit - sum(a.nbytes for a in arrays if a is not None)

    def empty(
        self, shape: tuple[int, ...], dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Return an array of arbitrary values, in memory or in a file.

        Parameters
        ----------
        shape : tuple of int
            Of the array.
        dtype : dtype
            Of its entries.

        Returns
        -------
        ndarray
            C-contiguous.

        Raises
        ------
        ScratchError
            If there is no room for the file.
        """
        kind = np.dtype(dtype)
        if math.prod(shape) * kind.itemsize <= self.room:
            array = np.empty(shape, dtype=kind)
            self.count([array])
            return array
        return _scratch(shape, kind, is_shared=self.is_shared)

    def count(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Count arrays that others have made in memory."""
        self._held += [weakref.ref(array) for array in arrays]

    def filled(
        self,
        rows: Any,  # noqa: ANN401 - of any library
        shape: tuple[int, int],
        dtype: DTypeLike,
    ) -> NDArray[Any]:
        """Return a copy of anything that gives rows by slices, made slice by slice.

        Parameters
        ----------
        rows : array-like
            What ``rows[start:stop]`` gives can be made an array.
        shape : tuple of int
            Of the whole.
        dtype : dtype
            Of the copy.

        Returns
        -------
        ndarray of shape (n_rows, n_columns)
            C-contiguous.
        """
        array = self.empty(shape, dtype)
        for chunk in row_slices(array, getattr(rows, "chunks", None)):
            array[chunk] = np.asarray(rows[chunk])
        return array


@dataclass(frozen=True, slots=True)
class Mapped:
    """Where the bytes of an array lie in a file.

    Parameters
    ----------
    path : str
        The file.
    offset : int
        First byte of the array.
    shape, strides, dtype
        Of the array.
    """

    path: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(array: NDArray[Any]) -> Mapped | None:
        """Return where an array lies, None if it lies in memory."""
        root, base = None, array
        while isinstance(base, np.ndarray):
            root = base if isinstance(base, np.memmap) else root
            base = base.base  # type: ignore[assignment]
        if root is None or root.filename is None:
            return None
        start = array.__array_interface__["data"][0]
        return Mapped(
            path=str(Path(root.filename).absolute()),
            offset=int(root.offset + start - root.__array_interface__["data"][0]),
            shape=array.shape,
            strides=array.strides,
            dtype=array.dtype.str,
        )

    def open(self) -> NDArray[Any]:
        """Return the array, read-only, mapped anew.

        Raises
        ------
        OSError, ValueError
            If the file is not there or too short.
        """
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        if min(self.strides) < 0:
            msg = f"{self.path} must be mapped forwards. Copy the rows first."
            raise ValueError(msg)
        raw = np.memmap(
            self.path,
            dtype=np.uint8,
            mode="r",
            offset=self.offset,
            shape=(reach + np.dtype(self.dtype).itemsize,),
        )
        return np.ndarray(self.shape, self.dtype, buffer=raw, strides=self.strides)


def row_slices(rows: NDArray[Any], chunks: Any = None) -> Iterator[slice]:  # noqa: ANN401
    """Yield slices of rows that are small enough to work on.

    Parameters
    ----------
    rows : ndarray of shape (n_rows, n_columns)
        What is to be sliced.
    chunks : tuple or None
        Where the rows come from in chunks, as Dask or as HDF5 and Zarr say it; slices
        keep chunks whole, so that none is read twice.

    Yields
    ------
    slice
        In order.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.numerics.storage import row_slices
    >>> list(row_slices(np.empty((5, 2**20)), chunks=((3, 2), (2**20,))))
    [slice(0, 3, None), slice(3, 5, None)]
    """
    n_rows = rows.shape[0]
    step = max(1, _SLICE // max(1, rows.dtype.itemsize * rows.shape[1]))
    ends: Sequence[int] = range(step, n_rows + step, step)
    if chunks and isinstance(chunks[0], int):
        step = -(-step // chunks[0]) * chunks[0]
        ends = range(step, n_rows + step, step)
    elif chunks:
        bounds = np.cumsum(chunks[0])
        # Every step goes on to the end of the chunk it falls into.
        at = np.searchsorted(bounds, ends).clip(0, bounds.size - 1)
        ends = np.unique(bounds[at]).tolist()
    start = 0
    for end in ends:
        stop = min(int(end), n_rows)
        if stop > start:
            yield slice(start, stop)
        start = max(start, stop)


def check_memory_limit(limit: object) -> None:
    """Raise unless a limit is a number of bytes.

    Raises
    ------
    ValueError
        If it is not.

    Examples
    --------
    >>> from isoproj.numerics.storage import check_memory_limit
    >>> check_memory_limit(2e9)
    """
    if (
        isinstance(limit, bool)
        or not isinstance(limit, float | int | np.number)
        or not float(limit) >= 0.0
    ):
        msg = (
            "memory_limit must be a number of bytes, 0 or more; "
            f"got {limit!r}. Use 2e9."
        )
        raise ValueError(msg)


def _scratch(
    shape: tuple[int, ...], dtype: np.dtype[Any], *, is_shared: bool
) -> NDArray[Any]:
    """Return an array in a scratch file, all of whose bytes are there already."""
    size = max(1, math.prod(shape) * dtype.itemsize)
    name = ""
    try:
        handle, name = tempfile.mkstemp(prefix="isoproj-", suffix=".scratch")
        with os.fdopen(handle, "r+b") as file:
            _reserve(file.fileno(), size)
            mapped = np.memmap(file, dtype=dtype, mode="r+", shape=shape)
    except OSError as error:
        _remove(name)
        where = Path(name).parent if name else "the folder for temporary files"
        msg = (
            f"{where} must take a scratch file of {size / 1e9:.3g} GB: "
            f"{error.strerror or error}. Set TMPDIR to a folder with more room, or "
            "raise memory_limit."
        )
        raise ScratchError(msg) from None
    except BaseException:
        _remove(name)
        raise
    mapped.filename = name
    if is_shared or not _unlinked(name):
        weakref.finalize(mapped, _remove, name)
    return np.asarray(mapped)


def _reserve(descriptor: int, size: int) -> None:
    """Give a file its bytes: what is missing later would end the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(min(size, _SLICE))
    while size > 0:
        size -= os.write(descriptor, zeros[:size])


def _unlinked(name: str) -> bool:
    """Take the name off a mapped file where a system can; the bytes stay."""
    if os.name != "posix":
        return False
    _remove(name)
    return True


def _remove(name: str) -> None:
    with suppress(OSError):
        Path(name).unlink()
