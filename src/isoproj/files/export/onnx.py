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

# Number of the type float in onnx.proto.
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
    node = _message(
        *((1, name) for name in inputs), (2, "Z"), (3, "project"), (4, operation)
    )
    graph = _message(
        (1, node),
        (2, "isoproj"),
        *((5, tensor) for tensor in tensors),
        (11, _value("X", n_features)),
        (12, _value("Z", k)),
    )
    # Version 8 of the format, and version 13 of its own operators.
    operators = _message((1, ""), (2, 13))
    return _message(
        (1, 8), (2, "isoproj"), (3, __version__), (7, graph), (8, operators)
    )


def _varint(value: int) -> bytes:
    """Encode an integer: seven bits a byte, lowest first; the top bit is "more"."""
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _message(*fields: tuple[int, int | str | bytes]) -> bytes:
    """Encode fields: a number each, and an integer, a text or a message."""
    out = b""
    for field, value in fields:
        if isinstance(value, int):
            out += _varint(field << 3) + _varint(value)
        else:
            content = value.encode() if isinstance(value, str) else value
            out += _varint(field << 3 | 2) + _varint(len(content)) + content
    return out


def _tensor(name: str, matrix: np.ndarray) -> bytes:
    """Encode a named float32 array."""
    sizes = ((1, size) for size in matrix.shape)
    return _message(*sizes, (2, _FLOAT), (8, name), (9, matrix.tobytes()))


def _value(name: str, width: int) -> bytes:
    """Encode a named float matrix with any number of rows and ``width`` columns."""
    shape = _message((1, _message((2, "N"))), (1, _message((1, width))))
    tensor = _message((1, _FLOAT), (2, shape))
    return _message((1, name), (2, _message((1, tensor))))
