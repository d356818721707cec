"""Certify what keeps most under a cap, or refuse the cap with a proof."""

from __future__ import annotations

from isoproj.estimators.geometry import Geometry
from isoproj.exceptions import InfeasibleError
from isoproj.proof.bounds import certify_guarantee
from isoproj.proof.certificate import Certificate
from isoproj.proof.objective import Objective
from isoproj.solvers.api import Result

__all__ = ["certified_under_cap", "with_guarantee"]


def certified_under_cap(
    geometry: Geometry,
    result: Result,
    k: int,
    objective: Objective,
    *,
    is_given: bool,
) -> Certificate:
    """Certify the first basis of a result that is under its cap.

    Parameters
    ----------
    geometry : Geometry
        The data.
    result : Result
        With a cap.
    k : int
        Number of dimensions asked for.
    objective : Objective
        What is kept.
    is_given : bool
        Whether the cap must hold to the last digit, or may give way to the rounding of
        the best projection found.

    Raises
    ------
    InfeasibleError
        If a given cap is impossible, or was not reached.
    """
    cap = result.cap
    assert cap is not None
    for basis in (result.basis, *result.fallbacks):
        certificate = geometry.certify(geometry.components(basis, k), result.dual)
        if certificate.distortion <= cap:
            break
    else:
        if is_given and cap < 1.0:
            raise InfeasibleError(_refusal(certificate, cap), certificate)
        cap = certificate.distortion
    return with_guarantee(geometry, certificate, result, objective, cap)


def with_guarantee(
    geometry: Geometry,
    certificate: Certificate,
    result: Result,
    objective: Objective,
    cap: float,
) -> Certificate:
    """Return the certificate with what is kept under a cap and the bound on it."""
    return certify_guarantee(
        geometry.points,
        geometry.pairs,
        certificate,
        objective,
        cap,
        result.multipliers.pairs,
        result.multipliers.weights,
    )


def _refusal(certificate: Certificate, cap: float) -> str:
    """Return why a cap is refused: it is impossible, or it was not reached."""
    k, found = certificate.n_components, f"{certificate.distortion:.4f}"
    if cap < certificate.lower_bound:
        return (
            f"max_distortion={cap:g} is impossible in {k} dimensions: every "
            f"projection loses {certificate.lower_bound:.4f} or more of some pair, "
            f"proved by the certificate of this error; {found} is possible. Raise "
            "max_distortion, or n_components."
        )
    return (
        f"max_distortion={cap:g} was not reached in {k} dimensions: the best "
        f"projection found loses {found} of some pair, and only losses below "
        f"{certificate.lower_bound:.4f} are proved impossible, so that it is "
        "unknown whether one exists. Raise max_distortion, or n_components."
    )
