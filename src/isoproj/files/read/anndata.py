"""Read the matrices of an AnnData file (.h5ad) with h5py; anndata is not needed."""

from __future__ import annotations

from typing import Any

import scipy.sparse

from isoproj.exceptions import FormatError
from isoproj.files.read.hdf5 import refuse_elsewhere
from isoproj.files.read.sources import Content, Selection, Source, choose_array
from isoproj.numerics.arrays import Rows
from isoproj.numerics.extras import needed
from isoproj.numerics.storage import Storage

# Groups whose members have one row an observation.
_PLACES = ("layers", "obsm")
_SPARSE = {
    "csr_matrix": scipy.sparse.csr_array,
    "csc_matrix": scipy.sparse.csc_array,
}


def is_anndata(file: Any) -> bool:  # noqa: ANN401 - h5py has no types
    """Return whether an open HDF5 file was written by anndata."""
    return _text(file.attrs.get("encoding-type")) == "anndata"


def anndata_contents(file: Any) -> list[Content]:  # noqa: ANN401
    """Return ``X`` and the members of ``layers`` and ``obsm``, those of numbers."""
    found = {"X": file["X"]} if "X" in file else {}
    for place in _PLACES:
        members = file.get(place, {})
        found |= {f"{place}/{name}": item for name, item in members.items()}
    contents = [_content(name, item) for name, item in found.items()]
    return [content for content in contents if content is not None]


def read_anndata(
    source: Source, selection: Selection, storage: Storage
) -> tuple[Rows, str]:
    """Return the chosen matrix and its name; without a choice it is ``X``."""
    h5py = needed("h5py", extra="io", purpose="AnnData")
    with h5py.File(source.plain_path(), "r") as file:
        contents = anndata_contents(file)
        asked = selection.array or source.array
        names = {content.name for content in contents}
        if asked is None and "X" in names:
            asked = "X"
        # In Python the matrix is obsm["X_pca"], so the short name is enough.
        if asked is not None and f"obsm/{asked}" in names:
            asked = f"obsm/{asked}"
        content = choose_array(source, contents, Selection(array=asked))
        item = file[content.name]
        if content.dtype.startswith("sparse"):
            return _read_sparse(source, item), content.name
        refuse_elsewhere(item)
        shape = (int(item.shape[0]), int(item.shape[1]))
        return storage.filled(item, shape, item.dtype), content.name


def _content(name: str, item: Any) -> Content | None:  # noqa: ANN401
    """Return name, shape and type of a member, or None if it is no matrix."""
    kind = _text(item.attrs.get("encoding-type"))
    if kind in _SPARSE:
        shape = tuple(int(n) for n in item.attrs["shape"])
        return Content(name=name, shape=shape, dtype=f"sparse {item['data'].dtype.str}")
    if not hasattr(item, "dtype") or item.dtype.kind not in "biuf":
        return None
    shape = tuple(int(n) for n in item.shape or ())
    if len(shape) != 2:
        return None
    return Content(name=name, shape=shape, dtype=item.dtype.str)


def _read_sparse(source: Source, item: Any) -> Rows:  # noqa: ANN401
    """Return a sparse matrix; check every index."""
    make = _SPARSE[_text(item.attrs["encoding-type"])]
    shape: Any = tuple(int(n) for n in item.attrs["shape"])
    parts = [item[part] for part in ("data", "indices", "indptr")]
    for part in parts:
        refuse_elsewhere(part)
    data, indices, indptr = (part[...] for part in parts)
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu":
        msg = (
            f"{source.name} must have whole numbers as sparse indices; it has "
            f"{indices.dtype}. Write it again."
        )
        raise FormatError(msg)
    matrix: Rows = make((data, indices, indptr), shape=shape)
    # An index outside the matrix would read memory of other objects.
    matrix.check_format(full_check=True)
    return matrix


def _text(value: Any) -> str:  # noqa: ANN401
    """Return an attribute as text."""
    return value.decode() if isinstance(value, bytes) else str(value)
