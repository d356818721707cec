"""Open the file, the part of a file, or the pipe that a user names."""

from __future__ import annotations

import difflib
import gzip
import io
import sys
import zlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import scipy.sparse

from isoproj.exceptions import FormatError
from isoproj.files.formats import HEAD_SIZE, Format, decide, is_gzip
from isoproj.numerics.arrays import Rows
from isoproj.numerics.container import whole_file
from isoproj.numerics.storage import MEMORY_LIMIT, SLICE_BYTES

# Files that unpack to so many bytes are read whatever the limit.
_SMALL = 2**26


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The part of a file that the user chose.

    ``array`` is the name of an array (.npz, safetensors) or the path of a data set
    (HDF5). ``columns`` are names, numbers or ranges, as in ``"age,height"`` or
    ``"0,2:5"``. ``header`` is "auto", "yes" or "no": whether the first line of a text
    names the columns.
    """

    array: str | None = None
    columns: str | None = None
    header: str = "auto"


@dataclass(frozen=True, slots=True)
class Content:
    """Name, shape and type of one array, data set or column in a file."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    def __str__(self) -> str:
        return f"{self.name or 'an array'} {'x'.join(map(str, self.shape))}"

    @property
    def is_matrix(self) -> bool:
        """Whether it is a matrix of real numbers."""
        return len(self.shape) == 2 and self.dtype.lower().lstrip("<>|=").startswith(
            ("f", "i", "u", "b", "sparse")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file whose format is known, decompressed if it was gzip.

    ``name`` is as the user gave it. ``path`` is None if the bytes are in ``content``.
    ``array`` is the part that the name asks for, as in ``file.npz:name``.
    """

    name: str
    format: Format
    size: int
    path: Path | None
    content: bytes | None
    array: str | None = None

    def open(self) -> IO[bytes]:
        """Return a new stream of the bytes."""
        if self.path is not None:
            return self.path.open("rb")
        return io.BytesIO(self.content or b"")

    def plain_path(self) -> str:
        """Return the path of a plain file; raise FormatError for gzip or a pipe."""
        if self.path is not None:
            return str(self.path)
        msg = (
            f"{self.name} must be a plain file to be read as {self.format.title}. "
            "Decompress it, or save it to a file first."
        )
        raise FormatError(msg)


def locate(name: str, limit: float = MEMORY_LIMIT) -> Source:
    """Return the source that a name means: a path, ``path:array``, or "-" for stdin.

    Raise OSError if the file is missing or unreadable, and FormatError if its name and
    content disagree, if it is empty or a pickle, or if it unpacks to more bytes than
    the limit.
    """
    if name == "-":
        return _from_bytes("standard input", None, sys.stdin.buffer.read(), limit)
    path, array = split_name(name)
    if path.is_dir():
        msg = f"{path} must be a file; it is a directory. Name a file in it."
        raise IsADirectoryError(msg)
    if not path.exists():
        raise FileNotFoundError(_missing(path))
    if path.is_fifo():
        # A pipe such as the shell's <(command) can be read only once.
        return _from_bytes(str(path), array, path.read_bytes(), limit)
    if not path.is_file():
        msg = f"{path} must be a file; it is a device. Name a file, or - for a pipe."
        raise OSError(msg)
    with path.open("rb") as file:
        head = file.read(HEAD_SIZE)
    named_gzip = path.suffix.lower() == ".gz"
    if head and named_gzip != is_gzip(head):
        named, found = ("is", "is not") if named_gzip else ("is not", "is")
        msg = f"{path} {named} named .gz, but its content {found} gzip. Rename it."
        raise FormatError(msg)
    if named_gzip:
        return _from_bytes(str(path), array, path.read_bytes(), limit)
    size = path.stat().st_size
    return Source(
        name=str(path),
        format=decide(str(path), head, size),
        size=size,
        path=path,
        content=None,
        array=array,
    )


def split_name(name: str) -> tuple[Path, str | None]:
    """Return path and array of ``path:array``; a path that exists is not split."""
    at = len(name)
    while at > 0:
        path = Path(name[:at])
        if path.exists():
            return path, name[at + 1 :] or None
        at = name.rfind(":", 0, at)
    return Path(name), None


def _from_bytes(name: str, array: str | None, content: bytes, limit: float) -> Source:
    """Return a source whose bytes are in memory, decompressed if they were gzip."""
    if is_gzip(content):
        content = _decompressed(name, content, limit)
    format_ = decide(name, content[:HEAD_SIZE], len(content))
    if not format_.may_be_gzipped:
        msg = (
            f"{name} must be .npy, text or .fvecs to be read through gzip or a pipe; "
            f"it is {format_.title}. Save it to a plain file."
        )
        raise FormatError(msg)
    return Source(
        name=name,
        format=format_,
        size=len(content),
        path=None,
        content=content,
        array=array,
    )


def _decompressed(name: str, content: bytes, limit: float) -> bytes:
    """Return the bytes inside a gzip file, at most ``limit``, or raise FormatError."""
    parts: list[bytes] = []
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(content)) as packed:
            while part := packed.read(SLICE_BYTES):
                parts.append(part)
                check_unpacked(name, sum(map(len, parts)), limit)
        return b"".join(parts)
    except (EOFError, OSError, zlib.error) as error:
        msg = (
            f"{name} must be a whole gzip file; decompressing it fails: {error}. "
            "Fetch or make it again."
        )
        raise FormatError(msg) from None


def check_unpacked(name: str, n_bytes: float, limit: float) -> None:
    """Raise FormatError if a compressed or sparse file needs more memory than allowed.

    A file of a few kilobytes can unpack to gigabytes.
    """
    if n_bytes > max(limit, _SMALL):
        msg = (
            f"{name} must unpack to at most {limit / 1e9:.3g} GB; it needs "
            f"{n_bytes / 1e9:.3g} GB or more. Raise --memory-limit, or unpack it first."
        )
        raise FormatError(msg)


def _missing(path: Path) -> str:
    """Return the message for a missing file, with a similar name if there is one."""
    folder = path.parent
    if not folder.is_dir():
        return f"{path} does not exist: there is no folder {folder}. Check the name."
    near = difflib.get_close_matches(
        path.name, [p.name for p in folder.iterdir()], 1, 0.8
    )
    hint = f"Did you mean {folder / near[0]}?" if near else "Check the name."
    return f"{path} does not exist. {hint}"


def parsing(source: Source) -> AbstractContextManager[None]:
    """Turn any exception of a parser over a damaged source into a FormatError."""
    return whole_file(source.name, source.format.title)


def sparse_matrix(kind: str, parts: Sequence[Any], shape: Sequence[int]) -> Rows:
    """Return a sparse matrix of scipy from its arrays; check every index."""
    values, *indices = parts
    if len(shape) != 2 or any(part.dtype.kind not in "iu" for part in indices):
        msg = "its sparse indices are not whole numbers of two axes"
        raise ValueError(msg)
    make = getattr(scipy.sparse, f"{kind}_array")
    given = (values, tuple(indices)) if kind == "coo" else tuple(parts)
    matrix: Rows = make(given, shape=tuple(int(n) for n in shape))
    if hasattr(matrix, "check_format"):
        # An index outside the matrix would read memory of other objects.
        matrix.check_format(full_check=True)
    return matrix


def choose_array(
    source: Source, contents: Sequence[Content], selection: Selection
) -> Content:
    """Return the chosen array, else the only matrix or ``train``, else FormatError."""
    names = ", ".join(map(str, contents)) or "nothing"
    wanted = selection.array
    if wanted is not None:
        for content in contents:
            if content.name.strip("/") == wanted.strip("/"):
                return content
        msg = f"{source.name} must hold {wanted!r}; it holds {names}. Choose another."
        raise FormatError(msg)
    matrices = [c for c in contents if c.is_matrix]
    train = [c for c in matrices if c.name.strip("/") == "train"]
    if len(matrices) == 1:
        return matrices[0]
    if len(train) == 1:
        return train[0]
    example = next((c.name for c in matrices), "NAME").strip("/")
    msg = (
        f"{source.name} must hold one matrix, or the one to use must be named; it "
        f"holds {names}. Write {source.name}:{example} or --array {example}."
        if matrices
        else f"{source.name} must hold a matrix of numbers with one point a row; it "
        f"holds {names}. Save the points as a matrix."
    )
    raise FormatError(msg)


def choose_columns(
    source: str, spec: str, names: Sequence[str] | None, n_columns: int
) -> list[int]:
    """Return the numbers of the columns that the user chose, in that order.

    ``source`` is the name of the file for error messages.
    """
    chosen: list[int] = []
    for word in (w.strip() for w in spec.split(",")):
        chosen.extend(_columns_of(source, word, names, n_columns))
    if len(set(chosen)) != len(chosen):
        msg = f"columns must be named once each; got {spec!r}. Name each column once."
        raise FormatError(msg)
    return chosen


def _columns_of(
    source: str, word: str, names: Sequence[str] | None, n_columns: int
) -> list[int]:
    """Return the columns of one word: a name, a number or a range."""
    if names is not None and word in names:
        return [list(names).index(word)]
    start, colon, stop = word.partition(":")
    if all(part == "" or part.isdecimal() for part in (start, stop)) and word:
        low = int(start or 0)
        high = (int(stop) if stop else n_columns) if colon else low + 1
        if low < high <= n_columns:
            return list(range(low, high))
    have = ", ".join(names[:8]) if names else f"columns 0 to {n_columns - 1}"
    have += f", ... ({n_columns} in all)" if names and len(names) > 8 else ""
    near = difflib.get_close_matches(word, names or [], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "Choose from these."
    msg = f"{source} must have the column {word!r}; it has {have}. {hint}"
    raise FormatError(msg)
