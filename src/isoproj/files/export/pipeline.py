"""Export a projection as a scikit-learn pipeline, which loads without isoproj."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import Pipeline

from isoproj.numerics.extras import needed
from isoproj.numerics.spectral import Foreign
from isoproj.proof.certificate import Certificate


def to_pipeline(
    certificate: Certificate,
    names: Sequence[str] | None = None,
    mean: ArrayLike | None = None,
) -> Foreign:
    """Return a fitted pipeline with one step of scikit-learn that projects.

    The step is a ``TruncatedSVD``, whose ``transform`` is ``X @ components_.T``, or a
    ``PCA`` if a mean is subtracted. ``names`` are those of the features.
    """
    carrier: Any
    if mean is None:
        carrier = TruncatedSVD(n_components=certificate.n_components)
    else:
        carrier = PCA(n_components=certificate.n_components)
        carrier.mean_ = np.array(mean)
    carrier.components_ = np.array(certificate.components)
    carrier.n_features_in_ = certificate.n_features
    if names is not None:
        carrier.feature_names_in_ = np.asarray(list(names), dtype=object)
    return Pipeline([("near_isometric_projection", carrier)])


def to_skops(
    certificate: Certificate,
    names: Sequence[str] | None = None,
    mean: ArrayLike | None = None,
) -> bytes:
    """Return the pipeline as a file for ``skops.io.load``, which runs no code."""
    skops = needed("skops.io", extra="export", purpose="A skops pipeline")
    content: bytes = skops.dumps(to_pipeline(certificate, names, mean))
    return content
