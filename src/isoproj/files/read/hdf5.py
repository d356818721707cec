"""Read HDF5 files, AnnData's (.h5ad) among them; the package anndata is not needed."""

from __future__ import annotations

from typing import Any

import scipy.sparse

from isoproj.exceptions import FormatError
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


def hdf5_contents(source: Source) -> list[Content]:
    """Return the data sets of an HDF5 file, those in groups included."""
    h5py = needed("h5py", extra="io", purpose="HDF5")
    contents: list[Content] = []

    def see(name: str, item: Any) -> None:  # noqa: ANN401
        if isinstance(item, h5py.Dataset):
            dtype = item.dtype
            kind = dtype.str if dtype.kind in "biuf" else f"other {dtype}"
            contents.append(
                Content(name=name, shape=tuple(item.shape or ()), dtype=kind)
            )

    with h5py.File(source.plain_path(), "r") as file:
        if is_anndata(file):
            return anndata_contents(file)
        file.visititems(see)
    return contents


def read_hdf5(
    source: Source, selection: Selection, storage: Storage
) -> tuple[Rows, str]:
    """Return the chosen matrix and its name; of AnnData, without a choice, ``X``."""
    h5py = needed("h5py", extra="io", purpose="HDF5")
    contents = hdf5_contents(source)
    with h5py.File(source.plain_path(), "r") as file:
        if is_anndata(file):
            selection = _matrix_asked(source, selection, contents)
        content = choose_array(source, contents, selection)
        item = file[content.name]
        if content.dtype.startswith("sparse"):
            return _read_sparse(source, item), content.name
        refuse_elsewhere(item)
        if not content.is_matrix:
            return item[...], content.name
        return storage.filled(item, item.shape, item.dtype), content.name


def _matrix_asked(
    source: Source, selection: Selection, contents: list[Content]
) -> Selection:
    """Return which matrix of an AnnData file was meant."""
    names = {content.name for content in contents}
    asked = selection.array or source.array
    if asked is None and "X" in names:
        asked = "X"
    # In Python the matrix is obsm["X_pca"], so the short name is enough.
    if asked is not None and f"obsm/{asked}" in names:
        asked = f"obsm/{asked}"
    return Selection(array=asked)


def refuse_elsewhere(data: Any) -> None:  # noqa: ANN401 - h5py has no types
    """Raise ValueError if the numbers of a data set lie in another file."""
    # A small file from a stranger could otherwise return any file of this machine.
    if getattr(data, "is_virtual", False) or getattr(data, "external", None):
        msg = f"{data.name} lies in another file, which isoproj never follows"
        raise ValueError(msg)


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
