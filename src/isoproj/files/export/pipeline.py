"""A pipeline of stock scikit-learn parts, saved by skops: loads without isoproj."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.pipeline import Pipeline

from isoproj.numerics.extras import needed
from isoproj.proof.certificate import Certificate

__all__ = ["to_pipeline", "to_skops"]


def to_pipeline(
    certificate: Certificate,
    names: Sequence[str] | None = None,
    mean: ArrayLike | None = None,
) -> Any:  # noqa: ANN401 - scikit-learn's
    """Return a fitted pipeline that projects, made of scikit-learn's own classes.

    ``TruncatedSVD.transform`` is ``X @ components_.T`` and nothing else, for dense and
    sparse rows in their own precision: it carries the matrix, whoever found it. A model
    that subtracts a mean is carried by ``PCA``.

    Parameters
    ----------
    certificate : Certificate
        Whose components.
    names : sequence of str or None
        Feature names.
    mean : ndarray of shape (n_features,) or None
        What the model subtracts first, where it does.

    Returns
    -------
    Pipeline
        One step, ``near_isometric_projection``.
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
    """Return the pipeline as a skops file, which needs no trust to be loaded.

    Parameters
    ----------
    certificate : Certificate
        Whose components.
    names : sequence of str or None
        Feature names.
    mean : ndarray of shape (n_features,) or None
        What the model subtracts first, where it does.

    Returns
    -------
    bytes
        ``skops.io.load`` gives the pipeline.

    Raises
    ------
    MissingExtraError
        If skops is not installed.
    """
    skops = needed("skops.io", extra="export", purpose="A skops pipeline")
    content: bytes = skops.dumps(to_pipeline(certificate, names, mean))
    return content
