"""The bare matrix: .npy and safetensors, readable by anything."""

from __future__ import annotations

import io

import numpy as np
import safetensors.numpy

from isoproj.certificate import Certificate

__all__ = ["to_npy", "to_safetensors"]


def to_npy(certificate: Certificate) -> bytes:
    """Return the components as the bytes of an .npy file, bit for bit.

    Parameters
    ----------
    certificate : Certificate
        Whose components.

    Returns
    -------
    bytes
        ``np.load`` gives an array of shape (k, n_features).
    """
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(certificate.components), allow_pickle=False)
    return stream.getvalue()


def to_safetensors(certificate: Certificate) -> bytes:
    """Return the components as a safetensors file with one tensor, ``components``.

    Parameters
    ----------
    certificate : Certificate
        Whose components.

    Returns
    -------
    bytes
        Project with ``x @ components.T``. What is known of them is in the metadata.
    """
    metadata = {
        "distortion": repr(certificate.distortion),
        "lower_bound": repr(certificate.lower_bound),
        "fingerprint": certificate.fingerprint,
    }
    matrix = np.ascontiguousarray(certificate.components)
    content: bytes = safetensors.numpy.save({"components": matrix}, metadata=metadata)
    return content
