"""Write projected points into a copy of an AnnData file (.h5ad)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from isoproj.exceptions import FormatError
from isoproj.files.read.hdf5 import is_anndata
from isoproj.files.write.writing import Blocks
from isoproj.numerics.container import open_atomically
from isoproj.numerics.extras import needed
from isoproj.proof.certificate import Certificate


def write_anndata(
    path: str | os.PathLike[str],
    source: str | os.PathLike[str],
    blocks: Blocks,
    certificate: Certificate,
    *,
    chosen: str,
) -> None:
    """Copy ``source`` and add ``obsm["X_isoproj"]``, ``varm`` and ``uns["isoproj"]``.

    ``chosen`` is the matrix that was projected. If its columns are the variables, the
    components become ``varm["isoproj"]``, with one row a variable.
    """
    h5py = needed("h5py", extra="io", purpose="AnnData")
    with open_atomically(path) as target:
        with Path(source).open("rb") as original:
            shutil.copyfileobj(original, target)
        target.seek(0)
        with h5py.File(target, "r+") as file:
            if not is_anndata(file):
                msg = f"{source} must be an AnnData file; it is not. Write .npy."
                raise FormatError(msg)
            reduced = _place(file, "obsm", "X_isoproj", blocks.shape, blocks.dtype)
            start = 0
            for part in blocks.parts:
                reduced[start : start + part.shape[0]] = part
                start += part.shape[0]
            if chosen == "X" or chosen.startswith("layers/"):
                loadings = certificate.components.T
                stored = _place(file, "varm", "isoproj", loadings.shape, loadings.dtype)
                stored[...] = loadings
            _state(file, certificate)


def _group(parent: Any, name: str) -> Any:  # noqa: ANN401 - h5py has no types
    """Return a group of AnnData, made if it is missing."""
    group = parent.require_group(name)
    group.attrs["encoding-type"] = "dict"
    group.attrs["encoding-version"] = "0.1.0"
    return group


def _place(
    file: Any,  # noqa: ANN401
    place: str,
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
) -> Any:  # noqa: ANN401
    """Return a new data set of AnnData in place of one of the same name."""
    group = _group(file, place)
    if name in group:
        del group[name]
    return _encoded(group.create_dataset(name, shape=shape, dtype=dtype), "array")


def _encoded(item: Any, kind: str) -> Any:  # noqa: ANN401
    """Return a data set after marking its kind as anndata does."""
    item.attrs["encoding-type"] = kind
    item.attrs["encoding-version"] = "0.2.0"
    return item


def _state(file: Any, certificate: Certificate) -> None:  # noqa: ANN401
    """Store the two bounds in ``uns["isoproj"]``."""
    uns = _group(file, "uns")
    if "isoproj" in uns:
        del uns["isoproj"]
    stated = _group(uns, "isoproj")
    for name in ("distortion", "lower_bound"):
        value = float(getattr(certificate, name))
        _encoded(stated.create_dataset(name, data=value), "numeric-scalar")
