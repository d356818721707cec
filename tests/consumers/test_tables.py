"""Tables of real libraries are read as rows; AnnData reads what is written."""

from __future__ import annotations

import numpy as np
import pytest

from isoproj import from_arrow
from isoproj.cli.program import main

pyarrow = pytest.importorskip("pyarrow")


@pytest.fixture
def table(points):
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(points.ravel()), 24)
    return pyarrow.table({"id": np.arange(300), "vector": lists})


def test_polars(table, points, model, expected, consumer):
    polars = pytest.importorskip("polars")
    frame = polars.from_arrow(table)
    assert isinstance(frame["vector"].dtype, polars.Array)
    found = from_arrow(frame)
    np.testing.assert_array_equal(found, points)
    as_lists = frame.with_columns(polars.col("vector").arr.to_list())
    np.testing.assert_array_equal(from_arrow(as_lists), points)
    what = "arrays and lists read by `from_arrow`"
    assert consumer("polars", what, model.transform(found), expected) == 0.0


def test_duckdb(table, points, model, expected, consumer):
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register("items", table)
        relation = connection.sql("SELECT vector FROM items WHERE id < 200 ORDER BY id")
        found = from_arrow(relation)
    np.testing.assert_array_equal(found, points[:200])
    what = "a query read by `from_arrow`"
    assert consumer("duckdb", what, model.transform(found), expected[:200]) == 0.0


def test_lancedb(table, points, model, expected, consumer, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    stored = lancedb.connect(tmp_path).create_table("items", table)
    found = from_arrow(stored.to_arrow(), columns="vector")
    np.testing.assert_array_equal(found, points)
    batches = stored.search().select(["vector"]).limit(300).to_batches()
    np.testing.assert_array_equal(np.sort(from_arrow(batches), 0), np.sort(points, 0))
    what = "table and batches read by `from_arrow`"
    assert consumer("lancedb", what, model.transform(found), expected) == 0.0


def test_hugging_face_datasets(table, points, model, expected, consumer):
    datasets = pytest.importorskip("datasets")
    found = from_arrow(datasets.Dataset(table).data.table)
    np.testing.assert_array_equal(found, points)
    what = "data set read by `from_arrow`"
    assert consumer("datasets", what, model.transform(found), expected) == 0.0


@pytest.mark.parametrize("sparse", [False, True])
def test_anndata(points, model, expected, sparse, consumer, tmp_path, monkeypatch):
    anndata = pytest.importorskip("anndata")
    scipy_sparse = pytest.importorskip("scipy.sparse")
    monkeypatch.chdir(tmp_path)
    X = scipy_sparse.csr_matrix(points) if sparse else points
    cells = anndata.AnnData(X, obsm={"X_pca": points[:, :3]}, uns={"kept": "yes"})
    cells.write_h5ad("cells.h5ad")
    model.save("m.isoproj")
    words = ["transform", "m.isoproj", "cells.h5ad", "-o", "new.h5ad", "-q"]
    assert main(words) == 0
    after = anndata.read_h5ad("new.h5ad")
    what = f"{'sparse' if sparse else 'dense'} `.h5ad` transformed and read again"
    assert consumer("anndata", what, after.obsm["X_isoproj"], expected) < 1e-5
    np.testing.assert_array_equal(after.varm["isoproj"].T, model.components_)
    assert after.uns["isoproj"]["distortion"] == model.distortion_
    assert after.uns["kept"] == "yes"
    np.testing.assert_array_equal(after.obsm["X_pca"], points[:, :3])
