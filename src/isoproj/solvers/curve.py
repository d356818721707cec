"""Distortion and bound at one number of dimensions after another."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isoproj.numerics.progress import Step, tell
from isoproj.numerics.spectral import Array, orthonormal, top_eigenpairs
from isoproj.numerics.threads import single_blas_thread
from isoproj.solvers.api import Journal, Problem, Result
from isoproj.solvers.drive import minimax
from isoproj.solvers.settings import Settings
from isoproj.solvers.smoothed import losses, soft_maximum


@single_blas_thread
def follow(
    problem: Problem, ks: list[int], settings: Settings | None = None
) -> list[Result]:
    """Solve at every number of dimensions, each from the one before.

    ``ks`` ascend and are below ``n_dims``. A basis for fewer dimensions gets the
    directions that the pairs losing most lack most, which can only lower what any pair
    loses. Where time runs out, the result has fewer dimensions, but at least one.
    """
    settings = Settings() if settings is None else settings
    clock, found = problem.journal.clock, list[Result]()
    for number, k in enumerate(ks):
        # The time left is shared out evenly.
        journal = Journal(clock.part(1.0 / (len(ks) - number)))
        posed = replace(problem, k=k, journal=journal)
        if found:
            last = found[-1]
            start = _extended(problem, last, k)
            posed = replace(posed, start=start, dual=last.dual)
        result = minimax(posed, settings)
        found.append(result)
        step = Step(
            iteration=k,
            distortion=result.distortion,
            lower_bound=result.lower,
            seconds=clock.seconds,
            n_working=result.dual.weights.size,
            phase=f"{k} dimensions",
        )
        tell(step)
        if clock.is_over:
            break
    return found


def _extended(problem: Problem, last: Result, k: int) -> Array:
    """Return the last basis with the directions that the worst pairs lack most."""
    search, basis = problem.search, last.basis
    while basis.shape[1] < k:
        rows = search.directions(search.lowest(basis, 500).codes)
        images = rows @ basis
        weights = soft_maximum(losses(images), 0.01)[1]
        normals = rows - images @ basis.T
        count = min(k - basis.shape[1], len(rows))
        fresh = top_eigenpairs((normals.T * weights) @ normals, count)[1]
        basis = orthonormal(np.hstack([basis, fresh]))
    return basis
