"""Maps as their own libraries make and save them, audited as the bare matrix is."""

from __future__ import annotations

import numpy as np
import pytest

from isoproj import audit
from isoproj.cli.program import main
from isoproj.exceptions import FormatError
from isoproj.files.read.maps import read_map


def assert_same(found, expected):
    """Compare two audits to the last bit."""
    assert found.distortion == expected.distortion
    assert found.stretch == expected.stretch
    assert found.mean == expected.mean
    assert found.recall == expected.recall
    assert (found.worst_pairs == expected.worst_pairs).all()
    assert (found.worst_distortions == expected.worst_distortions).all()
    assert (found.histogram[0] == expected.histogram[0]).all()


def audited(points, given):
    return audit(points, given, recall=(1, 5))


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_a_linear_layer_of_torch_is_its_weight(points, kind, has_bias):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    layer = torch.nn.Linear(24, 6, bias=has_bias, dtype=getattr(torch, kind))
    weight = layer.weight.detach().numpy()
    assert_same(audited(points, layer), audited(points, weight))
    assert_same(audited(points, layer.weight), audited(points, weight))


def test_a_layer_that_is_not_linear_is_refused(points):
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match="two axes"):
        audit(points, torch.nn.Conv1d(24, 6, 1))


def test_a_saved_dense_module_is_its_weight(points, tmp_path, capsys):
    pytest.importorskip("sentence_transformers")
    torch = pytest.importorskip("torch")
    from sentence_transformers.sentence_transformer.modules import Dense

    torch.manual_seed(0)
    folder = tmp_path / "dense"
    folder.mkdir()
    module = Dense(24, 6, activation_function=torch.nn.Identity())
    module.save(str(folder))
    weight = module.linear.weight.detach().numpy()
    found = read_map(str(folder), 24).components
    assert_same(audited(points, found), audited(points, weight))
    np.save(tmp_path / "x.npy", points)
    assert main(["audit", str(folder), str(tmp_path / "x.npy")]) == 0
    assert f"{audit(points, weight).distortion:.4f}" in capsys.readouterr().out
    curved = tmp_path / "tanh"
    curved.mkdir()
    Dense(24, 6, activation_function=torch.nn.Tanh()).save(str(curved))
    with pytest.raises(FormatError, match="activation function is Tanh"):
        read_map(str(curved), 24)


def test_a_saved_state_of_torch_is_refused(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save(torch.nn.Linear(24, 6).state_dict(), tmp_path / "layer.pt")
    with pytest.raises(FormatError, match="pickle"):
        read_map(str(tmp_path / "layer.pt"), 24)


def test_transforms_that_faiss_trained_are_their_matrix(points, tmp_path):
    faiss = pytest.importorskip("faiss")
    made = [
        faiss.PCAMatrix(24, 6),
        faiss.PCAMatrix(24, 6, -0.5),
        faiss.RandomRotationMatrix(24, 6),
        faiss.OPQMatrix(24, 2, 6),
    ]
    for at, transform in enumerate(made):
        transform.train(points)
        matrix = faiss.vector_to_array(transform.A).reshape(6, 24)
        expected = audited(points, matrix)
        assert_same(audited(points, transform), expected)
        path = str(tmp_path / f"{at}.faiss")
        faiss.write_VectorTransform(transform, path)
        assert_same(audited(points, read_map(path, 24).components), expected)
        index = faiss.IndexPreTransform(transform, faiss.IndexFlatL2(6))
        index.add(points)
        path = str(tmp_path / f"{at}.index")
        faiss.write_index(index, path)
        assert_same(audited(points, read_map(path, 24).components), expected)


# The exporter of torch warns about torch itself.
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::DeprecationWarning")
def test_a_layer_that_torch_exported_to_onnx_is_its_weight(points, tmp_path):
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnx")
    pytest.importorskip("onnxscript")
    torch.manual_seed(0)
    layer = torch.nn.Linear(24, 6).eval()
    path = str(tmp_path / "layer.onnx")
    example = (torch.zeros(1, 24),)
    torch.onnx.export(layer, example, path, dynamo=True, external_data=False)
    found = read_map(path, 24).components
    weight = layer.weight.detach().numpy()
    assert_same(audited(points, found), audited(points, weight))
