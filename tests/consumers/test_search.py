"""With the planned number every system returns the true ten of every stored row."""

from __future__ import annotations

import numpy as np
import pytest

N = 10


def test_faiss(texts, pca, plan, failures):
    faiss = pytest.importorskip("faiss")
    projection = faiss.LinearTransform(384, 64, False)
    faiss.copy_array_to_vector(pca.components_.ravel(), projection.A)
    projection.is_trained = True
    base = faiss.IndexPreTransform(projection, faiss.IndexFlatL2(64))
    index = faiss.IndexRefineFlat(base)
    index.add(texts)
    index.k_factor = plan.settings()["faiss"]["k_factor"]
    assert failures(index.search(texts, N + 1)[1]) == 0
    index.k_factor /= 2
    assert failures(index.search(texts, N + 1)[1]) > 0


def test_qdrant(texts, small, plan, failures):
    client_of = pytest.importorskip("qdrant_client")
    models = client_of.models
    client = client_of.QdrantClient(":memory:")
    euclid = models.Distance.EUCLID
    sizes = {"full": 384, "reduced": 64}
    client.create_collection(
        "items",
        vectors_config={
            name: models.VectorParams(size=size, distance=euclid)
            for name, size in sizes.items()
        },
    )
    client.upload_collection(
        "items", vectors={"full": texts, "reduced": small}, ids=range(len(texts))
    )

    def search(i, limit):
        near = models.Prefetch(query=small[i], using="reduced", limit=limit)
        found = client.query_points(
            "items", prefetch=near, query=texts[i], using="full", limit=N + 1
        )
        return [point.id for point in found.points]

    limit = int(plan.settings()["qdrant"]["limit"])
    rows = range(len(texts))
    assert failures([search(i, limit) for i in rows]) == 0
    hardest = int(plan.hardest_rows[0])
    # Local mode is slow: the hardest row stands for all.
    assert failures([search(hardest, limit // 2)], hardest) == 1


def test_sqlite_vec(texts, small, plan, failures):
    apsw = pytest.importorskip("apsw")
    sqlite_vec = pytest.importorskip("sqlite_vec")
    database = apsw.Connection(":memory:")
    database.enable_load_extension(True)
    database.load_extension(sqlite_vec.loadable_path())
    database.execute("CREATE VIRTUAL TABLE items USING vec0(reduced float[64])")
    database.execute("CREATE TABLE whole (id INTEGER PRIMARY KEY, vector BLOB)")
    with database:
        for table, rows in (("items (rowid, reduced)", small), ("whole", texts)):
            database.executemany(
                f"INSERT INTO {table} VALUES (?, ?)",
                [(i, row.tobytes()) for i, row in enumerate(rows)],
            )
    search = """
    WITH near AS (SELECT rowid AS i FROM items WHERE reduced MATCH ? AND k = ?)
    SELECT whole.id FROM near JOIN whole ON whole.id = near.i
    ORDER BY vec_distance_L2(whole.vector, ?) LIMIT ?
    """

    def found(k):
        for z, x in zip(small, texts, strict=True):
            rows = database.execute(search, (z.tobytes(), k, x.tobytes(), N + 1))
            yield [i for (i,) in rows]

    k = int(plan.settings()["sqlite-vec"]["k"])
    assert failures(found(k)) == 0
    assert failures(found(k // 2)) > 0


def test_lancedb(texts, small, plan, failures, tmp_path):
    lancedb = pytest.importorskip("lancedb")
    pyarrow = pytest.importorskip("pyarrow")

    def lists(rows):
        flat = pyarrow.array(rows.ravel())
        return pyarrow.FixedSizeListArray.from_arrays(flat, rows.shape[1])

    columns = {"id": np.arange(len(texts)), "reduced": lists(small)}
    items = lancedb.connect(tmp_path).create_table("items", pyarrow.table(columns))

    def found(limit):
        for z, x in zip(small, texts, strict=True):
            near = items.search(z, vector_column_name="reduced").limit(limit)
            ids = near.select(["id"]).to_arrow()["id"].to_numpy()
            order = np.argsort(((texts[ids] - x) ** 2).sum(axis=1), kind="stable")
            yield ids[order[: N + 1]]

    limit = int(plan.settings()["lancedb"]["limit"])
    assert failures(found(limit)) == 0
    assert failures(found(limit // 2)) > 0
