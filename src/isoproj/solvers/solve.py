"""The front door of the solvers: one problem in, one result out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from isoproj.numerics.threads import single_blas_thread
from isoproj.solvers.api import Dimensions, Problem, Result, Status, Weights
from isoproj.solvers.drive import minimax
from isoproj.solvers.settings import Settings


@single_blas_thread
def solve(problem: Problem, settings: Settings | None = None) -> Result:
    """Solve a problem: with or without an objective, a cap, a number of dimensions.

    Without an objective, the least distortion is looked for, in the fewest dimensions
    that are under the cap where no number is given.

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
        from isoproj.solvers.dimensions import fewest_dimensions

        assert problem.cap is not None
        # Searches round, certificates do not.
        inside = max(0.0, problem.cap * (1.0 - settings.margin) - problem.rounding)
        dimensions = fewest_dimensions(replace(problem, cap=inside), settings)
        start = problem.start if dimensions.basis is None else dimensions.basis
        problem = replace(problem, k=dimensions.k, start=start)
        if problem.objective is None:
            problem = replace(problem, cap=None)
        problem.journal.begin()
    assert problem.k is not None
    if problem.k >= problem.n_dims:
        result = _everything(problem)
    elif problem.objective is None:
        result = minimax(problem, settings)
    else:
        from isoproj.solvers.capped import most_kept

        result = most_kept(problem, settings)
    if dimensions is not None and dimensions.status.advice:
        result = replace(result, status=dimensions.status)
    return replace(result, dimensions=dimensions)


def _everything(problem: Problem) -> Result:
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
        # Rounding may lose something all the same: the certificate will tell.
        status=Status.SETTLED,
        distortion=0.0,
        cap=0.0 if cap is None else cap,
        history=tuple(problem.journal.history),
    )
