"""Export a projection as a ``LinearTransform`` of faiss; faiss is not needed."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import ArrayLike

from isoproj.files.export.matrices import offset_of
from isoproj.proof.certificate import Certificate


def to_faiss(certificate: Certificate, mean: ArrayLike | None = None) -> bytes:
    """Return a file for ``faiss.read_VectorTransform``.

    The layout is that of faiss, little-endian: a mark of four letters, whether there is
    a bias, length and entries of the matrix in float32, length and entries of the bias,
    both numbers of dimensions, and whether the transform is trained. The model
    subtracts ``mean`` first, if it is given.
    """
    matrix = np.ascontiguousarray(certificate.components, dtype="<f4")
    k, n_features = matrix.shape
    offset = np.empty(0) if mean is None else offset_of(certificate, mean)
    bias = offset.astype("<f4")
    head = struct.pack("<4s?Q", b"LTra", mean is not None, matrix.size)
    tail = struct.pack("<ii?", n_features, k, True)
    size = struct.pack("<Q", bias.size)
    return head + matrix.tobytes() + size + bias.tobytes() + tail
