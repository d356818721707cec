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

from isoproj._spectral import Array, Indices, orthonormal
from isoproj._threads import single_blas_thread
from isoproj.search import PairSearch
from isoproj.solvers.base import Clock, Monitor, Step
from isoproj.solvers.grassmann import losses, soft_maximum
from isoproj.solvers.newton import moment_of
from isoproj.solvers.relaxation import Relaxation, solve_relaxation
from isoproj.solvers.tight import finish
from isoproj.solvers.working_set import SMALL_BASIS, WorkingSet, cooled, leading

__all__ = ["CurveResult", "follow"]

_TEMPERATURES = (0.003, 0.0007, 0.0007)
# From a relaxation's rounding, which is no local optimum of anything.
_HOT_TEMPERATURES = (0.05, 0.02, 0.008)
_COUNT = 1500
_LARGEST_SET = 24_000
# A relaxation is solved where the last bound has fallen this far behind, at most.
_STALE = 0.1


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
    """

    ks: tuple[int, ...]
    bases: tuple[Array, ...]
    relaxations: tuple[Relaxation, ...]


@single_blas_thread
def follow(
    search: PairSearch,
    ks: list[int],
    *,
    tol: float = 1e-2,
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
    bounds = np.zeros(search.points.n_dims + 1)
    last_solved = 0
    for k in ks:
        starts: list[tuple[Array, tuple[float, ...]]] = []
        if bases:
            starts.append((_extended(known, bases[-1], k), _TEMPERATURES))
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
            np.maximum(bounds, _bounds(search, relaxation), out=bounds)
            rounded = leading(relaxation.factor, k)
            starts.append((rounded, _HOT_TEMPERATURES + _TEMPERATURES))
        basis, distortion = _best(known, starts)
        done.append(k)
        bases.append(basis)
        if monitor is not None:
            step = Step(
                iteration=k,
                distortion=distortion,
                lower_bound=float(bounds[k]),
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
    )


def _stride(k: int) -> int:
    """Return how many dimensions one relaxation serves: about a tenth of them."""
    return max(1, round(_STALE * k))


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
        normals *= np.sqrt(weights[rows])[:, None]
        fresh = np.linalg.svd(normals, full_matrices=False)[2][: k - basis.shape[1]]
        basis = orthonormal(np.hstack([basis, fresh.T]))
    return basis


def _best(
    known: WorkingSet, starts: list[tuple[Array, tuple[float, ...]]]
) -> tuple[Array, float]:
    """Search from every start; return the best basis over all pairs."""
    best, least = starts[0][0], math.inf
    for start, temperatures in starts:
        basis = start
        overall = known.grow(basis, 0.01, _COUNT)[1]
        if overall < least:
            best, least = basis, overall
        for temperature in temperatures:
            basis = cooled(known.secants, basis, temperature)
            overall = known.grow(basis, 2.0 * temperature + 0.005, _COUNT)[1]
            if overall < least:
                best, least = basis, overall
    if best.size <= SMALL_BASIS:
        polished = finish(known.secants, best, max_iter=2)
        overall = known.grow(polished, 0.005, _COUNT)[1]
        if overall < least:
            best, least = polished, overall
    return best, least
