"""Read HDF5 files, AnnData's (.h5ad) among them; the package anndata is not needed."""

from __future__ import annotations

import re

from isoproj.files.read.sources import (
    Content,
    Selection,
    Source,
    choose_array,
    sparse_matrix,
)
from isoproj.numerics.arrays import Rows
from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Foreign
from isoproj.numerics.storage import Storage


def is_anndata(file: Foreign) -> bool:
    """Return whether an open HDF5 file was written by anndata."""
    return _text(file.attrs.get("encoding-type")) == "anndata"


def hdf5_contents(source: Source) -> list[Content]:
    """Return the data sets of an HDF5 file, those in groups included."""
    h5py = needed("h5py", extra="io", purpose="HDF5")
    with h5py.File(source.plain_path(), "r") as file:
        return _contents(file)


def read_hdf5(
    source: Source, selection: Selection, storage: Storage
) -> tuple[Rows, str]:
    """Return the chosen matrix and its name; of AnnData, without a choice, ``X``."""
    h5py = needed("h5py", extra="io", purpose="HDF5")
    with h5py.File(source.plain_path(), "r") as file:
        contents = _contents(file)
        if is_anndata(file):
            selection = _matrix_asked(selection, contents)
        content = choose_array(source, contents, selection)
        item = file[content.name]
        if content.dtype.startswith("sparse"):
            return _read_sparse(item, file.filename), content.name
        _refuse_elsewhere(item, file.filename)
        if not content.is_matrix:
            return item[...], content.name
        return storage.filled(item, item.shape, item.dtype), content.name


def _contents(file: Foreign) -> list[Content]:
    """Return all data sets of a file; of AnnData ``X``, ``layers`` and ``obsm``."""
    contents: list[Content] = []

    def see(name: str, item: Foreign) -> None:
        if hasattr(item, "shape"):
            shape, dtype = item.shape or (), item.dtype
            kind = dtype.str if dtype.kind in "biuf" else f"other {dtype}"
        elif _text(item.attrs.get("encoding-type")) in ("csr_matrix", "csc_matrix"):
            shape, kind = item.attrs["shape"], f"sparse {item['data'].dtype.str}"
        else:
            return
        contents.append(Content(name, tuple(map(int, shape)), kind))

    file.visititems(see)
    if not is_anndata(file):
        return contents
    return [
        c
        for c in contents
        if c.is_matrix and re.compile(r"X|(layers|obsm)/[^/]+").fullmatch(c.name)
    ]


def _matrix_asked(selection: Selection, contents: list[Content]) -> Selection:
    """Return which matrix of an AnnData file was meant."""
    names, asked = {content.name for content in contents}, selection.array
    if asked is None and "X" in names:
        asked = "X"
    # In Python the matrix is obsm["X_pca"], so the short name is enough.
    if asked is not None and f"obsm/{asked}" in names:
        asked = f"obsm/{asked}"
    return Selection(array=asked)


def _refuse_elsewhere(data: Foreign, name: str) -> None:
    """Raise ValueError if the numbers of a data set lie in another file than this."""
    # A small file from a stranger could otherwise return any file of this machine.
    if data.is_virtual or data.external or data.file.filename != name:
        msg = f"{data.name} lies in another file, which isoproj never follows"
        raise ValueError(msg)


def _read_sparse(item: Foreign, name: str) -> Rows:
    """Return the sparse matrix that a group holds."""
    parts = [item[part] for part in ("data", "indices", "indptr")]
    for part in parts:
        _refuse_elsewhere(part, name)
    kind = _text(item.attrs["encoding-type"]).removesuffix("_matrix")
    return sparse_matrix(kind, [part[...] for part in parts], item.attrs["shape"])


def _text(value: Foreign) -> str:
    """Return an attribute as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
