"""Write points atomically, block by block if the format allows it."""

from __future__ import annotations

import csv
import gzip
import importlib
import io
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import IO, Any, TypeAlias

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike, NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import EXTENSIONS, VECTOR_TYPES, Format, format_of_name
from isoproj.numerics.container import open_atomically
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Foreign

# Names of the columns, or None.
Names: TypeAlias = list[str] | None

# Name of the matrix in formats whose arrays have names.
_NAME = "points"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Blocks:
    """A matrix in blocks of rows, first rows first; only one block is in memory."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    parts: Iterable[NDArray[Any]]

    def whole(self) -> NDArray[Any]:
        """Return the whole matrix."""
        return np.concatenate([*self.parts, np.empty((0, self.shape[1]), self.dtype)])

    def fill(self, rows: Foreign) -> None:
        """Copy all blocks to ``rows``, which has their shape."""
        start = 0
        for part in self.parts:
            rows[start : start + part.shape[0]] = part
            start += part.shape[0]


def write_points(
    path: str | os.PathLike[str],
    points: ArrayLike,
    *,
    names: Sequence[str] | None = None,
) -> None:
    """Write a matrix in the format of the extension; see ``write_blocks``."""
    rows = np.asarray(points)
    whole = Blocks(shape=rows.shape, dtype=rows.dtype, parts=[rows])
    write_blocks(path, whole, names=names)


def write_blocks(
    path: str | os.PathLike[str],
    blocks: Blocks,
    *,
    names: Sequence[str] | None = None,
) -> None:
    """Write a matrix in the format of the extension, over a file of that name.

    A name that ends in .gz is compressed. .npy, text, HDF5 and .fvecs are written block
    by block, other formats at once.
    """
    write = _WRITERS[output_format(path)]
    labels = list(names) if names is not None else None
    with open_atomically(path) as file:
        if not str(path).lower().endswith(".gz"):
            write(file, blocks, labels)
            return
        # Without a time stamp the same points give the same file.
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
            stream: Any = packed
            write(stream, blocks, labels)


def output_format(path: str | os.PathLike[str], source: str = "") -> Format:
    """Return the format of a name; raise FormatError if points cannot be written so.

    An .h5ad file is a copy of the ``source`` of the points with one array more.
    """
    name = str(path).lower()
    format_ = format_of_name(name)
    if format_ is None or name.endswith(".isoproj"):
        known = ", ".join(sorted(set(EXTENSIONS) - {".isoproj"}))
        msg = f"{path} must name a format by its extension. Add one of {known}."
        raise FormatError(msg)
    if name.endswith(".gz") and not format_.may_be_gzipped:
        msg = f"{path} must not end in .gz: {format_.title} is compressed. Drop it."
        raise FormatError(msg)
    if is_anndata_name(name) and not is_anndata_name(source):
        msg = f"{path} must be a copy of an .h5ad input; there is none. Write .npy."
        raise FormatError(msg)
    return format_


def is_anndata_name(path: str | os.PathLike[str]) -> bool:
    """Return whether a file name is that of an AnnData file."""
    return str(path).lower().endswith(".h5ad")


def write_npy(file: IO[bytes], blocks: Blocks, _: Names = None) -> None:
    """Write a matrix in blocks as the bytes of an .npy file."""
    header: Any = {
        "descr": np.lib.format.dtype_to_descr(blocks.dtype),
        "fortran_order": False,
        "shape": blocks.shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    for part in blocks.parts:
        file.write(np.ascontiguousarray(part, dtype=blocks.dtype).data)


def _write_npz(file: IO[bytes], blocks: Blocks, _: Names) -> None:
    """Write an .npz file with one array."""
    np.savez(file, points=blocks.whole())


def _write_text(file: IO[bytes], blocks: Blocks, names: Names, mark: str = ",") -> None:
    """Write lines of numbers, separated by ``mark``, below a line of names."""
    # repr is the shortest text that reads back as the same number.
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
    if names is not None:
        # A reader takes the first line alone for the header.
        line = [name.replace("\n", " ") for name in names]
        csv.writer(text, delimiter=mark, lineterminator="\n").writerow(line)
    for part in blocks.parts:
        # float32 is written as float64, with every digit of the stored value.
        exact = part.astype(np.float64) if part.dtype.kind == "f" else part
        for start in range(0, exact.shape[0], 1024):
            rows = exact[start : start + 1024].tolist()
            text.write("".join(mark.join(map(repr, row)) + "\n" for row in rows))
    text.detach()


def _write_table(
    file: IO[bytes], blocks: Blocks, names: Names, *, format_: Format
) -> None:
    """Write a Parquet or an Arrow file with one column a feature."""
    pyarrow = needed("pyarrow", extra="io", purpose=format_.title)
    points = blocks.whole()
    labels = names or [f"x{column}" for column in range(points.shape[1])]
    columns = [pyarrow.array(column) for column in points.T.copy()]
    table = pyarrow.table(columns, names=labels)
    if format_ is Format.PARQUET:
        importlib.import_module("pyarrow.parquet").write_table(table, file)
    else:
        importlib.import_module("pyarrow.feather").write_feather(table, file)


def _write_hdf5(file: IO[bytes], blocks: Blocks, _: Names) -> None:
    """Write an HDF5 file with one data set."""
    h5py = needed("h5py", extra="io", purpose="HDF5")
    with h5py.File(file, "w") as container:
        data = container.create_dataset(_NAME, shape=blocks.shape, dtype=blocks.dtype)
        blocks.fill(data)


def _write_safetensors(file: IO[bytes], blocks: Blocks, _: Names) -> None:
    """Write a safetensors file with one tensor."""
    points = np.ascontiguousarray(blocks.whole())
    file.write(safetensors.numpy.save({_NAME: points}))


def _write_vectors(
    file: IO[bytes], blocks: Blocks, _: Names, *, format_: Format
) -> None:
    """Write every vector after its length, in the number type of the format."""
    value = np.dtype(VECTOR_TYPES[format_])
    width = blocks.shape[1]
    layout = np.dtype([("length", "<i4"), ("values", value, (width,))])
    for part in blocks.parts:
        records = np.empty(part.shape[0], dtype=layout)
        records["length"] = width
        with np.errstate(over="ignore", invalid="ignore"):
            records["values"] = part
        same = (
            np.isfinite(records["values"])
            if value.kind == "f"
            else (records["values"] == part)
        )
        if not same.all():
            kind = "whole numbers in range" if value.kind != "f" else "float32 numbers"
            msg = (
                f"the points must be {kind} ({value}) for this format; some are not. "
                "Write .npy instead."
            )
            raise FormatError(msg)
        file.write(records.tobytes())


_Writer = Callable[[IO[bytes], Blocks, Names], None]
_WRITERS: dict[Format, _Writer] = {
    Format.NPY: write_npy,
    Format.NPZ: _write_npz,
    Format.CSV: _write_text,
    Format.TSV: partial(_write_text, mark="\t"),
    Format.PARQUET: partial(_write_table, format_=Format.PARQUET),
    Format.ARROW: partial(_write_table, format_=Format.ARROW),
    Format.HDF5: _write_hdf5,
    Format.SAFETENSORS: _write_safetensors,
    **{kind: partial(_write_vectors, format_=kind) for kind in VECTOR_TYPES},
}
