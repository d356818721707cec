"""A ``LinearTransform`` that a stock faiss reads and applies; faiss is not needed."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import ArrayLike

from isoproj.files.export.matrices import offset_of
from isoproj.proof.certificate import Certificate

__all__ = ["to_faiss"]


def to_faiss(certificate: Certificate, mean: ArrayLike | None = None) -> bytes:
    """Return the projection as ``faiss.read_VectorTransform`` expects it.

    The layout is faiss's own: a four-letter mark, whether there is a bias, the matrix
    row by row in float32 behind its length, the bias likewise, the two widths, and
    whether it is trained; all little-endian.

    Parameters
    ----------
    certificate : Certificate
        Whose components.
    mean : ndarray of shape (n_features,) or None
        What the model subtracts first, where it does.

    Returns
    -------
    bytes
        A ``LinearTransform`` from n_features to k dimensions.
    """
    matrix = np.ascontiguousarray(certificate.components, dtype="<f4")
    k, n_features = matrix.shape
    offset = np.empty(0) if mean is None else offset_of(certificate, mean)
    bias = offset.astype("<f4")
    return b"".join(
        [
            b"LTra",
            struct.pack("<?", mean is not None),
            struct.pack("<Q", matrix.size),
            matrix.tobytes(),
            struct.pack("<Q", bias.size),
            bias.tobytes(),
            struct.pack("<ii?", n_features, k, True),
        ]
    )
