"""One safetensors file with a JSON header: no pickle, written whole or not at all.

Tensors hold the numbers; the file's metadata hold one JSON text under the key
``isoproj``. A SHA-256 over both makes accidental changes visible. (Deliberate ones are
for ``verify``, which recomputes every claim from the data.)
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

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
    "read_container",
    "versions",
    "write_atomically",
    "write_container",
]

FORMAT_VERSION = 1
_KEY = "isoproj"

Header = Mapping[str, Any]
Tensors = Mapping[str, NDArray[Any]]


def write_atomically(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file whole or not at all.

    Parameters
    ----------
    path : path-like
        Where to.
    content : bytes
        What.

    Raises
    ------
    OSError
        If it cannot be written; a file already there is left as it was.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> from isoproj.numerics.container import write_atomically
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = pathlib.Path(folder) / "a"
    ...     write_atomically(path, b"whole")
    ...     path.read_bytes()
    b'whole'
    """
    target = Path(path)
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes private files; give the mode an ordinary open() would.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(name, 0o666 & ~mask)  # noqa: PTH101 - a name, not a Path
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def versions() -> dict[str, str]:
    """Return the versions that a result was made with.

    Examples
    --------
    >>> from isoproj.numerics.container import versions
    >>> sorted(versions())
    ['isoproj', 'numpy', 'python', 'scikit-learn', 'scipy']
    """
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
    """Write a header and named arrays to one file.

    Parameters
    ----------
    path : path-like
        Where to; by convention ``*.isoproj``.
    header : dict
        Anything JSON can say; format, versions and digest are added here.
    tensors : dict of ndarray
        Integer and float arrays.

    Raises
    ------
    OSError
        If it cannot be written; nothing is left half-written.
    """
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
    """Read a file that ``write_container`` wrote, and check that it is whole.

    Parameters
    ----------
    path : path-like
        Where from.

    Returns
    -------
    header : dict
        As written, with format, versions and digest.
    tensors : dict of ndarray
        As written.

    Raises
    ------
    FormatError
        If it is not such a file, or was changed after it was written.
    OSError
        If it cannot be read.
    """
    with Path(path).open("rb"):
        pass  # A missing file is an OSError; safetensors would say it less clearly.
    try:
        with safetensors.safe_open(os.fspath(path), framework="numpy") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, ValueError, TypeError, OverflowError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        msg = (
            f"{path} must be an isoproj model file (safetensors); reading it says: "
            f"{reason}. Write one with save()."
        )
        raise FormatError(msg) from None
    return _checked_header(path, metadata, tensors), tensors


def _portable(tensor: NDArray[Any]) -> NDArray[Any]:
    kind = "<i8" if tensor.dtype.kind == "i" else tensor.dtype.newbyteorder("<")
    return np.ascontiguousarray(tensor, dtype=kind)


def _digest(header: Header, tensors: Tensors) -> str:
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
    try:
        header = dict(json.loads(metadata[_KEY]))
        version, digest = header["format_version"], header["digest"]
    except (KeyError, TypeError, ValueError):
        msg = f"{path} must be an isoproj model file; its header is not one."
        raise FormatError(msg) from None
    if version != FORMAT_VERSION:
        msg = (
            f"{path} must have format version {FORMAT_VERSION}; it has {version}. "
            "Read it with the isoproj that wrote it."
        )
        raise FormatError(msg)
    if digest != _digest(header, tensors):
        msg = f"{path} was changed after it was written (digest differs). Fit again."
        raise FormatError(msg)
    return header
