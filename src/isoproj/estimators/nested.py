"""Solve and certify a projection whose first rows are projections of their own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from isoproj.estimators.geometry import Geometry
from isoproj.numerics.arrays import is_number, is_whole
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
    ks = _numbers(nested)
    if (
        ks is None
        or not all(is_whole(k) for k in ks)
        or n_components is None
        or not all(a < b for a, b in zip([0, *ks], [*ks, n_components], strict=True))
    ):
        msg = (
            "nested must be ascending whole numbers from 1 to below n_components="
            f"{n_components!r}; got {nested!r}. Pass something like (16, 32, 64)."
        )
        raise ValueError(msg)
    if weights is None:
        return
    shares = _numbers(weights)
    if (
        shares is None
        or len(shares) != len(ks) + 1
        or not all(0.0 < share < math.inf for share in shares)
    ):
        msg = (
            f"nested_weights must be {len(ks) + 1} numbers above 0, one for each prefix"
            f" and one for n_components; got {weights!r}. Use None to weigh all alike."
        )
        raise ValueError(msg)


def _numbers(values: object) -> list[float] | None:
    """Return a sequence of numbers as a list, None if it is something else."""
    if isinstance(values, str | bytes) or not hasattr(values, "__len__"):
        return None
    found = list(values)  # type: ignore[call-overload]
    return found if all(is_number(value) for value in found) else None
