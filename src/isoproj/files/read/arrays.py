"""Read formats of whole arrays: .npy, .npz, .fvecs, safetensors, HDF5 and others."""

from __future__ import annotations

import math
import zipfile
from pathlib import PurePath
from typing import IO, Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from isoproj.exceptions import FormatError
from isoproj.files.formats import VECTOR_TYPES, Format
from isoproj.files.read.sources import (
    Content,
    Selection,
    Source,
    check_unpacked,
    choose_array,
    parsing,
    sparse_matrix,
)
from isoproj.numerics.arrays import Rows
from isoproj.numerics.spectral import Foreign
from isoproj.numerics.storage import Storage

# Arrays that scipy.sparse.save_npz writes for each sparse format.
_SPARSE_PARTS = {
    "csr": ("data", "indices", "indptr"),
    "csc": ("data", "indices", "indptr"),
    "bsr": ("data", "indices", "indptr"),
    "coo": ("data", "row", "col"),
    "dia": ("data", "offsets"),
}


def array_contents(source: Source) -> list[Content]:
    """Return name, shape and type of every array in a file, from its headers."""
    with parsing(source):
        if source.format is Format.NPY:
            with source.open() as stream:
                shape, _, dtype = _npy_header(stream)
            return [Content("", shape, dtype.str)]
        if source.format is Format.NPZ:
            return _npz_contents(source)
        if source.format is Format.SAFETENSORS:
            return _safetensors_contents(source)
        if source.format is Format.HDF5:
            from isoproj.files.read.hdf5 import hdf5_contents

            return hdf5_contents(source)
        vectors = _read_vecs(source)
        return [Content("", vectors.shape, vectors.dtype.str)]


def read_array(
    source: Source, selection: Selection, storage: Storage
) -> tuple[Rows, str]:
    """Return the chosen array, unchecked, and its name if the file has names.

    Plain .npy and .fvecs files are mapped; HDF5 and safetensors are read into
    ``storage`` slice by slice.
    """
    if source.format is Format.SAFETENSORS and is_model(source):
        msg = (
            f"{source.name} must hold points; it is an isoproj model. Name a data file."
        )
        raise FormatError(msg)
    with parsing(source):
        if source.format is Format.NPY:
            return _read_npy(source), ""
        if source.format.is_vecs:
            return _read_vecs(source), ""
        if source.format is Format.HDF5:
            from isoproj.files.read.hdf5 import read_hdf5

            return read_hdf5(source, selection, storage)
    content = choose_array(source, array_contents(source), selection)
    with parsing(source):
        if source.format is Format.NPZ:
            return _read_npz(source, content, storage), content.name
        with safetensors.safe_open(source.plain_path(), framework="numpy") as file:
            return _read_tensor(file, content, storage), content.name


def _read_tensor(file: Foreign, content: Content, storage: Storage) -> NDArray[Any]:
    """Read one tensor of an open safetensors file, a matrix slice by slice."""
    if not content.is_matrix or not content.shape[0]:
        return np.asarray(file.get_tensor(content.name))
    rows = file.get_slice(content.name)
    n_rows, n_columns = content.shape
    return storage.filled(rows, (n_rows, n_columns), rows[:1].dtype)


def is_model(source: Source) -> bool:
    """Return whether a file is an isoproj model, whole or damaged."""
    if source.format is not Format.SAFETENSORS:
        return False
    if PurePath(source.name).suffix.lower() == ".isoproj":
        return True
    try:
        with safetensors.safe_open(source.plain_path(), framework="numpy") as file:
            return "isoproj" in (file.metadata() or {})
    except (safetensors.SafetensorError, ValueError, TypeError, OverflowError):
        return False


def _npy_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read shape, Fortran order and type from the header of an .npy stream."""
    npy = np.lib.format
    readers = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}
    version = npy.read_magic(stream)
    if version not in readers:
        # Version 3 is for field names that are not Latin; points have no field names.
        msg = f"its version is {version}, and points need 1.0 or 2.0"
        raise ValueError(msg)
    shape, fortran, dtype = readers[version](stream)
    if dtype.hasobject:
        msg = "it holds Python objects (a pickle), which isoproj never loads"
        raise ValueError(msg)
    return shape, fortran, dtype


def _check_length(shape: tuple[int, ...], dtype: np.dtype[Any], have: int) -> None:
    """Raise ValueError unless as many bytes follow the header as it promises."""
    promised = math.prod(shape) * dtype.itemsize
    if min(shape, default=0) < 0 or promised != have:
        size = "x".join(map(str, shape)) or "a scalar"
        what = "cut off" if have < promised else "too long"
        msg = (
            f"it is {what}: the header promises {size} of {dtype}, {promised:,} bytes, "
            f"and {have:,} follow"
        )
        raise ValueError(msg)


def _read_npy(source: Source) -> NDArray[Any]:
    """Map a plain .npy file, or view the bytes of one in memory."""
    with source.open() as stream:
        shape, fortran, dtype = _npy_header(stream)
        offset = stream.tell()
        _check_length(shape, dtype, source.size - offset)
        order: Any = "F" if fortran else "C"
        if source.path is None:
            flat = np.frombuffer(source.content or b"", dtype=dtype, offset=offset)
            return flat.reshape(shape, order=order)
    if 0 in shape or not shape:
        return np.empty(shape, dtype=dtype)
    return np.memmap(
        source.path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order
    )


def _npz_members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of an .npz file by name; raise ValueError if it has none."""
    members = {
        info.filename.removesuffix(".npy"): info
        for info in archive.infolist()
        if info.filename.endswith(".npy")
    }
    if not members:
        names = [info.filename for info in archive.infolist()]
        if any(name.endswith(".pkl") for name in names):
            msg = "it is a PyTorch file (a pickle), which isoproj never loads"
            raise ValueError(msg)
        msg = f"it is a zip archive without arrays ({', '.join(names[:3]) or 'empty'})"
        raise ValueError(msg)
    return members


