from __future__ import annotations

import numpy as np
import pytest
from geometry import cloud
from numpy.testing import assert_allclose

from isoproj.pairs.oracle import PairSearch
from isoproj.pairs.rule import prepare_pairs
from isoproj.solvers.relaxation.iterate import Iterate
from isoproj.solvers.relaxation.matrices import moment_of, quadratic
from isoproj.solvers.relaxation.newton import NewtonSystem, _schur_complement
from isoproj.solvers.relaxation.path import advance
from isoproj.solvers.relaxation.problem import LargestFloor
from isoproj.solvers.settings import RelaxationSettings


def iterate_of(seed: int, n_steps: int) -> Iterate:
    """Return an iterate some steps along the path."""
    search = PairSearch(*prepare_pairs(cloud(seed, 25, 9), rotate=True))
    iterate = LargestFloor(3).start(search, RelaxationSettings())
    for _ in range(n_steps):
        advance(iterate)
    return iterate


@pytest.mark.parametrize("n_steps", [0, 3])
@pytest.mark.parametrize("target", [0.0, 1e-4])
def test_a_newton_direction_solves_the_linearised_conditions(n_steps, target):
    iterate = iterate_of(1, n_steps)
    system = NewtonSystem(iterate)
    move = system.direction(None, target)
    width = len(iterate.projector)
    # Linear conditions hold exactly after a whole step.
    assert_allclose(np.trace(iterate.projector + move.projector), 3.0, atol=1e-9)
    kept = quadratic(iterate.images, iterate.projector + move.projector)
    left = kept - (iterate.t + move.t) - (iterate.slacks + move.slacks)
    assert_allclose(left, 0.0, atol=1e-9)
    assert_allclose((iterate.weights + move.weights).sum(), 1.0, atol=1e-9)
    # Products of weights and slacks reach the target to first order.
    products = iterate.weights * iterate.slacks
    change = iterate.weights * move.slacks + iterate.slacks * move.weights
    assert_allclose(products + change, target, atol=2e-2 * products.max())
    # The dual matrix and both multipliers balance.
    lower, upper = system.dual_moves(move)
    dual = moment_of(iterate.images, iterate.weights + move.weights)
    dual -= (iterate.level + move.level) * np.eye(width)
    dual += iterate.lower_dual + lower - iterate.upper_dual - upper
    assert_allclose(dual, 0.0, atol=1e-7)


def test_a_step_stays_inside_and_lowers_the_barrier():
    iterate = iterate_of(2, 0)
    before = iterate.barrier
    for _ in range(4):
        advance(iterate)
        occupations = np.linalg.eigvalsh(iterate.projector)
        assert occupations[0] > 0.0
        assert occupations[-1] < 1.0
        assert iterate.weights.min() > 0.0
        assert iterate.slacks.min() > 0.0
    assert iterate.barrier < before


def test_single_precision_gives_the_same_schur_complement():
    rng = np.random.default_rng(0)
    images = rng.standard_normal((30, 6))
    images[:, 2] = 0.0
    images[:, 4] *= 1e-200
    root = rng.standard_normal((6, 6))
    kernel = root @ root.T
    double = _schur_complement(images, kernel, 1e-12)
    single = _schur_complement(images, kernel, 1e-12, is_single=True)
    np.testing.assert_allclose(single, double, atol=1e-5 * np.abs(double).max())
