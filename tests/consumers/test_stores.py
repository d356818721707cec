"""Vectors that were stored, or projected, by a search engine are those of transform."""

from __future__ import annotations

import numpy as np
import pytest

from isoproj.cli.program import main


def test_faiss(points, model, expected, consumer, tmp_path, monkeypatch):
    faiss = pytest.importorskip("faiss")
    monkeypatch.chdir(tmp_path)
    model.save("m.isoproj")
    assert main(["export", "m.isoproj", "--to", "faiss", "-o", "p.faiss", "-q"]) == 0
    projection = faiss.read_VectorTransform("p.faiss")
    index = faiss.IndexPreTransform(projection, faiss.IndexFlatL2(6))
    index.add(points)
    what = "exported transform inside an index; vectors read back"
    stored = faiss.downcast_index(index.index).reconstruct_n(0, 300)
    assert consumer("faiss-cpu", what, stored, expected) < 1e-5


def test_qdrant(model, expected, consumer):
    client_of = pytest.importorskip("qdrant_client")
    models = client_of.models
    client = client_of.QdrantClient(":memory:")
    size = models.VectorParams(size=6, distance=models.Distance.EUCLID)
    client.create_collection("items", vectors_config=size)
    rows = enumerate(expected.tolist())
    client.upsert("items", [models.PointStruct(id=i, vector=row) for i, row in rows])
    found = client.retrieve("items", list(range(300)), with_vectors=True)
    stored = [point.vector for point in sorted(found, key=lambda point: point.id)]
    what = "local mode: reduced vectors stored and read back"
    assert consumer("qdrant-client", what, stored, expected) < 1e-5
    (best,) = client.query_points("items", expected[7].tolist(), limit=1).points
    assert best.id == 7


def test_sqlite_vec(model, expected, consumer):
    apsw = pytest.importorskip("apsw")
    sqlite_vec = pytest.importorskip("sqlite_vec")
    database = apsw.Connection(":memory:")
    database.enable_load_extension(True)
    database.load_extension(sqlite_vec.loadable_path())
    database.execute("CREATE VIRTUAL TABLE items USING vec0(reduced float[6])")
    database.executemany(
        "INSERT INTO items (rowid, reduced) VALUES (?, ?)",
        [(i, row.tobytes()) for i, row in enumerate(expected)],
    )
    found = database.execute("SELECT reduced FROM items ORDER BY rowid").fetchall()
    stored = np.array([np.frombuffer(blob, np.float32) for (blob,) in found])
    what = "reduced vectors stored and read back"
    assert consumer("sqlite-vec", what, stored, expected) == 0.0
