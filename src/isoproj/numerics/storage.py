"""Large arrays in memory up to a limit, and in memory-mapped scratch files beyond it.

A scratch array is an ordinary ndarray whose bytes lie in a mapped file in the folder
for temporary files (``TMPDIR``). Computations give the same numbers with either kind.
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
from isoproj.numerics.spectral import Foreign

# Default number of bytes that large arrays may take in memory.
MEMORY_LIMIT = 2e9
# Default number of bytes in a slice of rows that is processed at once.
SLICE_BYTES = 2**24


class Storage:
    """Allocate arrays in memory up to a limit, and in scratch files beyond it.

    An array counts against the limit while it is referenced. A scratch file is removed
    with its array, and also when the process ends. With ``is_shared`` other processes
    can open the files by name; then a killed process leaves its files behind.
    """

    def __init__(
        self,
        limit: float = math.inf,
        *,
        is_shared: bool = False,
        slice_bytes: int = SLICE_BYTES,
    ) -> None:
        self.limit = float(limit)
        self.is_shared = is_shared
        self.slice_bytes = slice_bytes
        self._held: list[weakref.ref[NDArray[Any]]] = []

    def __reduce__(self) -> tuple[Any, ...]:
        # Arrays of this process do not take memory in the process that unpickles.
        return Storage, (self.limit,)

    @property
    def room(self) -> float:
        """Bytes of memory that are left below the limit."""
        self._held = [held for held in self._held if held() is not None]
        arrays = [held() for held in self._held]
        return self.limit - sum(a.nbytes for a in arrays if a is not None)

    def empty(
        self, shape: tuple[int, ...], dtype: DTypeLike = np.float64
    ) -> NDArray[Any]:
        """Return an uninitialised C-contiguous array, in memory or in a file."""
        kind = np.dtype(dtype)
        if math.prod(shape) * kind.itemsize <= self.room:
            array = np.empty(shape, dtype=kind)
            self.count([array])
            return array
        return self._scratch(shape, kind)

    def count(self, arrays: Sequence[NDArray[Any]]) -> None:
        """Count arrays that were allocated elsewhere against the limit."""
        self._held += [weakref.ref(array) for array in arrays]

    def filled(
        self, rows: Foreign, shape: tuple[int, int], dtype: DTypeLike
    ) -> NDArray[Any]:
        """Return a copy of any object that supports ``rows[start:stop]``, by slices."""
        array = self.empty(shape, dtype)
        chunks = getattr(rows, "chunks", None)
        for chunk in row_slices(array, chunks, slice_bytes=self.slice_bytes):
            part = np.asarray(rows[chunk])
            array[chunk] = part
            check_exact(part, array.dtype, first_row=chunk.start)
        return array

    def _scratch(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return an array in a scratch file whose disk space is reserved already."""
        size = max(1, math.prod(shape) * dtype.itemsize)
        name = ""
        try:
            handle, name = tempfile.mkstemp(prefix="isoproj-", suffix=".scratch")
            with os.fdopen(handle, "r+b") as file:
                _reserve(file.fileno(), size, self.slice_bytes)
                mapped = np.memmap(file, dtype=dtype, mode="r+", shape=shape)
        except BaseException as error:
            _remove(name)
            if not isinstance(error, OSError):
                raise
            where = Path(name).parent if name else "the folder for temporary files"
            msg = (
                f"{where} must take a scratch file of {size / 1e9:.3g} GB: "
                f"{error.strerror or error}. Set TMPDIR to a folder with more room, or "
                "raise memory_limit."
            )
            raise ScratchError(msg) from None
        mapped.filename = name
        if self.is_shared or not _unlinked(name):
            weakref.finalize(mapped, _remove, name)
        return np.asarray(mapped)


