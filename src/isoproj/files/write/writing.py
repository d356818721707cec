"""Write points whole or not at all, block by block where the format allows it."""

from __future__ import annotations

import errno
import gzip
import io
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors.numpy
import scipy.sparse
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import EXTENSIONS, Format, format_of_name
from isoproj.numerics.arrays import Rows, is_sparse
from isoproj.numerics.extras import needed

__all__ = [
    "Blocks",
    "check_output",
    "output_format",
    "replacing",
    "write_blocks",
    "write_points",
]

_NAME = "points"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Blocks:
    """A matrix that arrives in blocks of rows, so that it need never be whole.

    Parameters
    ----------
    shape : tuple of int
        Of the whole.
    dtype : dtype
        Of every block.
    parts : iterable of ndarray
        The blocks, first rows first.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    parts: Iterable[NDArray[Any]]

    def whole(self) -> NDArray[Any]:
        """Return the matrix in one piece."""
        return np.concatenate([*self.parts, np.empty((0, self.shape[1]), self.dtype)])


def check_output(
    path: str | os.PathLike[str], *, inputs: Sequence[str] = (), force: bool = False
) -> None:
    """Raise unless a file may be written: asked before the work, not after it.

    Parameters
    ----------
    path : path-like
        Where to.
    inputs : sequence of str
        Files that are being read; none of them is ever overwritten.
    force : bool
        Whether another file that exists may be replaced.

    Raises
    ------
    OSError
        With what is in the way.

    Examples
    --------
    >>> from isoproj.files.write.writing import check_output
    >>> check_output("no/such/folder/z.npy")
    Traceback (most recent call last):
        ...
    FileNotFoundError: no/such/folder/z.npy cannot be written: there is no folder \
