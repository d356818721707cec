"""Export the components as an .npy or a safetensors file."""

from __future__ import annotations

import io

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike

from isoproj.numerics.spectral import Array
from isoproj.proof.certificate import Certificate


def offset_of(certificate: Certificate, mean: ArrayLike | None) -> Array:
    """Return ``-components @ mean``: add it to ``x @ components.T`` to centre.

    Without a mean there are zeros to add.
    """
    if mean is None:
        return np.zeros(certificate.n_components)
    exact = certificate.components.astype(np.float64)
    return np.asarray(-exact @ np.asarray(mean, dtype=np.float64))


def to_npy(certificate: Certificate) -> bytes:
    """Return the components as an .npy file, without the mean of the model.

    If the model subtracts a mean, its projections differ from ``x @ components.T`` by a
    shift that is the same for all points.
    """
    stream = io.BytesIO()
    np.save(stream, np.ascontiguousarray(certificate.components), allow_pickle=False)
    return stream.getvalue()


def to_safetensors(certificate: Certificate, mean: ArrayLike | None = None) -> bytes:
    """Return a safetensors file with ``components``, and ``mean`` if it is given.

    Project with ``x @ components.T`` or ``(x - mean) @ components.T``. The metadata
    hold distortion, lower bound and fingerprint of the data.
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
