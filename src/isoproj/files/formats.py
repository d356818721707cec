"""Which format a file has, by its name and its content together."""

from __future__ import annotations

import enum
from pathlib import PurePath

from isoproj.exceptions import FormatError

__all__ = [
    "EXTENSIONS",
    "HEAD_SIZE",
    "Format",
    "decide",
    "format_of_content",
    "format_of_name",
    "is_gzip",
    "refuse_pickle",
]

HEAD_SIZE = 4096


class Format(enum.StrEnum):
    """A way to keep a table of numbers in a file."""

    NPY = "npy"
    NPZ = "npz"
    CSV = "csv"
    TSV = "tsv"
    PARQUET = "parquet"
    ARROW = "arrow"
    HDF5 = "hdf5"
    FVECS = "fvecs"
    BVECS = "bvecs"
    IVECS = "ivecs"
    SAFETENSORS = "safetensors"

    @property
    def title(self) -> str:  # type: ignore[override]  # a str, as a property
        """The name a person would use."""
        return {
            Format.NPY: "NumPy .npy",
            Format.NPZ: "NumPy .npz",
            Format.CSV: "CSV text",
            Format.TSV: "tab-separated text",
            Format.PARQUET: "Parquet",
            Format.ARROW: "Arrow/Feather",
            Format.HDF5: "HDF5",
            Format.FVECS: ".fvecs",
            Format.BVECS: ".bvecs",
            Format.IVECS: ".ivecs",
            Format.SAFETENSORS: "safetensors",
        }[self]

    @property
    def is_text(self) -> bool:
        """Whether people can read it as it is."""
        return self in (Format.CSV, Format.TSV)

    @property
    def is_vecs(self) -> bool:
        """Whether every vector is preceded by its length, without any magic number."""
        return self in (Format.FVECS, Format.BVECS, Format.IVECS)

    @property
    def may_be_gzipped(self) -> bool:
        """Whether the format is usually found compressed with gzip."""
        return self.is_text or self.is_vecs or self is Format.NPY


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
    """Return what an extension promises, or None where it promises nothing.

    Parameters
    ----------
    name : str
        File name; a final ``.gz`` is looked through.

    Returns
    -------
    Format or None
        By the last extension.

    Examples
    --------
    >>> from isoproj.files.formats import format_of_name
    >>> format_of_name("embeddings.csv.gz").value
    'csv'
    >>> format_of_name("embeddings") is None
    True
    """
    path = PurePath(name)
    suffix = path.suffix.lower()
    if suffix == ".gz":
        suffix = PurePath(path.stem).suffix.lower()
    return EXTENSIONS.get(suffix)


def is_gzip(head: bytes) -> bool:
    """Return whether bytes begin as a gzip file does.

    Examples
    --------
    >>> from isoproj.files.formats import is_gzip
    >>> is_gzip(b"1,2,3")
    False
    """
    return head.startswith(b"\x1f\x8b")


def format_of_content(head: bytes, size: int) -> Format | None:
    """Return what the first bytes of a file show, or None if they show nothing.

    Text counts as CSV; vectors with lengths (.fvecs and its kin) have no mark.

    Parameters
    ----------
    head : bytes
        The first ``HEAD_SIZE`` bytes, or all if there are fewer.
    size : int
        Bytes in all.

    Returns
    -------
    Format or None
        What the content is.

    Examples
    --------
    >>> from isoproj.files.formats import format_of_content
    >>> format_of_content(b"1,2,3", 5).value
    'csv'
    """
    for magic, known in _MAGIC:
        if head.startswith(magic):
            return known
    length = int.from_bytes(head[:8], "little")
    if len(head) > 8 and head[8:9] == b"{" and length <= size - 8:
        return Format.SAFETENSORS
    return Format.CSV if _is_text(head) else None


def refuse_pickle(name: str, head: bytes) -> None:
    """Raise if a file is a pickle: loading one would run whatever code it holds.

    Raises
    ------
    FormatError
        If the name or the first bytes are those of a pickle.

    Examples
    --------
    >>> from isoproj.files.formats import refuse_pickle
    >>> refuse_pickle("data.npy", b"1,2,3")
    """
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
    """Return the format on which name and content agree.

    Parameters
    ----------
    name : str
        File name, or ``"-"`` for standard input, which promises nothing.
    head : bytes
        The first bytes, decompressed.
    size : int
        Bytes in all.

    Returns
    -------
    Format
        What to read it as.

    Raises
    ------
    FormatError
        If they contradict each other, or neither says anything.

    Examples
    --------
    >>> from isoproj.files.formats import decide
    >>> decide("points.csv", b"1,2", 3).value
    'csv'
    >>> decide("points.npy", b"1,2", 3)
    Traceback (most recent call last):
        ...
    isoproj.exceptions.FormatError: points.npy is named like NumPy .npy, but its \
content is text. Rename it to what it is, or make it again.
    """
    if size == 0:
        msg = f"{name} must hold points; it is empty (0 bytes). Choose another file."
        raise FormatError(msg)
    refuse_pickle(name, head)
    promised, found = format_of_name(name), format_of_content(head, size)
    if promised is None:
        return _by_content_alone(name, found)
    if promised.is_vecs:
        agrees = found is None or found is Format.SAFETENSORS
    elif promised.is_text:
        agrees = found is Format.CSV
    else:
        agrees = found is promised
    if agrees:
        return promised
    msg = (
        f"{name} is named like {promised.title}, but its content is {_shown(found)}. "
        "Rename it to what it is, or make it again."
    )
    raise FormatError(msg)


def _by_content_alone(name: str, found: Format | None) -> Format:
    if found is not None:
        return found
    msg = (
        f"{name} must be in a format that isoproj reads; neither its name nor its "
        f"content shows one. Use one of {', '.join(sorted(EXTENSIONS))}."
    )
    raise FormatError(msg)


def _shown(found: Format | None) -> str:
    if found is None:
        return "something else"
    return "text" if found.is_text else found.title


def _is_text(head: bytes) -> bool:
    if b"\x00" in head:
        return False
    # The last character may have been cut in two.
    for cut in range(min(4, len(head))):
        try:
            head[: len(head) - cut].decode("utf-8")
        except UnicodeDecodeError:
            if len(head) < HEAD_SIZE:
                return _is_latin_text(head)
        else:
            return True
    return _is_latin_text(head)


def _is_latin_text(head: bytes) -> bool:
    """Whether bytes are text in an old encoding: letters, no control characters."""
    controls = sum(byte < 32 and byte not in b"\t\n\r" for byte in head)
    return controls == 0
