"""AnnData files are read and written through h5py alone."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from isoproj import NearIsometricProjection
from isoproj.cli.program import main
from isoproj.exceptions import FormatError
from isoproj.files.read.reading import contents_of, read_points
from isoproj.files.write.writing import write_points

h5py = pytest.importorskip("h5py")


def marked(item, kind, version="0.2.0"):
    item.attrs["encoding-type"] = kind
    item.attrs["encoding-version"] = version
    return item


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Write 30 cells of 8 genes, sparse, with an embedding beside them."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(2)
    counts = scipy.sparse.csr_array(draw.poisson(0.7, size=(30, 8)).astype(np.float32))
    embedding = draw.normal(size=(30, 5))
    with h5py.File("cells.h5ad", "w") as file:
        marked(file, "anndata", "0.1.0")
        X = marked(file.create_group("X"), "csr_matrix", "0.1.0")
        X.attrs["shape"] = counts.shape
        for part in ("data", "indices", "indptr"):
            X[part] = getattr(counts, part)
        for place in ("obs", "var", "obsm", "varm", "uns", "layers"):
            marked(file.create_group(place), "dict", "0.1.0")
        marked(file.create_dataset("obsm/X_pca", data=embedding), "array")
        marked(file.create_dataset("layers/dense", data=counts.toarray()), "array")
        file["obs/n"] = np.arange(30)
    return counts, embedding


def test_the_counts_are_read_unless_another_matrix_is_named(cells):
    counts, embedding = cells
    data = read_points("cells.h5ad")
    assert data.chosen == "X"
    np.testing.assert_array_equal(data.points.toarray(), counts.toarray())
    for name in ("cells.h5ad:obsm/X_pca", "cells.h5ad:X_pca"):
        np.testing.assert_array_equal(read_points(name).points, embedding)
    named = {content.name for content in contents_of("cells.h5ad")[1]}
    assert named == {"X", "obsm/X_pca", "layers/dense"}
    with pytest.raises(FormatError, match="X_umap"):
        read_points("cells.h5ad:X_umap")


def test_sparse_indices_outside_the_matrix_are_refused(cells):
    with h5py.File("cells.h5ad", "r+") as file:
        file["X/indices"][0] = 800
    with pytest.raises(FormatError, match="whole HDF5 file"):
        read_points("cells.h5ad")


def test_a_link_to_another_file_is_not_followed(cells):
    with h5py.File("other.h5", "w") as other:
        other["points"], other["data"] = np.ones((30, 3)), np.ones(cells[0].nnz)
    with h5py.File("cells.h5ad", "r+") as file:
        file["obsm/linked"] = h5py.ExternalLink("other.h5", "/points")
    with pytest.raises(FormatError, match="must hold 'obsm/linked'"):
        read_points("cells.h5ad:obsm/linked")
    with h5py.File("cells.h5ad", "r+") as file:
        del file["X/data"]
        file["X/data"] = h5py.ExternalLink("other.h5", "/data")
    with pytest.raises(FormatError, match="lies in another file"):
        read_points("cells.h5ad")


@pytest.mark.parametrize("array", ["X", "obsm/X_pca"])
def test_the_projection_is_added_to_a_copy(cells, array):
    before = read_points(f"cells.h5ad:{array}").points
    dense = before.toarray() if scipy.sparse.issparse(before) else before
    model = NearIsometricProjection(3, solver="dual_ascent", max_iter=5).fit(dense)
    model.save("m.isoproj")
    for _ in range(2):
        words = ["transform", "m.isoproj", f"cells.h5ad:{array}", "-o", "new.h5ad"]
        assert main([*words, "-q", "--force"]) == 0
    with h5py.File("new.h5ad") as file:
        expected = model.transform(dense)
        np.testing.assert_allclose(file["obsm/X_isoproj"][...], expected, rtol=1e-6)
        assert file["uns/isoproj/distortion"][()] == model.distortion_
        assert file["uns/isoproj/lower_bound"][()] == model.lower_bound_
        np.testing.assert_array_equal(file["obs/n"][...], np.arange(30))
        assert ("isoproj" in file["varm"]) == (array == "X")
        if array == "X":
            np.testing.assert_array_equal(
                file["varm/isoproj"][...].T, model.components_
            )
    with h5py.File("cells.h5ad") as file:
        assert "X_isoproj" not in file["obsm"]


def test_only_a_copy_of_an_anndata_file_can_be_written(cells):
    with pytest.raises(FormatError, match=r"copy of an \.h5ad input"):
        write_points("new.h5ad", np.eye(3))
