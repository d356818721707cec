"""The bare arrays: .npy and safetensors, readable by anything."""

from __future__ import annotations

import io

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike

from isoproj.numerics.spectral import Array
from isoproj.proof.certificate import Certificate

__all__ = ["offset_of", "to_npy", "to_safetensors"]


def offset_of(certificate: Certificate, mean: ArrayLike) -> Array:
    """Return what to add to ``x @ components.T`` so that the mean goes to zero.

    Parameters
    ----------
    certificate : Certificate
        Whose components.
    mean : array-like of shape (n_features,)
        What the model subtracts first.

    Returns
    -------
    ndarray of shape (k,)
        ``-components @ mean``, in float64.
    """
    exact = certificate.components.astype(np.float64)
    return np.asarray(-exact @ np.asarray(mean, dtype=np.float64))


def to_npy(certificate: Certificate) -> bytes:
    """Return the components as the bytes of an .npy file, bit for bit.

    The matrix alone: of a model that subtracts a mean, projections differ from it by
    the same shift for all points.

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


def to_safetensors(certificate: Certificate, mean: ArrayLike | None = None) -> bytes:
    """Return a safetensors file with ``components`` and, where there is one, ``mean``.

    Parameters
    ----------
    certificate : Certificate
        Whose components.
    mean : ndarray of shape (n_features,) or None
        What the model subtracts first, where it does.

    Returns
    -------
    bytes
        Project with ``x @ components.T``, or ``(x - mean) @ components.T``. What is
        known of them is in the metadata.
    """
    metadata = {
        "distortion": repr(certificate.distortion),
        "lower_bound": repr(certificate.lower_bound),
        "fingerprint": certificate.fingerprint,
    }
    tensors = {"components": np.ascontiguousarray(certificate.components)}
    if mean is not None:
        tensors["mean"] = np.ascontiguousarray(mean)
    content: bytes = safetensors.numpy.save(tensors, metadata=metadata)
    return content
