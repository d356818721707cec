"""Read a linear map from a file of the library that made it; no pickle is loaded."""

from __future__ import annotations

import json
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

from isoproj.exceptions import FormatError, IsoprojError
from isoproj.files.formats import HEAD_SIZE, refuse_pickle
from isoproj.files.read.reading import holds_model, read_points
from isoproj.files.read.sources import split_name
from isoproj.numerics.arrays import as_dense
from isoproj.numerics.container import read_container, whole_file
from isoproj.numerics.extras import needed
from isoproj.numerics.maps import Orientation, linear_map
from isoproj.numerics.spectral import Array, Foreign
from isoproj.pairs.rule import PairRule
from isoproj.proof.certificate import Certificate

_FIRST = re.compile(r"first:(\d{1,9})")
# Marks of faiss: transforms, and an index behind transforms.
_FAISS = (b"LTra", b"PcAm", b"Pcam", b"rrot", b"HRot", b"VNrm", b"VCnt", b"RmDT")
_FAISS_INDEX = b"IxPT"
# Steps of an ONNX graph that change nothing, or add a constant.
_KEPT = ("Identity", "Cast", "Add", "Sub")


@dataclass(frozen=True, slots=True, eq=False)
class MapFile:
    """A linear map and its origin; its certificate names pairs and prefixes."""

    name: str
    components: Array
    pairs: PairRule
    prefixes: tuple[int, ...] = ()


def read_map(
    name: str, n_features: int, *, orientation: Orientation | None = None
) -> MapFile:
    """Read the matrix of a linear map of points with ``n_features``.

    ``name`` is a model, a matrix, a transform or pre-transform index of faiss, an ONNX
    file, a skops file, the folder of a Dense module, or ``first:K`` for the first K
    columns. A FormatError or a ValueError says why it is not linear,
    or does not fit.
    """
    first, stated, is_bare = _FIRST.fullmatch(name), None, False
    if first is not None and not Path(name).exists():
        k = int(first[1])
        if not 1 <= k <= n_features:
            msg = (
                f"first:K must keep 1 to {n_features} columns, which the data have; "
                f"got {k}. Choose fewer."
            )
            raise FormatError(msg)
        found: Any = np.eye(k, n_features)
    elif Path(name).is_dir():
        found = _dense_module(Path(name))
    else:
        found, stated, is_bare = _from_file(name)
    # Only a bare matrix leaves open what its rows are.
    known = orientation if is_bare else "rows"
    try:
        components = linear_map(found, n_features, orientation=known)
    except IsoprojError:
        raise
    except ValueError as error:
        msg = f"{name} must hold a linear map of {n_features} features: {error}"
        raise FormatError(msg) from None
    if stated is None:
        return MapFile(name, components, PairRule())
    prefixes = tuple(part.n_components for part in stated.prefixes)
    return MapFile(name, components, stated.pairs, prefixes)


def _from_file(name: str) -> tuple[Any, Certificate | None, bool]:
    """Return map and certificate of a file, and whether it is a bare matrix."""
    path, _ = split_name(name)
    head = b""
    if path.is_file():
        with path.open("rb") as file:
            head = file.read(HEAD_SIZE)
        refuse_pickle(str(path), head)
        _refuse_torch(path, head)
    suffix = path.suffix.lower()
    if head.startswith((*_FAISS, _FAISS_INDEX)) or suffix == ".faiss":
        return _faiss(path, head), None, False
    if suffix == ".onnx":
        return _onnx(path), None, False
    if suffix == ".skops":
        return _skops(path), None, False
    if holds_model(name):
        header, tensors = read_container(path)
        stated = Certificate.from_parts(header.get("certificate", {}), tensors)
        return stated.components, stated, False
    return as_dense(read_points(name).points), None, True


def _refuse_torch(path: Path, head: bytes) -> None:
    """Raise FormatError if a file is an archive of PyTorch, which holds a pickle."""
    is_archive = False
    if head.startswith(b"PK") and path.suffix.lower() != ".npz":
        with whole_file(path, "zip archive"), zipfile.ZipFile(path) as archive:
            is_archive = any(name.endswith(".pkl") for name in archive.namelist())
    if is_archive or path.name == "pytorch_model.bin":
        msg = (
            f"{path} is a pickle of PyTorch, and isoproj never loads pickles: they can "
            "run code. Save the module with safetensors."
        )
        raise FormatError(msg)


