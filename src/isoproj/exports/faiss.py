"""A ``LinearTransform`` that a stock faiss reads and applies; faiss is not needed."""

from __future__ import annotations

import struct

import numpy as np

from isoproj.certificate import Certificate

__all__ = ["to_faiss"]


def to_faiss(certificate: Certificate) -> bytes:
    """Return the projection as ``faiss.read_VectorTransform`` expects it.

    The layout is faiss's own: a four-letter mark, whether there is a bias, the matrix
    row by row in float32 behind its length, an empty bias, the two widths, and whether
    it is trained; all little-endian.

    Parameters
    ----------
    certificate : Certificate
        Whose components.

    Returns
    -------
    bytes
        A ``LinearTransform`` from n_features to k dimensions.
    """
    matrix = np.ascontiguousarray(certificate.components, dtype="<f4")
    k, n_features = matrix.shape
    return b"".join(
        [
            b"LTra",
            struct.pack("<?", False),
            struct.pack("<Q", matrix.size),
            matrix.tobytes(),
            struct.pack("<Q", 0),
            struct.pack("<ii?", n_features, k, True),
        ]
    )
