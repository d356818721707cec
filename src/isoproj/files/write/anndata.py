"""Write projected points into a copy of an AnnData file (.h5ad)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

from isoproj.exceptions import FormatError
from isoproj.files.read.hdf5 import is_anndata
from isoproj.files.write.writing import Blocks
from isoproj.numerics.container import open_atomically
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Foreign
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
            shape, dtype = blocks.shape, blocks.dtype
            place = _group(file, "obsm")
            blocks.fill(_put(place, "X_isoproj", "array", shape=shape, dtype=dtype))
            if chosen == "X" or chosen.startswith("layers/"):
                loadings = certificate.components.T
                _put(_group(file, "varm"), "isoproj", "array", data=loadings)
            uns = _group(file, "uns")
            uns.pop("isoproj", None)
            stated = _group(uns, "isoproj")
            for name in ("distortion", "lower_bound"):
                value = float(getattr(certificate, name))
                _put(stated, name, "numeric-scalar", data=value)


def _group(parent: Foreign, name: str) -> Foreign:
    """Return a group of AnnData, made if it is missing."""
    return _encoded(parent.require_group(name), "dict", "0.1.0")


def _put(group: Any, name: str, kind: str, **options: Any) -> Any:  # noqa: ANN401
    """Return a new data set of AnnData in place of one of the same name."""
    group.pop(name, None)
    return _encoded(group.create_dataset(name, **options), kind)


def _encoded(item: Foreign, kind: str, version: str = "0.2.0") -> Foreign:
    """Return a member after marking its kind as anndata does."""
    item.attrs["encoding-type"] = kind
    item.attrs["encoding-version"] = version
    return item
