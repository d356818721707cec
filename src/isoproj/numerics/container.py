"""The file format of models: safetensors with a JSON header, written atomically.

The tensors hold the arrays. The metadata hold one JSON text under the key ``isoproj``.
A SHA-256 digest of both reveals accidental changes; ``verify`` reveals deliberate ones,
because it recomputes every claim from the data.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy
import scipy
import sklearn
from numpy.typing import NDArray

from isoproj._version import __version__
from isoproj.exceptions import FormatError, IsoprojError

FORMAT_VERSION = 1
_KEY = "isoproj"

# Names and versions of libraries, as a file may state them.
_LIBRARY = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+_-]{0,63}")
# A word as the parameters of estimators take them, such as "dual_ascent".
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")

Header = Mapping[str, Any]
Tensors = Mapping[str, NDArray[Any]]


@contextmanager
def open_atomically(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """Open a file for writing that replaces ``path`` only when it is complete.

    After an error a file that existed before is unchanged. A symbolic link stays: its
    target is written. A device, pipe or folder is refused with an OSError.
    """
    target = ordinary_file(path)
    handle, name = _nameless(target) or _beside(target)
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
            if name is None:
                name = _named(file, target)
        if name is not None:
            if target.exists():
                os.chmod(name, _mode(target))  # noqa: PTH101 - a name, not a Path
            os.replace(name, target)  # noqa: PTH105
    except BaseException:
        if name is not None:
            Path(name).unlink(missing_ok=True)
        raise


def ordinary_file(path: str | os.PathLike[str]) -> Path:
    """Return the file that a path leads to; raise OSError if it is something else.

    Writing would replace a device or a pipe by a file.
    """
    target = Path(os.path.realpath(path))
    if target.is_dir():
        msg = f"{path} must be a file; it is a directory. Name a file in it."
        raise IsADirectoryError(msg)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        msg = f"{path} must be an ordinary file; it is a device or pipe. Name another."
        raise OSError(msg)
    return target


def check_writable(path: str | os.PathLike[str]) -> None:
    """Raise OSError unless a file of this name can be written beside the others."""
    target = Path(os.path.realpath(path))
    # An ordinary question shows names that are too long for the system.
    with suppress(FileNotFoundError):
        os.lstat(target)
    handle, name = _beside(target)
    os.close(handle)
    Path(name).unlink()


def _beside(target: Path) -> tuple[int, str]:
    """Create a file in the folder of another, with a name that is never too long.

    The system gives it the mode of a new file, and keeps it from others where the file
    that it will replace is kept from them.
    """
    name = str(target.parent / f".isoproj.{secrets.token_hex(8)}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    try:
        return os.open(name, flags | getattr(os, "O_NOFOLLOW", 0), _mode(target)), name
    except OSError as error:
        # The user knows the name of the target, not the temporary one.
        raise OSError(error.errno, error.strerror, str(target)) from None


def _nameless(target: Path) -> tuple[int, None] | None:
    """Open a file without a name on the disk of another, or return None.

    A process that is killed leaves no such file behind. Only Linux has them.
    """
    kind = getattr(os, "O_TMPFILE", None)
    if kind is None or not Path("/proc/self/fd").is_dir():
        return None
    try:
        return os.open(target.parent, kind | os.O_RDWR, _mode(target)), None
    except OSError:
        return None


def _named(file: IO[bytes], target: Path) -> str | None:
    """Give a nameless file the name of the target, or a temporary one if it is taken.

    Return the temporary name, or None.
    """
    descriptor = file.fileno()
    for name in (target, target.parent / f".isoproj.{secrets.token_hex(8)}"):
        with suppress(OSError):
            # A descriptor of a folder makes Python follow the link to the file.
            os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
            return None if name == target else str(name)
    handle, copy = _beside(target)
    file.seek(0)
    with os.fdopen(handle, "wb") as named:
        shutil.copyfileobj(file, named)
        named.flush()
        os.fsync(named.fileno())
    return copy


def _mode(target: Path) -> int:
    """Return the mode of a file, or the one to ask for a new one, as open() does."""
    with suppress(OSError):
        return stat.S_IMODE(target.stat().st_mode)
    return 0o666


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write the content to a file, either completely or not at all."""
    with open_atomically(path) as file:
        file.write(content)


def versions() -> dict[str, str]:
    """Return the versions of isoproj, Python and the numerical libraries."""
    return {
        "isoproj": __version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
    }


