"""Solve and certify a projection whose first rows are projections of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from isoproj.estimators.geometry import Geometry
from isoproj.numerics.arrays import is_number, is_whole, require
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective
from isoproj.solvers.api import Problem, Result
from isoproj.solvers.nested import solve_nested


def fit_nested(
    geometry: Geometry,
    problem: Problem,
    prefixes: Sequence[int],
    weights: Sequence[float] | None,
    objective: Objective | None,
) -> tuple[Result, Certificate]:
    """Find a nested projection, and certify all rows and every prefix of them."""
    assert problem.k is not None
    ks = [*prefixes, problem.k]
    with geometry.stop.solving():
        found = solve_nested(problem, ks, weights)
    components = geometry.components(found.basis, ks[-1], prefixes)

    def certify(over: Geometry) -> Certificate:
        certificates = []
        for k in ks:
            alone = found.separate[k]
            certificate = over.certify(components[:k], alone.dual, alone.hull)
            if objective is not None:
                # A prefix that a fit had no time to cap is held to what it loses.
                certificate = over.with_guarantee(certificate, alone, objective)
            certificates.append(certificate)
        return replace(certificates[-1], prefixes=tuple(certificates[:-1]))

    known = [pairs for k in ks for pairs in found.separate[k].known]
    return found.whole, geometry.certified(known, certify, k=problem.k, n_scans=len(ks))


def check_nested(nested: object, weights: object, n_components: int | None) -> None:
    """Raise ValueError unless prefixes and their weights can be used."""
    ks, what = _numbers(nested), "be ascending whole numbers from 1 to below"
    fits = ks is not None and n_components is not None and all(map(is_whole, ks))
    fits = fits and all(a < b for a, b in pairwise([0, *ks, n_components]))
    what += f" n_components={n_components!r}"
    require(fits, "nested", nested, what, "Pass something like (16, 32, 64).")
    if weights is None:
        return
    shares, count = _numbers(weights), len(ks) + 1
    fits = shares is not None and len(shares) == count
    fits = fits and all(0.0 < share < math.inf for share in shares)
    what = f"be {count} numbers above 0, one for each prefix and one for n_components"
    require(fits, "nested_weights", weights, what, "Use None to weigh all alike.")


def _numbers(values: Any) -> Any:  # noqa: ANN401
    """Return a sequence of numbers as a list, None if it is something else."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        return None
    found = list(values)
    return found if all(is_number(value) for value in found) else None
