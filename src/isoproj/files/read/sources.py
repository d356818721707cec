"""Where points come from: a file, a part of a file, or standard input."""

from __future__ import annotations

import difflib
import gzip
import io
import sys
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from isoproj.exceptions import FormatError, IsoprojError
from isoproj.files.formats import HEAD_SIZE, Format, decide, is_gzip

__all__ = [
    "Content",
    "Selection",
    "Source",
    "choose_array",
    "choose_columns",
    "locate",
    "reading",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which part of a file is meant.

    Parameters
    ----------
    array : str or None
        Name of an array (.npz, safetensors), path of a data set (HDF5).
    columns : str or None
        Names, numbers or ranges, as in ``"age,height"`` or ``"0,2:5"``.
    header : {"auto", "yes", "no"}
        Whether the first line of a text names its columns.
    """

    array: str | None = None
    columns: str | None = None
    header: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """One array, data set or column inside a file.

    Parameters
    ----------
    name : str
        As the file has it; empty where it has none.
    shape : tuple of int
        Its shape.
    dtype : str
        Its type.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def is_matrix(self) -> bool:
        """Whether it can be rows of points."""
        return len(self.shape) == 2 and self.dtype.lower().lstrip("<>|=").startswith(
            ("f", "i", "u", "b", "sparse")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """A file, decompressed where need be, whose format is known.

    Parameters
    ----------
    name : str
        As the user gave it.
    format : Format
        On which name and content agree.
    size : int
        Bytes, decompressed.
    path : Path or None
        None when there is no plain file to map.
    content : bytes or None
        The bytes when they are in memory.
    array : str or None
        The part that the name asked for, as in ``file.npz:name``.
    """

    name: str
    format: Format
    size: int
    path: Path | None
    content: bytes | None
    array: str | None = None

    def open(self) -> IO[bytes]:
        """Return a fresh stream of the bytes."""
        if self.path is not None:
            return self.path.open("rb")
        return io.BytesIO(self.content or b"")

    def plain_path(self) -> str:
        """Return the path for libraries that want one.

        Raises
        ------
        FormatError
            If the bytes came through gzip or a pipe.
        """
        if self.path is not None:
            return str(self.path)
        msg = (
            f"{self.name} must be a plain file to be read as {self.format.title}. "
            "Decompress it, or save it to a file first."
        )
        raise FormatError(msg)


def locate(name: str) -> Source:
    """Find a file, look inside, and settle its format.

    Parameters
    ----------
    name : str
        A path, ``path:array``, or ``"-"`` for standard input.

    Returns
    -------
    Source
        Ready to be read.

    Raises
    ------
    FormatError
        If name and content contradict each other, or the file is empty or a pickle.
    OSError
        If it is missing, a directory, or unreadable.

    Examples
    --------
    >>> from isoproj.files.read.sources import locate
    >>> locate("no_such_file.npy")
    Traceback (most recent call last):
        ...
    FileNotFoundError: no_such_file.npy does not exist. Check the name.
    """
    if name == "-":
        return _from_bytes(name, "-", sys.stdin.buffer.read())
    path, array = _split(name)
    if path.is_dir():
        msg = f"{path} must be a file; it is a directory. Name a file in it."
        raise IsADirectoryError(msg)
    if not path.exists():
        raise FileNotFoundError(_missing(path))
    if path.is_fifo():
        # As the shell's <(command) gives: it can be read only once.
        return _from_bytes(str(path), "-", path.read_bytes(), array)
    if not path.is_file():
        msg = f"{path} must be a file; it is a device. Name a file, or - for a pipe."
        raise OSError(msg)
    with path.open("rb") as file:
        head = file.read(HEAD_SIZE)
    named_gzip = path.suffix.lower() == ".gz"
    if head and named_gzip != is_gzip(head):
        what = "is not gzip" if named_gzip else "is gzip"
        msg = (
            f"{path} {'is' if named_gzip else 'is not'} named .gz, but its content "
            f"{what}. Rename it to what it is."
        )
        raise FormatError(msg)
    if named_gzip:
        content = _decompressed(str(path), path.read_bytes())
        return _from_bytes(str(path), path.name, content, array)
    size = path.stat().st_size
    return Source(
        name=str(path),
        format=decide(str(path), head, size),
        size=size,
        path=path,
        content=None,
        array=array,
    )


def _split(name: str) -> tuple[Path, str | None]:
    """Return the path and the part after a colon; a path that exists stays whole."""
    at = len(name)
    while at > 0:
        path = Path(name[:at])
        if path.exists():
            return path, name[at + 1 :] or None
        at = name.rfind(":", 0, at)
    return Path(name), None


def _from_bytes(
    name: str, file_name: str, content: bytes, array: str | None = None
) -> Source:
    shown = "standard input" if name == "-" else name
    if file_name == "-" and is_gzip(content[:2]):
        content = _decompressed(shown, content)
    head = content[:HEAD_SIZE]
    format_ = decide(shown, head, len(content))
    if not format_.may_be_gzipped:
        msg = (
            f"{shown} must be .npy, text or .fvecs when it comes through gzip or a "
            f"pipe; it is {format_.title}. Read it from a plain file."
        )
        raise FormatError(msg)
    return Source(
        name=shown,
        format=format_,
        size=len(content),
        path=None,
        content=content,
        array=array,
    )


def _decompressed(name: str, content: bytes) -> bytes:
    try:
        return gzip.decompress(content)
    except (EOFError, OSError, zlib.error) as error:
        msg = (
            f"{name} must be a whole gzip file; decompressing says: {error}. "
            "Fetch or make it again."
        )
        raise FormatError(msg) from None


def _missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"{path} does not exist: there is no folder {folder}. Check the name."
    near = difflib.get_close_matches(
        path.name, [p.name for p in folder.iterdir()], 1, 0.8
    )
    hint = f"Did you mean {folder / near[0]}?" if near else "Check the name."
    return f"{path} does not exist. {hint}"


@contextmanager
def reading(source: Source) -> Iterator[None]:
    """Turn whatever a parser raises over a damaged file into one clear error.

    Parameters
    ----------
    source : Source
        The file that is read inside the context.

    Raises
    ------
    FormatError
        In place of the parsers' own exceptions, of which there is no list.
    """
    try:
        yield
    except (IsoprojError, MemoryError):
        raise
    except Exception as error:
        # Libraries raise OSError without a number for files they cannot parse.
        if isinstance(error, OSError) and error.errno and error.strerror:
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        msg = (
            f"{source.name} must be a whole {source.format.title} file; reading it "
            f"says: {reason.rstrip('.')}. Fetch or make it again."
        )
        raise FormatError(msg) from None


def choose_array(
    source: Source, contents: Sequence[Content], selection: Selection
) -> Content:
    """Return the one array that is meant.

    Parameters
    ----------
    source : Source
        The file.
    contents : sequence of Content
        What it holds.
    selection : Selection
        What the user asked for.

    Returns
    -------
    Content
        The array asked for, the only matrix, or ``train`` of a benchmark file.

    Raises
    ------
    FormatError
        If there is none or more than one to choose from.
    """
    names = ", ".join(_shown(c) for c in contents) or "nothing"
    wanted = selection.array or source.array
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


def _shown(content: Content) -> str:
    return f"{content.name or 'an array'} {'x'.join(map(str, content.shape))}"


def choose_columns(
    source: str, spec: str, names: Sequence[str] | None, n_columns: int
) -> list[int]:
    """Return the columns that a specification names.

    Parameters
    ----------
    source : str
        Name of the file, for errors.
    spec : str
        Names, numbers counted from 0, and ranges without their end: ``"id,2:5"``.
    names : sequence of str or None
        The file's own names.
    n_columns : int
        How many there are.

    Returns
    -------
    list of int
        In the order asked for.

    Raises
    ------
    FormatError
        If a column is not there, or one is named twice.

    Examples
    --------
    >>> from isoproj.files.read.sources import choose_columns
    >>> choose_columns("a.csv", "b,2:4", ["a", "b", "c", "d"], 4)
    [1, 2, 3]
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
    if names is not None and word in names:
        return [list(names).index(word)]
    start, colon, stop = word.partition(":")
    if all(part == "" or part.isdecimal() for part in (start, stop)) and word:
        low = int(start or 0)
        high = (int(stop) if stop else n_columns) if colon else low + 1
        if low < high <= n_columns:
            return list(range(low, high))
    have = _listing(names) if names else f"columns 0 to {n_columns - 1}"
    near = difflib.get_close_matches(word, names or [], n=1)
    hint = f"Did you mean {near[0]!r}?" if near else "Choose from these."
    msg = f"{source} must have the column {word!r}; it has {have}. {hint}"
    raise FormatError(msg)


def _listing(names: Sequence[str]) -> str:
    shown = ", ".join(names[:8])
    return shown if len(names) <= 8 else f"{shown}, ... ({len(names)} in all)"