def write_container(
    path: str | os.PathLike[str], header: Header, tensors: Tensors
) -> None:
    """Write a JSON-able header and named arrays; add format, versions and digest."""
    stored = {name: _portable(tensor) for name, tensor in tensors.items()}
    whole = {
        **header,
        "format": "isoproj",
        "format_version": FORMAT_VERSION,
        "versions": versions(),
    }
    whole["digest"] = _digest(whole, stored)
    text = json.dumps(whole, sort_keys=True)
    write_atomically(path, safetensors.numpy.save(stored, metadata={_KEY: text}))


def read_container(
    path: str | os.PathLike[str],
) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and arrays of a file; raise FormatError if either was changed."""
    with Path(path).open("rb"):
        pass  # Raises a clear OSError if the file is missing.
    with (
        whole_file(path, "isoproj model (safetensors)"),
        safetensors.safe_open(os.fspath(path), framework="numpy") as file,
    ):
        metadata = file.metadata() or {}
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return _checked_header(path, metadata, tensors), tensors


@contextmanager
def whole_file(name: str | os.PathLike[str], title: str) -> Iterator[None]:
    """Turn any exception of a parser over a damaged file into a FormatError."""
    try:
        yield
    except (IsoprojError, MemoryError):
        raise
    except Exception as error:
        # For files they cannot parse, libraries raise OSError without a number.
        if isinstance(error, OSError) and error.errno and error.strerror:
            raise
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        msg = (
            f"{name} must be a whole {title} file; reading it fails: "
            f"{reason.rstrip('.')}. Fetch or make it again."
        )
        raise FormatError(msg) from None


def _portable(tensor: NDArray[Any]) -> NDArray[Any]:
    """Return a contiguous little-endian copy; integers become 64-bit."""
    kind = "<i8" if tensor.dtype.kind == "i" else tensor.dtype.newbyteorder("<")
    return np.ascontiguousarray(tensor, dtype=kind)


def _digest(header: Header, tensors: Tensors) -> str:
    """Return the SHA-256 of the header without its digest, and of all tensors."""
    bare = {name: value for name, value in header.items() if name != "digest"}
    digest = hashlib.sha256(json.dumps(bare, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype.str} {tensor.shape}\n".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def _checked_header(
    path: str | os.PathLike[str], metadata: Mapping[str, str], tensors: Tensors
) -> dict[str, Any]:
    """Return the header, or raise FormatError if version or digest do not fit."""
    try:
        header = dict(json.loads(metadata[_KEY], object_pairs_hook=_without_repeats))
        version, digest = header["format_version"], header["digest"]
        _check_strings(header)
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        msg = (
            f"{path} must be an isoproj model file; its header is missing or damaged. "
            "Write one with save()."
        )
        raise FormatError(msg) from None
    if version != FORMAT_VERSION:
        msg = (
            f"{path} must have format version {FORMAT_VERSION}; it has {version}. "
            "Read it with the isoproj that wrote it."
        )
        raise FormatError(msg)
    if digest != _digest(header, tensors):
        msg = (
            f"{path} was changed after it was written; its digest differs. "
            "Fit and save again."
        )
        raise FormatError(msg)
    return header


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a dict, or raise ValueError if a key comes twice."""
    # Of two values another reader may take the other one.
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError
    return entries


def _check_strings(header: Header) -> None:
    """Raise ValueError unless names, versions and parameters look like such."""
    estimator, parameters = header.get("estimator"), header.get("parameters") or {}
    names = [*parameters, *([] if estimator is None else [estimator])]
    # A model without the name of its estimator would pass for a bare certificate.
    is_named = estimator is not None or not {"parameters", "fitted"} & header.keys()
    if not (
        header.get("format", "isoproj") == "isoproj"
        and type(header["format_version"]) is int
        and is_named
        and all(name.isascii() and name.isidentifier() for name in names)
        and all(_is_parameter(*entry) for entry in parameters.items())
        and all(
            _LIBRARY.fullmatch(library) and _VERSION.fullmatch(version)
            for library, version in header.get("versions", {}).items()
        )
    ):
        raise ValueError


def _is_parameter(name: str, value: object) -> bool:
    """Return whether a value is one that the constructor of an estimator takes."""
    if isinstance(value, list):
        return all(isinstance(entry, bool | int | float) for entry in value)
    if isinstance(value, str):
        # The checkpoint is a path; older files hold it, and it is never used.
        is_path = name == "checkpoint" and value.isprintable()
        return is_path or bool(_WORD.fullmatch(value))
    return isinstance(value, bool | int | float | None)