def _dense_module(folder: Path) -> NDArray[Any]:
    """Return the weight of a Dense module of sentence-transformers."""
    config, weights = folder / "config.json", folder / "model.safetensors"
    if not weights.is_file():
        found = "pytorch_model.bin, a pickle" if list(folder.glob("*.bin")) else "none"
        msg = (
            f"{folder} must hold model.safetensors; it has {found}. Name a folder of "
            "a Dense module, saved with safetensors."
        )
        raise FormatError(msg)
    with whole_file(config, "JSON"):
        settings = json.loads(config.read_text(encoding="utf-8"))
        activation = str(settings.get("activation_function", "")).rpartition(".")[2]
    if activation != "Identity":
        msg = (
            f"{folder} must be a linear layer; its activation function is "
            f"{activation or 'not stated'}. Use a Dense module with Identity."
        )
        raise FormatError(msg)
    with (
        whole_file(weights, "safetensors"),
        safetensors.safe_open(str(weights), framework="numpy") as file,
    ):
        weight: NDArray[Any] = file.get_tensor("linear.weight")
    return weight


def _faiss(path: Path, head: bytes) -> Foreign:
    """Return a transform, or an index with transforms before it."""
    faiss = needed("faiss", extra="maps", purpose="A transform of faiss")
    if head.startswith(_FAISS_INDEX):
        with whole_file(path, "faiss index"):
            return faiss.read_index(str(path))
    if not head.startswith(_FAISS):
        msg = (
            f"{path} must be a transform of faiss or an index behind one; it is "
            "neither. Save the transform with faiss.write_VectorTransform."
        )
        raise FormatError(msg)
    with whole_file(path, "faiss transform"):
        return faiss.read_VectorTransform(str(path))


def _skops(path: Path) -> Foreign:
    """Return the estimator of a skops file, if it needs no type but known ones."""
    skops = needed("skops.io", extra="export", purpose="A skops pipeline")
    with whole_file(path, "skops"):
        unknown = skops.get_untrusted_types(file=path)
        if unknown:
            msg = (
                f"{path} must hold only types of scikit-learn and numpy; it holds "
                f"{unknown[0]}. Save the linear step alone."
            )
            raise FormatError(msg)
        return skops.load(path, trusted=[])


def _onnx(path: Path) -> NDArray[Any]:
    """Return the matrix of an ONNX graph with one linear layer, one output a row."""
    onnx = needed("onnx", extra="maps", purpose="An ONNX file")
    with whole_file(path, "ONNX"):
        graph = onnx.load(str(path), load_external_data=False).graph
        tensors = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
        inputs = [i.name for i in graph.input if i.name not in tensors]
        if len(inputs) != 1 or not graph.node:
            msg = f"it has {len(inputs)} inputs and {len(graph.node)} steps"
            raise ValueError(msg)
        return _layer_of(path, onnx, graph, tensors, inputs[0])


def _layer_of(
    path: Path, onnx: Foreign, graph: Foreign, tensors: dict[str, Any], at: str
) -> NDArray[Any]:
    """Follow a graph from its input; return the matrix of its only linear layer."""
    matrix: NDArray[Any] | None = None
    for node in graph.node:
        settings = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        kind, taken = node.op_type, list(node.input)
        if kind == "Constant":
            tensors[node.output[0]] = onnx.numpy_helper.to_array(settings["value"])
            continue
        if kind == "Transpose" and taken[0] in tensors:
            tensors[node.output[0]] = tensors[taken[0]].T
            continue
        others = [name for name in taken if name != at]
        is_chain = taken.count(at) == 1 and all(name in tensors for name in others)
        is_layer = kind in ("MatMul", "Gemm") and taken[0] == at and matrix is None
        is_kept = kind in _KEPT and (kind != "Sub" or taken[0] == at)
        if not is_chain or not (is_layer or is_kept) or settings.get("transA"):
            msg = (
                f"{path} must hold one linear layer (MatMul or Gemm) and added "
                f"constants; its step {kind} is something else. Export that layer "
                "alone."
            )
            raise FormatError(msg)
        if is_layer:
            weight = np.asarray(tensors[taken[1]])
            scale = settings.get("alpha", 1.0)
            weight = weight if settings.get("transB") else weight.T
            matrix = weight if scale == 1.0 else scale * weight.astype(np.float64)
        at = node.output[0]
    if matrix is None or at not in {output.name for output in graph.output}:
        msg = f"{path} must hold one linear layer; it holds none. Export one."
        raise FormatError(msg)
    return matrix
