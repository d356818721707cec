from __future__ import annotations

import io
import json
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.files.export.dense import to_dense
from isoproj.files.export.faiss import to_faiss
from isoproj.files.export.matrices import to_npy, to_safetensors
from isoproj.files.export.onnx import to_onnx
from isoproj.files.export.pipeline import to_pipeline, to_skops
from isoproj.files.export.sql import to_pgvector, to_postgres

FLOAT32 = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def certificate(model):
    return model.certificate_


@pytest.fixture(scope="module")
def expected(model, points):
    return model.transform(points)


def test_faiss_reads_and_applies_the_transform(certificate, points, expected, tmp_path):
    faiss = pytest.importorskip("faiss")
    path = tmp_path / "a.faiss"
    path.write_bytes(to_faiss(certificate))
    transform = faiss.read_VectorTransform(str(path))
    assert (transform.d_in, transform.d_out) == (6, 2)
    assert transform.is_trained
    np.testing.assert_allclose(
        transform.apply(points.astype(np.float32)), expected, **FLOAT32
    )


def test_faiss_searches_in_the_projected_space(certificate, points, expected, tmp_path):
    faiss = pytest.importorskip("faiss")
    path = tmp_path / "a.faiss"
    path.write_bytes(to_faiss(certificate))
    index = faiss.IndexPreTransform(
        faiss.read_VectorTransform(str(path)), faiss.IndexFlatL2(2)
    )
    index.add(points.astype(np.float32))
    found = index.search(points[:5].astype(np.float32), 2)[1]
    gaps = np.linalg.norm(expected[:5, None] - expected[None], axis=2)
    np.testing.assert_array_equal(found, np.argsort(gaps, axis=1)[:, :2])


def test_faiss_would_write_the_same_bytes(certificate, tmp_path):
    faiss = pytest.importorskip("faiss")
    theirs = faiss.LinearTransform(6, 2, False)
    matrix = np.ascontiguousarray(certificate.components, dtype=np.float32)
    faiss.copy_array_to_vector(matrix.ravel(), theirs.A)
    theirs.is_trained = True
    faiss.write_VectorTransform(theirs, str(tmp_path / "theirs"))
    assert (tmp_path / "theirs").read_bytes() == to_faiss(certificate)


def test_onnxruntime_gives_the_same_numbers(certificate, points, expected):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(
        to_onnx(certificate), providers=["CPUExecutionProvider"]
    )
    (projected,) = session.run(None, {"X": points.astype(np.float32)})
    np.testing.assert_allclose(projected, expected, **FLOAT32)
    (one,) = session.run(["Z"], {"X": points[:1].astype(np.float32)})
    np.testing.assert_allclose(one, expected[:1], **FLOAT32)


def test_onnx_finds_the_model_valid(certificate):
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(to_onnx(certificate))
    onnx.checker.check_model(model, full_check=True)
    assert model.producer_name == "isoproj"


def test_wide_models_encode_long_lengths(points):
    onnxruntime = pytest.importorskip("onnxruntime")
    wide = np.random.default_rng(0).normal(size=(12, 300)).astype(np.float32)
    model = NearIsometricProjection(5, solver="dual_ascent", max_iter=3).fit(wide)
    session = onnxruntime.InferenceSession(
        to_onnx(model.certificate_), providers=["CPUExecutionProvider"]
    )
    (projected,) = session.run(None, {"X": wide})
    np.testing.assert_allclose(projected, model.transform(wide), rtol=1e-4, atol=1e-4)


def test_the_matrix_is_kept_bit_for_bit(certificate):
    from_npy = np.load(io.BytesIO(to_npy(certificate)), allow_pickle=False)
    from_tensors = safetensors.numpy.load(to_safetensors(certificate))["components"]
    for matrix in (from_npy, from_tensors):
        assert matrix.dtype == certificate.components.dtype
        assert matrix.tobytes() == certificate.components.tobytes()


def test_a_skops_pipeline_needs_no_trust_and_gives_the_same_bits(
    certificate, points, expected, tmp_path
):
    skops = pytest.importorskip("skops.io")
    path = tmp_path / "a.skops"
    path.write_bytes(to_skops(certificate))
    assert skops.get_untrusted_types(file=path) == []
    pipeline = skops.load(path)
    np.testing.assert_array_equal(pipeline.transform(points), expected)
    assert {type(step).__module__.split(".")[0] for _, step in pipeline.steps} == {
        "sklearn"
    }


def test_the_pipeline_checks_names_and_widths(certificate, points):
    names = [f"f{i}" for i in range(6)]
    pipeline = to_pipeline(certificate, names)
    assert list(pipeline[0].feature_names_in_) == names
    with pytest.raises(ValueError, match="6 features"):
        to_pipeline(certificate).transform(points[:, :5])


