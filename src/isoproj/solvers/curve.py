"""Distortion and bound at one number of dimensions after another.

Upwards, a basis for ``k`` dimensions gets the direction that the pairs losing most lack
most, which can only lower what any pair loses, and local search goes on from there, on
one working set for all. The relaxation is solved at some of the dimensions only, each
from the last: its dual weights bound the distortion at every dimension at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from isoproj.numerics.spectral import Array, Indices, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.pairs.oracle import PairSearch
from isoproj.solvers.api import Clock, Monitor, Step
from isoproj.solvers.descent.grassmann import losses, soft_maximum
from isoproj.solvers.descent.sqp import finish
from isoproj.solvers.descent.working_set import SMALL_BASIS, WorkingSet, cooled, leading
from isoproj.solvers.relaxation.newton import moment_of
from isoproj.solvers.relaxation.path import Relaxation, solve_relaxation

__all__ = ["CurveResult", "follow"]

# Warm enough to leave a basis for fewer dimensions, or a relaxation's rounding, and all
# in single precision (``solvers.working_set``).
_TEMPERATURES = (0.02, 0.007, 0.0025, 0.0007)
# Moves at one temperature, the second with the pairs that the first was blind to.
_TRIES = 2
_COUNT = 1500
_LARGEST_SET = 6_000
# A relaxation is solved where the last one is this far behind: as a share of the
# dimensions, and at least.
_STALE = 0.25
_SHORTEST = 5
# Up to here local optima differ, and the relaxation's rounding leads to others.
_LOOSE = 20


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CurveResult:
    """What the solver claims at every dimension; ``certify`` has the last word.

    Parameters
    ----------
    ks : tuple of int
        The dimensions, ascending.
    bases : tuple of ndarray
        One for each.
    relaxations : tuple of Relaxation
        Whose dual weights bound all of them.
    chosen : tuple of int
        For each dimension the relaxation that bounds it best.
    """

    ks: tuple[int, ...]
    bases: tuple[Array, ...]
    relaxations: tuple[Relaxation, ...]
    chosen: tuple[int, ...]


@single_blas_thread
def follow(
    search: PairSearch,
    ks: list[int],
    *,
    tol: float = 5e-3,
    time_limit: float | None = None,
    seed: int = 0,
    monitor: Monitor | None = None,
) -> CurveResult:
    """Find a basis at every dimension, and dual weights that bound them.

    Parameters
    ----------
    search : PairSearch
        All pairs.
    ks : list of int
        Dimensions, ascending, all below ``n_dims``.
    tol : float
        Relative solver gap of each relaxation.
    time_limit : float or None
        Seconds after which to stop with the dimensions done.
    seed : int
        Of the sample of pairs.
    monitor : callable or None
        Called with a ``Step`` for every dimension.

    Returns
    -------
    CurveResult
        With fewer dimensions where time ran out.
    """
    clock = Clock(time_limit)
    sample = search.sample(_COUNT, np.random.default_rng(seed))
    known = WorkingSet(search, sample, limit=_LARGEST_SET)
    done: list[int] = []
    bases: list[Array] = []
    relaxations: list[Relaxation] = []
    bounds: list[Array] = []
    last_solved = 0
    for k in ks:
        starts: list[Array] = []
        if bases:
            starts.append(_extended(known, bases[-1], k))
        if not bases or k - last_solved >= _stride(k) or k == ks[-1]:
            relaxation = solve_relaxation(
                search,
                k,
                tol=tol,
                start=relaxations[-1] if relaxations else None,
                callback=lambda *_: clock.is_over,
            )
            relaxations.append(relaxation)
            last_solved = k
            bounds.append(_bounds(search, relaxation))
            if k <= _LOOSE or not bases:
                starts.append(leading(relaxation.factor, k))
        basis, distortion = _best(known, starts)
        done.append(k)
        bases.append(basis)
        if monitor is not None:
            step = Step(
                iteration=k,
                distortion=distortion,
                lower_bound=max(float(each[k]) for each in bounds),
                seconds=clock.seconds,
                n_working=known.codes.size,
            )
            monitor(step)
        if clock.is_over:
            break
    return CurveResult(
        ks=tuple(done),
        bases=tuple(bases),
        relaxations=tuple(relaxations),
        chosen=tuple(np.argmax(bounds, axis=0)[done].tolist()),
    )


def _stride(k: int) -> int:
    """Return how many dimensions one relaxation serves: about a quarter of them."""
    return max(_SHORTEST, round(_STALE * k))


def _bounds(search: PairSearch, relaxation: Relaxation) -> Array:
    """Return what weights prove at 0, 1, 2, ... dimensions, up to rounding."""
    rows = search.directions(relaxation.codes)
    energies = np.linalg.eigvalsh(moment_of(rows, relaxation.weights))[::-1]
    return np.maximum(1.0 - np.concatenate([[0.0], np.cumsum(energies)]), 0.0)


def _extended(known: WorkingSet, basis: Array, k: int) -> Array:
    """Return the basis with the directions that the worst pairs lack most."""
    while basis.shape[1] < k:
        images = known.secants.images(basis)
        weights = soft_maximum(losses(images), 0.01)[1]
        rows: Indices = np.flatnonzero(weights > 1e-4 * weights.max())
        rows = rows[np.argsort(-weights[rows], kind="stable")[:500]]
        normals = known.secants.explicit(rows) - images[rows] @ basis.T
        count = min(k - basis.shape[1], len(rows))
        fresh = top_eigenpairs(moment_of(normals, weights[rows]), count)[1]
        basis = orthonormal(np.hstack([basis, fresh]))
    return basis


def _best(known: WorkingSet, starts: list[Array]) -> tuple[Array, float]:
    """Search from every start; return the best basis over all pairs."""
    best, least = starts[0], math.inf
    for start in starts:
        basis = start
        overall = known.grow(basis, 0.01, _COUNT)[1]
        if overall < least:
            best, least = basis, overall
        for temperature in _TEMPERATURES:
            for _ in range(_TRIES):
                basis = cooled(known.secants, basis, temperature, loosely=True)
                excess, overall = known.grow(basis, 2.0 * temperature + 0.005, _COUNT)
                if overall < least:
                    best, least = basis, overall
                if excess < 2.0 * temperature:
                    break
    if best.size <= SMALL_BASIS:
        polished = finish(known.secants, best, max_iter=1)
        overall = known.grow(polished, 0.005, _COUNT)[1]
        if overall < least:
            best, least = polished, overall
    return best, least