no/such/folder. Make it first.
    """
    target = Path(path)
    if not target.parent.is_dir():
        msg = (
            f"{target} cannot be written: there is no folder {target.parent}. "
            "Make it first."
        )
        raise FileNotFoundError(msg)
    if target.is_dir():
        msg = f"{target} must be a file; it is a directory. Name a file in it."
        raise IsADirectoryError(msg)
    if not target.exists():
        if not os.access(target.parent, os.W_OK):
            reason = os.strerror(errno.EACCES)
            raise PermissionError(errno.EACCES, reason, str(target))
        return
    if not target.is_file():
        # Replacing would put a file in the place of the device itself.
        msg = (
            f"{target} must be an ordinary file; it is a device or pipe. Name another."
        )
        raise OSError(msg)
    for name in inputs:
        if Path(name).exists() and target.samefile(name):
            msg = f"{target} is the input and is never overwritten. Name another file."
            raise FileExistsError(msg)
    if not force:
        msg = f"{target} exists already. Use --force to overwrite, or name another."
        raise FileExistsError(msg)


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file that appears under its name only when it is whole.

    Parameters
    ----------
    path : path-like
        Where to.

    Yields
    ------
    file
        Open for binary writing, in the same folder under another name.

    Raises
    ------
    OSError
        If it cannot be written; a file already there is left as it was.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from isoproj.files.write.writing import replacing
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a"
    ...     with replacing(path) as file:
    ...         _ = file.write(b"whole")
    ...     path.read_bytes()
    b'whole'
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give the mode an ordinary open() would.
        mask = os.umask(0)
        os.umask(mask)
        Path(name).chmod(0o666 & ~mask)
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_points(
    path: str | os.PathLike[str],
    points: Rows,
    *,
    names: Sequence[str] | None = None,
    inputs: Sequence[str] = (),
    force: bool = False,
) -> Format:
    r"""Write a matrix in the format that the name of the file asks for.

    Parameters
    ----------
    path : path-like
        Where to; the extension decides, ``.gz`` compresses where that is usual.
    points : ndarray or sparse array of shape (n_points, n_features)
        One point a row. Sparse points can be written to .npz only.
    names : sequence of str or None
        Names of the columns, for formats that have them.
    inputs : sequence of str
        Files that must not be overwritten.
    force : bool
        Whether an existing file may be replaced.

    Returns
    -------
    Format
        What was written.

    Raises
    ------
    FormatError
        If the format is unknown or cannot hold the numbers.
    MissingExtraError
        If the format needs a library that is not installed.
    OSError
        If the file cannot be written; nothing is left half-written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from isoproj.files.write.writing import write_points
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a.csv"
    ...     _ = write_points(path, np.eye(2), names=["x", "y"])
    ...     path.read_text()
    'x,y\n1.0,0.0\n0.0,1.0\n'
    """
    if not is_sparse(points):
        rows = np.asarray(points)
        whole = Blocks(shape=rows.shape, dtype=rows.dtype, parts=[rows])
        return write_blocks(path, whole, names=names, inputs=inputs, force=force)
    if format_of_name(str(path)) is not Format.NPZ:
        msg = f"sparse points must be written to .npz; got {path}. Name an .npz file."
        raise FormatError(msg)
    check_output(path, inputs=inputs, force=force)
    with replacing(path) as file:
        scipy.sparse.save_npz(file, points)
    return Format.NPZ


def write_blocks(
    path: str | os.PathLike[str],
    blocks: Blocks,
    *,
    names: Sequence[str] | None = None,
    inputs: Sequence[str] = (),
    force: bool = False,
) -> Format:
    """Write a matrix that arrives in blocks; see ``write_points``.

    .npy, text and .fvecs are written block by block, other formats at once.
    """
    format_ = output_format(path)
    check_output(path, inputs=inputs, force=force)
    labels = list(names) if names is not None else None
    with replacing(path) as file:
        if str(path).lower().endswith(".gz"):
            # Without a time of day, the same points give the same file.
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=0) as packed:
                stream: Any = packed
                _WRITERS[format_](stream, blocks, labels)
        else:
            _WRITERS[format_](file, blocks, labels)
    return format_


def output_format(path: str | os.PathLike[str]) -> Format:
    """Return the format a name asks for.

    Raises
    ------
    FormatError
        If it asks for none that points can be written in.

    Examples
    --------
    >>> from isoproj.files.write.writing import output_format
    >>> output_format("z.npy").value
    'npy'
    """
    name = str(path).lower()
    format_ = format_of_name(name)
    if format_ is None or name.endswith(".isoproj"):
        known = ", ".join(sorted(set(EXTENSIONS) - {".isoproj"}))
        msg = f"{path} must say a format that points have: {known}. Add one of these."
        raise FormatError(msg)
    if name.endswith(".gz") and not format_.may_be_gzipped:
        msg = f"{path} must not be .gz: {format_.title} compresses by itself. Drop it."
        raise FormatError(msg)
    return format_


def _write_npy(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:  # noqa: ARG001
    header = {
        "descr": np.lib.format.dtype_to_descr(blocks.dtype),
        "fortran_order": False,
        "shape": blocks.shape,
    }
    np.lib.format.write_array_header_1_0(file, header)
    for part in blocks.parts:
        file.write(np.ascontiguousarray(part, dtype=blocks.dtype).data)


def _write_npz(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:  # noqa: ARG001
    np.savez(file, points=blocks.whole())


def _write_text(
    file: IO[bytes], blocks: Blocks, names: list[str] | None, mark: str = ","
) -> None:
    # repr is the shortest text that reads back as the same number.
    text = io.TextIOWrapper(file, encoding="utf-8", newline="\n", write_through=True)
    if names is not None:
        text.write(mark.join(_quoted(name, mark) for name in names) + "\n")
    for part in blocks.parts:
        # float32 as float64, so that every digit of the stored value is said.
        exact = part.astype(np.float64) if part.dtype.kind == "f" else part
        for start in range(0, exact.shape[0], 1024):
            rows = exact[start : start + 1024].tolist()
            text.write("".join(mark.join(map(repr, row)) + "\n" for row in rows))
    text.detach()


def _quoted(name: str, mark: str) -> str:
    if mark in name or '"' in name or "\n" in name:
        return '"' + name.replace('"', '""').replace("\n", " ") + '"'
    return name


def _write_tsv(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:
    _write_text(file, blocks, names, "\t")


def _arrow_table(blocks: Blocks, names: list[str] | None, title: str) -> Any:  # noqa: ANN401
    pyarrow = needed("pyarrow", extra="io", purpose=title)
    points = blocks.whole()
    labels = names or [f"x{column}" for column in range(points.shape[1])]
    columns = [pyarrow.array(column) for column in points.T.copy()]
    return pyarrow.table(columns, names=labels)


def _write_parquet(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:
    parquet = needed("pyarrow.parquet", extra="io", purpose="Parquet")
    parquet.write_table(_arrow_table(blocks, names, "Parquet"), file)


def _write_arrow(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:
    feather = needed("pyarrow.feather", extra="io", purpose="Arrow/Feather")
    feather.write_feather(_arrow_table(blocks, names, "Arrow/Feather"), file)


def _write_hdf5(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:  # noqa: ARG001
    h5py = needed("h5py", extra="io", purpose="HDF5")
    with h5py.File(file, "w") as container:
        data = container.create_dataset(_NAME, shape=blocks.shape, dtype=blocks.dtype)
        start = 0
        for part in blocks.parts:
            data[start : start + part.shape[0]] = part
            start += part.shape[0]


def _write_safetensors(
    file: IO[bytes],
    blocks: Blocks,
    names: list[str] | None,  # noqa: ARG001
) -> None:
    points = np.ascontiguousarray(blocks.whole())
    file.write(safetensors.numpy.save({_NAME: points}))


def _write_fvecs(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:  # noqa: ARG001
    _write_records(file, blocks, np.dtype("<f4"))


def _write_ivecs(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:  # noqa: ARG001
    _write_records(file, blocks, np.dtype("<i4"))


def _write_bvecs(file: IO[bytes], blocks: Blocks, names: list[str] | None) -> None:  # noqa: ARG001
    _write_records(file, blocks, np.dtype("u1"))


def _write_records(file: IO[bytes], blocks: Blocks, value: np.dtype[Any]) -> None:
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


_Writer = Callable[[IO[bytes], Blocks, "list[str] | None"], None]
_WRITERS: dict[Format, _Writer] = {
    Format.NPY: _write_npy,
    Format.NPZ: _write_npz,
    Format.CSV: _write_text,
    Format.TSV: _write_tsv,
    Format.PARQUET: _write_parquet,
    Format.ARROW: _write_arrow,
    Format.HDF5: _write_hdf5,
    Format.FVECS: _write_fvecs,
    Format.IVECS: _write_ivecs,
    Format.BVECS: _write_bvecs,
    Format.SAFETENSORS: _write_safetensors,
}
