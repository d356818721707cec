"""Export a projection as a Dense module of sentence-transformers; torch is not needed.

The module is a folder: ``config.json`` and the weights in ``model.safetensors``.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
from pathlib import Path

import numpy as np
import safetensors.numpy
from numpy.typing import ArrayLike

from isoproj.files.export.matrices import offset_of
from isoproj.numerics.container import write_atomically
from isoproj.proof.certificate import Certificate

# The files of a module.
FILES = {"config.json", "model.safetensors"}


def to_dense(
    certificate: Certificate, mean: ArrayLike | None = None
) -> dict[str, bytes]:
    """Return the files of the module by name; ``Dense.load(folder)`` reads them.

    The module computes ``x @ components.T`` in float32, or
    ``(x - mean) @ components.T`` if a mean is given, with no activation.
    """
    k, n_features = certificate.components.shape
    weights = {
        "linear.weight": np.ascontiguousarray(certificate.components, dtype=np.float32)
    }
    if mean is not None:
        weights["linear.bias"] = offset_of(certificate, mean).astype(np.float32)
    config = {
        "in_features": n_features,
        "out_features": k,
        "bias": mean is not None,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    return {
        "config.json": json.dumps(config, indent=2).encode(),
        "model.safetensors": safetensors.numpy.save(weights, {"format": "pt"}),
    }


def write_folder(path: str | os.PathLike[str], files: dict[str, bytes]) -> None:
    """Write files to a folder, all of them or none if the folder is new."""
    target = Path(path)
    if target.exists():
        for name, content in files.items():
            write_atomically(target / name, content)
        return
    folder = target.parent / f".isoproj.{secrets.token_hex(8)}"
    folder.mkdir()
    try:
        for name, content in files.items():
            write_atomically(folder / name, content)
        folder.replace(target)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