def test_the_matrix_in_the_sql_for_pgvector_is_the_projection(
    certificate, points, expected
):
    text = to_pgvector(certificate, "shrink")
    assert 'FUNCTION "shrink"(v vector)' in text
    rows = re.findall(r"inner_product\(v, '\[(.*?)\]'::vector\)", text)
    matrix = np.array([[float(x) for x in row.split(",")] for row in rows])
    np.testing.assert_array_equal(
        matrix.astype(np.float32), certificate.components.astype(np.float32)
    )
    np.testing.assert_allclose(points @ matrix.T, expected, **FLOAT32)


def test_the_matrix_in_the_sql_for_plain_arrays_is_the_projection(
    certificate, points, expected
):
    text = to_postgres(certificate, "shrink")
    assert 'FUNCTION "shrink"(v double precision[])' in text
    assert "expected 6 numbers" in text
    rows = re.findall(r"^      \[(.*?)\]", text, re.MULTILINE)
    matrix = np.array([[float(x) for x in row.split(",")] for row in rows])
    np.testing.assert_array_equal(matrix, certificate.components)
    shifts = re.search(r"shifts CONSTANT .*? := ARRAY\[(.*?)\];", text)[1]
    moved = np.array([float(x) for x in shifts.split(",")])
    np.testing.assert_allclose(points @ matrix.T + moved, expected, rtol=1e-14)


@pytest.mark.parametrize("name", ["", "a b", "a;DROP TABLE x", "Ä", "1a", "A"])
def test_only_plain_names_become_functions(certificate, name):
    for make in (to_pgvector, to_postgres):
        with pytest.raises(ValueError, match="must be lower-case"):
            make(certificate, name)


# What pgvector offers, as far as the function uses it, over its own text form.
STAND_IN = """
CREATE DOMAIN vector AS text;
CREATE FUNCTION numbers(v vector) RETURNS float8[] LANGUAGE sql AS
  $$ SELECT translate(v::text, '[]', '{}')::float8[] $$;
CREATE FUNCTION inner_product(a vector, b vector) RETURNS float8 LANGUAGE sql AS
  $$ SELECT sum(x * y) FROM unnest(numbers(a), numbers(b)) AS t(x, y) $$;
"""


