"""Both bounds of random fits hold in exact rational numbers."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from attacks.exact import SEED, orthonormal_near, rational, worst_loss
from isoproj import GuaranteedPCA, NearIsometricProjection, verify
from isoproj.exceptions import InfeasibleError

# The distortion stated is rounded up by at most this much.
ROUNDING = 1e-9


def random_rows(rng):
    """Return few points: general, with ties, far from the origin, or of odd scales."""
    n, d = int(rng.integers(3, 9)), int(rng.integers(2, 5))
    rows = rng.standard_normal((n, d))
    kind = int(rng.integers(8))
    if kind == 1:
        rows = rng.integers(-2, 3, (n, d)).astype(float)
    elif kind == 2:
        rows = np.round(rows, 1) + 1e6
    elif kind == 3:
        rows *= 10.0 ** rng.integers(-3, 4, d)
    elif kind == 4:
        rows[1:] = rows[0] + 1e-6 * rows[1:]
    elif kind == 5:
        rows = rows.astype(np.float32)
    elif kind == 6:
        rows = (rng.random((n, d)) < 0.5).astype(float)
    elif kind == 7:
        rows *= 10.0 ** rng.integers(-100, 100)
    return rows


def random_model(rng, d):
    """Return an estimator with random options."""
    k, seed = int(rng.integers(1, d)), int(rng.integers(2**31))
    kind = int(rng.integers(6))
    if kind < 3:
        return NearIsometricProjection(k, solver="dual_ascent", max_iter=8)
    if kind == 3:
        return GuaranteedPCA(k, max_iter=2, tol=0.1, random_state=seed)
    norms = kind == 4
    return NearIsometricProjection(
        k, max_iter=1, n_restarts=0, include_norms=norms, random_state=seed
    )


def check(model, rows, rng):
    """Assert that both bounds hold without any rounding of ours."""
    exact = rational(rows)
    if getattr(model, "include_norms", False):
        exact.append([0 * value for value in exact[0]])
    shipped = worst_loss(exact, rational(model.components_))
    stated, lower = model.distortion_, model.lower_bound_
    assert lower <= stated
    assert shipped <= stated <= shipped + ROUNDING
    k, d = model.components_.shape
    near = model.components_.astype(float)
    drawn = np.linalg.qr(rng.standard_normal((d, k)))[0].T
    axes = np.linalg.svd(np.asarray(rows, float) - np.asarray(rows[0], float))[2][:k]
    for basis in (near, drawn, axes):
        # No orthonormal rows whatever may lose less than the lower bound.
        assert lower <= worst_loss(exact, orthonormal_near(basis))


def attack(first, count, figures):
    n_fits = n_infeasible = n_single = 0
    tightest = 1.0
    for at in range(first, first + count):
        rng = np.random.default_rng([SEED, at])
        rows = random_rows(rng)
        if len(np.unique(rows, axis=0)) < 2:
            n_single += 1
            continue
        model = random_model(rng, rows.shape[1])
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model.fit(rows)
        except InfeasibleError:
            n_infeasible += 1
            continue
        except Exception as error:
            error.add_note(f"seed {SEED}, fit {at}: {model} on {rows.tolist()}")
            raise
        n_fits += 1
        try:
            check(model, rows, rng)
            if at % 5 == 0:
                verify(model, rows)
        except Exception as error:
            error.add_note(f"seed {SEED}, fit {at}: {model} on {rows.tolist()}")
            raise
        tightest = min(tightest, model.distortion_ - model.lower_bound_)
    figures(
        f"seed {SEED}, {n_fits} fits exact on both sides, {n_infeasible} infeasible, "
        f"{n_single} single points; smallest gap {tightest:.1e}"
    )


def test_a_few_random_fits_hold_exactly(figures):
    attack(0, 12, figures)


@pytest.mark.attack
@pytest.mark.parametrize("part", range(21))
def test_random_fits_hold_exactly(part, figures):
    attack(1000 + 100 * part, 100, figures)
