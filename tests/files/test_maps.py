from __future__ import annotations

import json
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.numpy
from geometry import cloud
from sklearn.decomposition import NMF, PCA, TruncatedSVD
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.random_projection import SparseRandomProjection

from isoproj import audit, compare
from isoproj.cli.program import main
from isoproj.exceptions import FormatError
from isoproj.files.read.maps import read_map

X = cloud(3, 60, 8)
A = np.random.default_rng(1).normal(size=(3, 8)).astype(np.float32)


def assert_same(found, expected):
    assert found.distortion == expected.distortion
    assert found.mean == expected.mean
    assert (found.worst_pairs == expected.worst_pairs).all()
    assert (found.histogram[0] == expected.histogram[0]).all()


def linear_transform():
    faiss = pytest.importorskip("faiss")
    transform = faiss.LinearTransform(8, 3)
    faiss.copy_array_to_vector(A.ravel(), transform.A)
    transform.is_trained = True
    return faiss, transform


def test_estimators_layers_and_either_orientation_are_their_matrix():
    expected = audit(X, A)
    assert_same(audit(X, A.T), expected)
    assert_same(audit(X, SimpleNamespace(weight=A)), expected)
    tensor = SimpleNamespace(detach=lambda: SimpleNamespace(cpu=lambda: held))
    held = SimpleNamespace(numpy=lambda: A, dtype="float32")
    assert_same(audit(X, SimpleNamespace(weight=tensor)), expected)
    for made in (PCA(3), TruncatedSVD(3), SparseRandomProjection(3, random_state=0)):
        made.fit(X)
        rows = made.components_
        rows = rows.toarray() if hasattr(rows, "toarray") else rows
        assert_same(audit(X, made), audit(X, rows))
        assert_same(audit(X, make_pipeline(made)), audit(X, rows))


def test_a_whitened_pca_is_audited_as_it_projects():
    made = PCA(3, whiten=True).fit(X)
    projected = (made.transform(np.eye(8)) - made.transform(np.zeros((1, 8)))).T
    assert audit(X, made).distortion == pytest.approx(audit(X, projected).distortion)


def test_a_faiss_transform_and_index_are_their_matrix(tmp_path):
    faiss, transform = linear_transform()
    index = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(3))
    expected = audit(X, A)
    assert_same(audit(X, transform), expected)
    assert_same(audit(X, index), expected)
    faiss.write_VectorTransform(transform, str(tmp_path / "a.faiss"))
    faiss.write_index(index, str(tmp_path / "b.index"))
    for name in ("a.faiss", "b.index"):
        assert (read_map(str(tmp_path / name), 8).components == A).all()
    with pytest.raises(ValueError, match="not a linear transform"):
        audit(X, faiss.NormalizationTransform(8, 2.0))
    with pytest.raises(ValueError, match="must be trained"):
        audit(X, faiss.PCAMatrix(8, 3))


def dense_module(folder, activation):
    folder.mkdir()
    name = f"torch.nn.modules.linear.{activation}"
    config = {"in_features": 8, "out_features": 3, "activation_function": name}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {"linear.weight": A, "linear.bias": np.ones(3, np.float32)}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    return str(folder)


def test_a_dense_module_is_its_weight_and_no_other_activation_is_read(tmp_path):
    found = read_map(dense_module(tmp_path / "linear", "Identity"), 8)
    assert (found.components == A).all()
    with pytest.raises(FormatError, match="activation function is Tanh"):
        read_map(dense_module(tmp_path / "tanh", "Tanh"), 8)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "pytorch_model.bin").write_bytes(b"PK")
    with pytest.raises(FormatError, match="pickle"):
        read_map(str(tmp_path / "old"), 8)