@dataclass(frozen=True, slots=True)
class Mapped:
    """File, offset and layout of a memory-mapped array; another process can open it."""

    path: str
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str

    @staticmethod
    def of(array: NDArray[Any]) -> Mapped | None:
        """Return file and layout of a mapped array, or None for one in memory."""
        root, base = None, array
        while isinstance(base, np.ndarray):
            root = base if isinstance(base, np.memmap) else root
            base = base.base  # type: ignore[assignment]
        # Only forwards can another process map the file again.
        if root is None or root.filename is None or min(array.strides, default=0) < 0:
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
        """Map the array again, read-only; raise OSError or ValueError if that fails."""
        reach = sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        raw = np.memmap(
            self.path,
            dtype=np.uint8,
            mode="r",
            offset=self.offset,
            shape=(reach + np.dtype(self.dtype).itemsize,),
        )
        return np.ndarray(self.shape, self.dtype, buffer=raw, strides=self.strides)


def row_slices(
    rows: Foreign, chunks: Foreign = None, *, slice_bytes: float = SLICE_BYTES
) -> Iterator[slice]:
    """Yield slices of about ``slice_bytes`` that cover all rows in order.

    ``chunks`` are those of a Dask, HDF5 or Zarr array; every slice ends where a chunk
    ends, so that no chunk is read twice.
    """
    n_rows = rows.shape[0]
    step = max(1, int(slice_bytes) // max(1, rows.dtype.itemsize * rows.shape[1]))
    ends: Sequence[int] = range(step, n_rows + step, step)
    if chunks and isinstance(chunks[0], int):
        step = -(-step // chunks[0]) * chunks[0]
        ends = range(step, n_rows + step, step)
    elif chunks:
        bounds = np.cumsum(chunks[0])
        # Move the end of every step to the end of the chunk that contains it.
        at = np.searchsorted(bounds, ends).clip(0, bounds.size - 1)
        ends = np.unique(bounds[at]).tolist()
    start = 0
    for end in ends:
        stop = min(int(end), n_rows)
        if stop > start:
            yield slice(start, stop)
        start = max(start, stop)


def check_exact(
    values: NDArray[Any], dtype: DTypeLike, name: str = "X", *, first_row: int = 0
) -> None:
    """Raise ValueError if a float type would round whole numbers or long doubles.

    Points that differ could become the same, and a bound would be wrong.
    """
    kind, target = values.dtype, np.dtype(dtype)
    if target.kind != "f" or kind.itemsize < 8 or kind.kind not in "iuf":
        return
    if kind == np.float64 or values.size == 0:
        return
    with np.errstate(over="ignore", invalid="ignore"):
        rounded = values.astype(np.float64)
        if kind.kind == "f":
            exact = (rounded.astype(kind) == values) | ~np.isfinite(values)
        elif np.abs(rounded).max() < 2.0**53:
            return
        else:
            # The next power of two does not fit the type; nothing there is equal.
            in_range = rounded < 2.0 ** (64 if kind.kind == "u" else 63)
            back = np.where(in_range, rounded, 0.0).astype(kind)
            exact = in_range & (back == values)
    for at in np.argwhere(~exact)[:1].tolist():
        value = values[tuple(at)]
        at[0] += first_row
        place = ", ".join(
            f"{n} {i}" for n, i in zip(("row", "column"), at, strict=False)
        )
        raise ValueError(rounded_away(place, value, name))


def rounded_away(place: str, value: object, name: str = "X") -> str:
    """Return the error message for a number that float64 does not hold."""
    return (
        f"{name} must hold numbers that float64 holds exactly; {place} is {value}. "
        "Subtract a common offset from its column first, or cast with astype(float)."
    )


def _reserve(descriptor: int, size: int, slice_bytes: int) -> None:
    """Reserve disk space now; a full disk later would kill the process."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(descriptor, 0, size)
        return
    zeros = bytes(min(size, slice_bytes))
    while size > 0:
        size -= os.write(descriptor, zeros[:size])


def _unlinked(name: str) -> bool:
    """Remove the name of a mapped file where the system allows it; keep its bytes."""
    if os.name != "posix":
        return False
    _remove(name)
    return True


def _remove(name: str) -> None:
    """Remove a file; ignore errors."""
    with suppress(OSError):
        Path(name).unlink()
