"""Tiny and degenerate data give a certified fit or one clear line."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse

from isoproj import GuaranteedPCA, NearIsometricProjection
from isoproj.exceptions import IsoprojError
from isoproj.proof.verify import check_claims

# Errors that say what to change, beside those of isoproj.
CLEAR = ("must", "needs", "draws from")


def rows_of(rng, kind):
    """Return some rows of one degenerate kind."""
    r, d = int(rng.integers(2, 8)), int(rng.integers(1, 6))
    normal = rng.normal(size=(r, d))
    if kind == "constant":
        return np.tile(normal[0], (r, 1))
    if kind == "nearly duplicate":
        return np.vstack([normal, normal + 1e-12 * rng.normal(size=(r, d))])
    if kind == "scales":
        return normal * 10.0 ** rng.integers(-12, 12, size=(r, 1))
    if kind == "sparse":
        return scipy.sparse.csr_array(normal * (rng.random((r, d)) < 0.4))
    if kind == "sparse scales":
        factors = 10.0 ** rng.choice([-150, -8, 0, 8, 150], size=(r, 1))
        return scipy.sparse.csr_array(normal * factors * (rng.random((r, d)) < 0.5))
    if kind == "triangle":
        return rng.normal(size=(3, 2))
    if kind == "line":
        return np.outer(normal[:, 0], normal[0])
    return np.round(normal)


KINDS = (
    "constant",
    "nearly duplicate",
    "scales",
    "sparse",
    "sparse scales",
    "triangle",
    "line",
    "whole numbers",
)
PAIRS = (
    {},
    {"include_norms": True},
    {"pairs": "directions"},
    {"pairs": "neighbors", "n_neighbors": 1},
    {"memory_limit": 0.0},
)
PAIRS_OF_3 = ((0, 1), (0, 2), (1, 2))


def check_fit(model, rows):
    """Fit; check bounds, claims and images, or that the refusal is clear."""
    try:
        model.fit(rows)
    except IsoprojError:
        return False
    except ValueError as error:
        if not any(word in str(error) for word in CLEAR):
            raise
        return False
    assert 0.0 <= model.lower_bound_ <= model.distortion_ <= 1.0
    assert np.isfinite(model.transform(rows)).all()
    assert all(claim.holds for claim in check_claims(model, rows))
    return True


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", [NearIsometricProjection, GuaranteedPCA])
def test_degenerate_data_are_fitted_or_refused_in_one_line(method, kind):
    rng = np.random.default_rng(KINDS.index(kind))
    done = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for options in PAIRS:
            rows = rows_of(rng, kind)
            k = int(rng.integers(1, rows.shape[1] + 1))
            done += check_fit(method(k, time_limit=0.1, **options), rows)
    assert done or kind == "constant"


@pytest.mark.filterwarnings("ignore::isoproj.exceptions.DuplicatePointsWarning")
@pytest.mark.parametrize("form", [np.asarray, scipy.sparse.csr_array])
@pytest.mark.parametrize("k", [1, 3, 6])
@pytest.mark.parametrize("options", PAIRS[1:3])
def test_rows_without_variance_are_refused_whatever_k(k, options, form):
    rows = form(np.tile(np.random.default_rng(0).normal(size=6), (4, 1)))
    with pytest.raises(ValueError, match="two distinct points"):
        GuaranteedPCA(k, **options).fit(rows)


@pytest.mark.parametrize("options", PAIRS[1:3])
def test_rows_without_variance_have_lengths_to_keep(options):
    rows = np.tile([1.0, 2.0, 3.0], (4, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = GuaranteedPCA(1, objective="distortion", **options).fit(rows)
    assert model.distortion_ < 1e-9


@pytest.mark.parametrize("seed", range(25))
def test_three_points_in_the_plane_are_fitted(seed):
    rows = np.random.default_rng(seed).normal(size=(3, 2))
    model = NearIsometricProjection(1).fit(rows)
    # Three directions in the plane: the best line bisects the widest gap.
    angles = np.sort([np.arctan2(*(rows[i] - rows[j])) % np.pi for i, j in PAIRS_OF_3])
    gaps = np.diff([*angles, angles[0] + np.pi])
    assert abs(model.distortion_ - np.cos(gaps.max() / 2.0) ** 2) < 0.01
    assert model.lower_bound_ <= model.distortion_
