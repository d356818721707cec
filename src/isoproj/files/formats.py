"""Decide the format of a file from its name and its first bytes."""

from __future__ import annotations

import codecs
import enum
from pathlib import PurePath
from typing import Self

from isoproj.exceptions import FormatError

# Data sets of scikit-learn that can be named instead of a file.
BUILT_IN = ("breast_cancer", "diabetes", "digits", "iris", "wine")
# Number of first bytes that show the format.
HEAD_SIZE = 4096


class Format(enum.StrEnum):
    """A file format for points, with its usual name as ``title``."""

    NPY = "npy", "NumPy .npy"
    NPZ = "npz", "NumPy .npz"
    CSV = "csv", "CSV text"
    TSV = "tsv", "tab-separated text"
    PARQUET = "parquet", "Parquet"
    ARROW = "arrow", "Arrow/Feather"
    HDF5 = "hdf5", "HDF5"
    FVECS = "fvecs", ".fvecs"
    BVECS = "bvecs", ".bvecs"
    IVECS = "ivecs", ".ivecs"
    SAFETENSORS = "safetensors", "safetensors"

    title: str  # type: ignore[assignment]  # a str has a method of this name

    def __new__(cls, value: str, title: str) -> Self:
        """Return a member that is the text ``value``."""
        member = str.__new__(cls, value)
        member._value_, member.title = value, title
        return member

    @property
    def is_text(self) -> bool:
        """Whether the format is plain text."""
        return self in (Format.CSV, Format.TSV)

    @property
    def is_table(self) -> bool:
        """Whether the format is a table of typed columns, read with pyarrow."""
        return self in (Format.PARQUET, Format.ARROW)

    @property
    def is_vecs(self) -> bool:
        """Whether every vector is preceded by its length, without a magic number."""
        return self in VECTOR_TYPES

    @property
    def may_be_gzipped(self) -> bool:
        """Whether the format is usually found compressed with gzip."""
        return self.is_text or self.is_vecs or self is Format.NPY


# Type of the numbers in the formats where every vector is preceded by its length.
VECTOR_TYPES = {Format.FVECS: "<f4", Format.IVECS: "<i4", Format.BVECS: "u1"}
EXTENSIONS = {
    ".npy": Format.NPY,
    ".npz": Format.NPZ,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".h5": Format.HDF5,
    ".hdf5": Format.HDF5,
    ".h5ad": Format.HDF5,
    ".fvecs": Format.FVECS,
    ".bvecs": Format.BVECS,
    ".ivecs": Format.IVECS,
    ".safetensors": Format.SAFETENSORS,
    ".isoproj": Format.SAFETENSORS,
}
_MAGIC = (
    (b"\x93NUMPY", Format.NPY),
    (b"PK\x03\x04", Format.NPZ),
    (b"PK\x05\x06", Format.NPZ),
    (b"PAR1", Format.PARQUET),
    (b"ARROW1", Format.ARROW),
    # A stream of Arrow messages, as Hugging Face data sets are saved.
    (b"\xff\xff\xff\xff", Format.ARROW),
    (b"\x89HDF\r\n\x1a\n", Format.HDF5),
)
_PICKLE_NAMES = {".pkl", ".pickle", ".joblib", ".pt", ".pth", ".dill"}


def format_of_name(name: str) -> Format | None:
    """Return the format of a file name's extension (before .gz), or None."""
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = PurePath(path.stem).suffix.lower()
    return EXTENSIONS.get(suffix)


def is_gzip(head: bytes) -> bool:
    """Return whether the bytes begin like a gzip file."""
    return head.startswith(b"\x1f\x8b")


def format_of_content(head: bytes, size: int) -> Format | None:
    """Return the format that the first bytes of a file show, or None.

    Text counts as CSV. The formats .fvecs, .bvecs and .ivecs have no magic number.
    ``size`` is the number of bytes of the whole file.
    """
    for magic, known in _MAGIC:
        if head.startswith(magic):
            return known
    length = int.from_bytes(head[:8], "little")
    if len(head) > 8 and head[8:9] == b"{" and length <= size - 8:
        return Format.SAFETENSORS
    return Format.CSV if _is_text(head) else None


def refuse_pickle(name: str, head: bytes) -> None:
    """Raise FormatError if name or first bytes are those of a pickle."""
    # Protocols 2 to 5 begin with 0x80 and their number, then an opcode. A .bvecs
    # file of that width has a zero byte there, which is no opcode.
    marked = head[:1] == b"\x80" and head[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05")
    if (marked and head[2:3] > b"\x00") or (
        PurePath(name).suffix.lower() in _PICKLE_NAMES
    ):
        msg = (
            f"{name} is a pickle, and isoproj never loads pickles: they can run code. "
            "Save the array as .npy or the model as .isoproj instead."
        )
        raise FormatError(msg)


def decide(name: str, head: bytes, size: int) -> Format:
    """Return the format of a file; raise FormatError if name and content disagree."""
    if size == 0:
        msg = f"{name} must hold points; it is empty (0 bytes). Choose another file."
        raise FormatError(msg)
    refuse_pickle(name, head)
    promised, found = format_of_name(name), format_of_content(head, size)
    if promised is None and found is not None:
        return found
    if promised is None:
        msg = (
            f"{name} must be in a format that isoproj reads; neither its name nor its "
            f"content shows one. Use one of {', '.join(sorted(EXTENSIONS))}."
        )
        raise FormatError(msg)
    if promised.is_vecs:
        agrees = found is None or found is Format.SAFETENSORS
    elif promised.is_text:
        agrees = found is Format.CSV
    else:
        agrees = found is promised
    if agrees:
        return promised
    shown = "something else" if found is None else found.title
    shown = "text" if found is Format.CSV else shown
    msg = (
        f"{name} is named like {promised.title}, but its content is {shown}. "
        "Rename it, or make it again."
    )
    raise FormatError(msg)


def _is_text(head: bytes) -> bool:
    """Return whether bytes are text in UTF-8 or an old encoding."""
    if b"\x00" in head:
        return False
    try:
        # The last character may be incomplete.
        codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        # Text in an old encoding has no control characters.
        return not any(byte < 32 and byte not in b"\t\n\r" for byte in head)
    return True
