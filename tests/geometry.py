"""What several test files share: data of known shape and slow, certain answers."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from paper.datasets import MissingDataError, load, sample

seeds = st.integers(0, 2**32 - 1)

# Three lines at 60 degrees: for k = 1 the relaxation stays below the optimum.
THREE_LINES = np.array([[1.0, 0.0], [0.5, np.sqrt(0.75)], [-0.5, np.sqrt(0.75)]])

# One descent and a loose bound, for tests that state nothing about how good a fit is.
QUICK = {"tol": 0.5, "n_restarts": 0}
QUICK_CAPPED = {"tol": 0.5, "slack": 0.5}


def cloud(seed, n_points, n_features):
    return np.random.default_rng(seed).normal(size=(n_points, n_features))


def random_basis(seed, n_features, k):
    """Return orthonormal columns."""
    return np.linalg.qr(cloud(seed, n_features, k))[0]


def random_simplex(seed, n):
    return np.random.default_rng(seed).dirichlet(np.full(n, 0.3))


def every_pair(n_points):
    return np.column_stack(np.triu_indices(n_points, 1))


def brute_losses(rows, components, pairs=None):
    """Return pairs of distinct points and what each loses, from differences.

    ``longdouble`` where the machine has it, so that the reference is the better one.
    """
    pairs = every_pair(len(rows)) if pairs is None else np.asarray(pairs)
    wide = np.asarray(rows, dtype=np.longdouble)
    gaps = wide[pairs[:, 0]] - wide[pairs[:, 1]]
    size = np.abs(gaps).max(axis=1)
    pairs, gaps, size = pairs[size > 0], gaps[size > 0], size[size > 0]
    gaps = gaps / size[:, None]
    mapped = gaps @ np.asarray(components, dtype=np.longdouble).T
    losses = 1 - (mapped**2).sum(axis=1) / (gaps**2).sum(axis=1)
    return pairs, losses.astype(np.float64)


def brute_distortion(rows, components, pairs=None):
    return float(brute_losses(rows, components, pairs)[1].max())


def mnist_digits(digit, n_images, seed=0):
    """Return images as the paper samples them, or None where MNIST is absent."""
    try:
        return sample(load("mnist", offline=True), (digit,), n_images, seed)
    except MissingDataError:
        return None
