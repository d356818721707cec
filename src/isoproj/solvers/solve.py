"""The front door of the solvers: one problem in, one result out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isoproj.solvers.api import Dimensions, Problem, Result, Status, Weights
from isoproj.solvers.dimensions import fewest_dimensions
from isoproj.solvers.guaranteed import most_kept
from isoproj.solvers.hull import improved
from isoproj.solvers.minimax import minimax
from isoproj.solvers.settings import Settings
from isoproj.solvers.sides import COARSE

__all__ = ["everything", "solve"]

# Dimensions are looked for this share below the cap.
_MARGIN = 1e-5


def solve(problem: Problem, settings: Settings | None = None) -> Result:
    """Solve a problem: with or without an objective, a cap, a number of dimensions.

    Examples
    --------
    >>> import numpy as np
    >>> from isoproj.pairs.oracle import PairSearch
    >>> from isoproj.pairs.rule import prepare_pairs
    >>> from isoproj.solvers.api import Problem
    >>> from isoproj.solvers.solve import solve
    >>> search = PairSearch(*prepare_pairs(np.eye(6), rotate=True))
    >>> solve(Problem(search=search, k=5)).distortion
    0.0
    """
    settings = Settings() if settings is None else settings
    dimensions: Dimensions | None = None
    if problem.k is None:
        assert problem.cap is not None
        # Searches round, certificates do not.
        inside = max(0.0, problem.cap * (1.0 - _MARGIN) - problem.rounding)
        dimensions = fewest_dimensions(replace(problem, cap=inside), settings)
        start = problem.start if dimensions.basis is None else dimensions.basis
        problem = replace(problem, k=dimensions.k, start=start)
        problem.journal.begin()
    assert problem.k is not None
    if problem.k >= problem.n_dims:
        result = everything(problem)
    elif problem.objective is None:
        hull = settings.hull.coarse() if problem.tol >= COARSE else settings.hull
        result = improved(problem, minimax(problem, settings), hull)
    else:
        result = most_kept(problem, settings)
    if dimensions is not None and dimensions.status.advice:
        result = replace(result, status=dimensions.status)
    return replace(result, dimensions=dimensions)


def everything(problem: Problem) -> Result:
    """Return the identity when k is at least the rank: nothing is lost."""
    points, pairs = problem.search.points, problem.search.pairs
    if pairs.listed is None:
        other = np.flatnonzero(points.first_copy != points.first_copy[0])[:1]
        pair = np.column_stack([np.zeros_like(other), other])
    else:
        pair = pairs.listed[:1]
    cap = problem.cap
    return Result(
        basis=np.eye(points.n_dims),
        dual=Weights(pair, np.ones(1)),
        status=Status.CONVERGED if problem.objective is None else Status.OPTIMAL,
        distortion=0.0,
        cap=0.0 if cap is None else cap,
        history=tuple(problem.journal.history),
    )
