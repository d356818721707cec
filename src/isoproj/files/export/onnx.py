"""Export a projection as an ONNX graph of one node; onnx is not needed.

An ONNX file is a protocol buffer. Every field is a number, which says which field it is
and how it is encoded, followed by the value. Strings and messages follow their length.
The field numbers are those of the public ``onnx.proto``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from isoproj._version import __version__
from isoproj.files.export.matrices import offset_of
from isoproj.proof.certificate import Certificate

# Numbers from onnx.proto: format version, operator set, and type of a float.
_IR_VERSION = 8
_OPSET = 13
_FLOAT = 1


def to_onnx(certificate: Certificate, mean: ArrayLike | None = None) -> bytes:
    """Return an ONNX model with input ``X`` (float32, N x n_features) and output ``Z``.

    ``Z`` is ``X @ components.T``, or ``(X - mean) @ components.T`` if a mean is given.
    """
    k, n_features = certificate.components.shape
    matrix = np.ascontiguousarray(certificate.components.T, dtype="<f4")
    inputs, tensors, operation = ["X", "W"], [_tensor("W", matrix)], "MatMul"
    if mean is not None:
        offset = offset_of(certificate, mean).astype("<f4")
        inputs, operation = [*inputs, "B"], "Gemm"
        tensors.append(_tensor("B", offset))
    node = (
        b"".join(_text(1, name) for name in inputs)
        + _text(2, "Z")
        + _text(3, "project")
        + _text(4, operation)
    )
    graph = (
        _field(1, node)
        + _text(2, "isoproj")
        + b"".join(_field(5, tensor) for tensor in tensors)
        + _field(11, _value("X", n_features))
        + _field(12, _value("Z", k))
    )
    return (
        _number(1, _IR_VERSION)
        + _text(2, "isoproj")
        + _text(3, __version__)
        + _field(7, graph)
        + _field(8, _text(1, "") + _number(2, _OPSET))
    )


def _varint(value: int) -> bytes:
    """Encode an integer: seven bits a byte, lowest first; the top bit is "more"."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number(field: int, value: int) -> bytes:
    """Encode a field with an integer."""
    return _varint(field << 3) + _varint(value)


def _field(field: int, content: bytes) -> bytes:
    """Encode a field with bytes or a message."""
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, text: str) -> bytes:
    """Encode a field with a text."""
    return _field(field, text.encode())


def _tensor(name: str, matrix: np.ndarray) -> bytes:
    """Encode a named float32 array."""
    sizes = b"".join(_number(1, size) for size in matrix.shape)
    return sizes + _number(2, _FLOAT) + _text(8, name) + _field(9, matrix.tobytes())


def _value(name: str, width: int) -> bytes:
    """Encode a named float matrix with any number of rows and ``width`` columns."""
    shape = _field(1, _text(2, "N")) + _field(1, _number(1, width))
    tensor = _number(1, _FLOAT) + _field(2, shape)
    return _text(1, name) + _field(2, _field(1, tensor))