def onnx_file(path, *kinds):
    onnx = pytest.importorskip("onnx")
    make, floats = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        make.make_node("MatMul", ["X", "W"], ["Y"]),
        make.make_node("Add", ["Y", "B"], ["Z0"]),
    ]
    for at, kind in enumerate(kinds):
        nodes.append(make.make_node(kind, [f"Z{at}"], [f"Z{at + 1}"]))
    graph = make.make_graph(
        nodes,
        "g",
        [make.make_tensor_value_info("X", floats, ["N", 8])],
        [make.make_tensor_value_info(f"Z{len(kinds)}", floats, ["N", 3])],
        [
            onnx.numpy_helper.from_array(np.ascontiguousarray(A.T), "W"),
            onnx.numpy_helper.from_array(np.ones(3, np.float32), "B"),
        ],
    )
    onnx.save(make.make_model(graph), str(path))
    return str(path)


def test_an_onnx_layer_is_its_weight_and_a_second_step_is_refused(tmp_path):
    assert (read_map(onnx_file(tmp_path / "a.onnx"), 8).components == A).all()
    with pytest.raises(FormatError, match="its step Relu"):
        read_map(onnx_file(tmp_path / "b.onnx", "Relu"), 8)


def test_matrices_pipelines_and_truncation_are_read(tmp_path):
    np.save(tmp_path / "a.npy", A.T)
    np.savez(tmp_path / "a.npz", a=A)
    safetensors.numpy.save_file({"a": A}, tmp_path / "a.safetensors")
    for name in ("a.npy", "a.npz", "a.safetensors"):
        assert (read_map(str(tmp_path / name), 8).components == A).all()
    skops = pytest.importorskip("skops.io")
    pca = PCA(3).fit(X)
    skops.dump(make_pipeline(pca), tmp_path / "a.skops")
    found = read_map(str(tmp_path / "a.skops"), 8)
    assert (found.components == pca.components_).all()
    assert (read_map("first:2", 8).components == np.eye(2, 8)).all()


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (np.zeros((2, 3, 8)), "two axes"),
        (np.zeros((3, 7)), "one column per feature, 8"),
        (SimpleNamespace(weight=np.zeros((3, 8, 1))), "two axes"),
        (np.arange(64.0).reshape(8, 8), "orientation='rows'"),
        ("pca", "matrix of numbers"),
        (PCA(2), "must be fitted"),
        (make_pipeline(Normalizer(), PCA(2).fit(X)), "Normalizer"),
        (NMF(2, max_iter=5000).fit(abs(X)), "linear map"),
    ],
)
def test_what_is_not_a_linear_map_is_refused_in_one_line(given, reason):
    with pytest.raises(ValueError, match=reason) as caught:
        audit(X, given)
    assert "\n" not in str(caught.value)


def test_a_square_matrix_says_what_its_rows_are():
    square = np.arange(64.0).reshape(8, 8)
    rows = audit(X, square, orientation="rows")
    assert_same(audit(X, square.T, orientation="columns"), rows)


def test_pickles_and_too_many_columns_are_refused(tmp_path):
    (tmp_path / "a.pkl").write_bytes(pickle.dumps(A))
    with pytest.raises(FormatError, match="never loads pickles"):
        read_map(str(tmp_path / "a.pkl"), 8)
    with pytest.raises(FormatError, match="1 to 8 columns"):
        read_map("first:9", 8)


def test_compare_measures_maps_by_name():
    result = compare(X, ["pca"], ks=[2], maps={"mine": A})
    record = next(r for r in result.records if r["method"] == "mine")
    assert record["k"] == 3
    assert record["distortion"] == max(0.0, audit(X, A).distortion)


def test_the_gate_names_claim_and_rows(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", X)
    np.save("new.npy", cloud(9, 5, 8))
    worst = audit(X, np.eye(2, 8)).worst_pairs[0]
    assert main(["audit", "first:2", "x.npy", "--at-most", "0.5"]) == 1
    out = capsys.readouterr().out
    assert "FAILS: distortion" in out
    assert f"rows {worst[0]} and {worst[1]}" in out
    asked = ["--recall-at-least", "0.9", "--queries", "new.npy"]
    assert main(["audit", "first:2", "x.npy", *asked]) == 1
    assert "FAILS: recall at 10" in capsys.readouterr().out
    assert main(["audit", "first:8", "x.npy", "--at-most", "0.5", *asked]) == 0