@pytest.fixture(scope="module")
def psql():
    """Start a PostgreSQL that listens on a socket in a temporary folder only."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    user = "postgres" if os.geteuid() == 0 else None
    if not found or (user and not shutil.which("runuser")):
        pytest.skip("needs PostgreSQL")
    # pytest's own folders are closed to other users and too deep for a socket.
    with tempfile.TemporaryDirectory(prefix="isoproj-pg-") as name:
        if user:
            shutil.chown(name, user)
        yield from serve(Path(name), found[-1].parent, user)


def serve(folder, bin_, user):
    prefix = ["runuser", "-u", user, "--"] if user else []
    data = folder / "data"

    def call(*words, **options):
        return subprocess.run(
            [*prefix, *map(str, words)],
            check=True,
            capture_output=True,
            text=True,
            cwd=folder,
            timeout=60,
            **options,
        ).stdout

    call(bin_ / "initdb", "-D", data, "-A", "trust", "-N", "-U", "postgres")
    options = f"-c listen_addresses='' -k {folder} -c fsync=off"
    start = [bin_ / "pg_ctl", "-D", data, "-w", "-l", folder / "log", "-o", options]
    call(*start, "start")
    try:
        yield lambda sql: call(
            bin_ / "psql", "-h", folder, "-U", "postgres", "-v", "ON_ERROR_STOP=1",
            "-tAq", input=sql,
        )  # fmt: skip
    finally:
        call(bin_ / "pg_ctl", "-D", data, "-m", "immediate", "stop")


def test_postgres_projects_plain_arrays(psql, certificate, points, expected):
    listed = ",".join(repr(x) for x in points[3].tolist())
    out = psql(to_postgres(certificate) + f"SELECT isoproj_project(ARRAY[{listed}]);")
    projected = np.array([float(x) for x in out.strip().strip("{}").split(",")])
    np.testing.assert_allclose(projected, expected[3], rtol=1e-14)
    with pytest.raises(subprocess.CalledProcessError) as wrong:
        psql("SELECT isoproj_project(ARRAY[1.0, 2.0]);")
    assert "expected 6 numbers, got 2" in wrong.value.stderr


def test_postgres_accepts_the_function_for_pgvector(
    psql, certificate, points, expected
):
    listed = ",".join(repr(x) for x in points[3].tolist())
    sql = STAND_IN + to_pgvector(certificate, "shrink")
    out = psql(sql + f"SELECT shrink('[{listed}]'::vector);")
    projected = np.array([float(x) for x in out.strip().strip("{}").split(",")])
    np.testing.assert_allclose(projected, expected[3], **FLOAT32)


def test_a_halfvec_is_widened_before_the_products(certificate):
    text = to_pgvector(certificate, "shrink", half=True)
    assert 'FUNCTION "shrink"(v halfvec) RETURNS halfvec' in text
    assert text.count("inner_product(v::vector, ") == 2
    assert text.endswith("]::vector::halfvec;\n")


@pytest.fixture(scope="module")
def centred(points):
    """Return a model that subtracts a mean which cannot be overlooked."""
    return GuaranteedPCA(2, max_distortion=1.0).fit(points + 5.0)


def test_faiss_subtracts_the_mean(centred, points, tmp_path):
    faiss = pytest.importorskip("faiss")
    content = to_faiss(centred.certificate_, centred.mean_)
    (tmp_path / "a.faiss").write_bytes(content)
    transform = faiss.read_VectorTransform(str(tmp_path / "a.faiss"))
    np.testing.assert_allclose(
        transform.apply(points.astype(np.float32)), centred.transform(points), **FLOAT32
    )
    faiss.write_VectorTransform(transform, str(tmp_path / "theirs"))
    assert (tmp_path / "theirs").read_bytes() == content


def test_onnxruntime_subtracts_the_mean(centred, points):
    onnxruntime = pytest.importorskip("onnxruntime")
    content = to_onnx(centred.certificate_, centred.mean_)
    session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    (projected,) = session.run(None, {"X": points.astype(np.float32)})
    np.testing.assert_allclose(projected, centred.transform(points), **FLOAT32)


def test_onnx_finds_the_model_with_a_mean_valid(centred):
    onnx = pytest.importorskip("onnx")
    model = onnx.load_from_string(to_onnx(centred.certificate_, centred.mean_))
    onnx.checker.check_model(model, full_check=True)


def test_safetensors_hold_the_mean_bit_for_bit(centred):
    tensors = safetensors.numpy.load(
        to_safetensors(centred.certificate_, centred.mean_)
    )
    assert sorted(tensors) == ["components", "mean"]
    assert tensors["mean"].tobytes() == centred.mean_.tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_skops_pipeline_subtracts_the_mean(centred, points, dtype, tmp_path):
    skops = pytest.importorskip("skops.io")
    path = tmp_path / "a.skops"
    names = [f"f{i}" for i in range(6)]
    path.write_bytes(to_skops(centred.certificate_, names, centred.mean_))
    assert skops.get_untrusted_types(file=path) == []
    pipeline = skops.load(path)
    carrier = pipeline[0]
    rows = points.astype(dtype)
    tolerance = FLOAT32 if dtype == np.float32 else {"rtol": 1e-12, "atol": 1e-12}
    expected = centred.transform(rows)
    del carrier.feature_names_in_
    np.testing.assert_allclose(pipeline.transform(rows), expected, **tolerance)
    back = carrier.inverse_transform(expected)
    np.testing.assert_allclose(back, centred.inverse_transform(expected), **tolerance)
    assert len(carrier.get_feature_names_out()) == 2


def test_postgres_subtracts_the_mean(psql, centred, points):
    listed = ",".join(repr(x) for x in points[3].tolist())
    sql = to_postgres(centred.certificate_, "centre", centred.mean_)
    out = psql(sql + f"SELECT centre(ARRAY[{listed}]);")
    projected = np.array([float(x) for x in out.strip().strip("{}").split(",")])
    np.testing.assert_allclose(projected, centred.transform(points)[3], rtol=1e-12)


def test_pgvector_subtracts_the_mean(psql, centred, points):
    listed = ",".join(repr(x) for x in points[3].tolist())
    known = psql("SELECT count(*) FROM pg_type WHERE typname = 'vector';")
    sql = "" if known.strip() == "1" else STAND_IN
    sql += to_pgvector(centred.certificate_, "pull", centred.mean_)
    out = psql(sql + f"SELECT pull('[{listed}]'::vector);")
    projected = np.array([float(x) for x in out.strip().strip("{}").split(",")])
    np.testing.assert_allclose(projected, centred.transform(points)[3], **FLOAT32)


@pytest.mark.parametrize("with_mean", [False, True])
def test_the_weights_of_a_dense_module_are_the_projection(centred, points, with_mean):
    mean = centred.mean_ if with_mean else None
    files = to_dense(centred.certificate_, mean)
    config = json.loads(files["config.json"])
    assert (config["in_features"], config["out_features"]) == (6, 2)
    assert config["bias"] is with_mean
    tensors = safetensors.numpy.load(files["model.safetensors"])
    projected = points @ tensors["linear.weight"].T + tensors.get("linear.bias", 0.0)
    expected = centred.transform(points)
    if not with_mean:
        expected = expected + centred.mean_ @ centred.components_.T
    np.testing.assert_allclose(projected, expected, **FLOAT32)