def _read_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, storage: Storage | None = None
) -> NDArray[Any]:
    """Read one array of an .npz file into ``storage``, slice by slice."""
    storage = storage or Storage()
    with archive.open(info) as stream:
        shape, fortran, dtype = _npy_header(stream)
        # Check the header before memory is allocated.
        _check_length(shape, dtype, info.file_size - stream.tell())
        array = storage.empty(shape[::-1] if fortran else shape, dtype)
        raw, n_read = array.reshape(-1).view(np.uint8), 0
        while part := stream.read(min(storage.slice_bytes, raw.size - n_read)):
            raw[n_read : n_read + len(part)] = np.frombuffer(part, dtype=np.uint8)
            n_read += len(part)
        # Only the end of the stream shows whether its bytes are damaged.
        n_read += len(stream.read(1))
    _check_length(shape, dtype, n_read)
    return array.T if fortran else array


def _npz_contents(source: Source) -> list[Content]:
    """Return the arrays of an .npz file."""
    with zipfile.ZipFile(source.plain_path()) as archive:
        members = _npz_members(archive)
        contents = []
        for name, info in members.items():
            with archive.open(info) as stream:
                shape, _, dtype = _npy_header(stream)
            contents.append(Content(name, shape, dtype.str))
        if not {"format", "shape", "data"} <= set(members):
            return contents
        # The arrays are the parts of one sparse matrix.
        whole = tuple(map(int, _read_member(archive, members["shape"]).tolist()))
        kind = next(content.dtype for content in contents if content.name == "data")
        # Name of a sparse matrix in an .npz file, which stores none.
        return [Content("matrix", whole, f"sparse {kind}")]


def _read_npz(source: Source, content: Content, storage: Storage) -> Rows:
    """Read one array, or the sparse matrix, of an .npz file."""
    with zipfile.ZipFile(source.plain_path()) as archive:
        members = _npz_members(archive)
        if content.dtype.startswith("sparse"):
            needs = sum(members[n].file_size for n in members if n != "format")
            # Rows are stored with one number each that tells where they begin.
            check_unpacked(source.name, needs + 8 * content.shape[0], storage.limit)
            return _read_sparse(archive, members)
        return _read_member(archive, members[content.name], storage)


def _read_sparse(archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]) -> Rows:
    """Return the matrix that ``scipy.sparse.save_npz`` wrote."""
    kind = _read_member(archive, members["format"]).item()
    kind = kind.decode() if isinstance(kind, bytes) else str(kind)
    if kind not in _SPARSE_PARTS:
        msg = f"its sparse format is {kind!r}, not one of {', '.join(_SPARSE_PARTS)}"
        raise ValueError(msg)
    parts = [_read_member(archive, members[name]) for name in _SPARSE_PARTS[kind]]
    return sparse_matrix(kind, parts, _read_member(archive, members["shape"]).tolist())


def _read_vecs(source: Source) -> NDArray[Any]:
    """Map vectors that are each preceded by their length, a 32-bit integer."""
    value = np.dtype(VECTOR_TYPES[source.format])
    with source.open() as stream:
        width = int.from_bytes(stream.read(4), "little", signed=True)
    record = 4 + width * value.itemsize
    if width < 1 or source.size % record:
        msg = (
            f"the first length is {width}, and {source.size:,} bytes are not a whole "
            "number of such vectors"
        )
        raise ValueError(msg)
    if source.path is None:
        raw = np.frombuffer(source.content or b"", dtype=np.uint8)
    else:
        raw = np.memmap(source.path, dtype=np.uint8, mode="r")
    records = raw.reshape(-1, record)
    lengths = np.ascontiguousarray(records[:, :4]).view("<i4").ravel()
    other = np.flatnonzero(lengths != width)
    if other.size:
        row = int(other[0])
        msg = f"row {row} has width {lengths[row]}, row 0 has {width}"
        raise ValueError(msg)
    whole = raw.view(np.dtype([("length", "<i4"), ("values", value, (width,))]))
    return np.asarray(whole["values"])


def _safetensors_contents(source: Source) -> list[Content]:
    """Return the tensors of a safetensors file."""
    with safetensors.safe_open(source.plain_path(), framework="numpy") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return [
            Content(name, tuple(part.get_shape()), str(part.get_dtype()).lower())
            for name, part in parts.items()
        ]
