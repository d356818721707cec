from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud, every_pair, random_simplex

from isoproj.pairs.moments import far_moment
from isoproj.pairs.points import Points
from isoproj.proof.bounds import lower_bound

EPS = np.finfo(np.float64).eps


def long_moment(rows, pairs, weights):
    """Return the weighted moment from differences, in extended precision."""
    wide = np.asarray(rows, dtype=np.longdouble)
    gaps = wide[pairs[:, 0]] - wide[pairs[:, 1]]
    shares = weights / weights.sum(dtype=np.longdouble)
    return ((gaps * (shares / (gaps**2).sum(axis=1))[:, None]).T @ gaps).astype(float)


def clusters(seed):
    rows = cloud(seed, 120, 7)
    rows[60:] += 30.0
    rows[1] = rows[0] + 1e-7
    return rows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("offset", [0.0, 1e3])
@pytest.mark.parametrize("make", [lambda s: cloud(s, 120, 7), clusters])
def test_far_and_near_pairs_make_up_the_moment_to_the_error_promised(
    make, seed, offset
):
    rows, pairs = make(seed) + offset, every_pair(120)
    weights = random_simplex(seed, pairs.shape[0])
    # What a bound allows for, and no more.
    allowed = EPS * (pairs.shape[0] + rows.shape[1])
    found = far_moment(rows, pairs, weights, allowed)
    assert found is not None
    moment, far = found
    share = weights[far].sum()
    exact = long_moment(rows, pairs[far], weights[far]) * share
    # Weights that rounding of squared lengths changes prove as much; compare shapes.
    rounding = 2 * 100 * EPS * (rows.shape[1] + 4)
    assert np.linalg.norm(moment - exact, 2) <= allowed + rounding
    assert abs(np.trace(moment) - share) < 1e-12


def test_the_bound_is_the_same_as_from_one_direction_per_pair(monkeypatch):
    rows, pairs = clusters(3), every_pair(120)
    points = Points.prepare(rows, rotate=True)
    weights = random_simplex(3, pairs.shape[0])
    dense = lower_bound(points, pairs, weights, 3)
    allowed = EPS * (pairs.shape[0] + rows.shape[1])
    assert far_moment(rows, pairs, weights, allowed) is not None
    monkeypatch.setattr("isoproj.proof.bounds.far_moment", lambda *_: None)
    assert abs(dense - lower_bound(points, pairs, weights, 3)) < 1e-12


def test_few_directions_are_formed_for_weights_on_every_pair(monkeypatch):
    rows, pairs = cloud(0, 300, 20), every_pair(300)
    asked = []
    honest = Points.differences

    def counted(self, some):
        asked.append(len(some))
        return honest(self, some)

    monkeypatch.setattr(Points, "differences", counted)
    lower_bound(Points.prepare(rows, rotate=True), pairs, np.ones(len(pairs)), 5)
    assert sum(asked) < len(pairs) / 100


@pytest.mark.parametrize("scale", [1e-160, 1e160])
def test_extreme_scales_are_left_to_directions(scale):
    pairs = every_pair(120)
    weights = random_simplex(0, pairs.shape[0])
    assert far_moment(cloud(0, 120, 7) * scale, pairs, weights, 1.0) is None


def test_a_pair_listed_twice_is_left_to_directions():
    rows, pairs = cloud(0, 120, 7), every_pair(120)
    twice = np.vstack([pairs, pairs[:1, ::-1]])
    assert far_moment(rows, twice, random_simplex(0, len(twice)), 1.0) is None


def test_an_error_that_cannot_be_promised_is_left_to_directions():
    pairs = every_pair(120)
    weights = random_simplex(0, pairs.shape[0])
    assert far_moment(cloud(0, 120, 7), pairs, weights, 1e-16) is None
