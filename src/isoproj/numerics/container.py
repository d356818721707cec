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
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import safetensors
import safetensors.numpy
import scipy
import sklearn
from numpy.typing import NDArray

from isoproj._version import __version__
from isoproj.exceptions import FormatError

__all__ = [
    "FORMAT_VERSION",
    "Header",
    "Tensors",
    "open_atomically",
    "read_container",
    "versions",
    "write_atomically",
    "write_container",
]

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

    After an error a file that existed before is unchanged.
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        # mkstemp creates private files; set the mode that open() would have set.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # noqa: PTH101 - a name, not a Path
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


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
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (OSError, MemoryError):
        raise
    except Exception as error:
        # Tensor types that numpy lacks raise errors of many kinds.
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        msg = (
            f"{path} must be an isoproj model file (safetensors); reading it fails: "
            f"{reason}. Write one with save()."
        )
        raise FormatError(msg) from None
    return _checked_header(path, metadata, tensors), tensors


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
    """Raise ValueError or TypeError unless names and versions look like such."""
    estimator, versions = header.get("estimator"), header.get("versions", {})
    if header.get("format", "isoproj") != "isoproj":
        raise ValueError
    if type(header["format_version"]) is not int:
        raise TypeError
    if estimator is not None and not (estimator.isascii() and estimator.isidentifier()):
        raise ValueError
    for library, version in versions.items():
        if not (_LIBRARY.fullmatch(library) and _VERSION.fullmatch(version)):
            raise ValueError
    for name, value in (header.get("parameters") or {}).items():
        if not (name.isascii() and name.isidentifier()):
            raise ValueError
        entries = value if isinstance(value, list) else [value]
        kinds = (
            bool | int | float if isinstance(value, list) else bool | int | float | str
        )
        if not (value is None or all(isinstance(entry, kinds) for entry in entries)):
            raise TypeError
        # The checkpoint is a path; older files hold it, and it is never used.
        if isinstance(value, str) and not (
            _WORD.fullmatch(value) or (name == "checkpoint" and value.isprintable())
        ):
            raise ValueError
